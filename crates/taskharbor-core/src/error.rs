//! Errors, grouped by what the caller can do next.
//!
//! A call fails as a whole with [`DriverError`], and then nothing was written. Inside a call that
//! succeeds, each item has its own answer: a set may be rejected ([`Rejected`]), a change to an
//! inflight job refused ([`Refusal`]), an operator's action denied ([`Denied`]). The single-job
//! calls combine these in [`CallError`].
//!
//! Programs print `{error}`, or return the error from `main`, which prints its `Debug`. So both
//! show the whole chain of causes. An error that shows its cause has no `source`, so that no report
//! prints a cause twice; the cause itself is in the variant.

mod chain;
mod rejected;

pub use crate::fire::FireRefused;
pub use crate::random::NoRandomness;
pub use chain::chain;
pub use rejected::Rejected;

use std::{borrow::Cow, error::Error, sync::Arc};

use crate::{
    JobId, QueueName, State,
    name::{LaneName, NameError, OwnerName, ScheduleName},
    queue_limit::Rate,
    schedule::Declaration,
};

/// A call failed as a whole.
///
/// Nothing was written, except after `Unavailable` and `ContractViolation`: then the store may have
/// made the changes before the answer was lost, so repeat the call. If the first call was
/// successful, a repeated enqueue returns `Existing`, a repeated ack, expansion or dead-lettering
/// `AlreadyTerminal`, and a repeated retry or release `JobNotInflight`. Jobs that a lost reserve
/// has granted are reclaimed when their leases have ended.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The lease would be shorter than a microsecond or end after the year 9999.
    #[error("the lease must last at least 1 µs and end before the year 10000")]
    InvalidLeaseDuration,
    /// The request is invalid; repeating it unchanged does not help.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The driver was closed.
    #[error("the driver is closed")]
    Closed,
    /// The store cannot be reached or is busy; a retry may succeed.
    #[error("the store is unavailable: {}", chain(&**.0))]
    Unavailable(Arc<dyn Error + Send + Sync>),
    /// The store answered with an error that a retry does not solve.
    #[error("the store failed: {}", chain(&**.0))]
    Backend(Arc<dyn Error + Send + Sync>),
    /// The driver broke the contract; this is a bug in the driver.
    #[error("the driver broke the contract: {0}")]
    ContractViolation(String),
}

impl DriverError {
    /// The store cannot be reached or is busy, because of `source`.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into().into())
    }

    /// The store failed permanently, because of `source`.
    pub fn backend(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Backend(source.into().into())
    }

    /// The store refused because the caller may not do this.
    #[must_use]
    pub fn not_allowed(text: impl Into<String>) -> Self {
        Self::backend(NotAllowed::new(text))
    }

    /// Whether the store refused because the caller may not do this, so that another role or token may
    /// be able to.
    #[must_use]
    pub fn is_not_allowed(&self) -> bool {
        let Self::Backend(cause) = self else { return false };
        let mut cause: Option<&(dyn Error + 'static)> = Some(&**cause);
        while let Some(error) = cause {
            if error.is::<NotAllowed>() {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// The text without the words that name the variant, for errors that already say what failed.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Unavailable(cause) | Self::Backend(cause) => chain(&**cause),
            other => other.to_string(),
        }
    }
}

crate::debug_as_display!(DriverError, CallError);

/// The cause of a [`DriverError::Backend`], or of its cause, when the store refused because the caller may
/// not do this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAllowed(String);

impl NotAllowed {
    /// What the store said.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<NoRandomness> for DriverError {
    fn from(source: NoRandomness) -> Self {
        Self::backend(source)
    }
}

/// A request that is invalid as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum InvalidRequest {
    /// A number is outside its range.
    #[error("{what} is {value}: choose {min} to {max}")]
    OutOfRange {
        /// The name of the number.
        what: Cow<'static, str>,
        /// The number.
        value: usize,
        /// The least allowed.
        min: usize,
        /// The greatest allowed.
        max: usize,
    },
    /// A job is named twice, so that its answer would depend on the order.
    #[error("job {0} is named twice in one call: name it once")]
    DuplicateJob(JobId),
    /// One queue is named twice.
    #[error("queue {0} is named twice in one call: name it once")]
    DuplicateQueue(QueueName),
    /// A cursor that did not come from a page of the same list.
    #[error(
        "the cursor is not from this list: pass on what the previous page gave, or none to start"
    )]
    Cursor,
    /// One schedule is named twice.
    #[error("schedule {0} is named twice in one call: name it once")]
    DuplicateSchedule(ScheduleName),
    /// A version is greater than can be stored.
    #[error("the version is out of range: choose 0 to {}", Declaration::MAX_VERSION)]
    Version,
    /// The name of a lane is invalid.
    #[error(transparent)]
    Lane(NameError),
    /// A lane is named, but nothing is set for it.
    #[error("lane {0} has no settings: set a limit, a rate or a weight, or leave the lane out")]
    EmptyLane(LaneName),
    /// A rate cannot be counted in whole microseconds within ten years.
    #[error(
        "a rate of {} jobs per {:?} with a burst of {} cannot be counted: choose whole microseconds, \
         and less than ten years for the time and for the burst",
        .0.jobs, .0.per, .0.burst
    )]
    Rate(Rate),
    /// A filter asks for a range of time in which no instant lies.
    #[error("the range of {0} is empty: its start must be before its end")]
    EmptyRange(Cow<'static, str>),
}

/// A change to an inflight job was refused; its record is unchanged.
///
/// If several reasons apply, the first in this order is returned: `Invalid` for a change that
/// cannot be made to any job, then `JobNotFound`, `JobNotInflight`, `LeaseMismatch`,
/// `LeaseExpired`, and last `Invalid` for an expansion with jobs that are already stored. `Busy`
/// says nothing about the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Refusal {
    /// No such job is stored.
    #[error("no such job is stored")]
    JobNotFound,
    /// The job is not inflight.
    #[error("the job is not inflight")]
    JobNotInflight,
    /// The token is not that of the current lease: another worker holds the job now.
    #[error("the token is not that of the current lease")]
    LeaseMismatch,
    /// The lease has ended.
    #[error("the lease has expired")]
    LeaseExpired,
    /// The change itself cannot be made.
    #[error(transparent)]
    Invalid(#[from] InvalidTransition),
    /// Another open transaction has locked the job or its flow for longer than the call waits.
    /// Nothing was changed; a retry may succeed.
    #[error("another open transaction has locked the job or its flow: try again")]
    Busy,
}

/// A change that could not be made to any job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum InvalidTransition {
    /// The output is larger than a store keeps.
    #[error(
        "the output is {bytes} bytes: store it elsewhere and output a reference ({max} or fewer)"
    )]
    OutputTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The number of attempts is larger than a store keeps.
    #[error("{0} attempts are more than can be stored")]
    AttemptsOutOfRange(u32),
    /// The expansion is invalid.
    #[error(transparent)]
    Expansion(#[from] Rejected),
}

/// An operator's action was denied; the job is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Denied {
    /// No such job or flow is stored.
    #[error("no such job is stored")]
    JobNotFound,
    /// The job's state does not allow it.
    #[error("the job is {0}: its state does not allow this action")]
    WrongState(State),
    /// The job's flow is terminal, so that no member would use the job's output; detach the job to
    /// run it alone.
    #[error(
        "the job's flow is terminal: requeue its last job first, or detach this one to run alone"
    )]
    FlowOver,
    /// The job's idempotency key is now held by this job.
    #[error("the job's idempotency key is held by job {0}: requeue it when that job is terminal")]
    KeyHeld(JobId),
    /// The job belongs to a flow, which is kept and removed as a whole.
    #[error("the job belongs to flow {0}: act on the flow")]
    InFlow(JobId),
    /// No such schedule is stored.
    #[error("no such schedule is stored")]
    ScheduleNotFound,
    /// The schedule has changed since the caller read it.
    #[error("the schedule has changed since it was read: read it again")]
    ScheduleChanged,
    /// Another schedule with this name is stored.
    #[error(
        "a schedule {0} is stored already and differs: remove it first, or choose another name"
    )]
    ScheduleExists(ScheduleName),
    /// The schedule belongs to another owner.
    #[error("schedule {name} belongs to {}: choose another name", owner_of(.owner.as_ref()))]
    ScheduleOwned {
        /// The schedule.
        name: ScheduleName,
        /// Its owner; `None` if it has none.
        owner: Option<OwnerName>,
    },
    /// The limits of the queue belong to another owner.
    #[error("the limits of queue {queue} belong to {}: change them there", owner_of(.owner.as_ref()))]
    LimitsOwned {
        /// The queue.
        queue: QueueName,
        /// Their owner; `None` if they have none.
        owner: Option<OwnerName>,
    },
    /// The queue already has other limits.
    #[error("queue {0} has other limits already: remove them first")]
    LimitsExist(QueueName),
    /// The owner has declared a newer version of its schedules or limits.
    #[error("the owner has declared version {stored} already: older versions change nothing")]
    NewerVersion {
        /// The version that is stored.
        stored: u64,
    },
}

fn owner_of(owner: Option<&OwnerName>) -> String {
    owner.map_or_else(|| "no owner".to_owned(), |owner| format!("owner {owner}"))
}

/// Why a single-job call failed.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The job was not stored.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The change was refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The operator's action was denied.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The call failed as a whole.
    #[error(transparent)]
    Failed(#[from] DriverError),
}
