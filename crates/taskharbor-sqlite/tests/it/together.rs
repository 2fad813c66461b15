//! Jobs that are granted together and settled together.

use taskharbor_core::{
    Admin, Driver, QueueName, State,
    driver::{Demand, Leased, Reserve, Settle, Settled, Settlement, Transition},
    error::Refusal,
    name::Holder,
};
use taskharbor_sqlite::SqliteDriver;

use crate::{
    fixture::{LEASE, NOON, job, put, queue, single, state},
    temp_dir::TempDir,
};

/// Grants this many jobs of each queue in one call.
async fn take_all(driver: &SqliteDriver, queues: Vec<QueueName>) -> Vec<Leased> {
    let demands = queues.into_iter().map(|queue| Demand::new(queue, 10)).collect();
    let request = Reserve::new(demands, Holder::new("tester").unwrap(), NOON, LEASE);
    driver.reserve(request).await.unwrap().jobs
}

fn ack(job: &Leased) -> Settlement {
    Settlement::new(job.job.id.clone(), job.lease.token, Transition::Ack { output: None })
}

async fn settle(driver: &SqliteDriver, items: Vec<Settlement>) -> Vec<Result<Settled, Refusal>> {
    driver.settle(Settle::new(items, NOON)).await.unwrap()
}

async fn three_jobs(temp: &TempDir) -> (SqliteDriver, Vec<Leased>) {
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    for text in ["a", "b", "c"] {
        put(&driver, text).await;
    }
    let jobs = take_all(&driver, vec![queue()]).await;
    assert_eq!(jobs.len(), 3);
    (driver, jobs)
}

#[tokio::test]
async fn an_ack_that_is_not_applied_does_not_disturb_those_granted_with_it() {
    let temp = TempDir::new();
    let (driver, jobs) = three_jobs(&temp).await;
    single(&driver).ack(&jobs[1], None, NOON).await.unwrap();
    let answers = settle(&driver, jobs.iter().map(ack).collect()).await;
    assert_eq!(answers, [Ok(Settled::Applied), Ok(Settled::AlreadyTerminal), Ok(Settled::Applied)]);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn tokens_that_were_granted_together_cannot_be_exchanged() {
    let temp = TempDir::new();
    let (driver, mut jobs) = three_jobs(&temp).await;
    let (first, second) = (jobs[0].lease.token, jobs[1].lease.token);
    (jobs[0].lease.token, jobs[1].lease.token) = (second, first);
    let answers = settle(&driver, jobs.iter().map(ack).collect()).await;
    let mismatch = Err(Refusal::LeaseMismatch);
    assert_eq!(answers, [mismatch.clone(), mismatch, Ok(Settled::Applied)]);
    assert_eq!(state(&driver, "a").await, Some(State::Inflight));
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn jobs_of_several_queues_are_settled_in_one_call() {
    let temp = TempDir::new();
    let (driver, jobs) = three_jobs(&temp).await;
    settle(&driver, jobs.iter().map(ack).collect()).await;
    let other = QueueName::new("other").unwrap();
    for number in 0..6 {
        let mut new = job(&format!("job {number}"));
        if number % 2 == 0 {
            new.queue = other.clone();
        }
        single(&driver).enqueue_job(new, NOON).await.unwrap();
    }
    let jobs = take_all(&driver, vec![queue(), other]).await;
    assert_eq!(jobs.len(), 6);
    let answers = settle(&driver, jobs.iter().rev().map(ack).collect()).await;
    assert!(answers.iter().all(|answer| *answer == Ok(Settled::Applied)), "{answers:?}");
    assert_eq!(driver.check().await.unwrap(), [], "each queue counts its own");
}
