//! Reads of jobs, queues and flows for operators.

use std::time::Duration;

use taskharbor_core::{
    DriverError, JobType, NewJob, QueueName, State,
    admin::{QueueCounts, StateCounts},
    flow::FlowRecord,
    job::{
        Condition, FailedAttempt, FailurePolicy, Held, JobKind, JobRecord, JobSummary, JoinReading,
        KeyHold, ReleaseNote,
    },
    name::{FlowName, Holder, IdempotencyKey, LaneName},
};
use tokio_postgres::Row;

use crate::{
    answer::{
        blob, get, headers, id, name, number, optional_id, optional_number, optional_time, state,
        text, time, unknown,
    },
    limit,
    reserve::blank,
};

pub(crate) fn timeout(micros: Option<i64>) -> Result<Option<Duration>, DriverError> {
    Ok(optional_number::<u64>(micros)?.map(Duration::from_micros))
}

pub(crate) fn key(text: Option<&str>) -> Result<Option<IdempotencyKey>, DriverError> {
    text.map(|text| name(IdempotencyKey::new(text))).transpose()
}

pub(crate) fn lane(text: Option<&str>) -> Result<Option<LaneName>, DriverError> {
    text.map(|text| name(LaneName::new(text))).transpose()
}

fn held(lease_expires_at: Option<i64>, holder: Option<&str>) -> Result<Option<Held>, DriverError> {
    match (lease_expires_at, holder) {
        (Some(at), Some(holder)) => Ok(Some(Held::new(name(Holder::new(holder))?, time(at)?))),
        _ => Ok(None),
    }
}

/// A job as `sql/inspect.sql` tells it.
pub(crate) fn record(row: &Row, now: i64) -> Result<JobRecord, DriverError> {
    let mut new = new_job(row)?;
    let created_at = time(get(row, "created_at")?)?;
    let parents: Vec<&str> = get(row, "parent_ids")?;
    let parents = parents.into_iter().map(id).collect::<Result<Vec<_>, _>>()?;
    new.max_attempts = optional_number(get(row, "max_attempts")?)?;
    let mut record = JobRecord::assemble(&new, created_at, &blank(), parents, created_at);

    record.due_at = optional_time(get(row, "due_at")?)?;
    record.held = held(get(row, "lease_expires_at")?, get(row, "holder")?)?;
    record.state = match (get::<Option<&str>>(row, "ended_as")?, get::<bool>(row, "blocked")?) {
        (Some(ended_as), _) => ended(ended_as)?,
        (None, _) if record.held.is_some() => State::Inflight,
        (None, true) => State::Blocked,
        (None, false) if record.due_at.is_some_and(|at| at.as_micros() <= now) => State::Ready,
        (None, false) => State::Scheduled,
    };
    record.started_at = optional_time(get(row, "started_at")?)?;
    record.cancel_requested = get(row, "cancel_requested")?;
    record.progress = text(get(row, "progress")?);
    record.output = blob(get(row, "output")?);
    record.expanded_into = optional_id(get(row, "expanded_id")?)?;
    record.errors = failures(row)?;
    record.reason = text(get(row, "reason")?);
    record.finished_at = optional_time(get(row, "finished_at")?)?;
    record.epoch = number(get(row, "epoch")?)?;
    record.pending = number(get(row, "pending")?)?;
    let last = record.errors.last();
    record.job.last_error = last.map(|failure| failure.error.clone());
    record.job.failed_at = last.map(|failure| failure.failed_at);
    record.job.parent_count = record.parents.len();
    record.job.available_at = time(get(row, "available_at")?)?;
    record.job.flow = optional_id(get(row, "flow")?)?;
    record.job.max_attempts = new.max_attempts;
    record.job.priority = number(get(row, "priority")?)?;
    record.job.run_at = optional_time(get(row, "run_at")?)?;
    record.job.deliveries = number(get(row, "deliveries")?)?;
    record.job.attempts = number(get(row, "attempts")?)?;
    record.job.expirations = number(get(row, "expirations")?)?;
    record.job.released = released(get(row, "released")?);
    let held_back = limit::held_back(row, new.lane.as_ref(), "inflight", time(now)?)?;
    Ok(record.held_back(held_back))
}

/// What was enqueued, but for what may have changed since.
pub(crate) fn new_job(row: &Row) -> Result<NewJob, DriverError> {
    let mut new = NewJob::new(
        id(get(row, "id")?)?,
        name(QueueName::new(get::<&str>(row, "queue")?))?,
        name(JobType::new(get::<&str>(row, "type")?))?,
        get::<&[u8]>(row, "payload")?,
    );
    new.headers = headers(get(row, "headers")?)?;
    (new.kind, new.condition) = kind(get(row, "kind")?)?;
    new.key_hold = hold_of_key(get(row, "key_hold")?, get(row, "key_time_us")?)?;
    new.on_failure = policy(get(row, "on_failure")?)?;
    new.timeout = timeout(get(row, "timeout_us")?)?;
    new.idempotency_key = key(get(row, "idempotency_key")?)?;
    new.lane = lane(get(row, "lane")?)?;
    Ok(new)
}

/// The failures of a job.
pub(crate) fn failures(row: &Row) -> Result<Vec<FailedAttempt>, DriverError> {
    let attempts: Vec<i64> = get(row, "error_attempts")?;
    let times: Vec<i64> = get(row, "error_times")?;
    let texts: Vec<&str> = get(row, "error_texts")?;
    let all = attempts.into_iter().zip(times).zip(texts);
    all.map(|((attempts, at), text)| Ok(FailedAttempt::new(number(attempts)?, text, time(at)?)))
        .collect()
}

/// What was noted of the last release. SET-12.
pub(crate) fn released(stored: Option<&str>) -> Option<ReleaseNote> {
    stored.and_then(ReleaseNote::parse)
}

/// What kind of job it is, and what it waits for.
pub(crate) fn kind(text: Option<&str>) -> Result<(JobKind, Condition), DriverError> {
    let join = |reading| Ok((JobKind::Join(reading), Condition::ParentsDone));
    match text.unwrap_or("work") {
        "work" => Ok((JobKind::Work, Condition::ParentsDone)),
        "failure_job" => Ok((JobKind::Work, Condition::ParentsFailed)),
        "list" => join(JoinReading::List),
        "gather" => join(JoinReading::Gather),
        "empty" => join(JoinReading::Empty),
        "discard" => join(JoinReading::Discard),
        "first" => join(JoinReading::First),
        other => Err(unknown("kind", other)),
    }
}

pub(crate) fn hold_of_key(text: &str, time: Option<i64>) -> Result<KeyHold, DriverError> {
    match (text, timeout(time)?) {
        ("until_pruned", _) => Ok(KeyHold::UntilPruned),
        ("until_done", _) => Ok(KeyHold::UntilDone),
        ("until_terminal", _) => Ok(KeyHold::UntilTerminal),
        ("for_a_time", Some(time)) => Ok(KeyHold::For(time)),
        (other, _) => Err(unknown("hold of a key", other)),
    }
}

pub(crate) fn policy(text: Option<&str>) -> Result<FailurePolicy, DriverError> {
    match text.unwrap_or("block") {
        "block" => Ok(FailurePolicy::Block),
        "cancel" => Ok(FailurePolicy::Cancel),
        "fail_fast" => Ok(FailurePolicy::FailFast),
        "continue" => Ok(FailurePolicy::Continue),
        other => Err(unknown("policy", other)),
    }
}

pub(crate) fn ended(text: &str) -> Result<State, DriverError> {
    match text {
        "done" => Ok(State::Done),
        "dlq" => Ok(State::Dlq),
        "cancelled" => Ok(State::Cancelled),
        other => Err(unknown("end", other)),
    }
}

/// A line of a list, and its number.
pub(crate) fn summary(row: &Row) -> Result<(i64, JobSummary), DriverError> {
    let mut job = JobSummary::new(
        id(get(row, "id")?)?,
        name(JobType::new(get::<&str>(row, "type")?))?,
        name(QueueName::new(get::<&str>(row, "queue")?))?,
        state(get(row, "state")?)?,
        time(get(row, "created_at")?)?,
    );
    job.priority = number(get(row, "priority")?)?;
    job.run_at = optional_time(get(row, "run_at")?)?;
    job.due_at = optional_time(get(row, "due_at")?)?;
    job.started_at = optional_time(get(row, "started_at")?)?;
    job.finished_at = optional_time(get(row, "finished_at")?)?;
    job.attempts = number(get(row, "attempts")?)?;
    job.max_attempts = optional_number(get(row, "max_attempts")?)?;
    job.deliveries = number(get(row, "deliveries")?)?;
    job.expirations = number(get(row, "expirations")?)?;
    job.held = held(get(row, "lease_expires_at")?, get(row, "holder")?)?;
    job.last_error = text(get(row, "error")?);
    job.reason = text(get(row, "reason")?);
    job.flow = optional_id(get(row, "flow")?)?;
    job.payload_bytes = number(get(row, "payload_bytes")?)?;
    job.lane = lane(get(row, "lane")?)?;
    Ok((get(row, "seq")?, job))
}

pub(crate) fn counts(row: &Row) -> Result<QueueCounts, DriverError> {
    let mut counts = QueueCounts::new(name(QueueName::new(get::<&str>(row, "queue")?))?);
    counts.states = states(row)?;
    counts.oldest_ready = optional_time(get(row, "oldest")?)?;
    counts.paused_since = optional_time(get(row, "paused")?)?;
    Ok(counts)
}

/// Counts in columns that are called as the states are.
fn states(row: &Row) -> Result<StateCounts, DriverError> {
    let mut counts = StateCounts::default();
    for state in State::ALL.iter().copied() {
        *counts.get_mut(state) = number(get(row, state.as_str())?)?;
    }
    Ok(counts)
}

/// A flow, and its number.
pub(crate) fn flow(row: &Row) -> Result<(i64, FlowRecord), DriverError> {
    let tail = (id(get(row, "tail")?)?, state(get(row, "tail_state")?)?);
    let (members, finished_at) = (states(row)?, optional_time(get(row, "finished_at")?)?);
    let created_at = time(get(row, "created_at")?)?;
    let flow = FlowRecord::new(id(get(row, "id")?)?, created_at, tail, members, finished_at);
    let flow_name =
        get::<Option<&str>>(row, "name")?.map(|text| name(FlowName::new(text))).transpose()?;
    Ok((get(row, "seq")?, flow.named(flow_name)))
}
