//! [`Timing`]: when a schedule is due, as a cron expression in a time zone or an interval.
//!
//! When a clock is set forward or back, the rules are those of cron. An expression without `*` in its second,
//! minute and hour names times of day. Each of them is due once a day: at the end of the gap if the
//! clock skips it, and the first time if it comes twice. Any other expression follows the clock: it
//! is not due in a gap, and is due twice in an hour that comes twice.
//!
//! The cron library finds dates and times that match, and this module applies the time zone. The
//! library's own search would run a time just before a gap a second time at the end of the gap.

use std::{cmp::Ordering, sync::OnceLock, time::Duration};

use croner::{
    CivilDate, CivilDateTime, CivilTime, Cron, CronDateTime, Resolution, Weekday,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    SignedDuration,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use taskharbor_core::Timestamp;

use super::fault::ScheduleFault;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// When a schedule is due.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Timing {
    Cron(Box<CronTiming>),
    /// Elapsed time in microseconds, counted from the Unix epoch.
    Every(i64),
}

/// A cron expression in a time zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CronTiming {
    expression: String,
    cron: Cron,
    zone: TimeZone,
    /// Whether it names times of day.
    is_fixed: bool,
}

/// The slot after an instant was not later than the instant, so the schedule would fire for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the slot after {0} is not later than {0}: define the schedule with another expression")]
pub(crate) struct NotAdvancing(Timestamp);

impl Timing {
    /// The zone of expressions that name none.
    pub(crate) const DEFAULT_ZONE: &str = "UTC";
    /// The longest duration in a schedule: 100 years.
    pub(crate) const MAX_DURATION: Duration = Duration::from_secs(36_525 * 86_400);

    /// Due when the clock of this zone matches the expression.
    pub(crate) fn cron(expression: &str, zone: TimeZone) -> Result<Self, ScheduleFault> {
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed);
        let fields = nickname(expression).unwrap_or(expression);
        let cron = parser.build().parse(fields).map_err(|error| {
            ScheduleFault::Cron(format!("{expression:?} is not a cron expression ({error})"))
        })?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // The last three fields are about days.
        let is_fixed = !fields.iter().rev().skip(3).any(|field| field.contains('*'));
        let expression = expression.to_owned();
        Ok(Self::Cron(Box::new(CronTiming { expression, cron, zone, is_fixed })))
    }

    /// Due each time this interval has passed.
    pub(crate) fn every(interval: Duration) -> Result<Self, ScheduleFault> {
        let is_valid = (Duration::from_secs(1)..=Self::MAX_DURATION).contains(&interval);
        match i64::try_from(interval.as_micros()) {
            Ok(micros) if is_valid => Ok(Self::Every(micros)),
            _ => Err(ScheduleFault::OutOfRange(format!("{interval:?}"), "1 second to 100 years")),
        }
    }

    /// The first slot after this instant.
    pub(crate) fn next_after(&self, after: Timestamp) -> Result<Option<Timestamp>, NotAdvancing> {
        let next = match self {
            Self::Every(micros) => {
                Timestamp::from_micros((after.as_micros() / micros + 1) * micros).ok()
            }
            Self::Cron(cron) => {
                // Slots are whole seconds, so fractions of a second do not matter.
                let second = after.as_micros() / MICROS_PER_SECOND;
                let next = jiff::Timestamp::from_second(second).ok();
                let next = next.and_then(|after| cron.next_after(after));
                let micros = next.map(|next| next.as_second() * MICROS_PER_SECOND);
                micros.and_then(|micros| Timestamp::from_micros(micros).ok())
            }
        };
        match next {
            Some(next) if next <= after => Err(NotAdvancing(after)),
            next => Ok(next),
        }
    }
}

impl CronTiming {
    pub(crate) fn expression(&self) -> &str {
        &self.expression
    }

    /// The IANA name of the zone.
    pub(crate) fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or(Timing::DEFAULT_ZONE)
    }

    /// The first slot after this instant; `None` if no date up to the year 5000 matches.
    fn next_after(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let offset = self.zone.to_offset(after);
        let wall = offset.to_datetime(after);
        let mut found = self.matching(wall, false)?;
        // Before the clock is set back, times that it has already shown will come again.
        if let AmbiguousOffset::Fold { before, after: later } = self.offset_of(wall)
            && before == offset
            && !self.is_fixed
        {
            let change = self.change_after(after)?;
            if found >= before.to_datetime(change) {
                found = self.matching(later.to_datetime(change), true)?;
                return self.resolve(found, change.checked_sub(SignedDuration::from_secs(1)).ok()?);
            }
        }
        self.resolve(found, after)
    }

    /// The first instant after `after` at which the clock shows this time, or a later one that
    /// matches.
    fn resolve(&self, mut wall: DateTime, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        loop {
            wall = match self.offset_of(wall) {
                AmbiguousOffset::Unambiguous { offset } => return offset.to_timestamp(wall).ok(),
                AmbiguousOffset::Fold { before, after: later } => {
                    let first = before.to_timestamp(wall).ok()?;
                    if first > after {
                        return Some(first);
                    } else if !self.is_fixed {
                        return later.to_timestamp(wall).ok();
                    }
                    self.matching(wall, false)?
                }
                AmbiguousOffset::Gap { after: later, .. } => {
                    let end = self.change_after(later.to_timestamp(wall).ok()?)?;
                    if self.is_fixed {
                        return Some(end);
                    }
                    self.matching(later.to_datetime(end), true)?
                }
            };
        }
    }

    /// The first wall-clock time after this one that matches; with `inclusive`, this one may match.
    fn matching(&self, wall: DateTime, inclusive: bool) -> Option<DateTime> {
        Some(self.cron.find_next_occurrence(&Wall(wall), inclusive).ok()?.0)
    }

    fn offset_of(&self, wall: DateTime) -> AmbiguousOffset {
        self.zone.to_ambiguous_timestamp(wall).offset()
    }

    /// When the clock is next set forward or back.
    fn change_after(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        Some(self.zone.following(after).next()?.timestamp())
    }
}

/// A date and time on a clock that is never set forward or back, in whole seconds.
#[derive(Clone)]
struct Wall(DateTime);

impl CronDateTime for Wall {
    fn to_civil(&self) -> CivilDateTime {
        let [month, day, hour, minute, second] =
            [self.0.month(), self.0.day(), self.0.hour(), self.0.minute(), self.0.second()]
                .map(|part| u32::from(part.unsigned_abs()));
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(i32::from(self.0.year()), month, day),
            CivilTime::from_parts_unchecked(hour, minute, second),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        let days = self.0.weekday().to_sunday_zero_offset();
        Weekday::from_days_from_sunday(u32::from(days.unsigned_abs()))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |part| i8::try_from(part).map_err(|_| CronError::InvalidDate);
        let year = i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?;
        let [month, day] = [part(civil.month())?, part(civil.day())?];
        let [hour, minute, second] =
            [part(civil.hour())?, part(civil.minute())?, part(civil.second())?];
        let wall = DateTime::new(year, month, day, hour, minute, second, 0);
        Ok(Resolution::Single(Self(wall.map_err(|_| CronError::InvalidDate)?)))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(SignedDuration::from_secs(seconds)).ok().map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

/// The zone with this IANA name, as this version of the library knows it on every host.
pub(crate) fn zone(name: &str) -> Result<TimeZone, ScheduleFault> {
    let zone = zones().get(name).ok().filter(|zone| !zone.is_unknown());
    zone.ok_or_else(|| ScheduleFault::UnknownZone(name.to_owned()))
}

fn zones() -> &'static TimeZoneDatabase {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    ZONES.get_or_init(TimeZoneDatabase::bundled)
}

fn nickname(expression: &str) -> Option<&'static str> {
    const NICKNAMES: [(&str, &str); 7] = [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ];
    let is_meant = |(name, _): &(&str, &str)| name.eq_ignore_ascii_case(expression.trim());
    NICKNAMES.into_iter().find(is_meant).map(|(_, fields)| fields)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;
