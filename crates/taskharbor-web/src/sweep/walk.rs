//! [`Walk`]: the jobs that a sweep is for, a page at a time.

use std::collections::VecDeque;

use std::time::Duration;

use taskharbor::{
    Admin, AnyDriver, Cursor, DriverError, Filter, Fingerprint, JobSummary, List, State, TimeRange,
    Timestamp,
};

use super::wanted::Wanted;
use crate::problem::Problem;

/// Walks over the jobs that match what is wanted, the oldest first.
pub(super) struct Walk {
    filter: Filter,
    /// The states that are left, the current one first.
    states: VecDeque<State>,
    fingerprint: Option<String>,
    limit: usize,
    after: Option<Cursor>,
    /// The first instant after the one at which jobs have to match.
    end: Timestamp,
}

impl Walk {
    /// A walk over the jobs that match at this instant: those that were enqueued since are left out,
    /// and so are those that have become terminal since.
    pub(super) fn new(wanted: &Wanted, at: Timestamp, limit: usize) -> Result<Self, Problem> {
        Ok(Self {
            filter: wanted.filter.to_filter()?,
            states: wanted.states().into(),
            fingerprint: wanted.fingerprint.clone(),
            limit,
            after: None,
            end: at.saturating_add(Duration::from_micros(1)),
        })
    }

    /// The next jobs, perhaps none; `None` at the end. After an error it can be asked again.
    pub(super) async fn next(
        &mut self,
        driver: &AnyDriver,
    ) -> Result<Option<Vec<JobSummary>>, DriverError> {
        let Some(state) = self.states.front().copied() else { return Ok(None) };
        let Some(filter) = self.filter_of(state) else {
            self.states.pop_front();
            return Ok(Some(Vec::new()));
        };
        let mut list = List::new(filter, self.limit, driver.now().await?);
        list.after.clone_from(&self.after);
        let page = driver.list(list).await?;
        self.after = page.next;
        if self.after.is_none() {
            self.states.pop_front();
        }
        let mut jobs = page.items;
        if let Some(fingerprint) = &self.fingerprint {
            jobs.retain(|job| Fingerprint::of_job(job).to_string() == *fingerprint);
        }
        Ok(Some(jobs))
    }

    /// The filter for jobs in this state; `None` if no job can match.
    fn filter_of(&self, state: State) -> Option<Filter> {
        let mut filter = self.filter.clone().state(state);
        filter.created = until(filter.created, self.end)?;
        if matches!(state, State::Done | State::Dlq | State::Cancelled) {
            filter.finished = until(filter.finished, self.end)?;
        }
        Some(filter)
    }
}

/// The part of a range that lies before `end`.
fn until(range: TimeRange, end: Timestamp) -> Option<TimeRange> {
    let before = range.before.map_or(end, |before| before.min(end));
    let is_empty = range.from.is_some_and(|from| from >= before);
    (!is_empty).then_some(TimeRange::new(range.from, Some(before)))
}
