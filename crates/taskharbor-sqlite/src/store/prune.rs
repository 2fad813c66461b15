//! Removing what is over.

use rusqlite::params;
use taskharbor_core::{State, admin::Prune};

use super::Store;
use crate::{entry::number_of, error::Fault, statement as sql};

/// The next thing to remove.
#[derive(Clone, Copy)]
enum Oldest {
    Job(i64),
    Flow(i64),
}

impl Store<'_> {
    pub(crate) fn prune(&mut self, request: &Prune) -> Result<usize, Fault> {
        let mut removed = 0;
        while removed < request.limit {
            match self.oldest(request)? {
                Some(Oldest::Job(seq)) => {
                    let entry = self.member(seq)?;
                    self.remove(&entry)?;
                    removed += 1;
                }
                Some(Oldest::Flow(seq)) => removed += self.remove_flow(seq)?,
                None => break,
            }
        }
        Ok(removed)
    }

    fn oldest(&self, request: &Prune) -> Result<Option<Oldest>, Fault> {
        let mut oldest: Option<(i64, i64, Oldest)> = None;
        for state in [State::Done, State::Dlq, State::Cancelled] {
            let Some(before) = request.before(state) else { continue };
            for of_flows in [false, true] {
                let sql = if of_flows { sql::OLDEST_FLOW } else { sql::OLDEST_JOB };
                let mut statement = self.statement(sql)?;
                let mut rows = statement.query(params![number_of(state), before.as_micros()])?;
                let Some(row) = rows.next()? else { continue };
                let (at, seq): (i64, i64) = (row.get(0)?, row.get(1)?);
                if oldest.is_none_or(|(than, first, _)| (at, seq) < (than, first)) {
                    let what = if of_flows { Oldest::Flow(seq) } else { Oldest::Job(seq) };
                    oldest = Some((at, seq, what));
                }
            }
        }
        Ok(oldest.map(|(.., oldest)| oldest))
    }
}
