//! The policy of a worker, for jobs that run in programs without this library.
//!
//! A worker of this library decides when a failure is retried, when a job is dead-lettered, and
//! which jobs it does not start at all. With this module a server that gives jobs to programs in
//! other languages makes the same decisions. Only [`input`] does I/O. Nothing is kept between two
//! calls: the data for settling a job is in its [`Ticket`], which the program sends back.
//!
//! 1. Reserve jobs, and ask [`RemoteWorker::admit`] about each.
//! 2. [`Admission::Settle`] is recorded at once. [`Admission::Run`] has the ticket of a job that may run.
//! 3. When it has run, [`Ticket::settle`] returns the transition to record.
//!
//! ```
//! use taskharbor::{JobError, Timestamp, remote::{Admission, RemoteWorker}};
//! use taskharbor_core::{driver::{Leased, Transition}, name::Holder};
//!
//! # fn decide(leased: &Leased, now: Timestamp) -> Result<Option<Transition>, Box<dyn std::error::Error>> {
//! let worker = RemoteWorker::new(Holder::new("python-7")?);
//! let ticket = match worker.admit(leased, now) {
//!     Admission::Settle(transition) => return Ok(Some(transition)),
//!     Admission::Run(ticket) => ticket,
//! };
//! // The job runs elsewhere, and fails.
//! let failed = Err(JobError::from("the mail server is away"));
//! Ok(Some(ticket.settle(failed, now, 0.5).transition))
//! # }
//! ```

mod input;
mod ticket;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

use taskharbor_core::{
    JobType, Timestamp,
    driver::{Leased, Transition},
    job::{JobView, ReleaseReason},
    name::Holder,
};

use crate::{
    Exponential, ImpossiblePolicy, MissingHandler, RetryPolicy,
    worker::{
        DEFAULT_CRASH_LIMIT,
        caution::{self, needs_quarantine},
        resolution, unfit,
    },
};

pub use input::{InputError, RemoteInput, input};
pub use ticket::{Decision, InvalidTicket, Overtime, Ticket};

/// The policy of a remote worker. The defaults are those of [`Worker`](crate::Worker).
#[derive(Clone, Debug)]
#[must_use = "a policy decides nothing until it is asked"]
pub struct RemoteWorker {
    holder: Holder,
    retry: Exponential,
    timeout: Option<Duration>,
    crash_limit: u32,
    missing: MissingHandler,
    /// `None` if it takes every type.
    types: Option<HashMap<JobType, RemoteType>>,
}

/// A remote worker's settings for a job type. They apply to jobs without settings of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteType {
    /// How many executions may fail.
    pub max_attempts: Option<u32>,
    /// How long one execution may take.
    pub timeout: Option<Duration>,
}

impl RemoteType {
    /// Creates settings of which none is set.
    #[must_use]
    pub const fn new() -> Self {
        Self { max_attempts: None, timeout: None }
    }

    /// How many executions may fail. Defaults to the worker's retry policy.
    #[must_use]
    pub const fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// How long one execution may take. Defaults to the worker's timeout.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Whether a job that was reserved may run.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The job runs.
    Run(Ticket),
    /// The job does not run, and this transition is recorded.
    Settle(Transition),
}

impl RemoteWorker {
    /// A worker that holds its leases under this name and takes jobs of every type.
    pub fn new(holder: Holder) -> Self {
        Self {
            holder,
            retry: Exponential::new(),
            timeout: None,
            crash_limit: DEFAULT_CRASH_LIMIT,
            missing: MissingHandler::default(),
            types: None,
        }
    }

    /// The retry policy: when failed jobs are retried, and how often they may fail if neither the
    /// job nor its type sets that. Defaults to [`Exponential::new`].
    pub const fn retry(mut self, retry: Exponential) -> Self {
        self.retry = retry;
        self
    }

    /// How long one execution may take, unless the job or its type says so. Defaults to no limit.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How often the lease of a job may run out in a row before the job is dead-lettered instead of run.
    /// Defaults to 5.
    pub const fn crash_limit(mut self, limit: u32) -> Self {
        self.crash_limit = limit;
        self
    }

    /// How a job is treated whose type the worker does not take. Defaults to [`MissingHandler::Wait`] for
    /// 10 minutes.
    pub const fn missing_handler(mut self, missing: MissingHandler) -> Self {
        self.missing = missing;
        self
    }

    /// Takes jobs of this type, and no others but those that were added before. Defaults to every type.
    pub fn takes(mut self, job_type: JobType, says: RemoteType) -> Self {
        self.types.get_or_insert_default().insert(job_type, says);
        self
    }

    /// Takes no type but those that are added.
    pub fn takes_named(mut self) -> Self {
        self.types.get_or_insert_default();
        self
    }

    /// Checks that the policy is valid.
    ///
    /// # Errors
    ///
    /// [`ImpossiblePolicy`].
    pub fn check(&self) -> Result<(), ImpossiblePolicy> {
        let of_types = self.types.iter().flat_map(HashMap::values);
        let attempts = of_types.filter_map(|says| says.max_attempts);
        attempts
            .chain([self.crash_limit])
            .try_for_each(|number| Exponential::new().max_attempts(number).check())?;
        self.retry.check()
    }

    /// Decides whether a job that was reserved at `now` may run.
    #[must_use]
    pub fn admit(&self, leased: &Leased, now: Timestamp) -> Admission {
        let job = &leased.job;
        if let Some(crashed) = resolution::crashed(job, self.crash_limit, now) {
            return Admission::Settle(crashed.transition);
        }
        let Some(says) = self.says(&job.job_type) else {
            let wait = self.missing.into();
            let refused = unfit::without_handler(&self.holder, job, wait, now);
            return Admission::Settle(refused.transition);
        };
        let own = job.max_attempts.or(says.max_attempts);
        let max_attempts = own.unwrap_or_else(|| RetryPolicy::max_attempts(&self.retry));
        let timeout = job.timeout.or(says.timeout).or(self.timeout);
        let retry = self.retry;
        Admission::Run(Ticket::new(leased, &self.holder, now, retry, max_attempts, timeout))
    }

    /// What the worker says about a type; `None` if it does not take it.
    fn says(&self, job_type: &JobType) -> Option<RemoteType> {
        match &self.types {
            None => Some(RemoteType::new()),
            Some(types) => types.get(job_type).copied(),
        }
    }

    /// How long the worker must reserve nothing while it runs this job, because the job may have
    /// killed a process before; `None` for all other jobs. Such jobs run one at a time.
    #[must_use]
    pub const fn runs_alone_for(&self, job: &JobView) -> Option<Duration> {
        if needs_quarantine(job.expirations, self.crash_limit) {
            return Some(caution::WATCHED);
        }
        None
    }

    /// Releases a job that would run alone while another one like it runs.
    #[must_use]
    pub fn keep_apart(&self, job: &JobView, delay: Duration, now: Timestamp) -> Transition {
        let why = ReleaseReason::KeptApart;
        resolution::release_suspect(job, &self.holder, delay, why, now).transition
    }

    /// Releases a job whose previous lease may still be valid, because the clock by which it was
    /// reserved was ahead of the store's or could not be compared with it.
    #[must_use]
    pub fn clock_set_back(&self, job: &JobView, delay: Duration, now: Timestamp) -> Transition {
        let why = ReleaseReason::ClockSetBack;
        resolution::release_suspect(job, &self.holder, delay, why, now).transition
    }

    /// Releases a job that was reserved and will not start: it returns to its old position.
    #[must_use]
    pub fn release_unstarted() -> Transition {
        resolution::release(ReleaseReason::Waited).transition
    }
}
