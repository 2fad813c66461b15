//! Rates and waits from announcements.

use std::time::Duration;

use taskharbor::Blob;
use taskharbor_core::driver::Announce;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000).unwrap()
}

/// An announcement of worker `w` that is valid for 30 s.
fn said(incarnation: u64, started: i64, seen: i64, info: &str) -> WorkerRecord {
    let announced = Announce::new(
        Holder::new("w").unwrap(),
        Incarnation::from_bits(incarnation),
        Blob::from(info.as_bytes().to_vec()),
        Duration::from_secs(30),
        at(seen),
    );
    WorkerRecord::new(announced, at(started), at(seen + 30))
}

fn queue(done: u64, failed: u64, wait: u64) -> String {
    let mut buckets = [0; 12];
    buckets[2] = wait;
    format!(
        r#"{{"queues":[{{"name":"mail","done":{done},"dead":0,"failed":{failed},"wait":{buckets:?}}}]}}"#
    )
}

fn mail() -> QueueName {
    QueueName::new("mail").unwrap()
}

fn out(tracker: &Tracker, now: i64) -> Option<f64> {
    tracker.work(at(now)).get(&mail()).and_then(|work| work.out)
}

#[test]
fn a_rate_is_what_was_done_between_two_announcements() {
    let mut tracker = Tracker::default();
    tracker.update(&[said(1, 0, 1_000, &queue(5_000, 10, 100))], at(1_001));
    assert_eq!(out(&tracker, 1_001), None, "one announcement says nothing about a rate");
    assert_eq!(tracker.work(at(1_001))[&mail()].workers, 1);
    tracker.update(&[said(1, 0, 1_010, &queue(5_200, 20, 300))], at(1_011));
    let work = tracker.work(at(1_011))[&mail()];
    assert_eq!((work.out, work.failed), (Some(20.0), Some(1.0)));
    assert_eq!(tracker.waits(&mail(), at(1_011)).percentile(0.5), Some(15.0));
    // The same announcement again changes nothing.
    tracker.update(&[said(1, 0, 1_010, &queue(5_200, 20, 300))], at(1_016));
    assert_eq!(out(&tracker, 1_016), Some(20.0));
    // It is overdue, and then waits of long ago count no more.
    assert!(tracker.work(at(1_040)).is_empty());
    assert_eq!(tracker.workers(at(1_040)), (0, 1));
    assert_eq!(tracker.waits(&mail(), at(1_041)).percentile(0.5), None);
}

#[test]
fn a_worker_that_restarts_begins_at_zero() {
    let mut tracker = Tracker::default();
    tracker.update(&[said(1, 0, 1_000, &queue(5_000, 0, 0))], at(1_000));
    tracker.update(&[said(1, 0, 1_010, &queue(6_000, 0, 0))], at(1_010));
    // The old start is gone, and the new one has done 50 jobs in the 5 s since it started.
    tracker.update(&[said(2, 1_012, 1_017, &queue(50, 0, 0))], at(1_017));
    assert_eq!(out(&tracker, 1_017), Some(10.0));
    // Both starts at once: each is counted for itself.
    tracker.update(
        &[said(1, 0, 1_020, &queue(6_100, 0, 0)), said(2, 1_012, 1_027, &queue(150, 0, 0))],
        at(1_027),
    );
    assert_eq!(out(&tracker, 1_027), Some(10.0), "of the old one there is no earlier announcement");
}

#[test]
fn counts_that_fall_are_no_negative_rate() {
    let mut tracker = Tracker::default();
    tracker.update(&[said(1, 0, 1_000, &queue(500, 9, 7))], at(1_000));
    tracker.update(&[said(1, 0, 1_010, &queue(100, 0, 0))], at(1_010));
    assert_eq!(out(&tracker, 1_010), Some(0.0));
    tracker.update(&[said(1, 0, 1_009, &queue(900, 0, 0))], at(1_011));
    assert_eq!(out(&tracker, 1_011), Some(0.0), "an older announcement says nothing new");
}

#[test]
fn what_happened_while_nothing_was_read_is_no_rate_of_today() {
    let mut tracker = Tracker::default();
    tracker.update(&[said(1, 0, 1_000, &queue(0, 0, 0))], at(1_000));
    tracker.update(&[said(1, 0, 5_000, &queue(4_000_000, 0, 0))], at(5_000));
    assert_eq!(out(&tracker, 5_000), None);
    tracker.update(&[said(1, 0, 5_010, &queue(4_000_010, 0, 0))], at(5_010));
    assert_eq!(out(&tracker, 5_010), Some(1.0));
    tracker.look_away();
    tracker.update(&[said(2, 5_020, 5_100, &queue(1_000, 0, 0))], at(5_100));
    assert_eq!(out(&tracker, 5_100), None);
}

#[test]
fn hostile_announcements_do_no_harm() {
    let mut tracker = Tracker::default();
    let max = u64::MAX;
    for (n, info) in [
        "".to_owned(),
        "[]".to_owned(),
        r#"{"queues":[{"name":""},{"name":"\u0000"}]}"#.to_owned(),
        format!(r#"{{"queues":[{{"name":"mail","done":{max},"dead":{max},"wait":[1]}},{{"name":"mail","done":1}}]}}"#),
        queue(max, max, max),
    ]
    .iter()
    .enumerate()
    {
        let seen = 1_000 + 10 * i64::try_from(n).unwrap();
        tracker.update(&[said(1, 0, seen, info)], at(seen));
    }
    let work = tracker.work(at(1_040));
    assert!(work.keys().eq([&mail()]));
    assert!(work[&mail()].out.is_some_and(|rate| rate.is_finite() && rate >= 0.0));
}

#[test]
fn two_announcements_in_a_moment_count_as_one() {
    let mut tracker = Tracker::default();
    let moment = |mut record: WorkerRecord| {
        record.seen_at = record.seen_at.saturating_add(Duration::from_millis(100));
        record
    };
    tracker.update(&[said(1, 0, 1_000, &queue(0, 0, 0))], at(1_000));
    tracker.update(&[moment(said(1, 0, 1_000, &queue(90, 0, 0)))], at(1_001));
    assert_eq!(out(&tracker, 1_001), None);
    tracker.update(&[said(1, 0, 1_010, &queue(100, 0, 0))], at(1_010));
    assert_eq!(out(&tracker, 1_010), Some(10.0));
}
