//! Lists of jobs: which of them, a page at a time.

use crate::{
    JobId, JobType, QueueName, State, Timestamp, check, driver::Limits, error::InvalidRequest,
    job::JobSummary,
};

/// Asks for a page of jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct List {
    /// Which jobs.
    pub filter: Filter,
    /// After the last job of the page that gave this.
    pub after: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
    /// The current time.
    pub now: Timestamp,
}

impl List {
    /// The first page of the jobs that match.
    #[must_use]
    pub const fn new(filter: Filter, limit: usize, now: Timestamp) -> Self {
        Self { filter, after: None, limit, now }
    }

    /// The page after the one that gave `cursor`.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)
    }
}

/// Which jobs a list shows; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// In this state.
    pub state: Option<State>,
    /// Of this type.
    pub job_type: Option<JobType>,
    /// Of this flow.
    pub flow: Option<JobId>,
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

    /// Of this flow.
    #[must_use]
    pub fn flow(mut self, flow: JobId) -> Self {
        self.flow = Some(flow);
        self
    }

    /// Whether a job matches.
    #[must_use]
    pub fn matches(&self, job: &JobSummary) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.state.is_none_or(|state| state == job.state)
            && self.job_type.as_ref().is_none_or(|job_type| *job_type == job.job_type)
            && (self.flow.is_none() || self.flow == job.flow)
    }
}

/// A place in a list: made by a driver, passed back to it, meaningless to others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(String);

impl Cursor {
    /// A cursor that says this.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What it says.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one starts, if there may be one.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// A page with these items.
    #[must_use]
    pub const fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Self { items, next }
    }
}
