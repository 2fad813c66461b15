//! The counts of the overview, and the number of queues with counts of their own.

use std::time::Duration;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000).unwrap()
}

fn name(number: usize) -> QueueName {
    QueueName::new(format!("queue-{number:04}")).unwrap()
}

/// A queue with this many ready jobs.
fn counted(queue: QueueName, ready: usize) -> QueueCounts {
    let mut counts = QueueCounts::new(queue);
    counts.states.ready = ready;
    counts
}

#[test]
fn a_number_that_is_not_counted_to_its_end_is_marked_and_keeps_what_was_known() {
    let mut model = Model::default();
    model.count(vec![counted(name(1), 25_000)], None, at(100));
    assert!(!model.is_capped());
    model.count(vec![counted(name(1), AT_MOST)], Some(AT_MOST), at(101));
    assert!(model.is_capped());
    let overview = model.overview(at(101));
    assert_eq!(overview.queues[0].states.ready, 25_000);
    assert_eq!(overview.queues[0].estimated, ["ready"]);
    assert_eq!(overview.exact_at, Some(at(100)));
    model.count(vec![counted(name(1), 3)], Some(AT_MOST), at(102));
    let overview = model.overview(at(102));
    assert_eq!(overview.queues[0].states.ready, 3);
    assert!(overview.queues[0].estimated.is_empty());
}

#[test]
fn queues_beyond_the_bound_are_summed() {
    let mut model = Model::default();
    let counts = (0..MAX_QUEUES + 3).map(|number| counted(name(number), 2)).collect();
    model.count(counts, Some(AT_MOST), at(100));
    let overview = model.overview(at(100));
    assert_eq!(overview.queues.len(), MAX_QUEUES);
    let other = overview.other.unwrap();
    assert_eq!((other.queues, other.states.ready), (3, 6));
}

#[test]
fn a_queue_that_has_been_empty_for_long_makes_room() {
    let mut model = Model::default();
    let counts = (0..MAX_QUEUES).map(|number| counted(name(number), 2)).collect();
    model.count(counts, Some(AT_MOST), at(100));
    model.count(vec![counted(name(9_999), 1)], Some(AT_MOST), at(101));
    assert_eq!(model.overview(at(101)).other.map(|other| other.queues), Some(1));
    model.count(vec![counted(name(9_999), 1)], Some(AT_MOST), at(1_000));
    model.count(vec![counted(name(9_999), 1)], Some(AT_MOST), at(1_001));
    let overview = model.overview(at(1_001));
    assert_eq!(overview.queues.len(), 1);
    assert!(overview.other.is_none());
}

#[test]
fn a_queue_without_jobs_and_workers_is_not_shown() {
    let mut model = Model::default();
    model.count(vec![counted(name(1), 1)], Some(AT_MOST), at(100));
    model.count(vec![], Some(AT_MOST), at(100).saturating_add(Duration::from_secs(1)));
    assert!(model.overview(at(101)).queues.is_empty());
}
