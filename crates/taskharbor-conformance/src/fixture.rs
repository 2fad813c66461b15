//! The building blocks of cases: times, names, jobs and outcomes.

use std::{fmt::Debug, time::Duration};

use taskharbor_core::{
    Blob, DriverError, JobId, JobType, NewJob, QueueName, State, Text, Timestamp,
    admin::{Action, Requeue},
    driver::{Extension, JoinList, Lease, LeaseToken, Leased, OutputEntry, Settlement, Transition},
    error::InvalidRequest,
    flow::Expansion,
    job::{FailedAttempt, JoinReading},
    name::{Holder, IdempotencyKey},
};

/// The time at which cases begin: the start of the year 2026.
pub(crate) const T0: Timestamp = match Timestamp::from_micros(1_767_225_600_000_000) {
    Ok(at) => at,
    Err(_) => panic!("within the range"),
};

/// How long leases last where it does not matter.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A token that was never given to a worker.
pub(crate) const STRANGER: LeaseToken = LeaseToken::from_bits(0x57a4_6e12);

/// One microsecond.
pub(crate) const TICK: Duration = Duration::from_micros(1);

/// This many seconds after the beginning.
pub(crate) fn at(seconds: u64) -> Timestamp {
    T0.saturating_add(Duration::from_secs(seconds))
}

/// The instant before.
pub(crate) fn before(instant: Timestamp) -> Timestamp {
    instant.saturating_sub(TICK)
}

/// The instant after.
pub(crate) fn after(instant: Timestamp) -> Timestamp {
    instant.saturating_add(TICK)
}

pub(crate) fn id(text: &str) -> JobId {
    JobId::new(text).expect("a valid id")
}

pub(crate) fn ids(texts: &[&str]) -> Vec<JobId> {
    texts.iter().map(|text| id(text)).collect()
}

pub(crate) fn queue(text: &str) -> QueueName {
    QueueName::new(text).expect("a valid queue name")
}

pub(crate) fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).expect("a valid key")
}

pub(crate) fn holder() -> Holder {
    Holder::new("worker-1").expect("a valid holder")
}

/// A job in the queue `q`.
pub(crate) fn job(text: &str) -> NewJob {
    job_in("q", text)
}

/// A job in another queue; its payload is its id.
pub(crate) fn job_in(in_queue: &str, text: &str) -> NewJob {
    let job_type = JobType::new("work").expect("a valid type");
    NewJob::new(id(text), queue(in_queue), job_type, text.as_bytes())
}

/// A job in the queue `q` that waits for others.
pub(crate) fn child(text: &str, parents: &[&str]) -> NewJob {
    job(text).after(ids(parents))
}

/// A job in the queue `q` that runs only if others fail.
pub(crate) fn failure_job(text: &str, parents: &[&str]) -> NewJob {
    job(text).after_failure_of(ids(parents))
}

/// A join in the queue `q`.
pub(crate) fn join(text: &str, parents: &[&str]) -> NewJob {
    NewJob::join(id(text), queue("q"), ids(parents))
}

pub(crate) fn failure(attempts: u32, now: Timestamp) -> FailedAttempt {
    FailedAttempt::new(attempts, format!("error {attempts}"), now)
}

pub(crate) fn ack() -> Transition {
    Transition::Ack { output: None }
}

pub(crate) fn ack_with(output: &str) -> Transition {
    Transition::Ack { output: Some(Blob::from(output.as_bytes())) }
}

/// A retry after the first failure.
pub(crate) fn retry(run_at: Option<Timestamp>, now: Timestamp) -> Transition {
    Transition::Retry { failure: failure(1, now), run_at }
}

/// A dead-lettering after the first failure.
pub(crate) fn fail(now: Timestamp) -> Transition {
    Transition::Fail { failure: failure(1, now), reason: Text::new("gave up") }
}

/// A release of a job that was not started.
pub(crate) fn release(run_at: Option<Timestamp>) -> Transition {
    Transition::Release { run_at, started: false, note: None }
}

/// A release of a job whose handler had started.
pub(crate) fn release_started(run_at: Option<Timestamp>) -> Transition {
    Transition::Release { run_at, started: true, note: None }
}

/// An expansion into these jobs.
pub(crate) fn expand(jobs: impl IntoIterator<Item = NewJob>) -> Transition {
    Transition::Expand(Expansion::new(jobs.into_iter().collect()))
}

/// One of each way to settle a job without expanding it.
pub(crate) fn transitions(now: Timestamp) -> [Transition; 4] {
    [ack_with("output"), retry(None, now), fail(now), release(None)]
}

pub(crate) fn requeue() -> Action {
    Action::Requeue(Requeue::new())
}

/// The entry for a join of this many parents, as [`DriverUnderTest`](crate::driver_under_test::DriverUnderTest) shows it: whichever
/// join it is.
pub(crate) fn list(len: usize) -> OutputEntry {
    list_of("list", len)
}

/// The entry for this join of this many parents, read as a list.
pub(crate) fn list_of(join: &str, len: usize) -> OutputEntry {
    OutputEntry::List(JoinList::new(id(join), len, JoinReading::List))
}

/// The entry for a job that is done with this output.
pub(crate) fn done_with(output: &str) -> OutputEntry {
    OutputEntry::Done(Some(Blob::from(output.as_bytes())))
}

/// The entry for a job that was dead-lettered as [`fail`] does.
pub(crate) fn gave_up() -> OutputEntry {
    OutputEntry::Failed { state: State::Dlq, reason: Some(Text::new("gave up")) }
}

pub(crate) fn settlement(leased: &Leased, transition: Transition) -> Settlement {
    Settlement::new(leased.job.id.clone(), leased.lease.token, transition)
}

pub(crate) fn extension(leased: &Leased) -> Extension {
    Extension::new(leased.job.id.clone(), leased.lease.token)
}

/// The same job, with another token as the proof of holding it.
pub(crate) fn with_token(leased: &Leased, token: LeaseToken) -> Leased {
    let lease = Lease::new(token, leased.lease.expires_at);
    Leased::new(leased.job.clone(), lease)
}

/// The rule that a request broke; it must have broken one.
pub(crate) fn invalid<T: Debug>(answer: Result<T, DriverError>) -> InvalidRequest {
    match answer {
        Err(DriverError::Invalid(rule)) => rule,
        other => panic!("not a validation error: {other:?}"),
    }
}
