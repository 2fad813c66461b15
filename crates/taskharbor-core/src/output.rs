//! The request and the answers of reading outputs.
//!
//! The output of a join is the list of its parents' outputs, so outputs form a tree. A query reads
//! one level of it: a join among the entries is named, and read by a query of its own. So a page
//! is a range of one job's parents, however deep or wide the tree is.

use crate::{
    Blob, JobId, State, Text, check, driver::Limits, error::InvalidRequest, job::JoinReading,
};

/// Asks for the outputs of jobs, or of their parents.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outputs {
    /// The queries.
    pub items: Vec<OutputQuery>,
    /// At most this many entries for each item.
    pub limit: usize,
}

impl Outputs {
    /// A request for these outputs.
    #[must_use]
    pub const fn new(items: Vec<OutputQuery>, limit: usize) -> Self {
        Self { items, limit }
    }

    /// Checks the size of the request: at most [`Limits::MAX_CALL_JOBS`] items, and entries in all.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)?;
        check::call_size(self.items.len(), 0)?;
        let entries = self.items.len().saturating_mul(self.limit);
        check::range("the number of entries in one call", entries, 0, Limits::MAX_CALL_JOBS)
    }
}

/// Asks for the output of a job, or for the outputs that it reads.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputQuery {
    /// The job.
    pub id: JobId,
    /// Its own output, or its inputs.
    pub of: OutputOf,
    /// How many entries to skip: what the previous page gave as `next`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub from: usize,
}

impl OutputQuery {
    /// Asks for the outputs of the job's parents, which its handler reads: one entry each, in
    /// declared order.
    #[must_use]
    pub const fn parents_of(id: JobId) -> Self {
        Self { id, of: OutputOf::Parents, from: 0 }
    }

    /// Asks for the input of the job's handler. It is the same as [`OutputQuery::parents_of`],
    /// unless the job's only parent is a join that is done: then the page has the join's list, and
    /// [`OutputPage::join`] names it.
    #[must_use]
    pub const fn input_of(id: JobId) -> Self {
        Self { id, of: OutputOf::Input, from: 0 }
    }

    /// Asks for the output of the job or of its expansion: one entry.
    #[must_use]
    pub const fn of(id: JobId) -> Self {
        Self { id, of: OutputOf::Itself, from: 0 }
    }

    /// From this entry on.
    #[must_use]
    pub const fn from(mut self, from: usize) -> Self {
        self.from = from;
        self
    }
}

/// Which output of a job is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OutputOf {
    /// Its own.
    Itself,
    /// Those of its parents.
    Parents,
    /// Those of its parents, or the list of the one join that it waits for.
    Input,
}

/// A page of the requested outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputPage {
    /// The entries, in order.
    pub entries: Vec<OutputEntry>,
    /// Where the next page starts, if this is not the last.
    pub next: Option<usize>,
    /// The join whose list this is, if [`OutputOf::Input`] was asked for and the job waited for one
    /// join alone.
    pub join: Option<JoinList>,
}

impl OutputPage {
    /// These entries, and where to go on.
    #[must_use]
    pub const fn new(entries: Vec<OutputEntry>, next: Option<usize>) -> Self {
        Self { entries, next, join: None }
    }

    /// The list of this join.
    #[must_use]
    pub fn of_join(mut self, join: JoinList) -> Self {
        self.join = Some(join);
        self
    }
}

/// A join that is done: its output is the list of its parents' outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JoinList {
    /// The join; [`OutputQuery::parents_of`] it reads the list.
    pub join: JobId,
    /// How many parents it has.
    pub len: usize,
    /// How a reader takes the list.
    pub reading: JoinReading,
}

impl JoinList {
    /// The list of this join.
    #[must_use]
    pub const fn new(join: JobId, len: usize, reading: JoinReading) -> Self {
        Self { join, len, reading }
    }
}

/// The output of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OutputEntry {
    /// A join that is done.
    List(JoinList),
    /// A job that is done, with its output.
    Done(Option<Blob>),
    /// A job that is dead-lettered or cancelled.
    Failed {
        /// Which of the two.
        state: State,
        /// The reason that was recorded, if there is one.
        reason: Option<Text>,
    },
    /// A job that is not terminal.
    Pending,
    /// A job whose record was removed after it or its reader was detached from their flow.
    Missing,
}
