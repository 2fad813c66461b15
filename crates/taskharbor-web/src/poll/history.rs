//! The history of a store, as JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor::{QueueName, Timestamp};

use super::{
    model::Model,
    series::{MINUTES, Point, Ring, SECONDS, Series},
};

/// The most queues of one answer; the busiest are chosen.
const MAX_QUEUES: usize = 20;

/// Which step a history has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Second,
    Minute,
}

impl Step {
    const fn seconds(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
        }
    }

    const fn points(self) -> usize {
        match self {
            Self::Second => SECONDS,
            Self::Minute => MINUTES,
        }
    }

    const fn ring(self, series: &Series) -> &Ring {
        match self {
            Self::Second => &series.seconds,
            Self::Minute => &series.minutes,
        }
    }
}

/// What queues have been doing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct History {
    /// How many seconds lie between two points.
    step_s: i64,
    /// The time of the first point; `None` if there is none.
    from: Option<Timestamp>,
    /// The points of the busiest 20 queues, or of the one that was asked for. All have as many; a point
    /// that is not known is null.
    queues: BTreeMap<QueueName, Points>,
    /// The points of the other queues together, if there are more than 500.
    other: Option<Points>,
    /// How many queues have points and are not in the answer.
    left_out: usize,
}

/// The points of one queue, the oldest first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct Points {
    /// Jobs that were ready.
    ready: Vec<Option<f32>>,
    /// Jobs that came in, in a second.
    r#in: Vec<Option<f32>>,
    /// Jobs that were done or dead-lettered, in a second.
    out: Vec<Option<f32>>,
    /// Executions that failed, in a second.
    failed: Vec<Option<f32>>,
    /// The median of waits, in milliseconds.
    p50: Vec<Option<f32>>,
    /// The wait that 95 % did not exceed, in milliseconds.
    p95: Vec<Option<f32>>,
}

impl History {
    /// Nothing has been looked at yet.
    pub(super) fn empty(step: Step) -> Self {
        let (step_s, queues) = (step.seconds(), BTreeMap::new());
        Self { step_s, from: None, queues, other: None, left_out: 0 }
    }

    /// The last points before `now`, of one queue or of the busiest.
    pub(super) fn of(model: &Model, step: Step, queue: Option<&QueueName>, now: Timestamp) -> Self {
        let (mut all, other) = model.series();
        let found = all.len();
        match queue {
            Some(queue) => all.retain(|(name, _)| *name == queue),
            None => all.truncate(MAX_QUEUES),
        }
        let left_out = if queue.is_some() { 0 } else { found - all.len() };
        let last = now.as_micros().div_euclid(1_000_000 * step.seconds());
        let room = i64::try_from(step.points()).unwrap_or(i64::MAX);
        let rings = || all.iter().map(|(_, it)| *it).chain(other).map(|it| step.ring(it));
        let first = rings().filter_map(Ring::first).min().map(|first| first.max(last - room + 1));
        let steps = first.unwrap_or(last + 1)..=last;
        let points = |series: &Series| Points::of(step.ring(series), steps.clone());
        let micros = first.map(|first| first.saturating_mul(1_000_000 * step.seconds()));
        Self {
            step_s: step.seconds(),
            from: micros.and_then(|micros| Timestamp::from_micros(micros).ok()),
            queues: all.iter().map(|(name, series)| ((*name).clone(), points(series))).collect(),
            other: other.map(points),
            left_out,
        }
    }
}

impl Points {
    fn of(ring: &Ring, steps: std::ops::RangeInclusive<i64>) -> Self {
        let mut points = Self::default();
        for step in steps {
            let Point { ready, r#in, out, failed, p50, p95 } = ring.get(step);
            for (numbers, number) in [
                (&mut points.ready, ready),
                (&mut points.r#in, r#in),
                (&mut points.out, out),
                (&mut points.failed, failed),
                (&mut points.p50, p50),
                (&mut points.p95, p95),
            ] {
                numbers.push(number.is_finite().then_some(number));
            }
        }
        points
    }
}
