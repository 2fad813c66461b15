//! The decision how a job is settled, made from the result of its execution.
//!
//! It is a pure function: nothing here waits, and everything that it depends on is an argument. So the
//! workers of this library and those in other languages ([`crate::remote`]) decide in the same way.

use std::time::Duration;

use taskharbor_core::{
    JobType, Text, Timestamp,
    driver::{Limits, Transition},
    flow::Expansion,
    job::{FailedAttempt, FailurePolicy, JobView, ReleaseNote, ReleaseReason},
    name::Holder,
};

use crate::{
    CallResult, CancelReason, Failed, JobError, Outcome, RetryPolicy, codec::Format, outcome::Again,
};

/// The least delay of a snoozed job. With none it could run again and again without a pause.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// The longest hold of a throttled lane: one wrong answer of a service must not hold a lane for years.
const LONGEST_HOLD: Duration = Duration::from_secs(86_400);

/// The transition that is recorded for a job, and the event for observers after that.
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) transition: Transition,
    pub(crate) report: Report,
    /// Set if the handler has acknowledged the job in a transaction of its own.
    pub(crate) acked: Option<Box<Acked>>,
    /// Until when the lane of the job is held, if it was throttled: before the transition is recorded.
    pub(crate) holds_until: Option<Timestamp>,
}

/// The events about a job that its handler has acknowledged in a transaction. They are sent when the
/// store has answered whether that was committed.
#[derive(Debug)]
pub(crate) struct Acked {
    pub(crate) took: Duration,
    /// The error of the attempt if it was not committed, unless that was reported already.
    pub(crate) failure: Option<JobError>,
}

/// The failure of a handler that has acknowledged its job in a transaction, and went on as if it had
/// committed that.
pub(crate) fn not_committed() -> JobError {
    JobError::from("the transaction in which the job was acknowledged was not committed")
}

impl Resolution {
    const fn new(transition: Transition, report: Report) -> Self {
        Self { transition, report, acked: None, holds_until: None }
    }
}

#[derive(Debug)]
pub(crate) enum Report {
    Succeeded { took: Duration },
    Retried { run_at: Timestamp },
    DeadLettered { reason: Text },
    Released { why: ReleaseReason },
}

/// The properties of the job that a resolution depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) job_type: &'a JobType,
    /// How many executions have failed before this one.
    pub(crate) attempts: u32,
    pub(crate) on_failure: FailurePolicy,
}

impl<'a> From<&'a JobView> for Subject<'a> {
    fn from(job: &'a JobView) -> Self {
        let JobView { job_type, attempts, on_failure, .. } = job;
        Self { job_type, attempts: *attempts, on_failure: *on_failure }
    }
}

/// Everything else that a resolution depends on.
pub(crate) struct Circumstances<'a> {
    pub(crate) worker: &'a Holder,
    pub(crate) now: Timestamp,
    pub(crate) took: Duration,
    pub(crate) cancel: Option<CancelReason>,
    pub(crate) policy: &'a dyn RetryPolicy,
    pub(crate) max_attempts: u32,
    /// A random number for the policy, drawn only when it is asked.
    pub(crate) chance: &'a dyn Fn() -> f64,
    pub(crate) limits: Limits,
    pub(crate) format: &'a Format,
}

impl Circumstances<'_> {
    pub(crate) fn resolve(&self, job: Subject<'_>, result: CallResult) -> Resolution {
        match result {
            Ok(Outcome::Done(output)) => self.success(job, Transition::Ack { output }),
            Ok(Outcome::Continue(flow)) if flow.len() > Limits::MAX_EXPANSION_JOBS => {
                let text = format!(
                    "the handler returned a flow of {} jobs: an expansion has at most {}",
                    flow.len(),
                    Limits::MAX_EXPANSION_JOBS
                );
                self.failure(job, &JobError::unrecoverable(text))
            }
            Ok(Outcome::Continue(flow)) => {
                match flow.in_place_of(job.on_failure).into_jobs(self.format, self.now) {
                    Ok(jobs) => self.success(job, Transition::Expand(Expansion::new(jobs))),
                    Err(error) => self.failure(job, &JobError::unrecoverable(error)),
                }
            }
            Ok(Outcome::Snooze(delay)) => {
                let delay = delay.max(SHORTEST_DELAY);
                let text = format!("its handler snoozed it on worker {}", self.worker);
                let note = ReleaseNote::new(ReleaseReason::Snoozed, text);
                release_noted(Some(self.now.saturating_add(delay)), Started::Yes, note)
            }
            Ok(Outcome::Acked) => self.failure(job, &not_committed()),
            Err(error) => match error.again() {
                Again::Throttled(delay) => self.throttled(delay),
                _ => self.failure(job, &error),
            },
        }
    }

    fn throttled(&self, delay: Duration) -> Resolution {
        let delay = delay.clamp(SHORTEST_DELAY, LONGEST_HOLD);
        let until = self.now.saturating_add(delay);
        let text = format!("its handler was throttled for {delay:?} on worker {}", self.worker);
        let note = ReleaseNote::new(ReleaseReason::Throttled, text);
        let mut resolution = release_noted(Some(until), Started::Yes, note);
        resolution.holds_until = Some(until);
        resolution
    }

    fn success(&self, job: Subject<'_>, transition: Transition) -> Resolution {
        if transition.bytes() > Limits::MAX_CALL_BYTES / 2 {
            let text =
                "the handler returned a flow that is larger than a call to the store can carry";
            return self.failure(job, &JobError::unrecoverable(text));
        }
        match transition.check(&self.limits) {
            Ok(_) => Resolution::new(transition, Report::Succeeded { took: self.took }),
            // Another execution would have the same result.
            Err(error) => self.failure(job, &JobError::unrecoverable(error)),
        }
    }

    fn failure(&self, job: Subject<'_>, error: &JobError) -> Resolution {
        let text = error.text();
        let attempts = job.attempts.saturating_add(1).min(Limits::MAX_ATTEMPTS);
        let delay = match (error.again(), self.cancel) {
            (Again::Never | Again::Unreadable, _) => {
                return dead_letter(job.attempts, text.clone(), text, self.now);
            }
            // The handler was told to stop, so its failure says nothing about the job.
            (_, Some(reason)) => {
                return release_stopped(reason, self.worker);
            }
            (Again::After(delay) | Again::Throttled(delay), None) => delay,
            (Again::ByPolicy, None) => {
                let (job_type, error) = (job.job_type, text.as_str());
                let chance = (self.chance)();
                self.policy.delay(&Failed { attempts, job_type, error, chance })
            }
        };
        if attempts >= self.max_attempts {
            let times = if attempts == 1 { "time" } else { "times" };
            let reason = Text::new(format!("failed {attempts} {times}; last error: {text}"));
            return dead_letter(job.attempts, text, reason, self.now);
        }
        let run_at = self.now.saturating_add(delay);
        let failure = FailedAttempt::new(attempts, text, self.now);
        let transition = Transition::Retry { failure, run_at: Some(run_at) };
        Resolution::new(transition, Report::Retried { run_at })
    }
}

/// Whether a handler had started: then the job did not crash its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    Yes,
    No,
}

/// The job is released to its old position before its handler has started; nothing is charged, and there
/// is nothing to note.
pub(crate) const fn release(why: ReleaseReason) -> Resolution {
    let transition = Transition::Release { run_at: None, started: false, note: None };
    Resolution::new(transition, Report::Released { why })
}

/// The job is released, not to run before `run_at`, and the store keeps the note of it.
pub(crate) fn release_noted(
    run_at: Option<Timestamp>,
    started: Started,
    note: ReleaseNote,
) -> Resolution {
    let why = note.reason;
    let started = started == Started::Yes;
    let transition = Transition::Release { run_at, started, note: Some(note) };
    Resolution::new(transition, Report::Released { why })
}

/// The job is released because its handler was told to stop.
pub(crate) fn release_stopped(reason: CancelReason, worker: &Holder) -> Resolution {
    let text = match reason {
        CancelReason::Requested => "its cancellation was requested".to_owned(),
        _ => format!("worker {worker} shut down while it ran it"),
    };
    release_noted(None, Started::Yes, ReleaseNote::new(reason.as_release(), text))
}

/// The job is dead-lettered for this reason, which counts as a failure. `attempts` executions have failed
/// before.
pub(crate) fn dead_letter(attempts: u32, error: Text, reason: Text, now: Timestamp) -> Resolution {
    let attempts = attempts.saturating_add(1).min(Limits::MAX_ATTEMPTS);
    let failure = FailedAttempt::new(attempts, error, now);
    let transition = Transition::Fail { failure, reason: reason.clone() };
    Resolution::new(transition, Report::DeadLettered { reason })
}

/// The job is dead-lettered because its lease ran out too often in a row; `None` if it did not.
pub(crate) fn crashed(job: &JobView, crash_limit: u32, now: Timestamp) -> Option<Resolution> {
    let times = job.expirations;
    if times < crash_limit {
        return None;
    }
    // The start of the first run was not recorded, that of each other run was. LEA-12
    let reason = Text::new(match times {
        0 | 1 => "its lease ran out: its worker died, hung or lost the store, or the job never reached it"
            .to_owned(),
        _ => format!(
            "its lease ran out {times} times in a row: its worker died, hung or lost the store while running it, but the first time the job may not have reached it"
        ),
    });
    Some(dead_letter(job.attempts, reason.clone(), reason, now))
}

/// A job whose lease ran out before is released, not to run for a while: because others like it run, or
/// because its lease may not have been over.
pub(crate) fn release_suspect(
    job: &JobView,
    worker: &Holder,
    delay: Duration,
    why: ReleaseReason,
    now: Timestamp,
) -> Resolution {
    let text = match why {
        ReleaseReason::ClockSetBack => format!(
            "the store's clock was set back or did not answer, so the worker that had it before worker {worker} may still run it"
        ),
        _ => format!(
            "its lease ran out {} times in a row, and worker {worker} runs such jobs one at a time",
            job.expirations
        ),
    };
    let unfit_since = job.released.as_ref().and_then(|note| note.unfit_since);
    let note = ReleaseNote::new(why, text).unfit_since(unfit_since);
    release_noted(Some(now.saturating_add(delay)), Started::No, note)
}

/// The failure of an execution that took longer than it may.
pub(crate) fn timed_out(timeout: Duration) -> JobError {
    JobError::from(format!("timed out after {timeout:?}"))
}
