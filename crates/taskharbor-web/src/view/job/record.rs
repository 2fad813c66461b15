//! One job: everything but its payload and output, which have a permission of their own.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor::{
    Admin, Condition, FailurePolicy, Headers, IdempotencyKey, JobId, JobRecord, JobType, KeyHold,
    LaneName, QueueName, State, Text, Timestamp, explain::explain,
};
use taskharbor_core::job::{FailedAttempt, Held};

use super::timeline::{self, Moment};
use crate::{call::Call, endpoint::Nothing, problem::Problem};

/// How many parents are named.
const MAX_PARENTS: usize = 100;

/// All there is to know about a job, without its payload and output.
#[derive(Serialize, JsonSchema)]
pub(super) struct JobDetails {
    /// What does not depend on its state.
    job: JobFacts,
    /// The state it is in.
    state: State,
    /// Its position while it is ready or scheduled.
    due_at: Option<Timestamp>,
    /// When it was last leased to a worker.
    started_at: Option<Timestamp>,
    /// Which worker holds it while it is inflight.
    held: Option<Held>,
    /// Whether it is inflight and its cancellation was requested.
    cancel_requested: bool,
    /// What its worker last reported.
    progress: Option<Text>,
    /// The job whose output stands for this one's.
    expanded_into: Option<JobId>,
    /// Its last failures, the oldest first.
    errors: Vec<FailedAttempt>,
    /// Why it was dead-lettered or cancelled.
    reason: Option<Text>,
    /// When it became done, dead-lettered or cancelled.
    finished_at: Option<Timestamp>,
    /// How often it was requeued.
    epoch: u32,
    /// How long its idempotency key is held.
    key_hold: Hold,
    /// The first 100 of the jobs whose outputs it reads.
    parents: Vec<JobId>,
    /// How many of its parents it still waits for.
    pending: usize,
    /// The size of its payload.
    payload_bytes: usize,
    /// The size of its output, if it has one.
    output_bytes: Option<usize>,
    /// What is known of its life, in order.
    timeline: Vec<Moment>,
    /// A name of the reason for its state that never changes, such as `queue_paused`.
    why_code: &'static str,
    /// Why it is in its state, in words.
    why: String,
}

/// What a job is.
#[derive(Serialize, JsonSchema)]
struct JobFacts {
    id: JobId,
    r#type: JobType,
    queue: QueueName,
    /// What travels beside the payload.
    headers: Headers,
    /// Higher runs first.
    priority: i16,
    lane: Option<LaneName>,
    /// The earliest time it may run, if one was set.
    run_at: Option<Timestamp>,
    /// How long one execution may take.
    timeout_nanos: Option<u64>,
    created_at: Timestamp,
    /// How many executions have failed.
    attempts: u32,
    /// How many may fail before it is dead-lettered; the worker's policy if null.
    max_attempts: Option<u32>,
    /// How often it was leased to a worker.
    deliveries: u32,
    /// How often its lease ran out since it last failed or was requeued.
    expirations: u32,
    idempotency_key: Option<IdempotencyKey>,
    /// The flow it belongs to.
    flow: Option<JobId>,
    /// How many jobs' outputs it reads.
    parent_count: usize,
    /// The condition on its parents before it may run.
    condition: Condition,
    /// What happens to its dependants if it fails.
    on_failure: FailurePolicy,
}

/// How long an idempotency key is held.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "JobKeyHold")]
enum Hold {
    UntilPruned,
    UntilDone,
    UntilTerminal,
    /// For this many nanoseconds after the job was enqueued.
    For(u64),
}

impl From<KeyHold> for Hold {
    fn from(hold: KeyHold) -> Self {
        match hold {
            KeyHold::UntilPruned => Self::UntilPruned,
            KeyHold::UntilDone => Self::UntilDone,
            KeyHold::UntilTerminal => Self::UntilTerminal,
            KeyHold::For(time) => Self::For(nanos(time)),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the job that the path names.
pub(super) async fn read(call: &Call) -> Result<(JobRecord, Timestamp), Problem> {
    let id: JobId = call.param("id")?;
    let (store, now) = call.store_now().await?;
    match store.driver.inspect(id.clone(), now).await? {
        Some(record) => Ok((record, now)),
        None => Err(Problem::no_job(&id)),
    }
}

pub(super) async fn show(call: Call, _: Nothing) -> Result<JobDetails, Problem> {
    let (record, now) = read(&call).await?;
    let why = explain(&call.store()?.driver, &record, now).await?;
    let timeline = timeline::of(&record);
    let payload_bytes = record.job.payload.len();
    let mut parents = record.parents;
    parents.truncate(MAX_PARENTS);
    let job = record.job;
    Ok(JobDetails {
        job: JobFacts {
            id: job.id,
            r#type: job.job_type,
            queue: job.queue,
            headers: job.headers,
            priority: job.priority,
            lane: job.lane,
            run_at: job.run_at,
            timeout_nanos: job.timeout.map(nanos),
            created_at: job.created_at,
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            deliveries: job.deliveries,
            expirations: job.expirations,
            idempotency_key: job.idempotency_key,
            flow: job.flow,
            parent_count: job.parent_count,
            condition: job.condition,
            on_failure: job.on_failure,
        },
        state: record.state,
        due_at: record.due_at,
        started_at: record.started_at,
        held: record.held,
        cancel_requested: record.cancel_requested,
        progress: record.progress,
        expanded_into: record.expanded_into,
        errors: record.errors,
        reason: record.reason,
        finished_at: record.finished_at,
        epoch: record.epoch,
        key_hold: record.key_hold.into(),
        parents,
        pending: record.pending,
        payload_bytes,
        output_bytes: record.output.map(|output| output.len()),
        timeline,
        why_code: why.code,
        why: why.text,
    })
}
