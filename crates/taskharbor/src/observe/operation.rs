//! [`Operation`]: the calls that clients and workers make to a store.

use std::fmt;

/// A call that a client or worker makes to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Storing jobs or a flow.
    Enqueue,
    /// Leasing jobs to a worker.
    Reserve,
    /// Extending leases.
    ExtendLeases,
    /// Recording outcomes of jobs.
    Settle,
    /// Reading outputs.
    Outputs,
    /// Asking for wake-ups.
    Watch,
    /// Asking for the store's time. Reported only if the store was really asked.
    StoreTime,
    /// Asking which schedules are due.
    DueSchedules,
    /// Firing schedules.
    Fire,
    /// Removing old records.
    Prune,
    /// Reading the record of a job.
    Inspect,
    /// Reading the record of a flow.
    InspectFlow,
    /// Listing jobs.
    List,
    /// Cancelling or requeueing jobs or flows.
    Manage,
    /// Counting the jobs of queues.
    Counts,
    /// Changing settings, such as whether a queue is paused.
    Configure,
    /// Reading settings, such as schedules.
    Settings,
    /// Listing the lanes of a queue.
    Lanes,
    /// Announcing a worker.
    Announce,
    /// Listing workers.
    Workers,
    /// Ending the leases of a worker.
    Evict,
}

impl Operation {
    /// All operations.
    pub const ALL: &[Self] = &[
        Self::Enqueue,
        Self::Reserve,
        Self::ExtendLeases,
        Self::Settle,
        Self::Outputs,
        Self::Watch,
        Self::StoreTime,
        Self::DueSchedules,
        Self::Fire,
        Self::Prune,
        Self::Inspect,
        Self::InspectFlow,
        Self::List,
        Self::Manage,
        Self::Counts,
        Self::Configure,
        Self::Settings,
        Self::Lanes,
        Self::Announce,
        Self::Workers,
        Self::Evict,
    ];

    /// The name of the operation, as logs and metrics show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Reserve => "reserve",
            Self::ExtendLeases => "extend_leases",
            Self::Settle => "settle",
            Self::Outputs => "outputs",
            Self::Watch => "watch",
            Self::StoreTime => "store_time",
            Self::DueSchedules => "due_schedules",
            Self::Fire => "fire",
            Self::Prune => "prune",
            Self::Inspect => "inspect",
            Self::InspectFlow => "inspect_flow",
            Self::List => "list",
            Self::Manage => "manage",
            Self::Counts => "counts",
            Self::Configure => "configure",
            Self::Settings => "settings",
            Self::Lanes => "lanes",
            Self::Announce => "announce",
            Self::Workers => "workers",
            Self::Evict => "evict",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
