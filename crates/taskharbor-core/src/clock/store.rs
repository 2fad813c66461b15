//! A clock set by the store, kept by the machine's monotonic clock.
//!
//! A machine's wall clock may be wrong by any amount and may jump. If workers used theirs, a worker
//! whose clock is fast by more than a lease would reclaim jobs that other workers still hold. So
//! each worker asks the store for its time, and between two answers uses a monotonic clock.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use crate::{Driver, DriverError, Timestamp, clock::Clock};

/// A clock set by the store, kept by the machine's monotonic clock.
///
/// It steps back only if the store's own clock was set back by more than
/// [`StoreClock::STEP_ABOVE`]. Otherwise jobs that other processes store from then on would be due
/// too soon here, and their leases would seem to have ended. If the store's clock was set back by
/// less, this clock stands still until the store's has caught up.
///
/// Call [`StoreClock::sync`] now and then; clients and workers do.
#[derive(Debug)]
pub struct StoreClock {
    started: Instant,
    estimate: Mutex<Estimate>,
    /// What the estimate says, for readers of the time: the store's time at `started`,
    /// in microseconds.
    offset: AtomicI64,
    latest: AtomicI64,
    /// When the store was last asked, in seconds since the start.
    asked: AtomicU64,
    warned: AtomicBool,
    /// When the store's clock was last found set back, in milliseconds since the start, and by how many
    /// microseconds; zero if never.
    set_back_at: AtomicU64,
    set_back_by: AtomicI64,
}

/// The result of asking the store for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockReading {
    /// How long the call took; half of it bounds the error.
    pub round_trip: Duration,
    /// The difference between this machine's wall clock and the store's clock, in either direction.
    pub wall_skew: Duration,
    /// How far this clock was ahead of the store's, because the store's was set back. If that is
    /// more than [`StoreClock::STEP_ABOVE`], this clock has stepped back; otherwise it stands still
    /// for that time.
    pub ahead: Duration,
    /// The store's time at `taken_at`, as well as it is known.
    pub store_now: Timestamp,
    /// When the answer arrived.
    pub taken_at: Instant,
    /// How far two clocks may be apart of which one was set by this answer and the other one by what was
    /// known before.
    pub error: Duration,
}

impl ClockReading {
    /// Whether a clock that showed `shown` at `then` was ahead of the store's, by more than the error. The
    /// smallest step back is found so, even if the clock stands still since.
    #[must_use]
    pub fn was_ahead(&self, shown: Timestamp, then: Instant) -> bool {
        let shows = shown.saturating_add(self.taken_at.saturating_duration_since(then));
        shows.since(self.store_now) > self.error
    }
}

impl StoreClock {
    /// A larger difference between the machine's wall clock and the store's clock is logged as a
    /// warning.
    pub const WARN_ABOVE: Duration = Duration::from_secs(1);
    /// If the store's clock was set back by more than this, the clock steps back, too.
    pub const STEP_ABOVE: Duration = Duration::from_secs(1);
    /// How often the store is asked for its time.
    pub const SYNC_EVERY: Duration = Duration::from_secs(10);
    /// For how long a clock that was set back is worth knowing of: handles that have not asked for the
    /// time since store jobs with times of before.
    const SET_BACK_FOR: Duration = Duration::from_secs(30);

    /// Asks the store for its time and starts the clock with it.
    ///
    /// # Errors
    ///
    /// What [`Driver::store_time`] answers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn start(driver: &impl Driver) -> Result<Self, DriverError> {
        let started = instant();
        let store_time = driver.store_time().await?;
        let round_trip = started.elapsed();
        let estimate = Estimate::new(store_time, Duration::ZERO, round_trip);
        let clock = Self {
            started,
            estimate: Mutex::new(estimate),
            offset: AtomicI64::new(estimate.offset_micros()),
            latest: AtomicI64::new(0),
            asked: AtomicU64::new(0),
            warned: AtomicBool::new(false),
            set_back_at: AtomicU64::new(0),
            set_back_by: AtomicI64::new(0),
        };
        clock.compare_wall(store_time, round_trip);
        Ok(clock)
    }

    /// Asks the store again, so that the clocks cannot drift apart.
    ///
    /// # Errors
    ///
    /// What [`Driver::store_time`] answers; the clock goes on as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the clock as it was.
    pub async fn sync(&self, driver: &impl Driver) -> Result<ClockReading, DriverError> {
        let sent = self.started.elapsed();
        let store_time = driver.store_time().await?;
        let received = self.started.elapsed();
        let sample = Estimate::new(store_time, sent, received);
        let mut estimate = self.estimate.lock().unwrap_or_else(PoisonError::into_inner);
        let known_before = estimate.error_at(received);
        *estimate = estimate.better_of(sample, received);
        self.offset.store(estimate.offset_micros(), Ordering::SeqCst);
        let (store_now, error) = (estimate.at(received), estimate.error);
        drop(estimate);
        let round_trip = received.saturating_sub(sent);
        let wall_skew = self.compare_wall(store_time, round_trip);
        let ahead = self.latest().since(store_now);
        if ahead > Self::STEP_ABOVE + error {
            tracing::warn!(by = ?ahead, "the store's clock was set back, and is followed");
            self.step_back(store_now, ahead, received);
        }
        let (taken_at, error) = (self.started + received, known_before + error);
        Ok(ClockReading { round_trip, wall_skew, ahead, store_now, taken_at, error })
    }

    fn step_back(&self, store_now: Timestamp, by: Duration, elapsed: Duration) {
        let millis = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX).max(1);
        self.set_back_by.store(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
        self.set_back_at.store(millis(elapsed), Ordering::SeqCst);
        self.latest.store(store_now.as_micros(), Ordering::SeqCst);
    }

    /// By how much the store's clock was set back, if that was a short while ago.
    pub(crate) fn set_back(&self) -> Option<Duration> {
        let at = Duration::from_millis(self.set_back_at.load(Ordering::SeqCst));
        let by = u64::try_from(self.set_back_by.load(Ordering::SeqCst)).unwrap_or(0);
        let is_recent = self.started.elapsed().saturating_sub(at) < Self::SET_BACK_FOR;
        (!at.is_zero() && is_recent).then(|| Duration::from_micros(by))
    }

    /// As [`StoreClock::sync`], if the last question is this long ago. Of calls that come at the same time
    /// one asks; the others do not wait for it.
    pub(crate) async fn sync_after(
        &self,
        age: Duration,
        driver: &impl Driver,
    ) -> Result<Option<ClockReading>, DriverError> {
        if age.is_zero() {
            return self.sync(driver).await.map(Some);
        }
        let now = self.started.elapsed().as_secs();
        let asked = self.asked.load(Ordering::Relaxed);
        let mine = now.saturating_sub(asked) >= age.as_secs()
            && self
                .asked
                .compare_exchange(asked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            return Ok(None);
        }
        self.sync(driver).await.map(Some)
    }

    /// The latest time that was told.
    fn latest(&self) -> Timestamp {
        // Only timestamps are ever stored, so the fallback is never taken.
        Timestamp::from_micros(self.latest.load(Ordering::SeqCst)).unwrap_or(Timestamp::EPOCH)
    }

    /// The time of this machine's wall clock, for stores that have no other clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn wall_time() -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp::EPOCH.saturating_add(since_epoch.unwrap_or_default())
    }

    /// How far this machine's wall clock is off; warned of once.
    fn compare_wall(&self, store_time: Timestamp, round_trip: Duration) -> Duration {
        let wall = Self::wall_time();
        let expected = store_time.saturating_add(round_trip / 2);
        let wall_skew = wall.since(expected).max(expected.since(wall));
        let off = wall_skew > Self::WARN_ABOVE + round_trip;
        if off && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?wall_skew,
                "this machine's clock differs from the store's; jobs go by the store's"
            );
        } else if !off {
            self.warned.store(false, Ordering::Relaxed);
        }
        wall_skew
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let now = self.offset.load(Ordering::SeqCst).saturating_add(elapsed);
        let now = now.clamp(Timestamp::EPOCH.as_micros(), Timestamp::MAX.as_micros());
        let before = self.latest.fetch_max(now, Ordering::SeqCst);
        // Clamped, so that the fallback is never taken.
        Timestamp::from_micros(now.max(before)).unwrap_or(Timestamp::EPOCH)
    }
}

/// The store's time at one instant of the monotonic clock, and how wrong it may be.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    store_time: Timestamp,
    monotonic: Duration,
    error: Duration,
}

impl Estimate {
    /// Two good clocks drift apart by less than this.
    const DRIFT_PER_SECOND: Duration = Duration::from_micros(200);

    /// The store looked at its clock at some point between question and answer; the middle is the
    /// best guess.
    fn new(store_time: Timestamp, sent: Duration, received: Duration) -> Self {
        let error = received.saturating_sub(sent) / 2;
        Self { store_time, monotonic: sent + error, error }
    }

    /// The store's time when the monotonic clock was at zero, in microseconds; before the epoch if
    /// need be.
    fn offset_micros(&self) -> i64 {
        let monotonic = i64::try_from(self.monotonic.as_micros()).unwrap_or(i64::MAX);
        self.store_time.as_micros().saturating_sub(monotonic)
    }

    fn at(&self, monotonic: Duration) -> Timestamp {
        self.store_time
            .saturating_add(monotonic.saturating_sub(self.monotonic))
            .saturating_sub(self.monotonic.saturating_sub(monotonic))
    }

    fn error_at(&self, now: Duration) -> Duration {
        let age = now.saturating_sub(self.monotonic);
        self.error + Self::DRIFT_PER_SECOND.mul_f64(age.as_secs_f64().min(1e9))
    }

    /// The sample, unless it took so long that what is known already is more exact. If the two
    /// contradict each other the store's clock was changed, and the sample is right.
    fn better_of(self, sample: Self, now: Duration) -> Self {
        let known = self.error_at(now);
        let (mine, theirs) = (self.at(now), sample.at(now));
        let apart = mine.since(theirs).max(theirs.since(mine));
        if sample.error > known && apart <= known + sample.error { self } else { sample }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn an_estimate_counts_on_from_the_middle_of_the_question() {
        let estimate = Estimate::new(at(1_000), SECOND, 3 * SECOND);
        assert_eq!(estimate.at(2 * SECOND), at(1_000));
        assert_eq!(estimate.at(12 * SECOND), at(1_010));
        assert_eq!(estimate.at(Duration::ZERO), at(998));
    }

    #[test]
    fn a_slow_answer_does_not_spoil_a_good_estimate() {
        let good = Estimate::new(at(1_000), Duration::ZERO, Duration::from_millis(1));
        let slow = Estimate::new(at(1_010), 10 * SECOND, 14 * SECOND);
        assert_eq!(good.better_of(slow, 14 * SECOND).at(20 * SECOND), good.at(20 * SECOND));
    }

    #[test]
    fn a_quick_answer_and_a_changed_store_clock_are_believed() {
        let good = Estimate::new(at(1_000), Duration::ZERO, Duration::from_millis(1));
        let quick = Estimate::new(at(1_060), 60 * SECOND, 60 * SECOND);
        assert_eq!(good.better_of(quick, 60 * SECOND).at(60 * SECOND), at(1_060));
        let changed = Estimate::new(at(5_000), 60 * SECOND, 64 * SECOND);
        assert_eq!(good.better_of(changed, 64 * SECOND).at(62 * SECOND), at(5_000));
    }

    #[test]
    fn a_store_clock_that_was_set_back_is_followed_and_remembered() {
        let started = instant();
        let clock = StoreClock {
            started,
            estimate: Mutex::new(Estimate::new(at(1_000), Duration::ZERO, Duration::ZERO)),
            offset: AtomicI64::new(at(1_000).as_micros()),
            latest: AtomicI64::new(0),
            asked: AtomicU64::new(0),
            warned: AtomicBool::new(false),
            set_back_at: AtomicU64::new(0),
            set_back_by: AtomicI64::new(0),
        };
        assert!(clock.now() >= at(1_000));
        assert_eq!(clock.set_back(), None);
        clock.offset.store(at(955).as_micros(), Ordering::SeqCst);
        assert!(clock.now() >= at(1_000), "it stands still until the step");
        clock.step_back(at(955), 45 * SECOND, started.elapsed());
        assert!(clock.now() < at(1_000));
        assert_eq!(clock.set_back(), Some(45 * SECOND));
    }

    #[test]
    fn a_small_step_back_is_found_by_what_the_clock_showed_before() {
        let then = instant();
        let reading = ClockReading {
            round_trip: Duration::ZERO,
            wall_skew: Duration::ZERO,
            ahead: Duration::ZERO,
            store_now: at(1_000),
            taken_at: then + SECOND,
            error: Duration::from_millis(5),
        };
        let showed = |millis| at(999).saturating_add(Duration::from_millis(millis));
        assert!(!reading.was_ahead(at(990), then), "it was behind");
        assert!(!reading.was_ahead(showed(5), then), "that may be the error");
        assert!(reading.was_ahead(showed(6), then));
        // Until the answer came, the store's clock has caught up with it.
        assert!(reading.was_ahead(at(1_000), then));
    }

    #[test]
    fn an_old_estimate_gives_way_even_to_a_slow_answer() {
        let old = Estimate::new(at(0), Duration::ZERO, Duration::from_millis(1));
        let day = 86_400 * SECOND;
        let slow = Estimate::new(at(86_401), day, day + 2 * SECOND);
        assert_eq!(old.better_of(slow, day + 2 * SECOND).at(day + SECOND), at(86_401));
    }
}
