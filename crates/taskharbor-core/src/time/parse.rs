//! Reading a [`Timestamp`] from RFC 3339.

use std::str::FromStr;

use crate::Timestamp;

/// A text is not an instant.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time: write it as 2026-11-15T10:44:34Z or 2026-11-15T10:44:34.123456+01:00"
)]
pub struct InvalidTimestamp(String);

crate::debug_as_display!(InvalidTimestamp);

/// RFC 3339, with seconds and their fraction as one likes. What is below a microsecond is dropped.
impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        parse(text).ok_or_else(|| InvalidTimestamp(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let time = rest.strip_prefix(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = match time.len() {
        5 => {
            let [hour, minute] = numbers(time, ':', [2, 2])?;
            [hour, minute, 0]
        }
        _ => numbers(time, ':', [2, 2, 2])?,
    };
    let is_date = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * 86_400
        + hour * 3_600
        + (minute - offset(zone)?) * 60
        + second;
    Timestamp::from_micros(seconds * 1_000_000 + micros(fraction)?).ok()
}

/// The parts of a text, each this many digits.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(between);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        *number = digits_of(parts.next().filter(|part| part.len() == digits)?)?;
    }
    parts.next().is_none().then_some(numbers)
}

fn digits_of(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn micros(fraction: &str) -> Option<i64> {
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let first: String = fraction.chars().chain("000000".chars()).take(6).collect();
    digits_of(&first)
}

/// How many minutes a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", _) => 1,
        ("-", _) => -1,
        _ => return None,
    };
    let [hours, minutes] = numbers(&zone[1..], ':', [2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

const fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The inverse of the date that is printed, counted from March as there.
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let mut at = Timestamp::EPOCH;
        // A step that visits all months, times of day and leap years.
        while let Some(next) = at.checked_add(Duration::from_micros(86_399_123_457 * 17)) {
            assert_eq!(at.to_string().parse(), Ok(at));
            at = next;
        }
        assert_eq!(Timestamp::MAX.to_string().parse(), Ok(Timestamp::MAX));
    }

    #[test]
    fn zones_and_short_forms_are_understood() {
        for (text, plain) in [
            ("2026-11-15T10:44:34Z", "2026-11-15T10:44:34.000000Z"),
            ("2026-11-15 10:44Z", "2026-11-15T10:44:00.000000Z"),
            ("2026-11-15t10:44:34.5z", "2026-11-15T10:44:34.500000Z"),
            ("2026-11-15T10:44:34.1234567+01:30", "2026-11-15T09:14:34.123456Z"),
            ("2026-12-31T23:30:00-01:00", "2027-01-01T00:30:00.000000Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), plain, "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "tomorrow",
            "2026-11-15",
            "2026-11-15T10:44:34",
            "2026-11-15T24:00:00Z",
            "2026-11-15T10:60:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-15T10:44:34.Z",
            "2026-11-15T10:44:34.-1Z",
            "2026-11-15T10:44:34+1:00",
            "2026-11-15T10:44:34+24:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "+026-11-15T10:44:34Z",
            "2026-11-15T10:44:34Zé",
            "é026-11-15T10:44:34Z",
        ] {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            assert!(error.contains("write it as"), "{text}: {error}");
        }
    }
}
