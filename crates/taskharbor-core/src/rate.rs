//! [`Rate`]: how fast jobs may be granted.

use std::time::Duration;

use crate::{
    Timestamp,
    check::{self, size},
    error::InvalidRequest,
};

/// A number of jobs in a period of time, spread evenly, with an optional burst.
///
/// The limiter is the generic cell rate algorithm (GCRA), in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rate {
    /// The number of jobs.
    pub jobs: u32,
    /// The period of time.
    #[cfg_attr(feature = "serde", serde(rename = "per_nanos", with = "crate::json::Nanos"))]
    pub per: Duration,
    /// How many may be granted at once after a pause; one unless set.
    #[cfg_attr(feature = "serde", serde(default = "crate::json::one"))]
    pub burst: u32,
}

impl Rate {
    /// The greatest time that a rate and its burst may span: ten years.
    pub const MAX_SPAN: Duration = Duration::from_secs(10 * 365 * 86_400);

    /// A rate of this many jobs in this period of time, without bursts.
    #[must_use]
    pub const fn per(jobs: u32, per: Duration) -> Self {
        Self { jobs, per, burst: 1 }
    }

    /// Allows a burst: this many jobs may be granted at once after a pause.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// The time from one job to the next, in microseconds, rounded up.
    #[must_use]
    pub fn interval_us(&self) -> i64 {
        // RAT-1
        let interval = self.per.as_micros().div_ceil(u128::from(self.jobs.max(1)));
        i64::try_from(interval).unwrap_or(i64::MAX)
    }

    /// Checks that it can be counted.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`], [`InvalidRequest::Rate`].
    pub fn check(&self) -> Result<(), InvalidRequest> {
        // LIM-9
        check::range("the number of jobs of a rate", size(self.jobs), 1, size(u32::MAX))?;
        check::range("the burst of a rate", size(self.burst), 1, size(u32::MAX))?;
        let is_whole = self.per.subsec_nanos().is_multiple_of(1_000) && !self.per.is_zero();
        let max = Self::MAX_SPAN.as_micros();
        let span = i128::from(self.interval_us()) * i128::from(self.burst);
        let is_countable = self.per.as_micros() <= max && span.unsigned_abs() <= max;
        if is_whole && is_countable { Ok(()) } else { Err(InvalidRequest::Rate(*self)) }
    }

    /// How many jobs may be granted at `now`, if the rate was last charged up to `tat`: the
    /// theoretical arrival time of the next job.
    #[must_use]
    pub fn allowed(&self, tat: Timestamp, now: Timestamp) -> usize {
        // RAT-1
        let ahead = tat.as_micros().saturating_sub(now.as_micros()).max(0);
        let interval = self.interval_us().max(1);
        let taken = ahead / interval + i64::from(ahead % interval > 0);
        usize::try_from(i64::from(self.burst).saturating_sub(taken)).unwrap_or(0)
    }

    /// The theoretical arrival time after one more job was granted at `now`.
    #[must_use]
    pub fn charge(&self, tat: Timestamp, now: Timestamp) -> Timestamp {
        // RAT-1, RAT-2
        tat.max(now).saturating_add(Duration::from_micros(self.interval_us().unsigned_abs()))
    }

    /// The first instant at which a job may be granted.
    #[must_use]
    pub fn next(&self, tat: Timestamp) -> Timestamp {
        // RAT-3
        let burst = self.interval_us().saturating_mul(i64::from(self.burst.saturating_sub(1)));
        tat.saturating_sub(Duration::from_micros(burst.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    #[test]
    fn a_rate_grants_what_it_allows_and_no_more() {
        let rate = Rate::per(90, Duration::from_secs(10)).burst(10);
        assert_eq!(rate.interval_us(), 111_112);
        let (mut tat, now) = (Timestamp::EPOCH, at(5_000_000));
        assert_eq!(rate.allowed(tat, now), 10);
        for left in (0..10).rev() {
            tat = rate.charge(tat, now);
            assert_eq!(rate.allowed(tat, now), left);
        }
        assert_eq!(rate.next(tat), at(5_000_000 + 111_112));
        assert_eq!(rate.allowed(tat, at(5_111_111)), 0);
        assert_eq!(rate.allowed(tat, at(5_111_112)), 1);
        assert_eq!(rate.allowed(tat, at(5_000_000 + 10 * 111_112)), 10);
    }

    #[test]
    fn one_by_one_and_all_at_once_count_alike() {
        for (jobs, per_ms, burst) in [(1, 1_000, 1), (3, 7, 4), (1_000, 1, 2), (7, 1_000_000, 9)] {
            let rate = Rate::per(jobs, Duration::from_millis(per_ms)).burst(burst);
            let mut tat = Timestamp::EPOCH;
            for step in 0..200_i64 {
                let now = at(1_000_000 + step * 37);
                let allowed = rate.allowed(tat, now);
                for _ in 0..allowed {
                    assert!(rate.next(tat) <= now);
                    tat = rate.charge(tat, now);
                }
                assert!(rate.next(tat) > now, "{rate:?} at {step}");
            }
        }
    }
}
