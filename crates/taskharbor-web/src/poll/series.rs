//! [`Series`]: what a queue has been doing, second by second and minute by minute.
//!
//! Points lie in a ring for each of the two steps. A step without a point is a gap: nothing was looked at
//! then. A queue takes up to 50 KB, when it has been watched for a day.

use std::collections::VecDeque;

use super::histogram::{Histogram, to_f64};

/// How many points of each step are kept: ten minutes and a day.
pub(super) const SECONDS: usize = 600;
pub(super) const MINUTES: usize = 1_440;

/// What was seen of a queue. What is not known is not a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) ready: f32,
    pub(super) r#in: f32,
    pub(super) out: f32,
    pub(super) failed: f32,
    pub(super) p50: f32,
    pub(super) p95: f32,
}

impl Point {
    pub(super) const UNKNOWN: Self = Self {
        ready: f32::NAN,
        r#in: f32::NAN,
        out: f32::NAN,
        failed: f32::NAN,
        p50: f32::NAN,
        p95: f32::NAN,
    };
}

#[expect(clippy::cast_possible_truncation, reason = "a plot needs no more than seven digits")]
pub(super) fn to_f32(number: Option<f64>) -> f32 {
    number.map_or(f32::NAN, |number| number as f32)
}

/// Points at numbered steps, the newest `room` of them.
#[derive(Debug, Default)]
pub(super) struct Ring {
    first: i64,
    points: VecDeque<Point>,
}

impl Ring {
    /// Sets the point of a step. A step before the last one is kept as it is: time was set back.
    fn set(&mut self, step: i64, point: Point, room: usize) {
        let length = i64::try_from(self.points.len()).unwrap_or(i64::MAX);
        let behind = step.saturating_sub(self.first).saturating_sub(length);
        let room_steps = i64::try_from(room).unwrap_or(i64::MAX);
        if self.points.is_empty() || behind >= room_steps || behind < -room_steps {
            self.points.clear();
            self.first = step;
        } else if behind < -1 {
            return;
        } else if behind == -1 {
            self.points.pop_back();
        }
        for _ in 0..behind.clamp(0, room_steps) {
            if !self.points.is_empty() {
                self.points.push_back(Point::UNKNOWN);
            }
        }
        self.points.push_back(point);
        while self.points.len() > room {
            self.points.pop_front();
            self.first += 1;
        }
    }

    /// The point of a step.
    pub(super) fn get(&self, step: i64) -> Point {
        let at = usize::try_from(step.saturating_sub(self.first)).ok();
        at.and_then(|at| self.points.get(at)).copied().unwrap_or(Point::UNKNOWN)
    }

    /// The first step with a point.
    pub(super) fn first(&self) -> Option<i64> {
        (!self.points.is_empty()).then_some(self.first)
    }

    fn last(&self) -> Option<i64> {
        Some(self.first()? + i64::try_from(self.points.len()).ok()? - 1)
    }
}

/// The points of one queue.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) seconds: Ring,
    pub(super) minutes: Ring,
    minute: Minute,
}

/// The minute that is going on.
#[derive(Debug, Default)]
struct Minute {
    step: i64,
    sums: [Mean; 3],
    waits: Histogram,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, number: f32) {
        if number.is_finite() {
            self.sum += f64::from(number);
            self.count += 1;
        }
    }

    fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

impl Series {
    /// Takes a point at this second, and the waits that were counted since the last one.
    pub(super) fn add(&mut self, second: i64, point: Point, waits: &Histogram) {
        self.seconds.set(second, point, SECONDS);
        let step = second.div_euclid(60);
        if step != self.minute.step {
            self.minute = Minute { step, ..Minute::default() };
        }
        let minute = &mut self.minute;
        for (mean, number) in minute.sums.iter_mut().zip([point.r#in, point.out, point.failed]) {
            mean.add(number);
        }
        minute.waits.add(waits);
        let [r#in, out, failed] = minute.sums.map(|mean| to_f32(mean.get()));
        let percentile = |share| to_f32(minute.waits.percentile(share));
        let (p50, p95) = (percentile(0.5), percentile(0.95));
        let point = Point { ready: point.ready, r#in, out, failed, p50, p95 };
        self.minutes.set(step, point, MINUTES);
    }

    /// The second of the last point.
    pub(super) fn last(&self) -> Option<i64> {
        self.seconds.last()
    }
}

/// A number of jobs as a part of a point.
pub(super) fn jobs(count: usize) -> f32 {
    to_f32(u64::try_from(count).ok().map(to_f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ready: f32) -> Point {
        Point { ready, ..Point::UNKNOWN }
    }

    fn ready(ring: &Ring, step: i64) -> Option<f32> {
        Some(ring.get(step).ready).filter(|it| it.is_finite())
    }

    #[test]
    fn a_ring_keeps_the_newest_steps_and_shows_gaps() {
        let mut ring = Ring::default();
        ring.set(100, point(1.0), 5);
        ring.set(102, point(2.0), 5);
        ring.set(102, point(3.0), 5);
        let found: Vec<_> = (99..104).map(|step| ready(&ring, step)).collect();
        assert_eq!(found, [None, Some(1.0), None, Some(3.0), None]);
        ring.set(105, point(4.0), 5);
        assert_eq!((ring.first(), ring.points.len()), (Some(101), 5));
        ring.set(101, point(9.0), 5);
        assert_eq!(ready(&ring, 101), None, "what is past stays as it was");
        // After a long gap, or when the time was set back by much, it begins anew.
        ring.set(1_000_000, point(5.0), 5);
        assert_eq!((ring.first(), ring.points.len()), (Some(1_000_000), 1));
        ring.set(7, point(6.0), 5);
        assert_eq!((ring.first(), ready(&ring, 7)), (Some(7), Some(6.0)));
        ring.set(i64::MAX, point(7.0), 5);
        ring.set(i64::MIN, point(8.0), 5);
        assert_eq!(ring.points.len(), 1);
    }

    #[test]
    fn a_minute_has_the_mean_of_its_seconds_and_the_last_depth() {
        let mut series = Series::default();
        let waits = Histogram::read(&[0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        for (second, out) in [(60, 2.0), (61, 4.0), (62, f32::NAN), (119, 6.0), (120, 9.0)] {
            let waits = if second == 61 { waits } else { Histogram::default() };
            let point = Point { out, ready: 7.0, ..Point::UNKNOWN };
            series.add(second, point, &waits);
        }
        let minute = series.minutes.get(1);
        assert_eq!((minute.out, minute.ready, minute.p50), (4.0, 7.0, 15.0));
        assert!(minute.r#in.is_nan());
        assert_eq!(series.minutes.get(2).out, 9.0);
        assert!(series.minutes.get(2).p50.is_nan());
        assert_eq!(series.last(), Some(120));
        for second in 0..200_000 {
            series.add(second, point(1.0), &Histogram::default());
        }
        assert_eq!(series.seconds.points.len(), SECONDS);
        assert_eq!(series.minutes.points.len(), MINUTES);
    }
}
