//! Export and import: moving jobs as they are stored from one store to another.
//!
//! An [`ExportUnit`] is imported as a whole: a single job, a flow with all its members, or a key
//! that outlived its job. Only the numbers that a store gives its rows are lost. The order of
//! insertion is kept, except that members of an expansion move up to the first member of their
//! flow.

mod check;

pub use check::Damage;

use crate::{
    JobId, NewJob, QueueName, State, Text, Timestamp,
    driver::Limits,
    error::InvalidRequest,
    life::Life,
    name::{FlowName, IdempotencyKey},
};

/// A single job, a flow with its members, or a key that outlived its job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportUnit {
    /// The flow, if it is one.
    pub flow: Option<ExportedFlow>,
    /// The job or the members, in the order of insertion.
    pub jobs: Vec<ExportedJob>,
    /// The key, if the unit is a key without a job.
    pub key: Option<ExportedKey>,
}

impl ExportUnit {
    /// Checks how many units one page of an export may have.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check_limit(limit: usize) -> Result<(), InvalidRequest> {
        // MOV-1
        crate::check::range("limit", limit, 1, Limits::MAX_PAGE)
    }

    /// A single job.
    #[must_use]
    pub fn job(job: ExportedJob) -> Self {
        Self { flow: None, jobs: vec![job], key: None }
    }

    /// A flow with its members.
    #[must_use]
    pub const fn flow(flow: ExportedFlow, members: Vec<ExportedJob>) -> Self {
        Self { flow: Some(flow), jobs: members, key: None }
    }

    /// A key that outlived its job.
    #[must_use]
    pub const fn key(key: ExportedKey) -> Self {
        Self { flow: None, jobs: Vec::new(), key: Some(key) }
    }
}

/// The record of a flow, without its members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportedFlow {
    /// Identifies it.
    pub id: JobId,
    /// Its name, for people.
    pub name: Option<FlowName>,
    /// When it began.
    pub created_at: Timestamp,
    /// The member whose output is the flow's.
    pub tail: JobId,
}

impl ExportedFlow {
    /// A flow that began at this time.
    #[must_use]
    pub const fn new(
        id: JobId,
        name: Option<FlowName>,
        created_at: Timestamp,
        tail: JobId,
    ) -> Self {
        Self { id, name, created_at, tail }
    }
}

/// A key that is held for a time of its own, and whose job's record was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportedKey {
    /// The queue to which it belongs.
    pub queue: QueueName,
    /// The key.
    pub key: IdempotencyKey,
    /// The job that was enqueued with it.
    pub job: JobId,
    /// The first instant at which it is free.
    pub held_until: Timestamp,
}

impl ExportedKey {
    /// A key that this job took, held until this instant.
    #[must_use]
    pub const fn new(
        queue: QueueName,
        key: IdempotencyKey,
        job: JobId,
        held_until: Timestamp,
    ) -> Self {
        Self { queue, key, job, held_until }
    }
}

/// A job with everything that is stored about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportedJob {
    /// The job as it was enqueued, with its current priority and `run_at`.
    pub new: NewJob,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The mutable half of the job.
    pub life: Life,
    /// The state of the edge to each of its parents.
    pub edges: Vec<EdgeState>,
    /// Whether it holds its key.
    pub holds_key: bool,
}

/// The state of an edge between a job and one of its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum EdgeState {
    /// The job waits for the parent.
    Open,
    /// The job does not wait for the parent any more, and reads its output.
    Closed,
    /// The parent failed and the job stopped waiting for it. The job reads the failure recorded here,
    /// even if the parent is requeued later.
    Spent {
        /// How the parent had ended.
        state: State,
        /// The reason for that.
        reason: Option<Text>,
    },
}

impl ExportedJob {
    /// A job as it is stored. Fields that have no meaning in the job's state are normalized, so that
    /// exports of different stores are equal.
    #[must_use]
    pub fn new(
        mut new: NewJob,
        created_at: Timestamp,
        mut life: Life,
        edges: Vec<EdgeState>,
        holds_key: bool,
    ) -> Self {
        life.due_at = life.position().unwrap_or(created_at);
        new.priority = life.priority;
        new.run_at = life.run_at;
        Self { new, created_at, life, edges, holds_key }
    }
}

/// The answer for a unit that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Imported {
    /// It is stored now.
    Stored,
    /// All of it was stored before, and was left as it is.
    Existing,
}

/// Why a unit was not imported. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ImportRefused {
    /// Some jobs of the unit are stored already and others are not.
    #[error("job {0} is stored already but others of its flow are not: import into an empty store")]
    Overlap(JobId),
    /// Another job holds the key of the unit.
    #[error("the idempotency key of job {0} is held by another job: import into an empty store")]
    KeyHeld(JobId),
    /// The unit contradicts itself.
    #[error("the export is damaged: {0}")]
    Damaged(#[from] Damage),
}
