//! Values as people write them on a command line: durations, rates, times.

use std::time::Duration;

/// A duration such as `250ms`, `5s`, `10m`, `1h30m` or `2d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write it as 250ms, 5s, 10m, 1h30m or 2d");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let micros: u64 = match unit {
            "us" | "µs" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(micros).map(Duration::from_micros);
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = after;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// A rate such as `50/s`, `600/m` or `10`, which is per second; as what lies between two.
pub(crate) fn rate(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a rate: write it as 50/s, 600/m or 1000/h");
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    if number == 0 {
        return Err("a rate of 0 would never end: leave it out, or choose 1/h or more".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds / f64::from(number)))
}

/// A name and a value with `=` between them. The name may hold anything but `=`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} has to be NAME=VALUE")),
    }
}

/// A queue, and how many of its jobs may run at once.
pub(crate) fn served_queue(text: &str) -> Result<(String, Option<usize>), String> {
    let Some((name, concurrency)) = text.rsplit_once('=') else {
        return Ok((text.to_owned(), None));
    };
    match concurrency.parse() {
        Ok(concurrency) if concurrency > 0 => Ok((name.to_owned(), Some(concurrency))),
        _ => Err(format!(
            "{concurrency:?} is not a number of jobs at once: write QUEUE or QUEUE=4 (a name cannot contain '=')"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("250ms", 250),
            ("5s", 5_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "5", "s", "-5s", "5 s", "1.5s", "5w", "99999999999999999999s", "300000000d"]
        {
            assert!(duration(text).unwrap_err().contains("is not a duration"), "{text}");
        }
    }

    #[test]
    fn rates_are_what_lies_between() {
        assert_eq!(rate("50/s"), Ok(Duration::from_millis(20)));
        assert_eq!(rate("10"), Ok(Duration::from_millis(100)));
        assert_eq!(rate("600/m"), Ok(Duration::from_millis(100)));
        for text in ["", "0/s", "-1/s", "fast", "5/d", "1.5/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_queue_may_have_colons_in_its_name() {
        assert_eq!(served_queue("mail"), Ok(("mail".into(), None)));
        assert_eq!(served_queue("eu:mail=8"), Ok(("eu:mail".into(), Some(8))));
        for text in ["mail=", "mail=0", "mail=many", "a=b=c"] {
            assert!(served_queue(text).is_err(), "{text}");
        }
    }
}
