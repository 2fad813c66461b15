//! Jobs on their way from or to another store.

use std::{collections::HashMap, ops::Bound};

use taskharbor_core::{
    JobId,
    admin::{Cursor, Page},
    error::InvalidRequest,
    export::{EdgeState as Tied, ExportUnit, ExportedFlow, ExportedJob, Imported},
};

use crate::store::{Entry, Link, Slot, Store, Tie, Wakes, Whereabouts};

impl Store {
    /// The parcels after the cursor. A flow stands where the first of its members does.
    pub(crate) fn export(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, InvalidRequest> {
        let start = match after {
            Some(cursor) => {
                let seq =
                    cursor.as_str().strip_prefix("parcel").and_then(|seq| seq.parse::<u64>().ok());
                Bound::Excluded(seq.ok_or(InvalidRequest::Cursor)?)
            }
            None => Bound::Unbounded,
        };
        let mut parcels = Vec::new();
        for (seq, slot) in self.by_seq.range((start, Bound::Unbounded)) {
            match self.jobs[*slot].flow {
                None => parcels.push(ExportUnit::job(self.stored(*slot))),
                Some(flow) => {
                    let flow = &self.flows[flow];
                    if flow.members.first_key_value().is_none_or(|(first, _)| first != seq) {
                        continue;
                    }
                    let tail = self.jobs[flow.tail].new.id.clone();
                    let head = ExportedFlow::new(
                        flow.id.clone(),
                        flow.name.clone(),
                        flow.created_at,
                        tail,
                    );
                    let members = flow.members.values().map(|slot| self.stored(*slot)).collect();
                    parcels.push(ExportUnit::new(Some(head), members));
                }
            }
            if parcels.len() == limit {
                return Ok(Page::new(parcels, Some(Cursor::new(format!("parcel{seq}")))));
            }
        }
        Ok(Page::new(parcels, None))
    }

    fn stored(&self, slot: Slot) -> ExportedJob {
        let Entry { new, created_at, life, links, .. } = &self.jobs[slot];
        let ties = links.iter().map(|link| match &link.tie {
            Tie::Open => Tied::Open,
            Tie::Closed => Tied::Closed,
            Tie::Spent { state, reason } => Tied::Spent { state: *state, reason: reason.clone() },
        });
        let holds_key = new
            .idempotency_key
            .clone()
            .is_some_and(|key| self.by_key.get(&(new.queue.clone(), key)) == Some(&slot));
        ExportedJob::new(new.clone(), *created_at, life.clone(), ties.collect(), holds_key)
    }

    pub(crate) fn import(&mut self, parcel: ExportUnit, wakes: &mut Wakes) -> Imported {
        let ids = || parcel.jobs.iter().map(|job| &job.new.id);
        let is_stored = |id: &&JobId| self.by_id.contains_key(*id);
        if ids().all(|id| is_stored(&id)) {
            return Imported::Existing;
        }
        if let Some(id) = ids().find(is_stored) {
            return Imported::Overlap(id.clone());
        }
        let is_taken = |job: &&ExportedJob| job.holds_key && self.key_holder(&job.new).is_some();
        if let Some(job) = parcel.jobs.iter().find(is_taken) {
            return Imported::KeyHeld(job.new.id.clone());
        }
        let flow = parcel.flow.map(|flow| {
            let at = self.begin_flow(flow.id, flow.name, Slot::MAX, flow.created_at);
            (at, flow.tail)
        });
        let mut ties = Vec::new();
        let mut slots = HashMap::new();
        for job in parcel.jobs {
            wakes.push(job.new.queue.clone());
            let (id, parents) = (job.new.id.clone(), job.new.parents.clone());
            let slot = self.take_over(
                job.new,
                job.created_at,
                job.life,
                job.holds_key,
                flow.as_ref().map(|it| it.0),
            );
            slots.insert(id, slot);
            ties.push((slot, parents, job.ties));
        }
        for (child, parents, ties) in ties {
            for (order, (parent, tie)) in parents.iter().zip(ties).enumerate() {
                let tie = match tie {
                    Tied::Open => Tie::Open,
                    Tied::Closed => Tie::Closed,
                    Tied::Spent { state, reason } => Tie::Spent { state, reason },
                };
                self.tie(child, order, parent, tie, &slots);
            }
            let grown = self.jobs[child].life.expanded_into.clone();
            let grown = grown.and_then(|id| self.slot(&id)).map(|slot| self.place_of(slot));
            self.jobs[child].grown = grown;
        }
        if let Some((flow, tail)) = flow
            && let Some(tail) = slots.get(&tail)
        {
            self.set_tail(flow, *tail);
        }
        Imported::Stored
    }

    fn tie(
        &mut self,
        child: Slot,
        order: usize,
        parent: &JobId,
        tie: Tie,
        members: &HashMap<JobId, Slot>,
    ) {
        let place = self.slot(parent).map(|slot| self.place_of(slot));
        // One that is gone is nowhere.
        let place = place.unwrap_or(Whereabouts { slot: Slot::MAX, seq: 0 });
        self.jobs[child].links.push(Link { parent: place, tie });
        let is_member = members.contains_key(parent) && self.jobs[child].flow.is_some();
        if is_member {
            self.jobs[place.slot].dependants.push((child, order));
        }
    }
}
