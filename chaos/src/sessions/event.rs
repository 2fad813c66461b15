//! The answers to a session, with the times at which each call began and ended.
//!
//! The moments are counted on one counter. Two calls of which one ended before the other began have an
//! order. Nothing is known about the order of others.

use taskharbor_core::{JobId, NewJob, Timestamp, driver::LeaseToken, life::LifeStep};

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) now: Timestamp,
    pub(crate) what: What,
}

/// What was answered. Refusals change nothing and are not written down.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A set was stored, or the jobs of an expansion.
    Stored(Stored),
    /// An enqueue was answered with another job, which holds the key.
    KeyHeld { job: NewJob, by: JobId },
    /// A transaction that would have stored this job was rolled back.
    RolledBack(JobId),
    /// A job was leased.
    Granted { id: JobId, token: LeaseToken, expires_at: Timestamp, delivery: u32 },
    /// A lease was extended.
    Extended { id: JobId, token: LeaseToken, expires_at: Timestamp },
    /// A settlement was recorded.
    Settled { id: JobId, token: LeaseToken, step: LifeStep },
    /// A settlement had been recorded before.
    SettledBefore { id: JobId, token: LeaseToken },
    /// A person did something to a job or a flow.
    Managed { id: JobId, deed: Deed },
    /// This many jobs were pruned.
    Pruned(usize),
}

/// Jobs that were stored together.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) jobs: Vec<NewJob>,
    pub(crate) origin: Origin,
}

/// How jobs came into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Plain,
    /// A flow of this id.
    Flow(JobId),
    /// The job expanded into them. If its cancellation had been requested, nothing was stored.
    Expansion(JobId),
}

/// What a person did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Cancel,
    Requeue,
    Detach,
    Purge,
    CancelFlow,
    PurgeFlow,
}
