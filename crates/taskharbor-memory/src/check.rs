//! Looking for contradictions between the jobs and the indexes over them.

use std::collections::{BTreeSet, HashSet};

use taskharbor_core::{
    State,
    admin::{Inconsistency, StateCounts},
    export::EdgeState,
    life::Stage,
};

use crate::{
    flow::Flow,
    queue::Queue,
    schedule::Schedules,
    store::{Entry, JobSlot, Standing, Store},
};

/// Parent, dependant, and which of the dependant's edges it is.
type Edges = HashSet<(JobSlot, JobSlot, usize)>;

fn edges_of(slot: JobSlot, entry: &Entry) -> impl Iterator<Item = (JobSlot, JobSlot, usize)> {
    entry.dependants.iter().map(move |(dependant, order)| (slot, *dependant, *order))
}

impl Store {
    pub(crate) fn check(&self) -> Vec<Inconsistency> {
        // ADM-10
        let mut found = Vec::new();
        let edges: Edges =
            self.jobs.iter().flat_map(|(slot, entry)| edges_of(slot, entry)).collect();
        let jobs = self.jobs.iter().flat_map(|(slot, entry)| self.check_job(slot, entry, &edges));
        found.extend(jobs);
        found.extend(self.queues.iter().flat_map(|(at, queue)| self.check_queue(at, queue)));
        found.extend(self.flows.iter().flat_map(|(at, flow)| self.check_flow(at, flow)));
        let shelved: usize = [State::Done, State::Dlq, State::Cancelled]
            .map(|state| self.terminal.shelf(state).flows.len())
            .iter()
            .sum();
        if shelved != self.flows.iter().filter(|(_, flow)| flow.terminal_as.is_some()).count() {
            found.push("flows are shelved that are not over".to_owned());
        }
        let sizes = [self.by_id.len(), self.by_seq.len()];
        if sizes.iter().any(|size| *size != self.jobs.len()) {
            found.push(format!("{} jobs, but indexes of {sizes:?}", self.jobs.len()));
        }
        for ((queue, key), held) in &self.keys {
            let job = self.resolve(held.record);
            let is_right = match job {
                Some(job) => {
                    job.new.queue == *queue
                        && job.new.idempotency_key.as_ref() == Some(key)
                        && job.new.key_hold.held_until(job.created_at) == held.until
                }
                None => held.until.is_some(),
            };
            if !is_right {
                found.push(format!("key {key} of queue {queue} is held by no job that has it"));
            }
        }
        let Schedules { records, waiting, .. } = &self.schedules;
        let waits = records.values().filter(|record| record.paused_since.is_none());
        let waits = waits.filter_map(|record| Some((record.next_slot?, record.name.clone())));
        if waits.collect::<BTreeSet<_>>() != *waiting {
            found.push(format!("schedules wait for {waiting:?}, but have {records:?}"));
        }
        found.into_iter().map(Inconsistency::new).collect()
    }

    fn check_job(&self, slot: JobSlot, entry: &Entry, edges: &Edges) -> Vec<String> {
        let mut found = Vec::new();
        let id = &entry.new.id;
        if self.by_id.get(id) != Some(&slot) || self.by_seq.get(&entry.seq) != Some(&slot) {
            found.push(format!("job {id} is not found where it is"));
        }
        let open = entry.edges.iter().filter(|link| link.state == EdgeState::Open).count();
        if open != entry.life.pending {
            found.push(format!("job {id} waits for {} of {open} parents", entry.life.pending));
        }
        if matches!(entry.life.stage, Stage::Blocked) != (open > 0) && !entry.is_terminal() {
            found.push(format!("job {id} has {open} open edges and is {}", entry.counted_as()));
        }
        let linked = entry.edges.iter().enumerate().all(|(order, link)| {
            let parent = self.resolve(link.parent);
            let near = parent.is_some_and(|it| it.flow.is_some() && it.flow == entry.flow);
            near == edges.contains(&(link.parent.slot, slot, order))
        });
        if !linked || entry.edges.len() != entry.new.parents.len() {
            found.push(format!("job {id} and its parents do not know each other"));
        }
        let flow = entry.flow.and_then(|flow| self.flows.get(flow));
        if flow.map(|flow| &flow.id) != entry.life.flow.as_ref() {
            found.push(format!("job {id} is not in the flow it names"));
        }
        found
    }

    fn check_queue(&self, at: usize, queue: &Queue) -> Vec<String> {
        let mut found = Vec::new();
        let mut counts = StateCounts::default();
        let (mut lined_up, mut leases) = (HashSet::new(), HashSet::new());
        for (slot, entry) in self.jobs.iter().filter(|(_, entry)| entry.queue == at) {
            *counts.get_mut(entry.counted_as()) += 1;
            if !entry.is_terminal() {
                let place = entry.place(slot);
                lined_up.extend(place.map(|it| (entry.life.priority, &entry.new.lane, it)));
                let lease = entry.life.active_lease().map(|it| it.lease.expires_at);
                leases.extend(lease.map(|ends| (&entry.new.lane, ends, slot)));
            }
        }
        if counts != queue.counts {
            found.push(format!("queue {} counts {:?}, has {counts:?}", queue.name, queue.counts));
        }
        let places: HashSet<_> =
            queue.places().map(|(priority, lane, place)| (priority, lane, *place)).collect();
        if places != lined_up {
            found.push(format!("queue {}: {places:?}, but jobs {lined_up:?}", queue.name));
        }
        let kept: HashSet<_> = queue.gate.leases().collect();
        if queue.gate.set.is_some() && kept != leases {
            found.push(format!("queue {}: leases {kept:?}, but jobs {leases:?}", queue.name));
        }
        found
    }

    fn check_flow(&self, at: usize, flow: &Flow) -> Vec<String> {
        let mut found = Vec::new();
        let members = flow.members.values().filter_map(|slot| self.jobs.get(*slot));
        let members: Vec<_> = members.filter(|entry| entry.flow == Some(at)).collect();
        let standing = |wanted: fn(&Standing) -> bool| {
            members.iter().filter(|entry| wanted(&entry.standing())).count()
        };
        let not_started = standing(|it| *it == Standing::NotStarted);
        let inflight = standing(|it| *it == Standing::Inflight);
        let over = members.len() - not_started - inflight;
        let counted = (flow.not_started.len(), flow.inflight.len(), flow.over.len());
        if members.len() != flow.members.len() || counted != (not_started, inflight, over) {
            found.push(format!("flow {} counts {counted:?} of {}", flow.id, members.len()));
        }
        let until = members.iter().filter_map(|entry| entry.life.kept_until()).max();
        let tail = self.jobs.get(flow.tail).and_then(|tail| tail.life.finish());
        let ended = tail.filter(|_| flow.is_terminal()).map(|finish| finish.state);
        if flow.terminal_as != ended.zip(until) {
            found.push(format!("flow {} is terminal as {:?}", flow.id, flow.terminal_as));
        }
        if let Some((state, until)) = flow.terminal_as
            && !self.terminal.shelf(state).flows.contains(&(until, flow.seq, at))
        {
            found.push(format!("flow {} is not among those that are over", flow.id));
        }
        found
    }
}
