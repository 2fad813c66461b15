//! Lanes in large numbers.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, NewJob,
    admin::{Change, Configure, QueueLimits},
    driver::{Demand, Enqueue, Reserve, Reserved},
    name::Holder,
};
use taskharbor_sqlite::{SqliteDriver, Synchronous};

use crate::{
    given::{LEASE, NOON, id, job, lane, queue},
    place::Place,
};

pub(crate) async fn open(place: &Place) -> SqliteDriver {
    let config = place.config().synchronous(Synchronous::Normal);
    SqliteDriver::open_with(config.busy_timeout(Duration::from_secs(30))).await.unwrap()
}

pub(crate) async fn limit(driver: &SqliteDriver, limits: QueueLimits) {
    let change = Change::SetLimits { queue: queue(), limits: Some(limits) };
    let answers = driver.configure(Configure::new(vec![change], NOON)).await.unwrap();
    assert_eq!(answers, [Ok(())]);
}

pub(crate) async fn store(driver: &SqliteDriver, jobs: impl IntoIterator<Item = NewJob>) {
    let sets = jobs.into_iter().map(Into::into).collect();
    driver.enqueue(Enqueue::new(sets, NOON)).await.unwrap();
}

pub(crate) async fn reserve(driver: &SqliteDriver, limit: usize) -> Reserved {
    let demands = vec![Demand::new(queue(), limit)];
    let request = Reserve::new(demands, Holder::new("tester").unwrap(), NOON, LEASE);
    driver.reserve(request).await.unwrap()
}

/// Jobs that are named after their lane and number.
fn jobs_of(name: &str, count: usize) -> Vec<NewJob> {
    let of_lane = |number| job(&format!("{name} {number}")).lane(lane(name));
    (0..count).map(of_lane).collect()
}

#[tokio::test]
async fn a_full_lane_and_a_full_queue_grant_nothing_more() {
    let place = Place::new();
    let driver = open(&place).await;
    let plain = (0..2_000).map(|it| job(&it.to_string()));
    store(&driver, jobs_of("big", 2_000).into_iter().chain(plain)).await;
    limit(&driver, QueueLimits::new().inflight(51).per_lane(1)).await;
    let granted = reserve(&driver, 100).await.jobs;
    assert_eq!(granted.len(), 51);
    let of_lane = granted.iter().filter(|it| it.job.lane.is_some()).count();
    assert_eq!(of_lane, 1, "the lane is full, and the rest is of no lane");
    assert_eq!(reserve(&driver, 100).await.jobs, []);
    limit(&driver, QueueLimits::new().per_lane(1)).await;
    assert_eq!(reserve(&driver, 10_000).await.jobs.len(), 1_950);
    assert_eq!(reserve(&driver, 100).await.jobs, []);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn lanes_with_scheduled_jobs_alone_are_not_looked_at() {
    let place = Place::new();
    let driver = open(&place).await;
    let later = NOON.saturating_add(Duration::from_secs(60));
    let scheduled = (0..5_000).map(|number| {
        job(&format!("later {number}")).lane(lane(&format!("a {number}"))).run_at(later)
    });
    store(&driver, scheduled.chain([job("due").lane(lane("b"))])).await;
    let answer = reserve(&driver, 2).await;
    assert_eq!(answer.jobs.len(), 1);
    assert_eq!((answer.jobs[0].job.id.clone(), answer.next_due), (id("due"), Some(later)));
}

#[tokio::test]
async fn a_job_behind_more_full_lanes_than_a_call_looks_at_is_granted() {
    let place = Place::new();
    let driver = open(&place).await;
    limit(&driver, QueueLimits::new().per_lane(1)).await;
    let of_lane =
        |number: usize| jobs_of(&format!("full {number}"), 2).into_iter().map(|it| it.priority(1));
    store(&driver, (0..2_500).flat_map(of_lane)).await;
    let mut granted = 0;
    while granted < 2_500 {
        granted += reserve(&driver, 10_000).await.jobs.len();
    }
    store(&driver, [job("free").lane(lane("free")), job("plain")]).await;
    let (mut found, mut calls) = (Vec::new(), 0);
    while found.len() < 2 {
        let answer = reserve(&driver, 10).await;
        assert!(found.len() + answer.jobs.len() == 2 || answer.next_due > Some(NOON));
        found.extend(answer.jobs.iter().map(|it| it.job.id.to_string()));
        calls += 1;
        assert!(calls < 10, "{found:?}");
    }
    assert_eq!(driver.check().await.unwrap(), []);
}
