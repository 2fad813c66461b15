//! The overview of a store, as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor::{QueueLimits, QueueName, StateCounts, Timestamp};

/// What is going on in a store.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// When jobs were counted, by the store's clock.
    pub(super) at: Option<Timestamp>,
    /// How long ago that was.
    pub(super) age_ms: u64,
    /// Set if the store does not answer.
    pub(super) away: Option<Away>,
    /// How long the store took for the last answer.
    pub(super) poll_ms: f64,
    /// Where counting stops: see `estimated`.
    pub(super) at_most: usize,
    /// When jobs were last counted without a bound.
    pub(super) exact_at: Option<Timestamp>,
    /// The queues that have jobs or workers or are paused, at most 500, by name.
    pub(super) queues: Vec<QueueOverview>,
    /// The queues that are not listed.
    pub(super) other: Option<OtherQueues>,
    /// Workers whose announcement is valid.
    pub(super) workers: usize,
    /// Workers whose announcement has expired: they have died, or cannot reach the store.
    pub(super) workers_overdue: usize,
    /// Schedules whose slot has been due for more than 30 s, at most 100.
    pub(super) schedules_late: usize,
}

/// A store that does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Away {
    /// Since when, if the store has told its time before.
    pub(super) since: Option<Timestamp>,
    /// `store_unavailable`, `store_failed` or `timeout`.
    pub(super) code: &'static str,
}

/// What is going on in a queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct QueueOverview {
    pub(super) queue: QueueName,
    #[serde(flatten)]
    pub(super) states: StateCounts,
    /// States with `at_most` jobs or more. Their numbers are of `exact_at`, or "this many or more".
    pub(super) estimated: Vec<&'static str>,
    /// The earliest due time among the jobs that are ready.
    pub(super) oldest_ready: Option<Timestamp>,
    pub(super) paused_since: Option<Timestamp>,
    /// Workers that serve it.
    pub(super) workers: usize,
    /// Jobs that come in: the change of the counts plus what has left, over ten seconds.
    pub(super) in_per_s: Option<f64>,
    /// Jobs that workers have done or dead-lettered, between their last two announcements.
    pub(super) out_per_s: Option<f64>,
    /// Executions that failed, between the last two announcements.
    pub(super) failed_per_s: Option<f64>,
    /// How long jobs that started in the last half minute had waited: the median.
    pub(super) wait_p50_ms: Option<f64>,
    /// The wait that 95 % of them did not exceed.
    pub(super) wait_p95_ms: Option<f64>,
    pub(super) limits: Option<QueueLimits>,
}

/// Queues that are not listed, together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OtherQueues {
    /// How many queues.
    pub(super) queues: usize,
    #[serde(flatten)]
    pub(super) states: StateCounts,
}
