//! [`State`] and [`LifeStep`]: the life cycle of a job as one table.
//!
//! [`State::after`] is the table. [`Life`](crate::life::Life) uses it before every change, and the
//! diagram in `docs/SEMANTICS.md` is tested against it.

use std::fmt;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum State {
    /// May be reserved now.
    Ready,
    /// Waits for its time.
    Scheduled,
    /// Waits for other jobs of its flow.
    Blocked,
    /// Reserved by a worker, under a lease.
    Inflight,
    /// Terminal: it succeeded.
    Done,
    /// Terminal: dead-lettered.
    Dlq,
    /// Terminal: cancelled.
    Cancelled,
}

/// A step of the life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifeStep {
    /// Its time comes.
    FallDue,
    /// Reserve leases it to a worker.
    Grant,
    /// Reserve reclaims it because its lease has ended.
    Expire,
    /// Its worker succeeded.
    Ack,
    /// Its worker replaces it with an expansion.
    Expand,
    /// Its worker failed and asks for a retry.
    Retry,
    /// Its worker dead-letters it.
    Fail,
    /// Its worker releases it without charging an attempt.
    Release,
    /// It waits for no parent any more.
    Unblock,
    /// It is a join, and waits for no parent any more.
    Join,
    /// A person cancels it; if it is inflight, its worker is told.
    Cancel,
    /// It is inflight and cancelled by a person, and its worker did not ack it.
    Abandon,
    /// A person starts its next epoch.
    Requeue,
    /// A person lets it run without waiting for its time.
    RunNow,
}

impl State {
    /// All states.
    pub const ALL: &[Self] = &[
        Self::Ready,
        Self::Scheduled,
        Self::Blocked,
        Self::Inflight,
        Self::Done,
        Self::Dlq,
        Self::Cancelled,
    ];

    /// The state that `step` leads to from this one, or `None` where it is not allowed.
    ///
    /// `Ready` as an answer means ready or scheduled, as the due time will have it; requeueing a
    /// job whose parents are not done makes it blocked again.
    #[must_use]
    pub const fn after(self, step: LifeStep) -> Option<Self> {
        use State as S;
        Some(match (self, step) {
            (S::Scheduled, LifeStep::FallDue) => S::Ready,
            (S::Ready, LifeStep::Grant) => S::Inflight,
            (S::Inflight, LifeStep::Expire | LifeStep::Retry | LifeStep::Release) => S::Ready,
            (S::Inflight, LifeStep::Ack | LifeStep::Expand) => S::Done,
            (S::Inflight, LifeStep::Fail) => S::Dlq,
            (S::Inflight, LifeStep::Abandon) => S::Cancelled,
            (S::Inflight, LifeStep::Cancel) => S::Inflight,
            (S::Blocked, LifeStep::Unblock) => S::Ready,
            (S::Blocked, LifeStep::Join) => S::Done,
            (S::Ready | S::Scheduled | S::Blocked, LifeStep::Cancel) => S::Cancelled,
            (S::Ready | S::Scheduled, LifeStep::RunNow) => S::Ready,
            (S::Blocked, LifeStep::RunNow) => S::Blocked,
            (S::Dlq | S::Cancelled, LifeStep::Requeue) => S::Ready,
            _ => return None,
        })
    }

    /// Whether the job is terminal: done, dead-lettered or cancelled.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Dlq | Self::Cancelled)
    }

    /// The state's name, the same in Rust, SQL, the command and the documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Scheduled => "scheduled",
            Self::Blocked => "blocked",
            Self::Inflight => "inflight",
            Self::Done => "done",
            Self::Dlq => "dlq",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl LifeStep {
    /// All steps.
    pub const ALL: &[Self] = &[
        Self::FallDue,
        Self::Grant,
        Self::Expire,
        Self::Ack,
        Self::Expand,
        Self::Retry,
        Self::Fail,
        Self::Release,
        Self::Unblock,
        Self::Join,
        Self::Cancel,
        Self::Abandon,
        Self::Requeue,
        Self::RunNow,
    ];
}
