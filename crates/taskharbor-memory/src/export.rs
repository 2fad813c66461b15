//! Export and import.

use std::{collections::HashMap, ops::Bound};

use taskharbor_core::{
    JobId,
    admin::{Cursor, Page},
    error::InvalidRequest,
    export::{
        EdgeState, ExportUnit, ExportedFlow, ExportedJob, ExportedKey, ImportRefused, Imported,
    },
};

use crate::{
    key::HeldKey,
    store::{Edge, Entry, JobRef, JobSlot, Store},
};

/// Where a page of an export begins.
enum Start {
    Job(Bound<u64>),
    /// Among the keys that outlived their jobs, behind this many.
    Key(usize),
}

impl Start {
    fn of(cursor: Option<&Cursor>) -> Result<Self, InvalidRequest> {
        let Some(cursor) = cursor else { return Ok(Self::Job(Bound::Unbounded)) };
        let number = |prefix| cursor.as_str().strip_prefix(prefix);
        let start = match (number("export-job"), number("export-key")) {
            (Some(seq), _) => seq.parse().ok().map(|seq| Self::Job(Bound::Excluded(seq))),
            (_, Some(at)) => at.parse().ok().map(Self::Key),
            _ => None,
        };
        start.ok_or(InvalidRequest::Cursor)
    }
}

impl Store {
    /// The units after the cursor. A flow stands where the first of its members does.
    pub(crate) fn export(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, InvalidRequest> {
        let mut units = Vec::new();
        let mut keys_from = 0;
        match Start::of(after)? {
            Start::Key(at) => keys_from = at,
            Start::Job(start) => {
                for (seq, slot) in self.by_seq.range((start, Bound::Unbounded)) {
                    units.extend(self.export_at(*seq, *slot));
                    if units.len() == limit {
                        let next = Cursor::new(format!("export-job{seq}"));
                        return Ok(Page::new(units, Some(next)));
                    }
                }
            }
        }
        let keys = self.keys_without_jobs();
        let left = keys.len().saturating_sub(keys_from);
        let taken = left.min(limit - units.len());
        units.extend(keys.into_iter().skip(keys_from).take(taken).map(ExportUnit::key));
        let next = Cursor::new(format!("export-key{}", keys_from + taken));
        Ok(Page::new(units, (taken < left).then_some(next)))
    }

    /// The unit that stands at a job: the job, or its flow if it is the first member.
    fn export_at(&self, seq: u64, slot: JobSlot) -> Option<ExportUnit> {
        let Some(flow) = self.jobs[slot].flow else {
            return Some(ExportUnit::job(self.export_job(slot)));
        };
        let flow = &self.flows[flow];
        // MOV-1
        flow.members.first_key_value().filter(|(first, _)| **first == seq)?;
        let tail = self.jobs[flow.tail].new.id.clone();
        let head = ExportedFlow::new(flow.id.clone(), flow.name.clone(), flow.created_at, tail);
        let members = flow.members.values().map(|slot| self.export_job(*slot));
        Some(ExportUnit::flow(head, members.collect()))
    }

    fn export_job(&self, slot: JobSlot) -> ExportedJob {
        let Entry { new, created_at, life, edges, .. } = &self.jobs[slot];
        let edges = edges.iter().map(|edge| edge.state.clone()).collect();
        // MOV-2
        ExportedJob::new(new.clone(), *created_at, life.clone(), edges, self.holds_key(slot))
    }

    /// The keys that outlived their jobs, by queue and key.
    fn keys_without_jobs(&self) -> Vec<ExportedKey> {
        let gone = self.keys.iter().filter(|(_, held)| self.resolve(held.record).is_none());
        let mut keys: Vec<_> = gone
            .filter_map(|((queue, key), held)| {
                let (queue, key) = (queue.clone(), key.clone());
                Some(ExportedKey::new(queue, key, held.job.clone(), held.until?))
            })
            .collect();
        keys.sort_by(|a, b| (&a.queue, &a.key).cmp(&(&b.queue, &b.key)));
        keys
    }

    pub(crate) fn import(&mut self, unit: ExportUnit) -> Result<Imported, ImportRefused> {
        unit.check(&self.limits)?;
        if let Some(key) = unit.key {
            return self.import_key(key);
        }
        let ids = || unit.jobs.iter().map(|job| &job.new.id);
        let is_stored = |id: &&JobId| self.by_id.contains_key(*id);
        // MOV-4
        if ids().all(|id| is_stored(&id)) {
            return Ok(Imported::Existing);
        }
        // MOV-5
        if let Some(id) = ids().find(is_stored) {
            return Err(ImportRefused::Overlap(id.clone()));
        }
        let is_taken = |job: &&ExportedJob| {
            let key = job.new.idempotency_key.clone().filter(|_| job.holds_key);
            key.is_some_and(|key| self.keys.contains_key(&(job.new.queue.clone(), key)))
        };
        if let Some(job) = unit.jobs.iter().find(is_taken) {
            return Err(ImportRefused::KeyHeld(job.new.id.clone()));
        }
        self.import_jobs(unit.flow, unit.jobs);
        Ok(Imported::Stored)
    }

    fn import_key(&mut self, key: ExportedKey) -> Result<Imported, ImportRefused> {
        let place = (key.queue, key.key);
        match self.keys.get(&place) {
            Some(held) if held.job == key.job => Ok(Imported::Existing),
            Some(_) => Err(ImportRefused::KeyHeld(key.job)),
            None => {
                let record = JobRef::NOWHERE;
                let (queue, text) = place.clone();
                self.orphaned_keys.insert((key.held_until, queue, text));
                let held = HeldKey { job: key.job, record, until: Some(key.held_until) };
                self.keys.insert(place, held);
                Ok(Imported::Stored)
            }
        }
    }

    fn import_jobs(&mut self, flow: Option<ExportedFlow>, jobs: Vec<ExportedJob>) {
        let flow = flow.map(|flow| {
            let at = self.begin_flow(flow.id, flow.name, JobSlot::MAX, flow.created_at);
            (at, flow.tail)
        });
        let in_flow = flow.as_ref().map(|(at, _)| *at);
        let mut edges = Vec::new();
        let mut slots = HashMap::new();
        for job in jobs {
            self.wakes.push(job.new.queue.clone());
            let (id, parents) = (job.new.id.clone(), job.new.parents.clone());
            let slot = self.take_over(job.new, job.created_at, job.life, job.holds_key, in_flow);
            slots.insert(id, slot);
            edges.push((slot, parents, job.edges));
        }
        // A detached job may be imported before the flow that its parent is in.
        for (id, slot) in &slots {
            for (child, order) in self.missing.remove(id).into_iter().flatten() {
                if self.resolve(child).is_some() {
                    self.jobs[child.slot].edges[order].parent = self.job_ref(*slot);
                }
            }
        }
        // MOV-7
        for (child, parents, states) in edges {
            for (order, (parent, state)) in parents.iter().zip(states).enumerate() {
                self.import_edge((child, order), parent, state, &slots);
            }
            let expanded = self.jobs[child].life.expanded_into.clone();
            let expanded = expanded.and_then(|id| self.slot(&id)).map(|slot| self.job_ref(slot));
            self.jobs[child].expanded = expanded;
        }
        if let Some((flow, tail)) = flow
            && let Some(tail) = slots.get(&tail)
        {
            self.change_tail(flow, *tail);
        }
    }

    fn import_edge(
        &mut self,
        (child, order): (JobSlot, usize),
        parent: &JobId,
        state: EdgeState,
        members: &HashMap<JobId, JobSlot>,
    ) {
        let parent_ref = self.slot(parent).map(|slot| self.job_ref(slot));
        if parent_ref.is_none() {
            let edge = (self.job_ref(child), order);
            self.missing.entry(parent.clone()).or_default().push(edge);
        }
        let parent_ref = parent_ref.unwrap_or(JobRef::NOWHERE);
        self.jobs[child].edges.push(Edge { parent: parent_ref, state });
        if members.contains_key(parent) && self.jobs[child].flow.is_some() {
            self.jobs[parent_ref.slot].dependants.push((child, order));
        }
    }
}
