//! The pace at which the jobs of a queue end, and the number of jobs to reserve ahead for it.

use std::time::Duration;

use tokio::time::Instant;

/// The memory of the average: after this time the weight of a sample is a third.
const MEMORY: Duration = Duration::from_millis(20);
/// A shorter time says too little.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(1);
/// No more jobs of a queue wait than this.
pub(super) const MAX_AHEAD: usize = 1_000;

/// How far ahead to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// What ends within this time is reserved ahead.
    pub(super) horizon: Duration,
    /// Nothing is, if less than one job ends within this time.
    pub(super) longest: Duration,
}

impl Reach {
    pub(super) const NONE: Self = Self { horizon: Duration::ZERO, longest: Duration::ZERO };

    /// Covers two round trips to the store, within a quarter and the whole of `longest`.
    pub(super) fn new(longest: Duration, round_trip: Duration) -> Self {
        Self { horizon: (2 * round_trip).clamp(longest / 4, longest), longest }
    }
}

/// How many jobs end per second, as a moving average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    per_second: f64,
    /// The last sample: when it was taken, and how many jobs had ended.
    last: Option<(Instant, u64)>,
}

impl Pace {
    /// This many jobs have ended until now.
    pub(super) fn sample(&mut self, ended: u64, now: Instant) {
        let Some((at, before)) = self.last else {
            self.last = Some((now, ended));
            return;
        };
        let took = now.saturating_duration_since(at);
        if took < SHORTEST_SAMPLE {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "the jobs of one sample are few")]
        let sampled = ended.saturating_sub(before) as f64 / took.as_secs_f64();
        let weight = 1.0 - (-took.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.per_second += weight * (sampled - self.per_second);
        self.last = Some((now, ended));
    }

    /// How many jobs should wait for a slot.
    pub(super) fn target(&self, reach: Reach) -> usize {
        if self.per_second * reach.longest.as_secs_f64() < 1.0 {
            return 0;
        }
        let jobs = (self.per_second * reach.horizon.as_secs_f64()).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "casts of floats saturate, and it is not negative"
        )]
        let jobs = jobs as usize;
        jobs.min(MAX_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn reach() -> Reach {
        Reach::new(20 * MS, Duration::ZERO)
    }

    /// This many jobs in each of this many milliseconds.
    fn paced(jobs: u64, millis: u32) -> (Pace, Instant) {
        let (mut pace, start) = (Pace::default(), Instant::now());
        for n in 0..=millis {
            pace.sample(jobs * u64::from(n), start + n * MS);
        }
        (pace, start + millis * MS)
    }

    #[test]
    fn the_horizon_is_two_round_trips_within_bounds() {
        let horizon = |round_trip| Reach::new(20 * MS, round_trip).horizon;
        assert_eq!(horizon(Duration::ZERO), 5 * MS);
        assert_eq!(horizon(4 * MS), 8 * MS);
        assert_eq!(horizon(30 * MS), 20 * MS);
        assert_eq!(Reach::new(Duration::ZERO, 4 * MS), Reach::NONE);
    }

    #[test]
    fn what_ends_within_the_horizon_is_reserved_ahead() {
        // Ten jobs in each millisecond: fifty in five.
        let target = paced(10, 200).0.target(reach());
        assert!((49..=50).contains(&target), "{target}");
        assert_eq!(paced(10, 200).0.target(Reach::NONE), 0);
        assert_eq!(paced(10_000, 200).0.target(reach()), MAX_AHEAD);
    }

    #[test]
    fn nothing_is_known_before_the_second_sample_nor_from_a_moment() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        pace.sample(100, start);
        pace.sample(200, start + MS / 2);
        assert_eq!(pace.target(reach()), 0);
    }

    #[test]
    fn a_pause_is_forgotten_as_soon_as_a_stretch_of_work() {
        let (mut pace, now) = paced(10, 200);
        pace.sample(2_000, now + 20 * MS);
        let target = pace.target(reach());
        assert!((17..=20).contains(&target), "{target}");
        pace.sample(2_000, now + 220 * MS);
        assert_eq!(pace.target(reach()), 0);
    }

    #[test]
    fn nothing_is_reserved_ahead_if_less_than_one_job_ends_in_time() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        for second in 0..=10 {
            // 49 in a second, then 51.
            pace.sample(49 * second, start + u32::try_from(second).unwrap() * 1_000 * MS);
        }
        assert_eq!(pace.target(reach()), 0);
        pace.sample(490 + 51, start + 11_000 * MS);
        assert_eq!(pace.target(reach()), 1);
    }
}
