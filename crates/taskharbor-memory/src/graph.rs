//! The store as the [`Graph`] over which core's rules about several jobs walk.

use std::convert::Infallible;

use taskharbor_core::{
    JobId, NewJob, Timestamp,
    export::EdgeState,
    flow::ResolvedEdges,
    graph::{Facts, Graph},
    life::Life,
};

use crate::store::{JobSlot, Store};

type Answer<T> = Result<T, Infallible>;

impl Graph for Store {
    type Job = JobSlot;
    type Flow = usize;
    type Error = Infallible;

    fn facts(&self, job: JobSlot) -> Answer<Facts<usize>> {
        let entry = &self.jobs[job];
        let new = &entry.new;
        let key = new.idempotency_key.is_some().then_some(new.key_hold);
        Ok(Facts::new(new.kind, new.condition, new.on_failure, key, entry.flow))
    }

    fn id(&self, job: JobSlot) -> Answer<JobId> {
        Ok(self.jobs[job].new.id.clone())
    }

    fn read<T>(&self, job: JobSlot, read: impl FnOnce(&Life) -> T) -> Answer<T> {
        Ok(read(&self.jobs[job].life))
    }

    fn change<T>(&mut self, job: JobSlot, change: impl FnOnce(&mut Life) -> T) -> Answer<T> {
        Ok(self.change_life(job, change))
    }

    fn dependants(&self, job: JobSlot) -> Answer<Vec<(JobSlot, usize)>> {
        let is_open = |(dependant, edge): &&(JobSlot, usize)| {
            self.jobs[*dependant].edges[*edge].state == EdgeState::Open
        };
        Ok(self.jobs[job].dependants.iter().filter(is_open).copied().collect())
    }

    fn close_edge(&mut self, job: JobSlot, edge: usize, state: EdgeState) -> Answer<()> {
        self.jobs[job].edges[edge].state = state;
        Ok(())
    }

    fn not_started(&self, flow: usize) -> Answer<Vec<JobSlot>> {
        Ok(self.flows[flow].not_started.values().copied().collect())
    }

    fn not_terminal(&self, flow: usize) -> Answer<Vec<JobSlot>> {
        let flow = &self.flows[flow];
        Ok(flow.not_started.values().chain(flow.inflight.values()).copied().collect())
    }

    fn tail(&self, flow: usize) -> Answer<JobSlot> {
        Ok(self.flows[flow].tail)
    }

    fn first_tail(&self, flow: usize) -> Answer<Option<JobSlot>> {
        Ok(self.slot(&self.flows[flow].id))
    }

    fn free_key(&mut self, job: JobSlot) -> Answer<()> {
        self.drop_key(job);
        Ok(())
    }

    fn key_taken_by(&self, job: JobSlot, now: Timestamp) -> Answer<Option<JobId>> {
        let new = &self.jobs[job].new;
        Ok(self.key_holder(new, now).filter(|holder| **holder != new.id).cloned())
    }

    fn hold_key(&mut self, job: JobSlot) -> Answer<()> {
        self.take_key(job);
        Ok(())
    }

    fn leave_flow(&mut self, job: JobSlot) -> Answer<()> {
        self.detach(job);
        Ok(())
    }

    fn is_not_needed(&self, job: JobSlot) -> Answer<bool> {
        Ok(self.jobs[job].edges.iter().any(|edge| edge.state == EdgeState::Closed))
    }

    fn own_flow(&mut self, job: JobSlot, now: Timestamp) -> Answer<usize> {
        if let Some(flow) = self.jobs[job].flow {
            return Ok(flow);
        }
        let id = self.jobs[job].new.id.clone();
        let flow = self.begin_flow(id, None, job, now);
        self.unindex(job);
        self.jobs[job].flow = Some(flow);
        self.index(job);
        self.join_flow(job, flow);
        Ok(flow)
    }

    fn add_members(
        &mut self,
        flow: usize,
        jobs: Vec<NewJob>,
        edges: &ResolvedEdges,
        now: Timestamp,
    ) -> Answer<Vec<JobSlot>> {
        Ok(self.insert_members(jobs, edges, flow, now))
    }

    fn replace(&mut self, job: JobSlot, tail: JobSlot) -> Answer<()> {
        let (tail_id, tail_ref) = (self.jobs[tail].new.id.clone(), self.job_ref(tail));
        for (dependant, order) in std::mem::take(&mut self.jobs[job].dependants) {
            let entry = &mut self.jobs[dependant];
            if entry.edges[order].state == EdgeState::Open {
                entry.new.parents[order] = tail_id.clone();
                entry.edges[order].parent = tail_ref;
                self.jobs[tail].dependants.push((dependant, order));
            } else {
                self.jobs[job].dependants.push((dependant, order));
            }
        }
        let flow = self.jobs[job].flow.map(|flow| self.flows[flow].id.clone());
        let entry = &mut self.jobs[job];
        entry.expanded = Some(tail_ref);
        if let Some(flow) = flow {
            entry.life.expand_into(tail_id, flow);
        }
        Ok(())
    }

    fn set_tail(&mut self, flow: usize, tail: JobSlot) -> Answer<()> {
        self.change_tail(flow, tail);
        Ok(())
    }

    fn wake(&mut self, job: JobSlot) -> Answer<()> {
        self.wakes.push(self.jobs[job].new.queue.clone());
        Ok(())
    }
}
