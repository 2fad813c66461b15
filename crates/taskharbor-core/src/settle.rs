//! The request and the answers of settling inflight jobs.

use crate::{
    Blob, JobId, NewJob, Text, Timestamp, check,
    driver::{LeaseToken, Limits},
    error::{InvalidRequest, InvalidTransition},
    flow::{Expansion, ResolvedEdges},
    job::ReleaseNote,
    life::LifeStep,
};

/// Asks to record the outcomes of inflight jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settle {
    /// The jobs; they are settled in this order.
    pub items: Vec<Settlement>,
    /// The current time.
    pub now: Timestamp,
    /// How long to wait for rows that another transaction has locked.
    #[cfg_attr(feature = "serde", serde(default))]
    pub lock_wait: LockWait,
}

/// How long a call waits for locks of another transaction on the store, before the item is refused
/// with [`Refusal::Busy`](crate::error::Refusal::Busy).
///
/// Each driver chooses its own two durations. A driver whose store has no other transactions
/// ignores this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LockWait {
    /// As long as the driver waits in general.
    #[default]
    Long,
    /// As short as the driver can make it: other items of the caller are waiting.
    Short,
}

impl Settle {
    /// A request to settle these jobs.
    #[must_use]
    pub const fn new(items: Vec<Settlement>, now: Timestamp) -> Self {
        Self { items, now, lock_wait: LockWait::Long }
    }

    /// Waits this long for rows that another transaction has locked.
    #[must_use]
    pub const fn lock_wait(mut self, wait: LockWait) -> Self {
        self.lock_wait = wait;
        self
    }

    /// Checks the items.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] for one job named twice and for a call that is too large.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        let bytes = self.items.iter().map(|item| item.transition.bytes()).sum();
        let expansions =
            self.items.iter().map(|item| item.transition.expansion_jobs()).sum::<usize>();
        check::call_size(self.items.len() + expansions, bytes)?;
        check::items(self.items.iter().map(|item| &item.id), bytes)
    }
}

/// The outcome of one job.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settlement {
    /// The job.
    pub id: JobId,
    /// The token of its lease.
    pub token: LeaseToken,
    /// The transition to record.
    pub transition: Transition,
}

impl Settlement {
    /// Settles this job with this transition.
    #[must_use]
    pub const fn new(id: JobId, token: LeaseToken, transition: Transition) -> Self {
        Self { id, token, transition }
    }
}

/// The transition of an inflight job that its worker asks for.
///
/// Exhaustive on purpose: a driver that does not know a transition must not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Transition {
    /// It succeeded.
    Ack {
        /// Its output.
        output: Option<Blob>,
    },
    /// It succeeded and expanded into other jobs, which will produce its output.
    Expand(Expansion),
    /// It failed and will be retried.
    Retry {
        /// What went wrong.
        failure: FailedAttempt,
        /// Not before this instant; at once if `None`.
        run_at: Option<Timestamp>,
    },
    /// It failed and is dead-lettered.
    Fail {
        /// What went wrong.
        failure: FailedAttempt,
        /// Why it is not retried.
        reason: Text,
    },
    /// It is released: no attempt is charged.
    Release {
        /// Not before this instant; in its old position if `None`.
        run_at: Option<Timestamp>,
        /// Whether a handler had started: then the job did not crash its worker.
        started: bool,
        /// A note about the release, stored with the job. `None` keeps the note of an earlier
        /// release.
        note: Option<ReleaseNote>,
    },
}

impl Transition {
    /// The step of the life cycle that this is.
    #[must_use]
    pub const fn step(&self) -> LifeStep {
        match self {
            Self::Ack { .. } => LifeStep::Ack,
            Self::Expand(_) => LifeStep::Expand,
            Self::Retry { .. } => LifeStep::Retry,
            Self::Fail { .. } => LifeStep::Fail,
            Self::Release { .. } => LifeStep::Release,
        }
    }

    /// Checks every rule that can be checked without a store; returns the resolved edges of an
    /// expansion.
    ///
    /// # Errors
    ///
    /// [`InvalidTransition`].
    pub fn check(&self, limits: &Limits) -> Result<Option<ResolvedEdges>, InvalidTransition> {
        match self {
            // SET-11
            Self::Ack { output: Some(output) } if output.len() > Limits::MAX_OUTPUT_BYTES => {
                let (bytes, max) = (output.len(), Limits::MAX_OUTPUT_BYTES);
                Err(InvalidTransition::OutputTooLarge { bytes, max })
            }
            Self::Expand(expansion) => Ok(Some(expansion.check(limits)?)),
            Self::Retry { failure, .. } | Self::Fail { failure, .. }
                if failure.attempts > Limits::MAX_ATTEMPTS =>
            {
                Err(InvalidTransition::AttemptsOutOfRange(failure.attempts))
            }
            _ => Ok(None),
        }
    }

    /// What it counts towards [`Limits::MAX_CALL_BYTES`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Ack { output } => output.as_ref().map_or(0, |output| output.len()),
            Self::Expand(expansion) => expansion.jobs.iter().map(NewJob::bytes).sum(),
            Self::Retry { failure, .. } => failure.error.as_str().len(),
            Self::Fail { failure, reason } => failure.error.as_str().len() + reason.as_str().len(),
            Self::Release { note, .. } => note.as_ref().map_or(0, |it| it.text.as_str().len()),
        }
    }

    /// What it counts towards [`Limits::MAX_CALL_JOBS`], beside the one job it settles.
    #[must_use]
    pub fn expansion_jobs(&self) -> usize {
        match self {
            Self::Expand(expansion) => expansion.jobs.len(),
            Self::Ack { .. } | Self::Retry { .. } | Self::Fail { .. } | Self::Release { .. } => 0,
        }
    }
}

/// One failed execution, as the worker reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedAttempt {
    /// How many executions have failed, this one included.
    pub attempts: u32,
    /// The error.
    pub error: Text,
    /// When it happened.
    pub failed_at: Timestamp,
}

impl FailedAttempt {
    /// The failure that makes it `attempts`.
    #[must_use]
    pub fn new(attempts: u32, error: impl Into<Text>, failed_at: Timestamp) -> Self {
        Self { attempts, error: error.into(), failed_at }
    }
}

/// The answer for a settlement that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Settled {
    /// It was recorded now.
    Applied,
    /// The same token made the job terminal before; nothing changed.
    AlreadyTerminal,
}
