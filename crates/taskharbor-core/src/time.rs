//! [`Timestamp`]: the one representation of time in the contract.
//!
//! Every store keeps and compares exactly this integer, so no two drivers can disagree on a
//! boundary. The range is bounded on purpose: it fits the date types of the databases we know, and
//! arithmetic near its ends is checked, never wrapped. It does not fit a 64-bit float.

mod parse;

use std::{
    fmt,
    time::{Duration, SystemTime},
};

pub use parse::InvalidTimestamp;

/// An instant in whole microseconds since the Unix epoch, from 1970 to the end of the year 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The instant asked for lies before 1970 or after the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timestamp {micros} µs lies outside the years 1970 to 9999")]
pub struct TimestampOutOfRange {
    micros: i64,
}

impl Timestamp {
    /// Midnight, 1 January 1970.
    pub const EPOCH: Self = Self(0);

    /// The last microsecond of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// Makes a timestamp from microseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// [`TimestampOutOfRange`] for negative values and for values past the year 9999.
    pub const fn from_micros(micros: i64) -> Result<Self, TimestampOutOfRange> {
        // TIM-2
        if micros < 0 || micros > Self::MAX.0 {
            return Err(TimestampOutOfRange { micros });
        }
        Ok(Self(micros))
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This instant plus `duration`, whose part below a microsecond is dropped; `None` past the
    /// year 9999.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let micros = i64::try_from(duration.as_micros()).ok()?;
        Self::from_micros(self.0.checked_add(micros)?).ok()
    }

    /// This instant plus `duration`, or [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        self.checked_add(duration).unwrap_or(Self::MAX)
    }

    /// This instant minus `duration`, or [`Timestamp::EPOCH`].
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros).max(0))
    }

    /// The time that passed from `earlier` to this instant; zero if it did not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = TimestampOutOfRange;

    /// The same instant, rounded down to microseconds.
    fn try_from(time: SystemTime) -> Result<Self, TimestampOutOfRange> {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        let micros = since.map_or(-1, |it| i64::try_from(it.as_micros()).unwrap_or(i64::MAX));
        Self::from_micros(micros)
    }
}

/// RFC 3339 in UTC with all six digits of the fraction, so that texts sort as the instants do.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil_date(days);
        let (hour, minute, second) =
            (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Year, month and day of the Gregorian calendar for a day count since 1970.
///
/// Years are counted from March, so that the leap day is the last of its year and month lengths
/// follow one linear formula.
fn civil_date(days_since_epoch: i64) -> (i64, i64, i64) {
    const DAYS_FROM_MARCH_0000: i64 = 719_468;
    const DAYS_PER_ERA: i64 = 146_097; // 400 years
    let days = days_since_epoch + DAYS_FROM_MARCH_0000;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    #[test]
    fn the_range_is_1970_to_9999() {
        assert_eq!(at(0), Timestamp::EPOCH);
        assert_eq!(at(253_402_300_799_999_999), Timestamp::MAX);
        for outside in [-1, i64::MIN, Timestamp::MAX.as_micros() + 1, i64::MAX] {
            assert!(Timestamp::from_micros(outside).is_err(), "{outside}");
        }
    }

    #[test]
    fn arithmetic_never_leaves_the_range() {
        assert_eq!(Timestamp::MAX.checked_add(Duration::from_micros(1)), None);
        assert_eq!(Timestamp::EPOCH.checked_add(Duration::MAX), None);
        assert_eq!(Timestamp::EPOCH.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.saturating_sub(Duration::MAX), Timestamp::EPOCH);
        assert_eq!(at(5).checked_add(Duration::from_nanos(1_999)), Some(at(6)));
        assert_eq!(at(5).since(at(9)), Duration::ZERO);
        assert_eq!(at(9).since(at(5)), Duration::from_micros(4));
    }

    #[test]
    fn it_prints_as_rfc_3339() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_709_251_199_000_000, "2024-02-29T23:59:59.000000Z"),
            (1_794_739_474_123_456, "2026-11-15T10:44:34.123456Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (Timestamp::MAX.as_micros(), "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(at(micros).to_string(), text);
        }
    }

    #[test]
    fn the_time_of_the_system_is_taken_over_to_the_microsecond() {
        let at = |micros: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(micros * 1_000 + 999);
        assert_eq!(Timestamp::try_from(at(7)).unwrap().as_micros(), 7);
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert!(Timestamp::try_from(before).is_err());
    }
}
