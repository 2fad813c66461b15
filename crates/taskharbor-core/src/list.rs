//! Lists of jobs: filters, orders and pages.

use crate::{
    JobId, JobType, QueueName, State, Timestamp, check,
    driver::Limits,
    error::InvalidRequest,
    job::{Headers, JobSummary},
    name::{IdempotencyKey, LaneName},
};

/// Asks for a page of jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct List {
    /// Which jobs.
    #[cfg_attr(feature = "serde", serde(default))]
    pub filter: Filter,
    /// In which order.
    #[cfg_attr(feature = "serde", serde(default))]
    pub order: Order,
    /// After the last job of the page that gave this.
    pub after: Option<Cursor>,
    /// The greatest number of items to return.
    pub limit: usize,
    /// How many records the call may look at. A page that stops there is short and has a cursor.
    #[cfg_attr(feature = "serde", serde(default = "crate::json::max_scan"))]
    pub scan: usize,
    /// The current time.
    pub now: Timestamp,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Order {
    /// In the order of insertion.
    #[default]
    OldestFirst,
    /// In the reverse order of insertion.
    NewestFirst,
}

impl List {
    /// The first page of the jobs that match, in the order of insertion.
    #[must_use]
    pub const fn new(filter: Filter, limit: usize, now: Timestamp) -> Self {
        let (order, scan) = (Order::OldestFirst, Limits::MAX_SCAN);
        Self { filter, order, after: None, limit, scan, now }
    }

    /// The page after the one that gave `cursor`.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// The last inserted first.
    #[must_use]
    pub const fn newest_first(mut self) -> Self {
        self.order = Order::NewestFirst;
        self
    }

    /// Looks at no more than this many records.
    #[must_use]
    pub const fn scan(mut self, records: usize) -> Self {
        self.scan = records;
        self
    }

    /// Checks the limits and the filter.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`], [`InvalidRequest::EmptyRange`].
    pub fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)?;
        check::range("scan", self.scan, 1, Limits::MAX_SCAN)?;
        self.filter.check()
    }
}

/// A filter of jobs. A field that is `None` matches every job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Filter {
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// In this state.
    pub state: Option<State>,
    /// Of this type.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub job_type: Option<JobType>,
    /// Of this lane.
    pub lane: Option<LaneName>,
    /// Of this flow.
    pub flow: Option<JobId>,
    /// Enqueued with this key, whether or not they still hold it.
    pub key: Option<IdempotencyKey>,
    /// With this header: name and value.
    pub header: Option<(String, String)>,
    /// With this text in the last error or in the reason, byte for byte.
    pub error: Option<String>,
    /// Enqueued in this range of time.
    #[cfg_attr(feature = "serde", serde(default))]
    pub created: TimeRange,
    /// Terminal since an instant in this range of time.
    #[cfg_attr(feature = "serde", serde(default))]
    pub finished: TimeRange,
}

/// A range of time: from an instant on, and before another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeRange {
    /// The first instant in it.
    pub from: Option<Timestamp>,
    /// The first instant after it.
    pub before: Option<Timestamp>,
}

impl TimeRange {
    /// All of time.
    pub const ALL: Self = Self { from: None, before: None };

    /// This range.
    #[must_use]
    pub const fn new(from: Option<Timestamp>, before: Option<Timestamp>) -> Self {
        Self { from, before }
    }

    /// Whether it is all of time.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.from.is_none() && self.before.is_none()
    }

    /// Whether an instant lies in it. `None` lies in all of time alone.
    #[must_use]
    pub fn contains(&self, instant: Option<Timestamp>) -> bool {
        match instant {
            None => self.is_all(),
            Some(instant) => {
                self.from.is_none_or(|from| from <= instant)
                    && self.before.is_none_or(|before| instant < before)
            }
        }
    }

    fn check(&self, name: &'static str) -> Result<(), InvalidRequest> {
        match (self.from, self.before) {
            (Some(from), Some(before)) if from >= before => {
                Err(InvalidRequest::EmptyRange(name.into()))
            }
            _ => Ok(()),
        }
    }
}

impl Filter {
    /// All jobs.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Of this queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// In this state.
    #[must_use]
    pub fn state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Of this type.
    #[must_use]
    pub fn job_type(mut self, job_type: JobType) -> Self {
        self.job_type = Some(job_type);
        self
    }

    /// Of this lane.
    #[must_use]
    pub fn lane(mut self, lane: LaneName) -> Self {
        self.lane = Some(lane);
        self
    }

    /// Of this flow.
    #[must_use]
    pub fn flow(mut self, flow: JobId) -> Self {
        self.flow = Some(flow);
        self
    }

    /// Enqueued with this key.
    #[must_use]
    pub fn key(mut self, key: IdempotencyKey) -> Self {
        self.key = Some(key);
        self
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.header = Some((name.into(), value.into()));
        self
    }

    /// With this text in the last error or in the reason.
    #[must_use]
    pub fn error(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Enqueued in this range of time.
    #[must_use]
    pub const fn created(mut self, range: TimeRange) -> Self {
        self.created = range;
        self
    }

    /// Terminal since an instant in this range of time.
    #[must_use]
    pub const fn finished(mut self, range: TimeRange) -> Self {
        self.finished = range;
        self
    }

    /// Checks the ranges of time.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::EmptyRange`].
    pub fn check(&self) -> Result<(), InvalidRequest> {
        self.created.check("created")?;
        self.finished.check("finished")
    }

    /// Whether a job with this key and these headers matches.
    #[must_use]
    pub fn matches(
        &self,
        job: &JobSummary,
        key: Option<&IdempotencyKey>,
        headers: &Headers,
    ) -> bool {
        let has_text = |text: &String| {
            let texts = [&job.last_error, &job.reason].into_iter().flatten();
            texts.into_iter().any(|it| it.as_str().contains(text.as_str()))
        };
        // ADM-3
        self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.state.is_none_or(|state| state == job.state)
            && self.job_type.as_ref().is_none_or(|job_type| *job_type == job.job_type)
            && (self.lane.is_none() || self.lane == job.lane)
            && (self.flow.is_none() || self.flow == job.flow)
            && (self.key.is_none() || self.key.as_ref() == key)
            && self.header.as_ref().is_none_or(|(name, value)| headers.get(name) == Some(value))
            && self.error.as_ref().is_none_or(has_text)
            && self.created.contains(Some(job.created_at))
            && self.finished.contains(job.finished_at)
    }
}

/// A position in a list: made by a driver, passed back to it, meaningless to others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(String);

impl Cursor {
    /// A cursor with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Page_{T}"))]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Where the next one starts, if there may be one.
    pub next: Option<Cursor>,
    /// How far the call has read: the time at which the last record that it read was enqueued.
    /// Lists of jobs have it whenever there may be another page.
    pub looked_at: Option<Timestamp>,
}

impl<T> Page<T> {
    /// A page with these items.
    #[must_use]
    pub const fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Self { items, next, looked_at: None }
    }

    /// A page that looked as far as a record that was enqueued at this instant.
    #[must_use]
    pub const fn looked_at(mut self, created_at: Option<Timestamp>) -> Self {
        self.looked_at = created_at;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    #[test]
    fn a_range_has_its_first_instant_and_not_its_last() {
        let range = TimeRange::new(Some(at(2)), Some(at(4)));
        let inside = [1, 2, 3, 4].map(|micros| range.contains(Some(at(micros))));
        assert_eq!(inside, [false, true, true, false]);
        assert!(!range.contains(None));
        assert!(TimeRange::ALL.contains(None));
    }

    #[test]
    fn a_range_without_an_instant_is_refused() {
        for (from, before) in [(3, 3), (4, 3)] {
            let filter = Filter::all().finished(TimeRange::new(Some(at(from)), Some(at(before))));
            let list = List::new(filter, 1, at(0));
            assert_eq!(list.check(), Err(InvalidRequest::EmptyRange("finished".into())));
        }
    }

    #[test]
    fn a_scan_of_nothing_and_one_without_bounds_are_refused() {
        let list = List::new(Filter::all(), 1, at(0));
        assert!(list.clone().scan(0).check().is_err());
        assert!(list.clone().scan(Limits::MAX_SCAN + 1).check().is_err());
        assert!(list.scan(Limits::MAX_SCAN).check().is_ok());
    }
}
