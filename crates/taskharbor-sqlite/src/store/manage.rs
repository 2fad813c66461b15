//! What people do to jobs and flows.

use taskharbor_core::{
    JobId, State, Timestamp,
    admin::{Action, Manage, Requeue},
    error::Denied,
    life::Life,
};

use super::{Store, flow::Flow};
use crate::{entry::Entry, error::Fault, statement as sql};

type Answer = Result<Result<State, Denied>, Fault>;

impl Store<'_> {
    pub(crate) fn manage(&mut self, request: &Manage) -> Result<Vec<Result<State, Denied>>, Fault> {
        let act = |id| self.manage_one(id, &request.action, request.now);
        request.ids.iter().map(act).collect()
    }

    fn manage_one(&mut self, id: &JobId, action: &Action, now: Timestamp) -> Answer {
        if let Action::CancelFlow | Action::PurgeFlow = action {
            let Some(flow) = self.flow_by_id(id)? else { return Ok(Err(Denied::JobNotFound)) };
            return match action {
                Action::CancelFlow => self.cancel_flow(&flow, now),
                _ => self.purge_flow(&flow, now),
            };
        }
        let Some(mut entry) = self.by_id(id)? else { return Ok(Err(Denied::JobNotFound)) };
        match action {
            Action::Requeue(requeue) => self.requeue(&mut entry, requeue, now),
            Action::Cancel => self.cancel(&mut entry, now),
            Action::RunNow => self.run_now(&mut entry, now),
            Action::SetPriority(priority) => {
                self.change(&mut entry, |life| life.set_priority(*priority, now))
            }
            Action::Purge | Action::CancelFlow | Action::PurgeFlow => self.purge(&entry, now),
        }
    }

    fn run_now(&mut self, entry: &mut Entry, now: Timestamp) -> Answer {
        let answer = self.change(entry, |life| life.run_now(now))?;
        if answer.is_ok() {
            self.wake(&entry.queue);
        }
        Ok(answer)
    }

    fn requeue(&mut self, entry: &mut Entry, request: &Requeue, now: Timestamp) -> Answer {
        let state = entry.life.state(now);
        if !matches!(state, State::Dlq | State::Cancelled) {
            return Ok(Err(Denied::WrongState(state)));
        }
        if self.is_flow_over_for(entry)? {
            if !request.detach {
                return Ok(Err(Denied::FlowOver));
            }
            self.detach(entry, now)?;
        }
        let kind = entry.kind;
        let answer = self.change(entry, |life| life.requeue(request, kind, now))?;
        match answer {
            Ok(State::Done) => self.spread_success(entry, now)?,
            Ok(State::Blocked) | Err(_) => {}
            Ok(_) => self.wake(&entry.queue),
        }
        Ok(answer)
    }

    /// Whether nobody in its flow would use what the job produces.
    fn is_flow_over_for(&self, entry: &Entry) -> Result<bool, Fault> {
        let Some(flow) = entry.flow else { return Ok(false) };
        let tail = self.flow(flow)?.tail;
        if tail == entry.seq {
            return Ok(false);
        }
        let ended = self.member(tail)?.life.finish().map(|finish| finish.state);
        Ok(matches!(ended, Some(State::Done | State::Cancelled)))
    }

    fn cancel(&mut self, entry: &mut Entry, now: Timestamp) -> Answer {
        let answer = self.change(entry, |life| life.cancel(now))?;
        if answer == Ok(State::Cancelled) {
            self.spread_failure(entry, now)?;
        }
        Ok(answer)
    }

    fn purge(&mut self, entry: &Entry, now: Timestamp) -> Answer {
        let state = entry.life.state(now);
        if !state.is_terminal() {
            return Ok(Err(Denied::WrongState(state)));
        }
        if let Some(flow) = entry.flow {
            return Ok(Err(Denied::InFlow(self.flow(flow)?.id)));
        }
        self.remove(entry)?;
        Ok(Ok(state))
    }

    fn cancel_flow(&mut self, flow: &Flow, now: Timestamp) -> Answer {
        if flow.live == 0 {
            return Ok(Err(Denied::WrongState(self.tail_state(flow, now)?)));
        }
        for seq in self.find_all(sql::NOT_OVER, [flow.seq])? {
            let mut entry = self.member(seq)?;
            let cancel = |life: &mut Life| life.cancel(now);
            if let Err(denied) = self.change(&mut entry, cancel)? {
                return Ok(Err(denied));
            }
        }
        Ok(Ok(self.tail_state(flow, now)?))
    }

    fn purge_flow(&mut self, flow: &Flow, now: Timestamp) -> Answer {
        let state = self.tail_state(flow, now)?;
        if flow.live > 0 {
            return Ok(Err(Denied::WrongState(state)));
        }
        self.remove_flow(flow.seq)?;
        Ok(Ok(state))
    }

    fn tail_state(&self, flow: &Flow, now: Timestamp) -> Result<State, Fault> {
        Ok(self.member(flow.tail)?.life.state(now))
    }
}
