//! Storing sets.

use taskharbor_core::{
    NewJob, Timestamp,
    driver::{Enqueue, Enqueued},
    error::Rejected,
    flow::{CheckedSet, ResolvedEdges},
    job::{JobSet, SetKind},
    name::FlowName,
};

use crate::store::{Slot, Store, Wakes};

impl Store {
    pub(crate) fn enqueue(
        &mut self,
        request: Enqueue,
        wakes: &mut Wakes,
    ) -> Vec<Result<Vec<Enqueued>, Rejected>> {
        let now = request.now;
        request.sets.into_iter().map(|set| self.enqueue_set(set, now, wakes)).collect()
    }

    fn enqueue_set(
        &mut self,
        set: JobSet,
        now: Timestamp,
        wakes: &mut Wakes,
    ) -> Result<Vec<Enqueued>, Rejected> {
        match (set.check(&self.limits)?, set.kind) {
            (CheckedSet::Flow(shape), SetKind::Flow { name }) => {
                self.enqueue_flow(set.jobs, &shape, name, now, wakes)
            }
            (CheckedSet::Plain, _) | (CheckedSet::Flow(_), SetKind::Plain) => {
                Ok(set.jobs.into_iter().map(|job| self.enqueue_job(job, now, wakes)).collect())
            }
        }
    }

    fn enqueue_job(&mut self, job: NewJob, now: Timestamp, wakes: &mut Wakes) -> Enqueued {
        if self.by_id.contains_key(&job.id) {
            return Enqueued::Existing(job.id);
        }
        if let Some(holder) = self.key_holder(&job) {
            return Enqueued::Existing(self.jobs[holder].new.id.clone());
        }
        let id = job.id.clone();
        wakes.push(job.queue.clone());
        self.insert(job, None, now);
        Enqueued::Inserted(id)
    }

    fn enqueue_flow(
        &mut self,
        jobs: Vec<NewJob>,
        shape: &ResolvedEdges,
        name: Option<FlowName>,
        now: Timestamp,
        wakes: &mut Wakes,
    ) -> Result<Vec<Enqueued>, Rejected> {
        let stored = |job: &&NewJob| self.by_id.contains_key(&job.id);
        if jobs.iter().all(|job| stored(&job)) {
            return Ok(jobs.into_iter().map(|job| Enqueued::Existing(job.id)).collect());
        }
        if let Some(job) = jobs.iter().find(stored) {
            return Err(Rejected::Overlap { job: job.id.clone() });
        }
        if let Some(holder) = self.key_holder(&jobs[shape.tail]) {
            let holder = self.jobs[holder].new.id.clone();
            return Ok(vec![Enqueued::Existing(holder); jobs.len()]);
        }
        let ids: Vec<_> = jobs.iter().map(|job| job.id.clone()).collect();
        // The tail's slot is known only once it is stored; until then none is a member's.
        let flow = self.begin_flow(ids[shape.tail].clone(), name, Slot::MAX, now);
        let slots = self.insert_members(jobs, shape, flow, now);
        self.set_tail(flow, slots[shape.tail]);
        self.start_members(&slots, now, wakes);
        Ok(ids.into_iter().map(Enqueued::Inserted).collect())
    }

    pub(crate) fn key_holder(&self, job: &NewJob) -> Option<Slot> {
        let key = job.idempotency_key.clone()?;
        self.by_key.get(&(job.queue.clone(), key)).copied()
    }
}
