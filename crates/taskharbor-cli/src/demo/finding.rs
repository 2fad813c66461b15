//! [`Findings`]: the result of a run, read from the store.

use std::time::Duration;

use anyhow::Context;
use taskharbor::{Admin, AnyDriver, JobId, JobSummary, QueueCounts, State, Timestamp};
use taskharbor_core::admin::Counts;

use super::{
    is_over,
    job::{Enqueued, Report},
    plan,
    progress::{self, Kinds},
};

/// What a run came to.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    /// The result for each kind.
    pub(crate) kinds: Kinds,
    /// What the store counts in each queue.
    pub(crate) queues: Vec<QueueCounts>,
    /// What the store has dead-lettered, in the order in which it was stored.
    pub(crate) dead: Vec<Dead>,
    /// When the job that was scheduled was due, and when it was given to a worker.
    pub(crate) schedule: Option<Schedule>,
    /// What was produced.
    pub(crate) reports: Vec<Report>,
    /// How the worker was killed, and what came of it.
    pub(crate) crash: Option<Crash>,
    /// Jobs that were over when the worker was killed and have run again since.
    pub(crate) run_again: Vec<String>,
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

/// How the worker was killed.
#[derive(Clone, Debug)]
pub(crate) struct Crash {
    /// The process.
    pub(crate) pid: u32,
    /// How far into the run.
    pub(crate) at: Duration,
    /// The jobs that it was running.
    pub(crate) running: Vec<JobId>,
    /// Those that were over by then, and how often each had been given to a worker.
    over: Vec<(JobId, u32)>,
}

impl Crash {
    /// A worker that was killed when the jobs stood like this.
    pub(crate) fn new(pid: u32, at: Duration, jobs: &[JobSummary]) -> Self {
        let running = jobs.iter().filter(|job| job.state == State::Inflight);
        let over = jobs.iter().filter(|job| is_over(job));
        Self {
            pid,
            at,
            running: running.map(|job| job.id.clone()).collect(),
            over: over.map(|job| (job.id.clone(), job.deliveries)).collect(),
        }
    }

    /// What happened, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let (pid, seconds, running) = (self.pid, self.at.as_secs_f64(), self.running.len());
        format!(
            "  {seconds:4.1} s  kill -9 {pid}: the worker died with {running} jobs in its hands; another goes on"
        )
    }

    fn run_again(&self, jobs: &[JobSummary]) -> Vec<String> {
        let again = jobs.iter().filter(|job| {
            self.over.iter().any(|(id, deliveries)| *id == job.id && *deliveries != job.deliveries)
        });
        again.map(|job| job.id.to_string()).collect()
    }
}

impl Findings {
    /// Asks the store and the handles for the states of the jobs.
    pub(crate) async fn gather(
        driver: &AnyDriver,
        enqueued: &Enqueued,
        crash: Option<Crash>,
        elapsed: Duration,
    ) -> anyhow::Result<Self> {
        let now = driver.now().await?;
        let record = driver.inspect(enqueued.reminder.id().clone(), now).await?;
        let schedule = record.and_then(|record| {
            // A lease that ran out makes a job forget what time it was to wait for.
            let due = record.job.created_at.saturating_add(plan::AHEAD);
            Some(Schedule { due, began: record.started_at? })
        });
        let mut reports = Vec::new();
        for handle in &enqueued.reports {
            // One that is not over would keep us waiting; that it is missing is found later.
            let record = driver.inspect(handle.id().clone(), now).await?;
            if record.is_some_and(|record| record.state == State::Done) {
                reports.push(handle.wait().await.context("a report cannot be read")?);
            }
        }
        let jobs = progress::jobs(driver, now).await?;
        let run_again = crash.as_ref().map(|crash| crash.run_again(&jobs)).unwrap_or_default();
        let inconsistencies = driver.check().await?.iter().map(ToString::to_string).collect();
        Ok(Self {
            kinds: progress::count(&jobs),
            queues: driver.counts(Counts::new(now)).await?,
            dead: dead_letters(jobs),
            crash,
            run_again,
            schedule,
            reports,
            inconsistencies,
            elapsed,
        })
    }
}

/// What lies in the DLQ.
fn dead_letters(jobs: Vec<JobSummary>) -> Vec<Dead> {
    let dead = jobs.into_iter().filter(|job| job.state == State::Dlq);
    let dead = dead.map(|job| Dead {
        job_type: job.job_type.as_str().to_owned(),
        attempts: usize::try_from(job.attempts).unwrap_or(usize::MAX),
        reason: job.reason.map_or_else(String::new, |reason| reason.as_str().to_owned()),
    });
    dead.collect()
}
