//! What the end of one job means for those that wait for it.
//!
//! All of it happens in the step that ended the job. Each edge is closed at most once, so nobody is
//! let go twice.

use rusqlite::params;
use taskharbor_core::{State, Text, Timestamp, job::FailurePolicy};

use super::{Store, flow::Member};
use crate::{
    entry::{Entry, number_of},
    error::Fault,
    statement as sql,
};

/// How an edge ends.
#[derive(Clone, Debug)]
enum End {
    /// The parent is done.
    Closed,
    /// It failed and let go; what became of it later is nobody's business.
    Spent(State, Option<Text>),
}

impl Store<'_> {
    /// The job is done: those who wait for it wait for one less.
    pub(super) fn spread_success(&mut self, entry: &Entry, now: Timestamp) -> Result<(), Fault> {
        self.release_key_when_done(entry)?;
        // Only members of flows are waited for.
        if entry.flow.is_none() {
            return Ok(());
        }
        let mut done = self.close_edges(entry.seq, &End::Closed, now)?;
        while let Some(entry) = done.pop() {
            self.release_key_when_done(&entry)?;
            done.extend(self.close_edges(entry.seq, &End::Closed, now)?);
        }
        Ok(())
    }

    /// The job failed, and nobody waits for it any longer, whatever becomes of it.
    pub(super) fn release_dependants(
        &mut self,
        entry: &Entry,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let end = End::Spent(entry.life.state(now), entry.life.reason.clone());
        for done in self.close_edges(entry.seq, &end, now)? {
            self.spread_success(&done, now)?;
        }
        Ok(())
    }

    /// The job is dead-lettered or cancelled: its policy applies, and those of the jobs that are
    /// cancelled because of it.
    ///
    /// All that is to be cancelled is cancelled before anybody is let go, so that the order in
    /// which dependants are looked at makes no difference.
    pub(super) fn spread_failure(&mut self, entry: &Entry, now: Timestamp) -> Result<(), Fault> {
        if entry.flow.is_none() {
            return Ok(());
        }
        let root = entry.id.clone();
        let mut failed = vec![entry.clone()];
        let mut next = 0;
        while let Some(cause) = failed.get(next) {
            let doomed = self.doomed_with(cause, next > 0)?;
            next += 1;
            for seq in doomed {
                let mut entry = self.member(seq)?;
                let cancel = |life: &mut taskharbor_core::life::Life| {
                    life.cancel_after_failure(&root, now).then_some(()).ok_or(())
                };
                if self.change(&mut entry, cancel)?.is_ok() {
                    failed.push(entry);
                }
            }
        }
        for entry in failed.iter().filter(|it| it.on_failure == FailurePolicy::Continue) {
            self.release_dependants(entry, now)?;
        }
        Ok(())
    }

    /// Who has to be cancelled because this job failed, if not over or started.
    fn doomed_with(&self, entry: &Entry, because_of_another: bool) -> Result<Vec<i64>, Fault> {
        match entry.on_failure {
            FailurePolicy::Block if !because_of_another => Ok(Vec::new()),
            FailurePolicy::Continue => Ok(Vec::new()),
            FailurePolicy::Block | FailurePolicy::Cancel => {
                self.find_all(sql::DEPENDANTS, [entry.seq])
            }
            FailurePolicy::FailFast => self.find_all(sql::NOT_STARTED, [entry.flow]),
        }
    }

    /// Passes on the success of members that are done as soon as they are stored.
    pub(super) fn start_members(
        &mut self,
        members: &[Member],
        now: Timestamp,
    ) -> Result<(), Fault> {
        for member in members.iter().filter(|member| member.is_over) {
            let entry = self.member(member.seq)?;
            self.spread_success(&entry, now)?;
        }
        Ok(())
    }

    /// Closes every open edge to this job; the joins that are done by that.
    fn close_edges(&mut self, seq: i64, end: &End, now: Timestamp) -> Result<Vec<Entry>, Fault> {
        let edges = {
            let mut statement = self.statement(sql::DEPENDANTS)?;
            let edges = statement
                .query_map([seq], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
            edges.collect::<Result<Vec<_>, _>>()?
        };
        let (tie, state, reason) = match end {
            End::Closed => (1, None, None),
            End::Spent(state, reason) => {
                (2, Some(number_of(*state)), reason.as_ref().map(Text::as_str))
            }
        };
        let mut done = Vec::new();
        for (child, order) in edges {
            self.execute(sql::CLOSE_EDGE, params![child, order, tie, state, reason])?;
            let mut entry = self.member(child)?;
            let kind = entry.kind;
            let unblock =
                |life: &mut taskharbor_core::life::Life| Ok::<_, ()>(life.unblock(kind, now));
            match self.change(&mut entry, unblock)? {
                Ok(Some(State::Done)) => done.push(entry),
                Ok(Some(_)) => self.wake(&entry.queue),
                Ok(None) | Err(()) => {}
            }
        }
        Ok(done)
    }
}
