//! The shapes of what is written about limits, lanes and holds.

use serde::Serialize;
use taskharbor::Timestamp;
use taskharbor_core::{
    QueueName,
    admin::{self, HeldJob, LaneStatus, LimitsRecord, QueueLimits},
    name::{LaneName, OwnerName},
};

/// What holds a job back.
#[derive(Debug, Serialize)]
pub(crate) struct HeldBack {
    by: &'static str,
    reason: &'static str,
    inflight: Option<usize>,
    limit: Option<u32>,
    until: Option<String>,
}

impl HeldBack {
    pub(crate) fn of(held: &HeldJob) -> Self {
        let by = if held.by_lane { "lane" } else { "queue" };
        let until = held.why.until().map(|at| at.to_string());
        let (reason, inflight, limit) = match held.why {
            admin::HeldBack::OnHold { .. } => ("on_hold", None, None),
            admin::HeldBack::Full { inflight, limit } => ("full", Some(inflight), Some(limit)),
            admin::HeldBack::Rate { .. } => ("rate", None, None),
            _ => ("other", None, None),
        };
        Self { by, reason, inflight, limit, until }
    }
}

/// A rate.
#[derive(Debug, Serialize)]
struct Rate {
    jobs: u32,
    per_seconds: f64,
    burst: u32,
}

impl Rate {
    fn of(rate: admin::Rate) -> Self {
        Self { jobs: rate.jobs, per_seconds: rate.per.as_secs_f64(), burst: rate.burst }
    }
}

/// The limits of a queue.
#[derive(Debug, Serialize)]
pub(crate) struct Limits<'a> {
    queue: &'a str,
    owner: Option<&'a str>,
    inflight: Option<u32>,
    rate: Option<Rate>,
    per_lane: Option<u32>,
    lane_rate: Option<Rate>,
    lanes: Vec<LaneLimits<'a>>,
}

#[derive(Debug, Serialize)]
struct LaneLimits<'a> {
    lane: &'a str,
    inflight: Option<u32>,
    rate: Option<Rate>,
    weight: Option<u32>,
}

impl<'a> Limits<'a> {
    pub(crate) fn of(record: &'a LimitsRecord) -> Self {
        let limits = &record.limits;
        let lane = |(lane, own): (&'a LaneName, &admin::LaneLimits)| LaneLimits {
            lane: lane.as_str(),
            inflight: own.inflight,
            rate: own.rate.map(Rate::of),
            weight: own.weight,
        };
        Self {
            queue: record.queue.as_str(),
            owner: record.owner.as_ref().map(OwnerName::as_str),
            inflight: limits.inflight,
            rate: limits.rate.map(Rate::of),
            per_lane: limits.per_lane,
            lane_rate: limits.lane_rate.map(Rate::of),
            lanes: limits.lanes.iter().map(lane).collect(),
        }
    }
}

/// A lane with jobs or a hold.
#[derive(Debug, Serialize)]
pub(crate) struct Lane<'a> {
    #[serde(flatten)]
    lane: HeldLane<'a>,
    limit: Option<u32>,
    weight: u32,
}

impl<'a> Lane<'a> {
    pub(crate) fn of(status: &'a LaneStatus, limits: &QueueLimits) -> Self {
        let lane = status.lane.as_ref();
        let (limit, weight) = (limits.of_lane(lane).inflight, limits.weight_of(lane));
        Self { lane: HeldLane::of(status), limit, weight }
    }
}

/// A lane and what holds its jobs back.
#[derive(Debug, Serialize)]
pub(crate) struct HeldLane<'a> {
    lane: Option<&'a str>,
    ready: usize,
    inflight: usize,
    held_back: Option<HeldBack>,
}

impl<'a> HeldLane<'a> {
    pub(crate) fn of(status: &'a LaneStatus) -> Self {
        Self {
            lane: status.lane.as_ref().map(LaneName::as_str),
            ready: status.ready,
            inflight: status.inflight,
            held_back: status.held_back.as_ref().map(HeldBack::of),
        }
    }
}

/// A hold that was set or ended.
#[derive(Debug, Serialize)]
pub(crate) struct Hold<'a> {
    queue: &'a str,
    lane: Option<&'a str>,
    held_until: Option<String>,
}

impl<'a> Hold<'a> {
    pub(crate) fn of(
        queue: &'a QueueName,
        lane: Option<&'a LaneName>,
        until: Option<Timestamp>,
    ) -> Self {
        let held_until = until.map(|at| at.to_string());
        Self { queue: queue.as_str(), lane: lane.map(LaneName::as_str), held_until }
    }
}
