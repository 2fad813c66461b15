//! The shapes of what is written about queues and their jobs.

use serde::Serialize;
use taskharbor::{QueueCounts, StateCounts, Timestamp};

use super::{HeldBack, limit::HeldLane, time};
use crate::command::usage::QueueUsage;

/// Counts of jobs by state.
#[derive(Debug, Serialize)]
pub(crate) struct States {
    ready: usize,
    scheduled: usize,
    blocked: usize,
    inflight: usize,
    done: usize,
    dlq: usize,
    cancelled: usize,
}

impl States {
    pub(crate) const fn of(counts: &StateCounts) -> Self {
        let StateCounts { ready, scheduled, blocked, inflight, done, dlq, cancelled, .. } = *counts;
        Self { ready, scheduled, blocked, inflight, done, dlq, cancelled }
    }
}

/// A queue and its jobs.
#[derive(Debug, Serialize)]
pub(crate) struct Queue<'a> {
    queue: &'a str,
    #[serde(flatten)]
    states: States,
    /// A number that is not below this means that many or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<usize>,
    paused_since: Option<String>,
    oldest_ready_at: Option<String>,
    oldest_ready_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_per_second: Option<f64>,
    inflight_limit: Option<u32>,
    held_back: Option<HeldBack>,
    /// The first lanes that hold jobs back, or are on hold.
    held_lanes: Vec<HeldLane<'a>>,
}

impl<'a> Queue<'a> {
    pub(crate) fn of(
        counts: &'a QueueCounts,
        usage: Option<&'a QueueUsage>,
        now: Timestamp,
        at_most: Option<usize>,
        rate: Option<f64>,
    ) -> Self {
        let held_lanes = usage.into_iter().flat_map(|usage| &usage.held_lanes);
        Self {
            queue: counts.queue.as_str(),
            states: States::of(&counts.states),
            at_most,
            paused_since: counts.paused_since.map(time),
            oldest_ready_at: counts.oldest_ready.map(time),
            oldest_ready_seconds: counts.oldest_ready.map(|at| now.since(at).as_secs_f64()),
            done_per_second: rate,
            inflight_limit: usage.and_then(|usage| usage.limits.as_ref()?.limits.inflight),
            held_back: usage.and_then(|usage| usage.held_back.as_ref()).map(HeldBack::of),
            held_lanes: held_lanes.map(HeldLane::of).collect(),
        }
    }
}
