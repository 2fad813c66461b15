//! The shortcuts of a calendar against walking from slot to slot.

use std::time::Duration;

use super::*;
use crate::schedule::timing;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(expression: &str) -> Calendar {
    let zone = timing::zone("Europe/Berlin").unwrap();
    Calendar { timing: Timing::cron(expression, zone).unwrap(), starts_at: None, ends_at: None }
}

fn every(interval: Duration) -> Calendar {
    Calendar { timing: Timing::every(interval).unwrap(), starts_at: None, ends_at: None }
}

/// Counts a few slots at a time.
fn count(calendar: &Calendar, from: Timestamp, to: Timestamp) -> u64 {
    let mut count = calendar.count(from, to).unwrap();
    loop {
        if let Some(slots) = count.go_on(7).unwrap() {
            return slots;
        }
    }
}

#[test]
fn the_last_slots_and_their_number_are_those_of_a_walk() {
    let seed = 0xca1e;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let calendars = [
        cron("* * * * *"),
        cron("*/7 2-3 * * *"),
        cron("30 2 * * *"),
        cron("0 0 1 * *"),
        cron("* * * * * *"),
        every(Duration::from_millis(61_500)),
        every(Duration::from_secs(3_600)),
    ];
    for case in 0..140 {
        let mut calendar = calendars[case % calendars.len()].clone();
        let span = if case % calendars.len() == 4 { 2_000 } else { 400_000 };
        // Around the changes of the clock in March and October 2026.
        let base = at(if random.bool() { "2026-03-27T00:00Z" } else { "2026-10-23T00:00Z" });
        let mut instant = || base.saturating_add(Duration::from_millis(random.u64(..span * 1_000)));
        let (a, b, start, end) = (instant(), instant(), instant(), instant());
        let (from, to) = (a.min(b), a.max(b));
        if case % 3 == 0 {
            (calendar.starts_at, calendar.ends_at) = (Some(start.min(end)), Some(start.max(end)));
        }
        let walked = calendar.between(from, to, usize::MAX).unwrap();
        assert_eq!(count(&calendar, from, to), walked.len() as u64, "{calendar:?} {from}");
        let last = to.saturating_sub(TICK);
        for limit in [1, 3, 1_000] {
            let expected = &walked[walked.len().saturating_sub(limit)..];
            assert_eq!(calendar.last(from, last, limit).unwrap(), expected, "{calendar:?} {from}");
        }
    }
}

#[test]
fn start_and_end_belong_to_the_slots() {
    let mut calendar = cron("0 * * * *");
    calendar.starts_at = Some(at("2026-11-16T10:00Z"));
    calendar.ends_at = Some(at("2026-11-16T12:00Z"));
    let slots = calendar.upcoming(Timestamp::EPOCH, 10).unwrap();
    assert_eq!(slots, ["10", "11", "12"].map(|hour| at(&format!("2026-11-16T{hour}:00Z"))));
    assert_eq!(count(&calendar, Timestamp::EPOCH, Timestamp::MAX), 3);
    assert_eq!(calendar.last(Timestamp::EPOCH, Timestamp::MAX, 1).unwrap(), slots[2..]);
}

#[test]
fn counting_ends_and_an_interval_is_counted_at_once() {
    let (from, to) = (at("2020-01-01T00:00Z"), at("2026-01-01T00:00Z"));
    assert_eq!(count(&cron("* * * * *"), from, to), Calendar::MAX_COUNT);
    assert_eq!(count(&every(Duration::from_secs(1)), from, to), 2_192 * 86_400);
    let last = cron("* * * * * *").last(from, to, 2).unwrap();
    assert_eq!(last, [at("2025-12-31T23:59:59Z"), to]);
}
