//! [`BuildError`]: why a worker was not built.

use std::time::Duration;

use taskharbor_core::{debug_as_display, job::HeaderError, name::NameError};

use super::builder::MAX_CONCURRENCY;
use crate::{ImpossiblePolicy, InvalidLimits, InvalidSchedule};

/// Why a worker was not built.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No handlers were added.
    #[error("the worker has no handlers: add some with `WorkerBuilder::handlers`")]
    NoHandlers,
    /// Two handlers have one job type.
    #[error("two handlers are registered for job type {0:?}: keep one")]
    DuplicateHandler(String),
    /// Invalid job type.
    #[error("invalid job type {job_type:?} of a handler: {cause}")]
    InvalidType {
        /// The name.
        job_type: String,
        /// What is wrong with it.
        cause: NameError,
    },
    /// No queue was added.
    #[error("the worker serves no queue: add one with `WorkerBuilder::queue`")]
    NoQueues,
    /// Invalid queue name.
    #[error("queue {queue:?} cannot be served: {cause}")]
    InvalidQueue {
        /// The name.
        queue: String,
        /// What is wrong with it.
        cause: NameError,
    },
    /// One queue is named twice.
    #[error("queue {0:?} is named twice: give it one concurrency")]
    DuplicateQueue(String),
    /// The concurrency of a queue is out of range.
    #[error("the concurrency of queue {queue:?} is {concurrency}: choose 1 to {MAX_CONCURRENCY}")]
    Concurrency {
        /// The queue.
        queue: String,
        /// Its concurrency.
        concurrency: usize,
    },
    /// The default queue of a job type is not served by this worker.
    #[error(
        "jobs of type {job_type:?} wait in queue {queue:?}, which this worker does not serve: add `.queue({queue:?}, …)`, or `.allow_unserved_queues()` if another worker does"
    )]
    UnservedQueue {
        /// The type.
        job_type: String,
        /// Its queue.
        queue: String,
    },
    /// The heartbeat is too long for the lease.
    #[error(
        "the heartbeat of {heartbeat:?} is too long for a lease of {lease:?}: choose half of it or less, better a third"
    )]
    Heartbeat {
        /// The time between two heartbeats.
        heartbeat: Duration,
        /// The duration of a lease.
        lease: Duration,
    },
    /// A duration is out of range.
    #[error("{what} is {value:?}: choose {wanted}")]
    Duration {
        /// The name of the setting.
        what: &'static str,
        /// Its value.
        value: Duration,
        /// The valid values.
        wanted: &'static str,
    },
    /// The crash limit is zero, so no job could run.
    #[error("the crash limit is 0: choose 1 or more")]
    CrashLimit,
    /// Invalid retry policy.
    #[error("the retry policy cannot work: {0}")]
    Retry(ImpossiblePolicy),
    /// Invalid retry policy of a job type.
    #[error("the retry policy of job type {job_type:?} cannot work: {problem}")]
    RetryOf {
        /// The type.
        job_type: String,
        /// What is wrong with it.
        problem: ImpossiblePolicy,
    },
    /// A codec has an invalid name.
    #[error("a codec cannot be used: {0}")]
    Codec(HeaderError),
    /// Invalid schedule.
    #[error(transparent)]
    Schedule(InvalidSchedule),
    /// Invalid limits.
    #[error(transparent)]
    Limits(InvalidLimits),
    /// The schedules and the limits of one owner have different versions.
    #[error(
        "the schedules and the limits of {0:?} have different versions: an owner has one version, so \
         give both the same"
    )]
    OwnerVersions(String),
    /// Invalid worker name.
    #[error("the worker's name cannot be used: {0}")]
    Name(NameError),
}

debug_as_display!(BuildError);
