//! Storing sets.

use taskharbor_core::{
    NewJob, Timestamp,
    driver::{Enqueue, Enqueued},
    error::Rejected,
    flow::{CheckedSet, ResolvedEdges},
    graph,
    job::{JobSet, SetKind},
    name::FlowName,
};

use crate::store::{JobSlot, Store};

impl Store {
    pub(crate) fn enqueue(&mut self, request: Enqueue) -> Vec<Result<Vec<Enqueued>, Rejected>> {
        let now = request.now;
        // ENQ-2, ENQ-3, ORD-4
        request.sets.into_iter().map(|set| self.enqueue_set(set, now)).collect()
    }

    pub(crate) fn enqueue_set(
        &mut self,
        set: JobSet,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, Rejected> {
        match (set.check(&self.limits)?, set.kind) {
            (CheckedSet::Flow(edges), SetKind::Flow { name }) => {
                self.enqueue_flow(set.jobs, &edges, name, now)
            }
            (CheckedSet::Plain, _) | (CheckedSet::Flow(_), SetKind::Plain) => {
                Ok(set.jobs.into_iter().map(|job| self.enqueue_job(job, now)).collect())
            }
        }
    }

    fn enqueue_job(&mut self, job: NewJob, now: Timestamp) -> Enqueued {
        // ENQ-4, ENQ-5
        if self.by_id.contains_key(&job.id) {
            return Enqueued::Existing(job.id);
        }
        if let Some(holder) = self.key_holder(&job, now) {
            return Enqueued::Existing(holder.clone());
        }
        let id = job.id.clone();
        self.wakes.push(job.queue.clone());
        self.insert(job, None, now);
        Enqueued::Inserted(id)
    }

    fn enqueue_flow(
        &mut self,
        jobs: Vec<NewJob>,
        edges: &ResolvedEdges,
        name: Option<FlowName>,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, Rejected> {
        // FLO-5
        let stored = |job: &&NewJob| self.by_id.contains_key(&job.id);
        if jobs.iter().all(|job| stored(&job)) {
            return Ok(jobs.into_iter().map(|job| Enqueued::Existing(job.id)).collect());
        }
        if let Some(job) = jobs.iter().find(stored) {
            return Err(Rejected::Overlap { job: job.id.clone() });
        }
        // FLO-4
        if let Some(holder) = self.key_holder(&jobs[edges.tail], now) {
            return Ok(vec![Enqueued::Existing(holder.clone()); jobs.len()]);
        }
        let ids: Vec<_> = jobs.iter().map(|job| job.id.clone()).collect();
        // The tail's slot is known only once it is stored; until then none is a member's.
        let flow = self.begin_flow(ids[edges.tail].clone(), name, JobSlot::MAX, now);
        let slots = self.insert_members(jobs, edges, flow, now);
        self.change_tail(flow, slots[edges.tail]);
        let Ok(()) = graph::started(self, &slots, now);
        Ok(ids.into_iter().map(Enqueued::Inserted).collect())
    }
}
