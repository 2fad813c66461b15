//! Actions of operators on jobs and flows.

use taskharbor_core::{
    JobId, State, Timestamp,
    admin::{Action, Change, Configure, Manage},
    error::Denied,
    graph::{self, Graph},
};

use crate::store::{JobSlot, Store};

impl Store {
    pub(crate) fn manage(&mut self, request: &Manage) -> Vec<Result<State, Denied>> {
        // SET-9, REF-3
        let act = |id| self.manage_one(id, &request.action, request.now);
        request.ids.iter().map(act).collect()
    }

    fn manage_one(&mut self, id: &JobId, action: &Action, now: Timestamp) -> Result<State, Denied> {
        let flow = || self.flow_ids.get(id).copied().ok_or(Denied::JobNotFound);
        let slot = || self.slot(id).ok_or(Denied::JobNotFound);
        let Ok(answer) = match action {
            Action::Requeue(requeue) => graph::requeue(self, slot()?, requeue, now),
            Action::Cancel => graph::cancel(self, slot()?, now),
            Action::CancelFlow => graph::cancel_flow(self, flow()?, now),
            Action::RunNow => Ok(self.run_now(slot()?, now)),
            Action::SetPriority(priority) => {
                // ADM-6
                self.change(slot()?, |life| life.set_priority(*priority, now))
            }
            Action::Purge => Ok(self.purge(slot()?, now)),
            Action::PurgeFlow => Ok(self.purge_flow(flow()?, now)),
        };
        answer
    }

    fn run_now(&mut self, slot: JobSlot, now: Timestamp) -> Result<State, Denied> {
        let state = self.change_life(slot, |life| life.run_now(now))?;
        let Ok(()) = self.wake(slot);
        Ok(state)
    }

    fn purge(&mut self, slot: JobSlot, now: Timestamp) -> Result<State, Denied> {
        let entry = &self.jobs[slot];
        let state = entry.life.state(now);
        // ADM-7
        if !state.is_terminal() {
            return Err(Denied::WrongState(state));
        }
        if let Some(flow) = &entry.life.flow {
            return Err(Denied::InFlow(flow.clone()));
        }
        self.remove(slot);
        Ok(state)
    }

    fn purge_flow(&mut self, flow: usize, now: Timestamp) -> Result<State, Denied> {
        let state = self.jobs[self.flows[flow].tail].life.state(now);
        // ADM-8
        if !self.flows[flow].is_terminal() {
            return Err(Denied::WrongState(state));
        }
        self.remove_flow(flow);
        Ok(state)
    }

    pub(crate) fn configure(&mut self, request: Configure) -> Vec<Result<(), Denied>> {
        let now = request.now;
        // PAU-4
        request.changes.into_iter().map(|change| self.configure_one(change, now)).collect()
    }

    fn configure_one(&mut self, change: Change, now: Timestamp) -> Result<(), Denied> {
        match change {
            // PAU-2
            Change::PauseQueue(queue) => {
                let queue = self.queue(&queue);
                self.queues[queue].paused_since.get_or_insert(now);
            }
            Change::ResumeQueue(queue) => {
                if let Some(at) = self.queue_ids.get(&queue).copied() {
                    self.queues[at].paused_since = None;
                    self.forget_if_idle(at);
                    self.wakes.push(queue);
                }
            }
            Change::PutSchedule(new) => self.put_schedule(new, None)?,
            Change::DeclareSchedules(declaration) => self.declare_schedules(declaration)?,
            Change::PauseSchedule(name) => {
                self.change_schedule(&name, |record| Ok(record.pause(now)))?;
            }
            Change::ResumeSchedule { name, revision, next_slot } => {
                self.change_schedule(&name, |record| record.resume(revision, next_slot))?;
            }
            Change::RemoveSchedule(name) => self.remove_schedule(&name)?,
            Change::ImportSchedule(record) => self.import_schedule(*record)?,
            Change::SetLimits { queue, limits } => self.set_limits(queue, limits)?,
            Change::DeclareLimits(declaration) => self.declare_limits(declaration)?,
            Change::ImportLimits(record) => self.import_limits(*record)?,
            Change::Hold { queue, lane, until } => self.hold(queue, lane, until),
            Change::SetOwnerVersion { owner, version } => self.set_owner_version(owner, version),
        }
        Ok(())
    }
}
