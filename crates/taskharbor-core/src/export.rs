//! [`ExportUnit`]: jobs as they are stored, on their way from one store to another.
//!
//! A parcel holds whatever has to arrive together: a job that stands alone, or a flow with all its
//! members. Nothing is lost on the way but what nobody can see: the order of insertion is kept,
//! its numbers are not.

use crate::{
    JobId, NewJob, State, Text, Timestamp,
    life::{Life, Stage},
    name::FlowName,
};

/// A job that stands alone, or a flow with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportUnit {
    /// The flow, if it is one.
    pub flow: Option<ExportedFlow>,
    /// The job or the members, in the order of insertion.
    pub jobs: Vec<ExportedJob>,
}

impl ExportUnit {
    /// A job that stands alone.
    #[must_use]
    pub fn job(job: ExportedJob) -> Self {
        Self { flow: None, jobs: vec![job] }
    }

    /// A flow with its members, or without a flow the jobs alone.
    #[must_use]
    pub const fn new(flow: Option<ExportedFlow>, jobs: Vec<ExportedJob>) -> Self {
        Self { flow, jobs }
    }
}

/// What is stored of a flow beside its members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedFlow {
    /// Identifies it.
    pub id: JobId,
    /// What people call it.
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

/// All that is stored of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedJob {
    /// What was enqueued, with the priority and time of today.
    pub new: NewJob,
    /// When.
    pub created_at: Timestamp,
    /// What became of it.
    pub life: Life,
    /// What it and each of its parents are to each other.
    pub ties: Vec<EdgeState>,
    /// Whether it holds its key.
    pub holds_key: bool,
}

/// What a job and one of its parents are to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeState {
    /// The parent is waited for.
    Open,
    /// It no longer is, and its output is read.
    Closed,
    /// It failed like this and let go; what became of it later is nobody's business.
    Spent {
        /// How it had ended.
        state: State,
        /// Why.
        reason: Option<Text>,
    },
}

impl ExportedJob {
    /// A job as it is stored. What no store could tell from another value is made the same on all.
    #[must_use]
    pub fn new(
        mut new: NewJob,
        created_at: Timestamp,
        mut life: Life,
        ties: Vec<EdgeState>,
        holds_key: bool,
    ) -> Self {
        if !matches!(life.stage, Stage::Waiting | Stage::Inflight(_)) {
            life.due_at = created_at;
        }
        new.priority = life.priority;
        new.run_at = life.run_at;
        Self { new, created_at, life, ties, holds_key }
    }
}

/// What became of a parcel that was to be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Imported {
    /// It is stored.
    Stored,
    /// All its jobs were stored before; they are left as they are.
    Existing,
    /// Nothing is stored: some of its jobs were there before, of which this is one.
    Overlap(JobId),
    /// Nothing is stored: the key of this job is held by another.
    KeyHeld(JobId),
}
