//! The parts of a life: the stage of the job, the lease on it, how it ended.

use crate::{
    State, Timestamp,
    driver::{Lease, LeaseMark, Settled},
    name::Holder,
};

/// The stage of a job, with the data that belongs to each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Stage {
    /// It waits for other jobs.
    Blocked,
    /// It waits for its time or for a worker: scheduled or ready.
    Waiting,
    /// A worker holds it.
    Inflight(ActiveLease),
    /// It is terminal.
    Finished(Finish),
}

/// The lease on an inflight job, and the facts about its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActiveLease {
    /// The lease.
    pub lease: Lease,
    /// The name of the worker.
    pub holder: Holder,
    /// Whether cancellation of the job was requested.
    pub cancel_requested: bool,
    /// The holder's mark on the lease.
    pub mark: Option<LeaseMark>,
}

impl ActiveLease {
    /// The lease of this holder.
    #[must_use]
    pub const fn new(lease: Lease, holder: Holder, cancel_requested: bool) -> Self {
        Self { lease, holder, cancel_requested, mark: None }
    }

    /// With what the holder said about it.
    #[must_use]
    pub const fn marked(mut self, mark: Option<LeaseMark>) -> Self {
        self.mark = mark;
        self
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finish {
    /// Done, dlq or cancelled.
    pub state: State,
    /// When it ended.
    pub at: Timestamp,
    /// The lease whose holder ended it. Its token may repeat the call that did, and the record is
    /// kept for as long as the lease would have lasted.
    pub by: Option<Lease>,
}

impl Finish {
    /// The end in this state at this instant, by the holder of this lease if there was one.
    #[must_use]
    pub const fn new(state: State, at: Timestamp, by: Option<Lease>) -> Self {
        Self { state, at, by }
    }
}

/// The consequence of a settlement for other jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// Nothing: it had been applied before.
    None,
    /// The job is ready or scheduled again.
    Waits,
    /// The job is done: its dependants wait for one job less.
    Done,
    /// The job is done and its expansion takes its place.
    Expanded,
    /// The job is dead-lettered or cancelled: its failure policy applies.
    Failed,
}

impl Consequence {
    /// What the caller of settle is told.
    #[must_use]
    pub const fn answer(self) -> Settled {
        match self {
            Self::None => Settled::AlreadyTerminal,
            Self::Waits | Self::Done | Self::Expanded | Self::Failed => Settled::Applied,
        }
    }
}
