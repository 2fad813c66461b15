//! The request and the answers of enqueue.

use crate::{
    JobId, NewJob, Timestamp, check,
    driver::Limits,
    error::InvalidRequest,
    job::{JobSet, SetKind},
};

/// Asks to store sets of jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enqueue {
    /// The sets; each is stored whole or not at all.
    pub sets: Vec<JobSet>,
    /// The time that becomes the jobs' `created_at`.
    pub now: Timestamp,
}

impl Enqueue {
    /// A request to store these sets.
    #[must_use]
    pub const fn new(sets: Vec<JobSet>, now: Timestamp) -> Self {
        Self { sets, now }
    }

    /// Checks the size of the call.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub fn check(&self) -> Result<(), InvalidRequest> {
        Self::check_sets(|| self.sets.iter())
    }

    /// Checks the size of a call that stores these sets.
    pub(crate) fn check_sets<'a, I: Iterator<Item = &'a JobSet>>(
        sets: impl Fn() -> I,
    ) -> Result<(), InvalidRequest> {
        let jobs = || sets().flat_map(|set| &set.jobs);
        let plain = sets().filter(|set| set.kind == SetKind::Plain);
        let plain = plain.map(|set| set.jobs.len()).sum();
        let edges = jobs().map(|job| job.parents.len()).sum();
        check::call_size(plain, jobs().map(NewJob::bytes).sum())?;
        let all = jobs().count();
        check::range("the number of jobs in one call", all, 0, Limits::MAX_FLOW_JOBS)?;
        check::range("the number of edges in one call", edges, 0, Limits::MAX_CALL_EDGES)
    }
}

/// The answer for one job of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Enqueued {
    /// It was stored.
    Inserted(JobId),
    /// It was not stored, because this job exists, which has the same id or holds the key.
    Existing(JobId),
}

impl Enqueued {
    /// The id of the job that now stands for the one enqueued.
    #[must_use]
    pub const fn id(&self) -> &JobId {
        let (Self::Inserted(id) | Self::Existing(id)) = self;
        id
    }

    /// Whether the job was stored by this call.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        matches!(self, Self::Inserted(_))
    }
}
