//! [`Rejected`]: why a set of jobs was not stored.

use crate::{JobId, driver::Limits};

/// Why a set was not stored. None of its jobs was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Rejected {
    /// A payload is larger than the store takes.
    #[error(
        "the payload of job {job} is {bytes} bytes: store it elsewhere and enqueue a reference, or raise the limit of {max}"
    )]
    PayloadTooLarge {
        /// The job.
        job: JobId,
        /// The payload's size.
        bytes: usize,
        /// The driver's limit.
        max: usize,
    },
    /// A timeout is zero or longer than can be stored.
    #[error(
        "the timeout of job {job} is out of range: leave it out for none, or choose 1 µs to 292 years"
    )]
    TimeoutOutOfRange {
        /// The job.
        job: JobId,
    },
    /// The maximum of attempts is zero or larger than can be stored.
    #[error(
        "max_attempts of job {job} is out of range: leave it out for the worker's default, or choose 1 to {}",
        Limits::MAX_ATTEMPTS
    )]
    MaxAttemptsOutOfRange {
        /// The job.
        job: JobId,
    },
    /// A job outside a flow names parents.
    #[error("job {job} has parents but its set is not a flow: enqueue it as one")]
    EdgeOutsideFlow {
        /// The job.
        job: JobId,
    },
    /// A join outside a flow.
    #[error("job {job} is a join but its set is not a flow: enqueue it as one")]
    JoinOutsideFlow {
        /// The job.
        job: JobId,
    },
    /// The flow has no jobs.
    #[error("the flow has no jobs: an empty group is a join without parents")]
    EmptyFlow,
    /// Two jobs of a flow have the same id.
    #[error("two jobs of the flow have the id {job}")]
    DuplicateId {
        /// The id.
        job: JobId,
    },
    /// A job names a parent that is not in its flow.
    #[error("job {job} waits for {parent}, which is not in the same flow")]
    UnknownParent {
        /// The job.
        job: JobId,
        /// The parent it names.
        parent: JobId,
    },
    /// A job names a parent twice.
    #[error("job {job} names its parent {parent} twice")]
    DuplicateParent {
        /// The job.
        job: JobId,
        /// The parent.
        parent: JobId,
    },
    /// A job waits for itself.
    #[error("job {job} waits for itself")]
    OwnParent {
        /// The job.
        job: JobId,
    },
    /// Jobs wait for each other in a cycle.
    #[error("job {job} is part of a cycle of jobs that wait for each other")]
    Cycle {
        /// One of them.
        job: JobId,
    },
    /// More than one job is without a dependant.
    #[error("neither {first} nor {second} has a dependant: a flow ends in one job, add a join")]
    SeveralTails {
        /// One of them.
        first: JobId,
        /// Another.
        second: JobId,
    },
    /// A job inside a flow carries an idempotency key.
    #[error("job {job} carries an idempotency key inside a flow: only the flow's last job may")]
    KeyInsideFlow {
        /// The job.
        job: JobId,
    },
    /// A join has the condition of a failure job.
    #[error("join {job} waits for failures: a join runs when its parents are done")]
    JoinOnFailure {
        /// The join.
        job: JobId,
    },
    /// A failure job has no parents whose failure it could wait for.
    #[error(
        "job {job} runs if its parents fail, but has none: name the jobs whose failure it handles"
    )]
    FailureOfNothing {
        /// The job.
        job: JobId,
    },
    /// A job waits for a failure job.
    #[error("job {job} waits for {parent}, which runs only on failure: let {parent} return a flow")]
    AfterFailureJob {
        /// The job.
        job: JobId,
        /// The failure job that it waits for.
        parent: JobId,
    },
    /// A key's time to live is zero, longer than can be stored, or not in whole microseconds.
    #[error(
        "the time to live of the key of job {job} is out of range: choose 1 µs to 292 years, in whole microseconds"
    )]
    KeyTimeOutOfRange {
        /// The job.
        job: JobId,
    },
    /// The driver does not support flows.
    #[error("this store has no flows: enqueue single jobs, or use a store whose driver has them")]
    FlowsNotSupported,
    /// More jobs than one expansion may add.
    #[error(
        "an expansion of {count} jobs: expand in steps of {} or fewer",
        Limits::MAX_EXPANSION_JOBS
    )]
    ExpansionTooLarge {
        /// How many there were.
        count: usize,
    },
    /// Some jobs of a flow, but not all, are stored already; or a job of an expansion is.
    #[error("job {job} is stored already but others of its set are not: give new jobs new ids")]
    Overlap {
        /// The first job that is stored already.
        job: JobId,
    },
}
