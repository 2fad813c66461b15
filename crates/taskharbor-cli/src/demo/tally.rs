//! [`Tally`]: what an observer sees of the jobs, kind by kind.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskharbor::{Event, JobType, Observer};
use tokio::sync::watch;

/// Counts what happens to jobs, for each type by itself.
#[derive(Debug)]
pub(crate) struct Tally {
    kinds: Mutex<Kinds>,
    /// How many jobs are over.
    over: watch::Sender<usize>,
}

/// What was seen, by the type of the jobs.
pub(crate) type Kinds = BTreeMap<String, Seen>;

/// How many jobs of all kinds are over.
pub(crate) fn over(kinds: &Kinds) -> usize {
    kinds.values().map(Seen::over).sum()
}

/// What was seen of one kind of job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How many were enqueued.
    pub(crate) jobs: usize,
    /// How many succeeded.
    pub(crate) done: usize,
    /// How often one was to be tried again.
    pub(crate) retries: usize,
    /// How many were dead-lettered.
    pub(crate) dead: usize,
    /// How long each execution took, whatever it came to.
    pub(crate) took: Vec<Duration>,
}

impl Seen {
    /// How many jobs nothing more will happen to.
    const fn over(&self) -> usize {
        self.done + self.dead
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { kinds: Mutex::default(), over: watch::Sender::new(0) }
    }

    /// What was seen so far.
    pub(crate) fn read(&self) -> Kinds {
        self.lock().clone()
    }

    /// Waits until so many jobs are over.
    pub(crate) async fn reached(&self, jobs: usize) {
        // The sender is ours, so there always is one.
        let _ = self.over.subscribe().wait_for(|over| *over >= jobs).await;
    }

    fn lock(&self) -> MutexGuard<'_, Kinds> {
        // Numbers are never half written, so one that panicked has spoilt nothing.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, job_type: &JobType, change: impl FnOnce(&mut Seen)) {
        change(self.lock().entry(job_type.as_str().to_owned()).or_default());
    }
}

impl Observer for Tally {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Enqueued { job_type, is_new: true, .. } => {
                self.change(job_type, |seen| seen.jobs += 1);
            }
            Event::Failed { job, took, .. } => {
                self.change(&job.job_type, |seen| seen.took.push(*took));
            }
            Event::Retried { job, .. } => self.change(&job.job_type, |seen| seen.retries += 1),
            Event::Succeeded { job, took, .. } => {
                self.change(&job.job_type, |seen| {
                    seen.done += 1;
                    seen.took.push(*took);
                });
                self.over.send_modify(|over| *over += 1);
            }
            Event::DeadLettered { job, .. } => {
                self.change(&job.job_type, |seen| seen.dead += 1);
                self.over.send_modify(|over| *over += 1);
            }
            _ => {}
        }
    }
}
