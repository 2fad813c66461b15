//! The building blocks of tests: times, names, jobs and calls.

use std::time::Duration;

use taskharbor_core::{
    Admin, AnyDriver, JobId, JobType, NewJob, QueueName, State, Timestamp,
    driver::{Enqueued, Leased},
    name::{Holder, LaneName},
};
use taskharbor_sqlite::SqliteDriver;

/// The time at which tests begin.
pub(crate) const NOON: Timestamp = match Timestamp::from_micros(1_794_744_000_000_000) {
    Ok(at) => at,
    Err(_) => panic!("within the range"),
};

pub(crate) const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

pub(crate) fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

pub(crate) fn job(text: &str) -> NewJob {
    NewJob::new(id(text), queue(), JobType::new("work").unwrap(), b"payload")
}

pub(crate) fn lane(text: &str) -> LaneName {
    LaneName::new(text).unwrap()
}

/// A handle with calls for single jobs.
pub(crate) fn single(driver: &SqliteDriver) -> AnyDriver {
    AnyDriver::new(driver.clone())
}

pub(crate) async fn put(driver: &SqliteDriver, text: &str) {
    let stored = single(driver).enqueue_job(job(text), NOON).await.unwrap();
    assert_eq!(stored, Enqueued::Inserted(id(text)));
}

pub(crate) async fn take(driver: &SqliteDriver) -> Option<Leased> {
    let holder = Holder::new("tester").unwrap();
    single(driver).reserve_job(queue(), holder, NOON, LEASE).await.unwrap()
}

/// Reserves the next job, which must be this one, and acks it.
pub(crate) async fn run(driver: &SqliteDriver, text: &str) {
    let leased = take(driver).await.expect("a job");
    assert_eq!(leased.job.id, id(text));
    single(driver).ack(&leased, None, NOON).await.unwrap();
}

pub(crate) async fn state(driver: &impl Admin, text: &str) -> Option<State> {
    driver.inspect(id(text), NOON).await.unwrap().map(|record| record.state)
}

/// The store is whole and can be used.
pub(crate) async fn works(driver: &SqliteDriver, text: &str) {
    put(driver, text).await;
    run(driver, text).await;
    assert_eq!(state(driver, text).await, Some(State::Done));
    assert_eq!(driver.check().await.unwrap(), []);
}
