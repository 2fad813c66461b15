//! [`Arrivals`]: how many jobs come into a queue in a second.
//!
//! No store counts arrivals. What came in is what is there now, less what was there before, plus what has
//! left: jobs that workers have done or dead-lettered, by the workers' own counts, which lag behind by a
//! few seconds. Where every state was counted to its end, the change of all jobs together says it without
//! that lag; records that were removed meanwhile make it smaller, so the greater of the two counts. Jobs
//! that were cancelled or requeued by hand are not told from others. A queue of which more jobs wait than
//! a poll counts has a rate as often as it is counted exactly.

use std::collections::VecDeque;

use taskharbor::{State, StateCounts, Timestamp};

use super::histogram::to_f64;

/// The rate is that of this many seconds, or of the shortest longer time between two counts.
const WINDOW_MICROS: i64 = 10_000_000;
/// A rate is known as soon as so much time lies between two counts.
const SHORTEST_MICROS: i64 = 2_000_000;
/// A count is compared with none that is older, and a rate is shown for no longer.
const LONGEST_MICROS: i64 = 300_000_000;
/// The most counts that are kept.
const KEPT: usize = 40;

/// Counts of a queue, and the rate that follows from them.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    samples: VecDeque<Sample>,
    last: Option<Timestamp>,
    /// How many jobs have left by the workers' rates.
    left: f64,
    rate: Option<(Timestamp, f64)>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    live: f64,
    /// `None` if finished jobs were not counted to their end.
    total: Option<f64>,
    left: f64,
}

impl Arrivals {
    /// Takes a count; `out` is the rate at which jobs leave.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        states: &StateCounts,
        capped: &[State],
        out: Option<f64>,
    ) {
        let micros = self.last.map_or(0, |last| now.as_micros() - last.as_micros());
        self.last = Some(now);
        let Some(out) = out.filter(|_| (0..LONGEST_MICROS).contains(&micros)) else {
            // What leaves is not known, or time was set back.
            *self = Self { last: Some(now), ..Self::default() };
            return;
        };
        self.left += out * to_f64(micros.unsigned_abs()) / 1e6;
        let live = [State::Ready, State::Scheduled, State::Blocked, State::Inflight];
        if live.iter().any(|state| capped.contains(state)) {
            return;
        }
        let number = |count: usize| to_f64(u64::try_from(count).unwrap_or(u64::MAX));
        let sample = Sample {
            at: now,
            live: number(live.iter().map(|state| states.get(*state)).sum()),
            total: capped.is_empty().then(|| number(states.total())),
            left: self.left,
        };
        let age = |it: &Sample| now.as_micros() - it.at.as_micros();
        self.samples.retain(|it| age(it) < LONGEST_MICROS);
        let in_window = self.samples.iter().rfind(|it| age(it) >= WINDOW_MICROS);
        let earlier = in_window.or(self.samples.front()).filter(|it| age(it) >= SHORTEST_MICROS);
        if let Some(earlier) = earlier {
            let seconds = to_f64(age(earlier).unsigned_abs()) / 1e6;
            let by_flow = sample.live - earlier.live + sample.left - earlier.left;
            let by_total = sample.total.zip(earlier.total).map(|(now, before)| now - before);
            let arrived = by_total.map_or(by_flow, |by_total| by_total.max(by_flow));
            self.rate = Some((now, (arrived / seconds).max(0.0)));
        }
        self.samples.push_back(sample);
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
    }

    /// Jobs in a second; `None` while that is not known.
    pub(super) fn rate(&self, now: Timestamp) -> Option<f64> {
        let (at, rate) = self.rate?;
        (now.as_micros() - at.as_micros() < LONGEST_MICROS).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000).unwrap()
    }

    fn states(ready: usize, done: usize) -> StateCounts {
        let mut states = StateCounts::default();
        (states.ready, states.done) = (ready, done);
        states
    }

    /// The rate after a count every second; `ready` and `done` follow from the second.
    fn rate(seconds: i64, capped: &[State], out: f64, of: impl Fn(usize) -> (usize, usize)) -> f64 {
        let mut arrivals = Arrivals::default();
        for second in 0..seconds {
            let (ready, done) = of(usize::try_from(second).unwrap());
            arrivals.add(at(second), &states(ready, done), capped, Some(out));
        }
        (arrivals.rate(at(seconds)).unwrap() * 1_000.0).round() / 1_000.0
    }

    #[test]
    fn what_came_in_is_the_change_plus_what_has_left() {
        assert_eq!(rate(20, &[State::Done], 0.0, |n| (5 * n, 0)), 5.0);
        assert_eq!(rate(20, &[State::Done], 3.0, |_| (40, 10_000)), 3.0);
        assert_eq!(rate(20, &[State::Done], 8.0, |n| (1_000 - 5 * n, 10_000)), 3.0);
        assert_eq!(rate(20, &[], 0.0, |n| (7, 4 * n)), 4.0, "no worker has announced itself");
        assert_eq!(rate(20, &[], 2.0, |_| (7, 3)), 2.0, "as many were removed as came in");
        assert_eq!(rate(20, &[State::Done], 0.0, |n| (100 - n, 10_000)), 0.0, "never negative");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let mut arrivals = Arrivals::default();
        arrivals.add(at(0), &states(1, 0), &[], Some(0.0));
        assert_eq!(arrivals.rate(at(0)), None, "one count says nothing");
        for second in 1..30 {
            arrivals.add(at(second), &states(10_000, 0), &[State::Ready], Some(1.0));
        }
        assert_eq!(arrivals.rate(at(30)), None, "more wait than were counted");
        // An exact count, and another one a minute later.
        arrivals.add(at(60), &states(1_000_000, 0), &[], Some(10.0));
        arrivals.add(at(120), &states(1_000_600, 0), &[State::Done], Some(10.0));
        assert!(arrivals.rate(at(120)).is_some());
        arrivals.add(at(121), &states(0, 0), &[], None);
        assert_eq!(arrivals.rate(at(121)), None, "its workers have not said what they do");
        arrivals.add(at(122), &states(0, 0), &[], Some(0.0));
        arrivals.add(at(100), &states(0, 0), &[], Some(0.0));
        assert_eq!(arrivals.rate(at(100)), None, "time was set back");
    }
}
