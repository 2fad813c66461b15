//! [`Timing`]: when a schedule is due, as a cron expression in a time zone or an interval.
//!
//! The rules at a change of the clock are those of cron. An expression with one second, one minute and
//! one hour is a fixed time: it runs once a day, at the end of the gap if its time is skipped, and the
//! first time if its time comes twice. Any other expression follows the clock: nothing is due in
//! a gap, and slots in an hour that comes twice are due twice. A gap over two hours has no slots.

use std::{sync::OnceLock, time::Duration};

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::tz::{TimeZone, TimeZoneDatabase};
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
}

/// The slot after an instant was not later than it, which would fire for ever.
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
        Ok(Self::Cron(Box::new(CronTiming { expression: expression.to_owned(), cron, zone })))
    }

    /// Due whenever this time has passed.
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
            Self::Cron(cron) => cron.next_after(after),
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

    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        // Slots are whole seconds, so what is below a second does not matter.
        let after = jiff::Timestamp::from_second(after.as_micros() / MICROS_PER_SECOND).ok()?;
        let find = |at: jiff::Timestamp, inclusive| {
            self.cron.find_next_occurrence(&at.to_zoned(self.zone.clone()), inclusive).ok()
        };
        // The search fails where no date matches up to the year 5000, and in front of a long gap.
        let next = find(after, false).or_else(|| find(self.end_of_long_gap(after)?, true))?;
        Timestamp::from_micros(next.timestamp().as_second() * MICROS_PER_SECOND).ok()
    }

    /// The end of the next gap that is too long to be searched, as where a zone skips a whole day.
    fn end_of_long_gap(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        const TRANSITIONS: usize = 20;
        const LONG_SECONDS: i32 = 2 * 3_600;
        let mut transitions = self.zone.following(after).take(TRANSITIONS);
        transitions.find_map(|transition| {
            let at = transition.timestamp();
            let before = at.checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
            let skipped = transition.offset().seconds() - self.zone.to_offset(before).seconds();
            (skipped > LONG_SECONDS).then_some(at)
        })
    }
}

/// The zone with this IANA name, as this version of the library knows it on every host.
pub(crate) fn zone(name: &str) -> Result<TimeZone, ScheduleFault> {
    let zone = zones().get(name).ok().filter(|zone| !zone.is_unknown());
    zone.ok_or_else(|| ScheduleFault::UnknownZone(name.to_owned()))
}

pub(super) fn zones() -> &'static TimeZoneDatabase {
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
