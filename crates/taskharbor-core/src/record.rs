//! Views of a stored job: of its worker ([`Leased`]) and of operators ([`JobRecord`],
//! [`JobSummary`]).

use std::time::Duration;

use crate::{
    Blob, JobId, JobType, NewJob, QueueName, State, Text, Timestamp,
    driver::Lease,
    job::{Condition, FailedAttempt, FailurePolicy, Headers, JobKind, KeyHold, ReleaseNote},
    life::{Life, Stage},
    name::{Holder, IdempotencyKey, LaneName},
    queue_limit::HeldJob,
};

/// A job as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobView {
    /// Identifies it.
    pub id: JobId,
    /// What kind of work it is.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub job_type: JobType,
    /// The queue it came from.
    pub queue: QueueName,
    /// The payload, which the handler receives.
    pub payload: Blob,
    /// The headers, which travel beside the payload.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Headers::is_empty"))]
    pub headers: Headers,
    /// Higher runs first.
    pub priority: i16,
    /// The lane of its queue that it belongs to.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub lane: Option<LaneName>,
    /// The earliest time it may run, if one was set.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub run_at: Option<Timestamp>,
    /// How long one execution may take.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "timeout_nanos",
            default,
            skip_serializing_if = "Option::is_none",
            with = "crate::json::OptionNanos"
        )
    )]
    pub timeout: Option<Duration>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// How many executions have failed.
    pub attempts: u32,
    /// How many may fail before it is dead-lettered; the worker's policy if `None`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub max_attempts: Option<u32>,
    /// The error of the last failure.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub last_error: Option<Text>,
    /// When the last failure happened.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub failed_at: Option<Timestamp>,
    /// How often it was leased to a worker, this time included.
    pub deliveries: u32,
    /// How often its lease ran out since it last failed or was requeued.
    pub expirations: u32,
    /// What was noted when it was last released, if it was not settled in another way and no lease ran out
    /// since.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub released: Option<ReleaseNote>,
    /// The key it was enqueued with.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The flow it belongs to.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub flow: Option<JobId>,
    /// How many parents' outputs it reads.
    pub parent_count: usize,
    /// The condition on those parents before it may run.
    pub condition: Condition,
    /// Its failure policy: what happens to its dependants if it fails.
    pub on_failure: FailurePolicy,
    /// When it became available to workers: its position, at the grant if it is inflight. When it was
    /// enqueued, if it is blocked or terminal and has no position.
    pub available_at: Timestamp,
}

impl JobView {
    /// Whether Reserve may have taken the job back from a worker whose lease had ended. Taking it back
    /// clears `run_at` and nothing sets it before the next grant, so a job that has one was put back by a
    /// worker.
    #[must_use]
    pub const fn may_be_reclaimed(&self) -> bool {
        // LEA-4
        self.deliveries > 1 && self.run_at.is_none()
    }

    /// Puts a job together from its parts.
    #[must_use]
    pub fn assemble(new: &NewJob, created_at: Timestamp, life: &Life) -> Self {
        let last = life.errors.last();
        Self {
            id: new.id.clone(),
            job_type: new.job_type.clone(),
            queue: new.queue.clone(),
            payload: new.payload.clone(),
            headers: new.headers.clone(),
            priority: life.priority,
            lane: new.lane.clone(),
            run_at: life.run_at,
            timeout: new.timeout,
            created_at,
            attempts: life.attempts,
            max_attempts: life.attempt_limit.or(new.max_attempts),
            last_error: last.map(|failure| failure.error.clone()),
            failed_at: last.map(|failure| failure.failed_at),
            deliveries: life.deliveries,
            expirations: life.expirations,
            released: life.released.clone(),
            idempotency_key: new.idempotency_key.clone(),
            flow: life.flow.clone(),
            parent_count: new.parents.len(),
            condition: new.condition,
            on_failure: new.on_failure,
            // JOB-8
            available_at: life.position().unwrap_or(created_at),
        }
    }
}

/// A job and the lease under which it was reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Leased {
    /// The job.
    pub job: JobView,
    /// The lease.
    pub lease: Lease,
}

impl Leased {
    /// This job under this lease.
    #[must_use]
    pub const fn new(job: JobView, lease: Lease) -> Self {
        Self { job, lease }
    }
}

/// A stored job with everything that the store knows about it, for operators and tools.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRecord {
    /// The job as its worker sees it.
    pub job: JobView,
    /// Its state at the time of the call.
    pub state: State,
    /// Its position while it is ready or scheduled.
    pub due_at: Option<Timestamp>,
    /// When it was last leased to a worker.
    pub started_at: Option<Timestamp>,
    /// Its holder and the end of its lease, while it is inflight.
    pub held: Option<Held>,
    /// The limit that keeps it from being granted, if it is ready and one does.
    pub held_back: Option<HeldJob>,
    /// Whether it is inflight and its cancellation was requested.
    pub cancel_requested: bool,
    /// What its worker last reported.
    pub progress: Option<Text>,
    /// Its output.
    pub output: Option<Blob>,
    /// The tail of its expansion, whose output replaces this job's.
    pub expanded_into: Option<JobId>,
    /// Its last failures, oldest first.
    pub errors: Vec<FailedAttempt>,
    /// Why it was dead-lettered or cancelled.
    pub reason: Option<Text>,
    /// When it became done, dead-lettered or cancelled.
    pub finished_at: Option<Timestamp>,
    /// How often it was requeued.
    pub epoch: u32,
    /// Whether a worker runs it or the store completes it.
    pub kind: JobKind,
    /// How long its key is held.
    pub key_hold: KeyHold,
    /// The jobs whose outputs it reads, in that order.
    pub parents: Vec<JobId>,
    /// How many of them it still waits for.
    pub pending: usize,
}

/// The holder of an inflight job, and the end of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Held {
    /// The name of the worker.
    pub holder: Holder,
    /// The end of its lease.
    pub expires_at: Timestamp,
}

impl Held {
    /// Held by `holder` until `expires_at`.
    #[must_use]
    pub const fn new(holder: Holder, expires_at: Timestamp) -> Self {
        Self { holder, expires_at }
    }
}

impl JobRecord {
    /// Puts a record together from its parts; `parents` are those it waits for or reads today.
    #[must_use]
    pub fn assemble(
        new: &NewJob,
        created_at: Timestamp,
        life: &Life,
        parents: Vec<JobId>,
        now: Timestamp,
    ) -> Self {
        let held =
            life.active_lease().map(|hold| Held::new(hold.holder.clone(), hold.lease.expires_at));
        Self {
            job: JobView::assemble(new, created_at, life),
            state: life.state(now),
            due_at: matches!(life.stage, Stage::Waiting).then_some(life.due_at),
            started_at: life.started_at,
            held,
            held_back: None,
            cancel_requested: life.active_lease().is_some_and(|hold| hold.cancel_requested),
            progress: life.progress.clone(),
            output: life.output.clone(),
            expanded_into: life.expanded_into.clone(),
            errors: life.errors.clone(),
            reason: life.reason.clone(),
            finished_at: life.finish().map(|finish| finish.at),
            epoch: life.epoch,
            kind: new.kind,
            key_hold: new.key_hold,
            parents,
            pending: life.pending,
        }
    }

    /// With the limit that keeps it from being granted. Only a job that is ready has one.
    #[must_use]
    pub fn held_back(mut self, held_back: Option<HeldJob>) -> Self {
        // LIM-4
        self.held_back = held_back.filter(|_| self.state == State::Ready);
        self
    }

    /// The line that stands for this record in a list.
    #[must_use]
    pub fn summary(&self) -> JobSummary {
        let job = &self.job;
        JobSummary {
            id: job.id.clone(),
            job_type: job.job_type.clone(),
            queue: job.queue.clone(),
            state: self.state,
            priority: job.priority,
            lane: job.lane.clone(),
            run_at: job.run_at,
            due_at: self.due_at,
            created_at: job.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            deliveries: job.deliveries,
            expirations: job.expirations,
            held: self.held.clone(),
            last_error: job.last_error.clone(),
            reason: self.reason.clone(),
            flow: job.flow.clone(),
            payload_bytes: job.payload.len(),
        }
    }
}

/// A job as one line of a list: everything small.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSummary {
    /// Identifies it.
    pub id: JobId,
    /// What kind of work it is.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub job_type: JobType,
    /// The queue it is in.
    pub queue: QueueName,
    /// Its state.
    pub state: State,
    /// Higher runs first.
    pub priority: i16,
    /// The lane of its queue that it belongs to.
    pub lane: Option<LaneName>,
    /// The earliest time it may run, if one was set.
    pub run_at: Option<Timestamp>,
    /// Its position while it is ready or scheduled.
    pub due_at: Option<Timestamp>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it was last leased to a worker.
    pub started_at: Option<Timestamp>,
    /// When it became done, dead-lettered or cancelled.
    pub finished_at: Option<Timestamp>,
    /// How many executions have failed.
    pub attempts: u32,
    /// How many may fail before it is dead-lettered.
    pub max_attempts: Option<u32>,
    /// How often it was leased to a worker.
    pub deliveries: u32,
    /// How often its lease ran out since it last failed or was requeued.
    pub expirations: u32,
    /// Its holder and the end of its lease, while it is inflight.
    pub held: Option<Held>,
    /// The error of the last failure.
    pub last_error: Option<Text>,
    /// Why it was dead-lettered or cancelled.
    pub reason: Option<Text>,
    /// The flow it belongs to.
    pub flow: Option<JobId>,
    /// The size of its payload.
    pub payload_bytes: usize,
}

impl JobSummary {
    /// A line about this job, with nothing more to tell yet: for drivers that read lists without
    /// the jobs' payloads.
    #[must_use]
    pub fn new(
        id: JobId,
        job_type: JobType,
        queue: QueueName,
        state: State,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            job_type,
            queue,
            state,
            priority: 0,
            lane: None,
            run_at: None,
            due_at: None,
            created_at,
            started_at: None,
            finished_at: None,
            attempts: 0,
            max_attempts: None,
            deliveries: 0,
            expirations: 0,
            held: None,
            last_error: None,
            reason: None,
            flow: None,
            payload_bytes: 0,
        }
    }
}
