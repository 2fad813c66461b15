//! What people do to jobs and flows.

use taskharbor_core::{
    JobId, State, Timestamp,
    admin::{Action, Manage, Requeue},
    error::Denied,
};

use crate::store::{Slot, Store, Wakes};

impl Store {
    pub(crate) fn manage(
        &mut self,
        request: &Manage,
        wakes: &mut Wakes,
    ) -> Vec<Result<State, Denied>> {
        let act = |id| self.manage_one(id, &request.action, request.now, wakes);
        request.ids.iter().map(act).collect()
    }

    fn manage_one(
        &mut self,
        id: &JobId,
        action: &Action,
        now: Timestamp,
        wakes: &mut Wakes,
    ) -> Result<State, Denied> {
        let flow = || self.flow_ids.get(id).copied().ok_or(Denied::JobNotFound);
        let slot = || self.slot(id).ok_or(Denied::JobNotFound);
        match action {
            Action::Requeue(requeue) => self.requeue(slot()?, requeue, now, wakes),
            Action::Cancel => self.cancel(slot()?, now, wakes),
            Action::RunNow => self.run_now(slot()?, now, wakes),
            Action::SetPriority(priority) => {
                self.change(slot()?, |_, life| life.set_priority(*priority, now))
            }
            Action::Purge => self.purge(slot()?, now),
            Action::CancelFlow => self.cancel_flow(flow()?, now),
            Action::PurgeFlow => self.purge_flow(flow()?, now),
        }
    }

    fn run_now(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) -> Result<State, Denied> {
        let state = self.change(slot, |_, life| life.run_now(now))?;
        wakes.push(self.jobs[slot].new.queue.clone());
        Ok(state)
    }

    fn requeue(
        &mut self,
        slot: Slot,
        request: &Requeue,
        now: Timestamp,
        wakes: &mut Wakes,
    ) -> Result<State, Denied> {
        let state = self.jobs[slot].life.state(now);
        if !matches!(state, State::Dlq | State::Cancelled) {
            return Err(Denied::WrongState(state));
        }
        if self.is_flow_over_for(slot) {
            if !request.detach {
                return Err(Denied::FlowOver);
            }
            self.detach(slot, now, wakes);
        }
        let state = self.change(slot, |new, life| life.requeue(request, new.kind, now))?;
        match state {
            State::Done => self.spread_success(slot, now, wakes),
            State::Blocked => {}
            _ => wakes.push(self.jobs[slot].new.queue.clone()),
        }
        Ok(state)
    }

    /// Whether nobody in its flow would use what the job produces.
    fn is_flow_over_for(&self, slot: Slot) -> bool {
        let Some(flow) = self.jobs[slot].flow else {
            return false;
        };
        let tail = self.flows[flow].tail;
        let ended = self.jobs[tail].life.finish().map(|finish| finish.state);
        tail != slot && matches!(ended, Some(State::Done | State::Cancelled))
    }

    fn cancel(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) -> Result<State, Denied> {
        let state = self.change(slot, |_, life| life.cancel(now))?;
        if state == State::Cancelled {
            self.spread_failure(slot, now, wakes);
        }
        Ok(state)
    }

    fn purge(&mut self, slot: Slot, now: Timestamp) -> Result<State, Denied> {
        let entry = &self.jobs[slot];
        let state = entry.life.state(now);
        if !state.is_terminal() {
            return Err(Denied::WrongState(state));
        }
        if let Some(flow) = &entry.life.flow {
            return Err(Denied::InFlow(flow.clone()));
        }
        self.remove(slot);
        Ok(state)
    }

    fn cancel_flow(&mut self, flow: usize, now: Timestamp) -> Result<State, Denied> {
        if self.flows[flow].is_over() {
            return Err(Denied::WrongState(self.tail_state(flow, now)));
        }
        let entry = &self.flows[flow];
        let members: Vec<Slot> =
            entry.not_started.values().chain(entry.inflight.values()).copied().collect();
        for slot in members {
            self.change(slot, |_, life| life.cancel(now))?;
        }
        Ok(self.tail_state(flow, now))
    }

    fn purge_flow(&mut self, flow: usize, now: Timestamp) -> Result<State, Denied> {
        let state = self.tail_state(flow, now);
        if !self.flows[flow].is_over() {
            return Err(Denied::WrongState(state));
        }
        self.remove_flow(flow);
        Ok(state)
    }

    fn tail_state(&self, flow: usize, now: Timestamp) -> State {
        self.jobs[self.flows[flow].tail].life.state(now)
    }
}
