//! [`Findings`]: what a run came to, as it was observed and as the store tells it.

use std::time::Duration;

use anyhow::Context;
use taskharbor::{Admin, AnyDriver, State, Timestamp};
use taskharbor::{Filter, List, QueueCounts};

use super::{
    job::{Enqueued, Report},
    tally::Kinds,
};

/// What a run came to.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    /// What was observed of each kind.
    pub(crate) kinds: Kinds,
    /// What the store counts in each queue.
    pub(crate) queues: Vec<QueueCounts>,
    /// What the store has dead-lettered, in the order in which it was stored.
    pub(crate) dead: Vec<Dead>,
    /// When the job that was scheduled was due, and when it was given to a worker.
    pub(crate) schedule: Option<Schedule>,
    /// What was produced.
    pub(crate) reports: Vec<Report>,
    /// What the store says is wrong with itself.
    pub(crate) inconsistencies: Vec<String>,
    /// How long the run took.
    pub(crate) elapsed: Duration,
}

/// A job in the DLQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) job_type: String,
    pub(crate) attempts: usize,
    pub(crate) reason: String,
}

/// When a job was due and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) due: Timestamp,
    pub(crate) began: Timestamp,
}

impl Findings {
    /// Asks the store and the handles what became of the jobs.
    pub(crate) async fn gather(
        driver: &AnyDriver,
        enqueued: &Enqueued,
        kinds: Kinds,
        elapsed: Duration,
    ) -> anyhow::Result<Self> {
        let now = driver.now().await?;
        let record = driver.inspect(enqueued.reminder.id().clone(), now).await?;
        let schedule = record.and_then(|record| {
            Some(Schedule { due: record.job.run_at?, began: record.started_at? })
        });
        let mut reports = Vec::new();
        for handle in &enqueued.reports {
            // One that is not over would keep us waiting; that it is missing is found later.
            let record = driver.inspect(handle.id().clone(), now).await?;
            if record.is_some_and(|record| record.state == State::Done) {
                reports.push(handle.wait().await.context("a report cannot be read")?);
            }
        }
        let inconsistencies = driver.check().await?.iter().map(ToString::to_string).collect();
        Ok(Self {
            kinds,
            queues: driver.counts(now).await?,
            dead: dead_letters(driver, now).await?,
            schedule,
            reports,
            inconsistencies,
            elapsed,
        })
    }
}

/// All of the DLQ, page by page.
async fn dead_letters(driver: &AnyDriver, now: Timestamp) -> anyhow::Result<Vec<Dead>> {
    let mut dead = Vec::new();
    let mut request = List::new(Filter::all().state(State::Dlq), 100, now);
    loop {
        let page = driver.list(request.clone()).await?;
        dead.extend(page.items.into_iter().map(|job| Dead {
            job_type: job.job_type.as_str().to_owned(),
            attempts: usize::try_from(job.attempts).unwrap_or(usize::MAX),
            reason: job.reason.map_or_else(String::new, |reason| reason.as_str().to_owned()),
        }));
        match page.next {
            Some(next) => request = request.after(next),
            None => return Ok(dead),
        }
    }
}
