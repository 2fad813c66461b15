//! Jobs and calls that the tests of this driver have in common.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, JobType, NewJob, QueueName, Text, Timestamp,
    admin::{Change, Configure, Counts, QueueCounts},
    driver::{
        Demand, Enqueue, Enqueued, LeaseToken, Leased, Reserve, Settle, Settled, Settlement,
        Transition,
    },
    job::{FailedAttempt, FailurePolicy, JobSet},
    name::Holder,
};

/// The time at which tests begin.
pub(crate) fn noon() -> Timestamp {
    after(Duration::ZERO)
}

/// This long after noon.
pub(crate) fn after(duration: Duration) -> Timestamp {
    Timestamp::from_micros(1_794_744_000_000_000).unwrap().saturating_add(duration)
}

/// How long leases last.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn id(text: impl AsRef<str>) -> JobId {
    JobId::new(text).unwrap()
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// A job with some payload in the queue `q`.
pub(crate) fn job(text: impl AsRef<str>) -> NewJob {
    job_in("q", text)
}

pub(crate) fn job_in(name: &str, text: impl AsRef<str>) -> NewJob {
    NewJob::new(id(text), queue(name), JobType::new("work").unwrap(), b"payload".as_slice())
}

/// A flow of five: two that begin, one after both, one after the first, and the tail after those.
pub(crate) fn flow(name: &str, policy: FailurePolicy) -> Vec<NewJob> {
    let member = |part: &str, parents: &[&str]| {
        let parents = parents.iter().map(|parent| id(format!("{name}-{parent}")));
        job(format!("{name}-{part}")).after(parents).on_failure(policy)
    };
    vec![
        member("a", &[]),
        member("b", &[]),
        member("c", &["a", "b"]),
        member("d", &["a"]),
        member("tail", &["c", "d"]),
    ]
}

/// Stores unrelated jobs at noon.
pub(crate) async fn store(driver: &impl Driver, jobs: Vec<NewJob>) -> Vec<Enqueued> {
    store_set(driver, JobSet::plain(jobs)).await
}

/// Stores one set at noon.
pub(crate) async fn store_set(driver: &impl Driver, set: JobSet) -> Vec<Enqueued> {
    let mut answers = driver.enqueue(Enqueue::new(vec![set], noon())).await.unwrap();
    answers.pop().unwrap().unwrap()
}

/// Stores one job.
pub(crate) async fn store_at(driver: &impl Driver, job: NewJob, now: Timestamp) -> Enqueued {
    let mut answers = driver.enqueue(Enqueue::new(vec![job.into()], now)).await.unwrap();
    answers.pop().unwrap().unwrap().pop().unwrap()
}

/// Changes one setting.
pub(crate) async fn configure(
    driver: &impl Admin,
    change: Change,
    now: Timestamp,
) -> Result<(), DriverError> {
    let answers = driver.configure(Configure::new(vec![change], now)).await?;
    assert_eq!(answers, [Ok(())]);
    Ok(())
}

/// Exact counts.
pub(crate) async fn counts(
    driver: &impl Admin,
    now: Timestamp,
) -> Result<Vec<QueueCounts>, DriverError> {
    driver.counts(Counts::new(now)).await
}

/// Asks for jobs of the queue `q`.
pub(crate) fn reserve(limit: usize, now: Timestamp, lease_for: Duration) -> Reserve {
    Reserve::new(
        vec![Demand::new(queue("q"), limit)],
        Holder::new("worker").unwrap(),
        now,
        lease_for,
    )
}

/// Whom the jobs were granted to.
pub(crate) fn tokens(jobs: &[Leased]) -> Vec<(JobId, LeaseToken)> {
    jobs.iter().map(|it| (it.job.id.clone(), it.lease.token)).collect()
}

/// Leases jobs of a queue at noon.
pub(crate) async fn lease(driver: &impl Driver, name: &str, limit: usize) -> Vec<Leased> {
    let holder = Holder::new("worker").unwrap();
    let demands = vec![Demand::new(queue(name), limit)];
    driver.reserve(Reserve::new(demands, holder, noon(), LEASE)).await.unwrap().jobs
}

/// Settles jobs at noon, all in the same way.
pub(crate) async fn settle(driver: &impl Driver, jobs: &[Leased], transition: Transition) {
    let items = jobs
        .iter()
        .map(|it| Settlement::new(it.job.id.clone(), it.lease.token, transition.clone()));
    let answers = driver.settle(Settle::new(items.collect(), noon())).await.unwrap();
    assert!(answers.iter().all(|it| matches!(it, Ok(Settled::Applied))), "{answers:?}");
}

pub(crate) fn ack() -> Transition {
    Transition::Ack { output: Some(b"output".as_slice().into()) }
}

pub(crate) fn fail() -> Transition {
    Transition::Fail { failure: failure(), reason: Text::new("no more attempts") }
}

pub(crate) fn failure() -> FailedAttempt {
    FailedAttempt::new(1, "it broke", noon())
}
