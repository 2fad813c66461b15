//! Actions of operators on jobs and flows.

use taskharbor_core::{
    JobId, State, Timestamp,
    admin::{Action, Manage},
    error::Denied,
    graph::{self, Graph},
};

use super::Store;
use crate::error::Fault;

type Answer = Result<Result<State, Denied>, Fault>;

impl Store<'_> {
    pub(crate) fn manage(&mut self, request: &Manage) -> Result<Vec<Result<State, Denied>>, Fault> {
        // SET-9, REF-3
        let act = |id| self.manage_one(id, &request.action, request.now);
        request.ids.iter().map(act).collect()
    }

    fn manage_one(&mut self, id: &JobId, action: &Action, now: Timestamp) -> Answer {
        let found = match action {
            Action::CancelFlow | Action::PurgeFlow => self.flow_by_id(id)?,
            _ => self.by_id(id)?.map(|entry| {
                let seq = entry.seq;
                self.keep(entry);
                seq
            }),
        };
        let Some(seq) = found else { return Ok(Err(Denied::JobNotFound)) };
        match action {
            // REQ-3, REQ-7
            Action::Requeue(requeue) => graph::requeue(self, seq, requeue, now),
            Action::Cancel => graph::cancel(self, seq, now),
            // FAI-6
            Action::CancelFlow => graph::cancel_flow(self, seq, now),
            Action::RunNow => self.run_now(seq, now),
            // ADM-6
            Action::SetPriority(priority) => {
                self.change(seq, |life| life.set_priority(*priority, now))
            }
            Action::Purge => self.purge(seq, now),
            Action::PurgeFlow => self.purge_flow(seq, now),
        }
    }

    fn run_now(&mut self, seq: i64, now: Timestamp) -> Answer {
        let answer = self.change(seq, |life| life.run_now(now))?;
        if answer.is_ok() {
            self.wake(seq)?;
        }
        Ok(answer)
    }

    fn purge(&mut self, seq: i64, now: Timestamp) -> Answer {
        let entry = self.take(seq)?;
        let state = entry.life.state(now);
        // ADM-7
        if !state.is_terminal() {
            return Ok(Err(Denied::WrongState(state)));
        }
        if let Some(flow) = entry.flow {
            return Ok(Err(Denied::InFlow(self.flow(flow)?.id)));
        }
        self.remove_job(&entry)?;
        Ok(Ok(state))
    }

    fn purge_flow(&mut self, flow: i64, now: Timestamp) -> Answer {
        let tail = self.tail(flow)?;
        let state = self.read(tail, |life| life.state(now))?;
        // ADM-8
        if !self.not_terminal(flow)?.is_empty() {
            return Ok(Err(Denied::WrongState(state)));
        }
        self.remove_flow(flow)?;
        Ok(Ok(state))
    }
}
