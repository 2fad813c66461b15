//! Evictions on one file that several use.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, QueueName, Timestamp,
    admin::{Evict, Evicted, QueueLimits},
    driver::{Demand, Leased, Reserve, Reserved, Settle, Settled, Settlement, Transition},
    error::Refusal,
    name::Holder,
};
use taskharbor_sqlite::SqliteDriver;

use crate::{
    fixture::{LEASE, NOON, job, lane, queue, take},
    lane::{limit, open, reserve, store},
    temp_dir::TempDir,
};

fn later(seconds: u64) -> Timestamp {
    NOON.saturating_add(Duration::from_secs(seconds))
}

fn evict(now: Timestamp) -> Evict {
    Evict::new(Holder::new("tester").unwrap(), now)
}

fn ack(leased: &Leased, now: Timestamp) -> Settle {
    let ack = Transition::Ack { output: None };
    let item = Settlement::new(leased.job.id.clone(), leased.lease.token, ack);
    Settle::new(vec![item], now)
}

async fn reserve_as(name: &str, driver: &SqliteDriver, limit: usize, now: Timestamp) -> Reserved {
    let demands = vec![Demand::new(queue(), limit)];
    let request = Reserve::new(demands, Holder::new(name).unwrap(), now, LEASE);
    driver.reserve(request).await.unwrap()
}

/// The line holds what is over for some calls. An eviction goes by its own time.
#[tokio::test]
async fn leases_that_a_later_call_has_put_in_line_are_ended() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    store(&driver, ["a", "b", "c"].map(|text| job(text).lane(lane("blue")))).await;
    assert_eq!(reserve(&driver, 3).await.jobs.len(), 3);
    // All three are over for this call, and it takes one of them.
    assert_eq!(reserve_as("other", &driver, 1, later(61)).await.jobs.len(), 1);
    assert_eq!(driver.evict(evict(later(1))).await.unwrap(), Evicted::Leases(2));
    assert_eq!(driver.evict(evict(later(1))).await.unwrap(), Evicted::Leases(0));
    assert_eq!(reserve_as("other", &driver, 3, later(1)).await.jobs.len(), 2);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn leases_are_found_in_every_queue_lane_and_priority() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    let jobs = (0..60_i16).map(|number| {
        let mut new = job(&number.to_string()).priority(number % 3);
        new.queue = QueueName::new(format!("q{}", number % 5)).unwrap();
        if number % 2 == 0 { new.lane(lane(&format!("{}", number % 7))) } else { new }
    });
    store(&driver, jobs).await;
    let queues = (0..5).map(|number| format!("q{number}"));
    let demand = |name: String| Demand::new(QueueName::new(name).unwrap(), 100);
    let demands: Vec<_> = queues.map(demand).collect();
    let request = |name, now| Reserve::new(demands.clone(), Holder::new(name).unwrap(), now, LEASE);
    assert_eq!(driver.reserve(request("tester", NOON)).await.unwrap().jobs.len(), 60);
    assert_eq!(driver.evict(evict(later(1))).await.unwrap(), Evicted::Leases(60));
    assert_eq!(driver.reserve(request("other", later(1))).await.unwrap().jobs.len(), 60);
    assert_eq!(driver.evict(evict(later(1))).await.unwrap(), Evicted::Leases(0));
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_place_that_an_eviction_frees_is_there_for_another_driver() {
    let temp = TempDir::new();
    let (here, there) = (open(&temp).await, open(&temp).await);
    limit(&here, QueueLimits::new().inflight(2).per_lane(1)).await;
    store(&here, ["a", "b", "c"].map(|text| job(text).lane(lane(text)))).await;
    let held = reserve(&here, 3).await.jobs;
    assert_eq!(held.len(), 2);
    assert_eq!(reserve_as("other", &there, 3, later(1)).await.jobs, []);
    let mut watch = there.watch(vec![queue()]).await.unwrap();
    let woken = |watch: Option<_>| assert!(watch.is_some(), "no watch was woken");
    assert_eq!(here.evict(evict(later(1))).await.unwrap(), Evicted::Leases(2));
    tokio::time::timeout(Duration::from_secs(10), watch.woken()).await.map(woken).unwrap();
    assert_eq!(there.settle(ack(&held[0], later(1))).await.unwrap(), [Err(Refusal::LeaseExpired)]);
    assert_eq!(reserve_as("other", &there, 3, later(1)).await.jobs.len(), 2);
    assert_eq!(here.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_token_is_refused_as_if_its_time_were_over() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    store(&driver, [job("a")]).await;
    let held = take(&driver).await.unwrap();
    assert_eq!(driver.evict(evict(NOON)).await.unwrap(), Evicted::Leases(1));
    assert_eq!(driver.settle(ack(&held, NOON)).await.unwrap(), [Err(Refusal::LeaseExpired)]);
    let again = take(&driver).await.unwrap();
    assert_ne!(again.lease.token, held.lease.token);
    assert_eq!(driver.settle(ack(&again, NOON)).await.unwrap(), [Ok(Settled::Applied)]);
    assert_eq!(driver.check().await.unwrap(), []);
}
