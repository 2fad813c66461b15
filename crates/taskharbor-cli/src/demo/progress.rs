//! [`Kinds`]: the states of the jobs so far, by kind, read from the store.

use std::{collections::BTreeMap, time::Duration};

use taskharbor::{Admin, AnyDriver, Filter, JobSummary, Limits, List, State, Timestamp};

/// What is stored, by the type of the jobs.
pub(crate) type Kinds = BTreeMap<String, Seen>;

/// How many jobs of all kinds are terminal.
pub(crate) fn over(kinds: &Kinds) -> usize {
    kinds.values().map(Seen::over).sum()
}

/// The states of one kind of job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How many there are.
    pub(crate) jobs: usize,
    /// How many succeeded.
    pub(crate) done: usize,
    /// How often one was to be tried again.
    pub(crate) retries: usize,
    /// How many were dead-lettered.
    pub(crate) dead: usize,
    /// How long the last execution of each took.
    pub(crate) took: Vec<Duration>,
}

impl Seen {
    /// How many jobs nothing more will happen to.
    const fn over(&self) -> usize {
        self.done + self.dead
    }

    fn add(&mut self, job: &JobSummary) {
        let attempts = usize::try_from(job.attempts).unwrap_or(usize::MAX);
        self.jobs += 1;
        match job.state {
            State::Done => {
                self.done += 1;
                self.retries += attempts;
            }
            State::Dlq => {
                self.dead += 1;
                // The last failure was not followed by another try.
                self.retries += attempts.saturating_sub(1);
            }
            _ => self.retries += attempts,
        }
        if let (Some(started), Some(finished)) = (job.started_at, job.finished_at) {
            self.took.push(finished.since(started));
        }
    }
}

/// All jobs that are stored.
pub(crate) async fn jobs(driver: &AnyDriver, now: Timestamp) -> anyhow::Result<Vec<JobSummary>> {
    let mut jobs = Vec::new();
    let mut request = List::new(Filter::all(), Limits::MAX_PAGE, now);
    loop {
        let page = driver.list(request.clone()).await?;
        jobs.extend(page.items);
        match page.next {
            Some(next) => request = request.after(next),
            None => return Ok(jobs),
        }
    }
}

/// The jobs, counted.
pub(crate) fn count(jobs: &[JobSummary]) -> Kinds {
    let mut kinds = Kinds::new();
    for job in jobs {
        kinds.entry(job.job_type.as_str().to_owned()).or_default().add(job);
    }
    kinds
}
