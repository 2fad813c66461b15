//! Lanes in large numbers.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, NewJob, Timestamp,
    admin::{Change, Configure, QueueLimits},
    driver::{Demand, Enqueue, Reserve, Reserved},
    name::Holder,
};
use taskharbor_sqlite::{SqliteDriver, Synchronous};

use crate::{
    fixture::{LEASE, NOON, id, job, lane, queue},
    temp_dir::TempDir,
};

pub(crate) async fn open(temp: &TempDir) -> SqliteDriver {
    let config = temp.config().synchronous(Synchronous::Normal);
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
    reserve_at(driver, limit, NOON).await
}

async fn reserve_at(driver: &SqliteDriver, limit: usize, now: Timestamp) -> Reserved {
    let demands = vec![Demand::new(queue(), limit)];
    let request = Reserve::new(demands, Holder::new("tester").unwrap(), now, LEASE);
    driver.reserve(request).await.unwrap()
}

/// Jobs that are named after their lane and number.
fn jobs_of(name: &str, count: usize) -> Vec<NewJob> {
    let of_lane = |number| job(&format!("{name} {number}")).lane(lane(name));
    (0..count).map(of_lane).collect()
}

#[tokio::test]
async fn a_full_lane_and_a_full_queue_grant_nothing_more() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
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
    let temp = TempDir::new();
    let driver = open(&temp).await;
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
    let temp = TempDir::new();
    let driver = open(&temp).await;
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

const PAUSE: Duration = Duration::from_millis(20);

/// Two jobs in each of more lanes than a call looks at, of which one is leased.
async fn full_lanes(temp: &TempDir) -> SqliteDriver {
    let driver = open(temp).await;
    limit(&driver, QueueLimits::new().per_lane(1)).await;
    store(&driver, (0..1_500).flat_map(|number| jobs_of(&format!("full {number}"), 2))).await;
    let mut granted = 0;
    while granted < 1_500 {
        granted += reserve(&driver, 10_000).await.jobs.len();
    }
    driver
}

/// Asks as a worker does that is told when to ask again. Answers how many calls it took until a job was granted or none is
/// to be expected soon, and the last answer.
async fn follow(driver: &SqliteDriver, mut now: Timestamp) -> (usize, Reserved) {
    for calls in 1..=9 {
        let answer = reserve_at(driver, 9, now).await;
        let next = answer.next_due.expect("jobs wait");
        if !answer.jobs.is_empty() || next > now.saturating_add(PAUSE) {
            return (calls, answer);
        }
        assert_eq!(next, now.saturating_add(PAUSE));
        now = next;
    }
    panic!("it is asked again and again");
}

#[tokio::test]
async fn more_full_lanes_than_a_call_looks_at_are_not_asked_without_end() {
    let temp = TempDir::new();
    let driver = full_lanes(&temp).await;
    let end = NOON.saturating_add(LEASE);
    let mut total = 0;
    for seconds in [1, 10] {
        let now = NOON.saturating_add(Duration::from_secs(seconds));
        let (calls, answer) = follow(&driver, now).await;
        total += calls;
        assert_eq!((answer.jobs.len(), answer.next_due), (0, Some(end)));
    }
    assert!(total <= 5, "{total}");
    assert_eq!(reserve_at(&driver, 9, end).await.jobs.len(), 9);
}

#[tokio::test]
async fn a_job_that_comes_into_a_lane_behind_the_walk_is_granted_soon() {
    let temp = TempDir::new();
    let driver = full_lanes(&temp).await;
    let start = NOON.saturating_add(Duration::from_secs(1));
    follow(&driver, start).await;
    let begun = reserve_at(&driver, 9, start).await;
    assert_eq!(begun.next_due, Some(start.saturating_add(PAUSE)));
    // The walk has passed the place of each of these or will pass it.
    store(&driver, ["full", "full 5x", "zone"].map(|name| job(name).lane(lane(name)))).await;
    let (mut found, mut now) = (0, start.saturating_add(PAUSE));
    while found < 3 {
        let (_, answer) = follow(&driver, now).await;
        assert_ne!(answer.jobs, [], "{found} were found");
        found += answer.jobs.len();
        now = answer.next_due.unwrap_or(now);
    }
    assert!(now.since(start) < Duration::from_secs(1), "{now}");
}
