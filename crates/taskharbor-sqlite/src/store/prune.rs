//! Removing terminal records.

use taskharbor_core::{
    State, Timestamp,
    admin::Prune,
    graph::{self, Shelf},
};

use super::Store;
use crate::{
    entry::{self, number_of},
    error::Fault,
    statement as sql,
};

/// A job without a flow, or a whole flow.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Job(i64),
    Flow(i64),
}

impl Store<'_> {
    pub(crate) fn prune(&mut self, request: &Prune) -> Result<usize, Fault> {
        let removed = graph::prune(self, request)?;
        // KEY-9, KEY-10
        self.execute(sql::DELETE_KEYS, [request.now.as_micros()])?;
        self.forget_ended(request.now)?;
        self.forget_workers(request.now)?;
        Ok(removed)
    }

    fn oldest_of(
        &self,
        sql: &str,
        state: State,
        unit: fn(i64) -> Unit,
    ) -> Result<Option<(Timestamp, u64, Unit)>, Fault> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query([number_of(state)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let seq = row.get(1)?;
        Ok(Some((entry::time(row.get(0)?)?, entry::number(row, 1)?, unit(seq))))
    }
}

impl Shelf for Store<'_> {
    type Unit = Unit;
    type Error = Fault;

    fn oldest(&self, state: State) -> Result<[Option<(Timestamp, u64, Unit)>; 2], Fault> {
        let job = self.oldest_of(sql::OLDEST_JOB, state, Unit::Job)?;
        let flow = self.oldest_of(sql::OLDEST_FLOW, state, Unit::Flow)?;
        Ok([job, flow])
    }

    fn remove(&mut self, unit: Unit) -> Result<usize, Fault> {
        match unit {
            Unit::Job(seq) => {
                let entry = self.member(seq)?;
                self.remove_job(&entry)?;
                Ok(1)
            }
            Unit::Flow(flow) => self.remove_flow(flow),
        }
    }
}
