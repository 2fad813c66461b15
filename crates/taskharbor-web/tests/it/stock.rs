//! Jobs for a test to look at: waiting, failed, leased.

use std::time::Duration;

use taskharbor::{Driver, JobId, JobType, QueueName, Text};
use taskharbor_core::{
    NewJob,
    driver::{Enqueue, Leased},
    job::{FailedAttempt, JobSet},
    name::Holder,
};

use crate::rig::Rig;

/// A job of this type, as it is handed to a store.
pub(crate) async fn new_job(rig: &Rig, queue: &str, job_type: &str, payload: &str) -> NewJob {
    let id = JobId::generate(rig.driver.now().await.unwrap()).unwrap();
    let (queue, job_type) = (QueueName::new(queue).unwrap(), JobType::new(job_type).unwrap());
    NewJob::new(id, queue, job_type, payload.as_bytes())
}

/// Stores this job.
pub(crate) async fn store(rig: &Rig, job: NewJob) -> JobId {
    let (id, now) = (job.id.clone(), rig.driver.now().await.unwrap());
    rig.driver.enqueue_job(job, now).await.unwrap();
    id
}

/// Stores this many jobs.
pub(crate) async fn enqueue(rig: &Rig, queue: &str, job_type: &str, count: usize) -> Vec<JobId> {
    let (mut ids, mut sets) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let job = new_job(rig, queue, job_type, "{}").await;
        ids.push(job.id.clone());
        sets.push(JobSet::from(job));
    }
    let now = rig.driver.now().await.unwrap();
    for stored in rig.driver.enqueue(Enqueue::new(sets, now)).await.unwrap() {
        stored.unwrap();
    }
    ids
}

/// Leases the next job of a queue to `worker-1`.
pub(crate) async fn reserve(rig: &Rig, queue: &str) -> Option<Leased> {
    let (queue, holder) = (QueueName::new(queue).unwrap(), Holder::new("worker-1").unwrap());
    let now = rig.driver.now().await.unwrap();
    rig.driver.reserve_job(queue, holder, now, Duration::from_secs(60)).await.unwrap()
}

/// Dead-letters the jobs of a queue, each with this error and a number of its own in it.
pub(crate) async fn fail_all(rig: &Rig, queue: &str, error: &str) {
    let mut number = 0_u32;
    while let Some(leased) = reserve(rig, queue).await {
        number += 1;
        let text = error.replace("{n}", &number.to_string());
        let now = rig.driver.now().await.unwrap();
        let failure = FailedAttempt::new(leased.job.attempts + 1, text.as_str(), now);
        rig.driver.fail(&leased, failure, Text::new(text), now).await.unwrap();
    }
}
