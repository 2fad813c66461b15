//! Values as people write them on a command line: durations, rates, times.

use std::time::Duration;

use taskharbor_core::{
    Timestamp,
    admin::{QueueLimits, Rate},
    job::KeyHold,
    name::LaneName,
};

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

/// A duration as [`duration`] reads it.
pub(crate) fn duration_text(duration: Duration) -> String {
    let units = [
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("m", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1_000),
        ("us", 1),
    ];
    let mut micros = duration.as_micros();
    let mut text = String::new();
    for (unit, size) in units {
        if micros >= size {
            text += &format!("{}{unit}", micros / size);
            micros %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// An instant as people write it: exactly, or as a duration ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    At(Timestamp),
    Ago(Duration),
}

impl When {
    pub(crate) fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.saturating_sub(ago),
        }
    }
}

/// An instant such as `2026-11-15T10:00:00Z`, or `2h` for two hours ago.
pub(crate) fn when(text: &str) -> Result<When, String> {
    if let Ok(at) = text.parse() {
        return Ok(When::At(at));
    }
    duration(text).map(When::Ago).map_err(|_| {
        format!(
            "{text:?} is not a time: write it as 2026-11-15T10:00:00Z, or as 2h for two hours ago"
        )
    })
}

/// How long an idempotency key is held: until an event in the life of its job, or for a time.
pub(crate) fn key_hold(text: &str) -> Result<KeyHold, String> {
    match text {
        "until-pruned" => return Ok(KeyHold::UntilPruned),
        "until-done" => return Ok(KeyHold::UntilDone),
        "until-terminal" => return Ok(KeyHold::UntilTerminal),
        _ => {}
    }
    match duration(text) {
        Ok(time) if time.is_zero() => {
            Err("a key cannot be held for no time: choose 1us or more, or leave out the key"
                .to_owned())
        }
        Ok(time) => Ok(KeyHold::For(time)),
        Err(_) => Err(format!(
            "{text:?} is not a key hold: choose until-pruned, until-done, until-terminal, or a duration above zero such as 24h"
        )),
    }
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

/// A value, or `none` to remove the one that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

/// How many jobs may be inflight at once, or `none`.
pub(crate) fn inflight(text: &str) -> Result<OrNone<u32>, String> {
    if text == "none" {
        return Ok(OrNone(None));
    }
    let most = QueueLimits::MAX_INFLIGHT;
    match text.parse() {
        Ok(0) => Err(format!(
            "with 0, no job would start: choose 1 to {most}, or pause the queue with `taskharbor queue pause`"
        )),
        Ok(jobs) if jobs <= most => Ok(OrNone(Some(jobs))),
        _ => Err(format!("{text:?} is not a number of jobs: choose 1 to {most}, or none")),
    }
}

/// A rate of jobs such as `90/10s`, `5/s` or `600/m`, or `none`.
pub(crate) fn job_rate(text: &str) -> Result<OrNone<Rate>, String> {
    if text == "none" {
        return Ok(OrNone(None));
    }
    let wrong = || format!("{text:?} is not a rate: write it as 90/10s, 5/s or 600/m, or none");
    let (jobs, per) = text.split_once('/').ok_or_else(wrong)?;
    let jobs: u32 = jobs.parse().map_err(|_| wrong())?;
    // A unit alone is one of it.
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
        duration(per)
    } else {
        duration(&format!("1{per}"))
    };
    let per = per.map_err(|_| wrong())?;
    if jobs == 0 {
        return Err("a rate of 0 would let no job start: choose 1 job or more in a longer time, or pause the queue with `taskharbor queue pause`".to_owned());
    }
    if per.is_zero() {
        return Err(format!("{text:?} has no time to spread the jobs over: write it as 90/10s"));
    }
    let rate = Rate::per(jobs, per);
    rate.check().map_err(|error| error.to_string())?;
    Ok(OrNone(Some(rate)))
}

/// How many jobs a turn of a lane has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) lane: Option<LaneName>,
    pub(crate) jobs: u32,
}

/// A weight such as `gold=3`, or the number alone.
pub(crate) fn weight(text: &str) -> Result<Weight, String> {
    let most = QueueLimits::MAX_WEIGHT;
    let (lane, jobs) = match text.rsplit_once('=') {
        Some((lane, jobs)) => (Some(LaneName::new(lane).map_err(|error| error.to_string())?), jobs),
        None => (None, text),
    };
    match jobs.parse() {
        Ok(jobs) if (1..=most).contains(&jobs) => Ok(Weight { lane, jobs }),
        _ => Err(format!("{jobs:?} is not a weight: choose 1 to {most}, as in gold=3")),
    }
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
    fn a_time_is_an_instant_or_a_duration_ago() {
        let now: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        let hour = Duration::from_secs(3_600);
        assert_eq!(when("2h").unwrap().instant(now), now.saturating_sub(hour * 2));
        assert_eq!(when("2026-11-15T10:00:00Z"), Ok(When::At(now)));
        for text in ["", "yesterday", "-2h", "2026-11-15"] {
            assert!(when(text).unwrap_err().contains("is not a time"), "{text}");
        }
    }

    #[test]
    fn a_key_is_held_until_an_event_or_for_a_time() {
        assert_eq!(key_hold("until-pruned"), Ok(KeyHold::UntilPruned));
        assert_eq!(key_hold("until-done"), Ok(KeyHold::UntilDone));
        assert_eq!(key_hold("until-terminal"), Ok(KeyHold::UntilTerminal));
        assert_eq!(key_hold("24h"), Ok(KeyHold::For(Duration::from_secs(86_400))));
        for text in ["", "-24h", "until_done", "24"] {
            assert!(key_hold(text).unwrap_err().contains("is not a key hold"), "{text}");
        }
        assert!(key_hold("0s").unwrap_err().contains("for no time"));
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
    fn durations_are_written_as_they_are_read() {
        for text in ["10s", "1h30m", "250ms", "2d", "1m", "1s5us", "0s"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn rates_of_jobs_have_a_number_and_a_time() {
        let rate = |jobs, seconds| Ok(OrNone(Some(Rate::per(jobs, Duration::from_secs(seconds)))));
        assert_eq!(job_rate("90/10s"), rate(90, 10));
        assert_eq!(job_rate("5/s"), rate(5, 1));
        assert_eq!(job_rate("600/m"), rate(600, 60));
        assert_eq!(job_rate("none"), Ok(OrNone(None)));
        for text in ["", "fast", "5", "/s", "5/", "-1/s", "1.5/s", "5/10", "5/w", "99999999999/s"] {
            assert!(job_rate(text).unwrap_err().contains("is not a rate"), "{text}");
        }
        for text in ["0/s", "5/0s", "1/4000d"] {
            assert!(job_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_and_weights_are_numbers_in_their_ranges() {
        assert_eq!(inflight("50"), Ok(OrNone(Some(50))));
        assert_eq!(inflight("none"), Ok(OrNone(None)));
        for text in ["", "0", "-1", "1000001", "many"] {
            assert!(inflight(text).is_err(), "{text}");
        }
        let lane = LaneName::new("eu=gold").ok();
        assert_eq!(weight("eu=gold=3"), Ok(Weight { lane, jobs: 3 }));
        assert_eq!(weight("3"), Ok(Weight { lane: None, jobs: 3 }));
        for text in ["", "0", "1001", "gold=", "gold=0", "=3", "gold"] {
            assert!(weight(text).is_err(), "{text}");
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
