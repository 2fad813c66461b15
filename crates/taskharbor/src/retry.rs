//! Retry policies: the delay before each retry, and the maximum number of attempts.
//!
//! A policy is a pure function of the failure and of a random number that it is handed, so that
//! what it does can be computed, tested and repeated.

use std::time::Duration;

use taskharbor_core::{JobType, driver::Limits};

/// Decides when a failed job is tried again.
///
/// ```
/// use std::time::Duration;
///
/// use taskharbor::{Failed, RetryPolicy, Worker};
///
/// /// A minute, an hour, then once a day.
/// struct Patient;
///
/// impl RetryPolicy for Patient {
///     fn delay(&self, failed: &Failed<'_>) -> Duration {
///         Duration::from_secs(match failed.attempts {
///             1 => 60,
///             2 => 3_600,
///             _ => 86_400,
///         })
///     }
///
///     fn max_attempts(&self) -> u32 {
///         9
///     }
/// }
///
/// # fn build(driver: &taskharbor::AnyDriver) {
/// let worker = Worker::builder(driver).retry(Patient);
/// # drop(worker);
/// # }
/// ```
pub trait RetryPolicy: Send + Sync + 'static {
    /// How long to wait before the next attempt.
    fn delay(&self, failed: &Failed<'_>) -> Duration;

    /// How many executions of a job may fail before it is dead-lettered, if the job does not say
    /// so itself. Defaults to 20.
    fn max_attempts(&self) -> u32 {
        Exponential::DEFAULT_MAX_ATTEMPTS
    }

    /// Whether the policy makes sense; a worker with one that does not is not built.
    ///
    /// # Errors
    ///
    /// [`ImpossiblePolicy`]. By default it looks at [`RetryPolicy::max_attempts`].
    fn check(&self) -> Result<(), ImpossiblePolicy> {
        check_attempts(self.max_attempts())
    }
}

/// One failed execution, as a policy sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Failed<'a> {
    /// How many executions have failed, this one included.
    pub attempts: u32,
    /// What kind of job it is.
    pub job_type: &'a JobType,
    /// What went wrong.
    pub error: &'a str,
    /// A random number from 0 to below 1, for jitter.
    pub chance: f64,
}

impl<'a> Failed<'a> {
    /// The failure that makes it `attempts`.
    #[must_use]
    pub const fn new(attempts: u32, job_type: &'a JobType, error: &'a str, chance: f64) -> Self {
        Self { attempts, job_type, error, chance }
    }
}

/// Waits longer after each failure, up to a cap, and a little less at random, so that jobs that
/// failed together do not come back together.
///
/// Without jitter the delays are `base`, `base * multiplier`, `base * multiplier²`, … With jitter
/// each is drawn evenly from the last part of that time: with 0.25, from its last quarter.
///
/// ```
/// use std::time::Duration;
///
/// use taskharbor::Exponential;
///
/// let policy = Exponential::new()
///     .base(Duration::from_secs(10))
///     .cap(Duration::from_secs(600))
///     .jitter(0.0);
/// let delays: Vec<u64> = (1..=8).map(|attempts| policy.after(attempts, 0.5).as_secs()).collect();
/// assert_eq!(delays, [10, 20, 40, 80, 160, 320, 600, 600]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    base: Duration,
    cap: Duration,
    multiplier: f64,
    jitter: f64,
    max_attempts: u32,
}

/// A retry policy that cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ImpossiblePolicy {
    /// The first delay is longer than the longest.
    #[error(
        "the first delay, {base:?}, is longer than the cap of {cap:?}: lower it or raise the cap"
    )]
    BaseAboveCap {
        /// The first delay.
        base: Duration,
        /// The longest.
        cap: Duration,
    },
    /// Delays would shrink, or are not numbers.
    #[error("the multiplier is {0}: choose a finite number that is 1 or more")]
    Multiplier(f64),
    /// The random part is no part.
    #[error("the jitter is {0}: choose 0 (none) to 1 (the whole delay)")]
    Jitter(f64),
    /// No job could ever be executed, or the number cannot be stored.
    #[error("the number of attempts is {0}: choose 1 to {max}", max = Limits::MAX_ATTEMPTS)]
    MaxAttempts(u32),
}

impl Exponential {
    const DEFAULT_MAX_ATTEMPTS: u32 = 20;

    /// The defaults: 2 s, doubled each time up to an hour, a quarter of it random, 20 attempts.
    /// The last attempt comes 7 to 9 hours after the first.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            base: Duration::from_secs(2),
            cap: Duration::from_secs(3_600),
            multiplier: 2.0,
            jitter: 0.25,
            max_attempts: Self::DEFAULT_MAX_ATTEMPTS,
        }
    }

    /// The first delay. Defaults to 2 s.
    #[must_use]
    pub const fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The longest delay. Defaults to an hour.
    #[must_use]
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// How much longer each delay is than the one before. Defaults to 2.
    #[must_use]
    pub const fn multiplier(mut self, multiplier: f64) -> Self {
        self.multiplier = multiplier;
        self
    }

    /// Which part of each delay is random, from 0 to 1. Defaults to 0.25.
    #[must_use]
    pub const fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// How many executions may fail before a job is dead-lettered. Defaults to 20.
    #[must_use]
    pub const fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Base, cap, multiplier and jitter.
    pub(crate) const fn parts(&self) -> (Duration, Duration, f64, f64) {
        (self.base, self.cap, self.multiplier, self.jitter)
    }

    /// The delay after this many failures, for any number of them.
    #[must_use]
    pub fn after(&self, attempts: u32, chance: f64) -> Duration {
        if self.base.is_zero() {
            return Duration::ZERO;
        }
        let steps = f64::from(attempts.saturating_sub(1));
        // The power may be infinite, which the cap makes finite again; nothing is cast or wrapped.
        let grown = self.base.as_secs_f64() * self.multiplier.powf(steps);
        let whole = if grown < self.cap.as_secs_f64() { grown } else { self.cap.as_secs_f64() };
        let random = whole * self.jitter * chance;
        Duration::try_from_secs_f64(whole - random).unwrap_or(self.cap).min(self.cap)
    }
}

impl Default for Exponential {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryPolicy for Exponential {
    fn delay(&self, failed: &Failed<'_>) -> Duration {
        self.after(failed.attempts, failed.chance)
    }

    fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    fn check(&self) -> Result<(), ImpossiblePolicy> {
        let Self { base, cap, multiplier, jitter, max_attempts } = *self;
        if base > cap {
            return Err(ImpossiblePolicy::BaseAboveCap { base, cap });
        }
        if !(multiplier.is_finite() && multiplier >= 1.0) {
            return Err(ImpossiblePolicy::Multiplier(multiplier));
        }
        if !(0.0..=1.0).contains(&jitter) {
            return Err(ImpossiblePolicy::Jitter(jitter));
        }
        check_attempts(max_attempts)
    }
}

const fn check_attempts(max_attempts: u32) -> Result<(), ImpossiblePolicy> {
    if max_attempts == 0 || max_attempts > Limits::MAX_ATTEMPTS {
        return Err(ImpossiblePolicy::MaxAttempts(max_attempts));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_grow_up_to_the_cap_and_stay_there() {
        let policy = Exponential::new().base(SECOND).cap(10 * SECOND).jitter(0.0);
        let delays: Vec<_> = (1..=6).map(|n| policy.after(n, 0.5).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
        assert_eq!(policy.after(0, 0.5), SECOND);
    }

    #[test]
    fn every_attempt_number_has_a_delay_within_the_cap() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let edges = [0, 1, 2, 31, 32, 63, 64, 310, 1_023, 1_024, 1_025, u32::MAX - 1, u32::MAX];
        let others: Vec<u32> = (0..10_000).map(|_| random.u32(..)).collect();
        for policy in [
            Exponential::new(),
            Exponential::new().base(Duration::ZERO).cap(Duration::ZERO),
            Exponential::new().base(Duration::from_nanos(1)).cap(Duration::MAX).multiplier(1e300),
            Exponential::new().base(Duration::MAX).cap(Duration::MAX).jitter(1.0),
            Exponential::new().multiplier(1.0),
        ] {
            policy.check().unwrap();
            for attempts in edges.into_iter().chain(others.iter().copied()) {
                let delay = policy.after(attempts, random.f64());
                assert!(delay <= policy.cap, "{policy:?} after {attempts}: {delay:?}");
            }
        }
    }

    #[test]
    fn jitter_takes_from_the_end_of_the_delay_alone() {
        let policy = Exponential::new().base(8 * SECOND).jitter(0.25);
        assert_eq!(policy.after(1, 0.0), 8 * SECOND);
        assert_eq!(policy.after(1, 0.5), 7 * SECOND);
        assert!(policy.after(1, 0.999_999) > 6 * SECOND);
    }

    #[test]
    fn a_base_of_nothing_means_at_once_however_often() {
        let policy = Exponential::new().base(Duration::ZERO);
        assert_eq!(policy.after(u32::MAX, 0.5), Duration::ZERO);
    }

    #[test]
    fn policies_that_cannot_work_are_refused() {
        let policy = Exponential::new();
        for (policy, text) in [
            (policy.base(2 * policy.cap), "longer than the cap"),
            (policy.multiplier(0.5), "multiplier"),
            (policy.multiplier(f64::NAN), "multiplier"),
            (policy.multiplier(f64::INFINITY), "multiplier"),
            (policy.jitter(-0.1), "jitter"),
            (policy.jitter(f64::NAN), "jitter"),
            (policy.max_attempts(0), "number of attempts"),
            (policy.max_attempts(u32::MAX), "number of attempts"),
        ] {
            let error = policy.check().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        policy.check().unwrap();
    }
}
