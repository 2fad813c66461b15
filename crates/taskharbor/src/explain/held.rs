//! The limit or hold that keeps a ready job from starting, in words.

use taskharbor_core::{
    QueueName, Timestamp,
    admin::{HeldBack, HeldJob},
    name::LaneName,
};

use super::words::relative;

/// The queue or lane whose limit it is.
#[must_use]
pub fn whose(held: &HeldJob, queue: &QueueName, lane: Option<&LaneName>) -> String {
    match lane.filter(|_| held.by_lane) {
        Some(lane) => format!("lane {lane}"),
        None => format!("queue {queue}"),
    }
}

/// The limit as a sentence without its full stop.
#[must_use]
pub fn in_words(
    held: &HeldJob,
    queue: &QueueName,
    lane: Option<&LaneName>,
    now: Timestamp,
) -> String {
    let whose = whose(held, queue, lane);
    match held.why {
        HeldBack::OnHold { until } => {
            format!("{whose} is on hold until {until} ({})", relative(until, now))
        }
        HeldBack::Full { inflight, limit } => {
            let jobs = if limit == 1 { "job" } else { "jobs" };
            format!("{whose} has {inflight} of {limit} {jobs} inflight")
        }
        HeldBack::Rate { next } => {
            format!("the next job of {whose} may start at {next} ({})", relative(next, now))
        }
        _ => format!("{whose} lets no job start now"),
    }
}

/// The limit in a word or two, for tables.
#[must_use]
pub fn in_short(held: &HeldJob) -> String {
    let why = match held.why {
        HeldBack::OnHold { .. } => "on hold",
        HeldBack::Full { .. } => "full",
        HeldBack::Rate { .. } => "rate",
        _ => "held back",
    };
    if held.by_lane { why.to_owned() } else { format!("queue: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_told_with_its_numbers_or_its_end() {
        let (queue, lane) = (QueueName::new("mail").unwrap(), LaneName::new("acme").unwrap());
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000).unwrap();
        let full = |limit| HeldBack::Full { inflight: 2, limit };
        for (held, text, short) in [
            (HeldJob::new(true, full(2)), "lane acme has 2 of 2 jobs inflight", "full"),
            (HeldJob::new(false, full(1)), "queue mail has 2 of 1 job inflight", "queue: full"),
            (
                HeldJob::new(true, HeldBack::Rate { next: at(13) }),
                "the next job of lane acme may start at 1970-01-01T00:00:13.000000Z (in 3s)",
                "rate",
            ),
            (
                HeldJob::new(false, HeldBack::OnHold { until: at(70) }),
                "queue mail is on hold until 1970-01-01T00:01:10.000000Z (in 1m 0s)",
                "queue: on hold",
            ),
        ] {
            assert_eq!(in_words(&held, &queue, Some(&lane), at(10)), text);
            assert_eq!(in_short(&held), short);
        }
    }
}
