//! Reading what people see of jobs, queues and flows.

use std::time::Duration;

use taskharbor_core::{
    DriverError, JobType, NewJob, QueueName, State,
    admin::{QueueCounts, StateCounts},
    flow::FlowRecord,
    job::{
        Condition, FailedAttempt, FailurePolicy, Held, JobKind, JobRecord, JobSummary, JoinReading,
        KeyHold,
    },
    name::{FlowName, Holder, IdempotencyKey},
};
use tokio_postgres::Row;

use crate::{
    answer::{
        blob, get, headers, id, name, number, optional_id, optional_number, optional_time, state,
        text, time, unknown,
    },
    reserve::blank,
};

pub(crate) fn timeout(micros: Option<i64>) -> Result<Option<Duration>, DriverError> {
    Ok(optional_number::<u64>(micros)?.map(Duration::from_micros))
}

pub(crate) fn key(text: Option<&str>) -> Result<Option<IdempotencyKey>, DriverError> {
    text.map(|text| name(IdempotencyKey::new(text))).transpose()
}

fn held(lease_exp: Option<i64>, holder: Option<&str>) -> Result<Option<Held>, DriverError> {
    match (lease_exp, holder) {
        (Some(at), Some(holder)) => Ok(Some(Held::new(name(Holder::new(holder))?, time(at)?))),
        _ => Ok(None),
    }
}

/// A job as `sql/inspect.sql` tells it.
pub(crate) fn record(row: &Row, now: i64) -> Result<JobRecord, DriverError> {
    let mut new = NewJob::new(
        id(get(row, 0)?)?,
        name(QueueName::new(get::<&str>(row, 1)?))?,
        name(JobType::new(get::<&str>(row, 2)?))?,
        get::<&[u8]>(row, 3)?,
    );
    new.headers = headers(get(row, 4)?)?;
    (new.kind, new.condition) = kind(get(row, 5)?)?;
    new.key_hold = hold_of_key(get(row, 6)?, get(row, 37)?)?;
    new.on_failure = policy(get(row, 7)?)?;
    new.timeout = timeout(get(row, 8)?)?;
    new.idempotency_key = key(get(row, 10)?)?;
    let created_at = time(get(row, 9)?)?;
    let parents: Vec<&str> = get(row, 32)?;
    let parents = parents.into_iter().map(id).collect::<Result<Vec<_>, _>>()?;
    let mut record = JobRecord::assemble(&new, created_at, &blank(), parents, created_at);

    record.due_at = optional_time(get(row, 27)?)?;
    record.held = held(get(row, 28)?, get(row, 29)?)?;
    record.state = match (get::<Option<&str>>(row, 14)?, get::<bool>(row, 31)?) {
        (Some(ended_as), _) => ended(ended_as)?,
        (None, _) if record.held.is_some() => State::Inflight,
        (None, true) => State::Blocked,
        (None, false) if record.due_at.is_some_and(|at| at.as_micros() <= now) => State::Ready,
        (None, false) => State::Scheduled,
    };
    record.started_at = optional_time(get(row, 21)?)?;
    record.cancel_requested = get(row, 30)?;
    record.progress = text(get(row, 26)?);
    record.output = blob(get(row, 17)?);
    record.expanded_into = optional_id(get(row, 12)?)?;
    record.errors = failures(row, 34)?;
    record.reason = text(get(row, 16)?);
    record.finished_at = optional_time(get(row, 15)?)?;
    record.epoch = number(get(row, 25)?)?;
    record.pending = number(get(row, 33)?)?;
    let last = record.errors.last();
    record.job.last_error = last.map(|failure| failure.error.clone());
    record.job.failed_at = last.map(|failure| failure.failed_at);
    record.job.parent_count = record.parents.len();
    record.job.available_at = time(get(row, 38)?)?;
    record.job.flow = optional_id(get(row, 13)?)?;
    record.job.max_attempts = optional_number(get(row, 18)?)?;
    record.job.priority = number(get(row, 19)?)?;
    record.job.run_at = optional_time(get(row, 20)?)?;
    record.job.deliveries = number(get(row, 22)?)?;
    record.job.attempts = number(get(row, 23)?)?;
    record.job.expirations = number(get(row, 24)?)?;
    Ok(record)
}

/// Three columns with the failures of a job from the given one on.
pub(crate) fn failures(row: &Row, from: usize) -> Result<Vec<FailedAttempt>, DriverError> {
    let (attempts, times): (Vec<i64>, Vec<i64>) = (get(row, from)?, get(row, from + 1)?);
    let texts: Vec<&str> = get(row, from + 2)?;
    let all = attempts.into_iter().zip(times).zip(texts);
    all.map(|((attempts, at), text)| Ok(FailedAttempt::new(number(attempts)?, text, time(at)?)))
        .collect()
}

/// What kind of job it is, and what it waits for.
pub(crate) fn kind(text: &str) -> Result<(JobKind, Condition), DriverError> {
    let join = |reading| Ok((JobKind::Join(reading), Condition::ParentsDone));
    match text {
        "w" => Ok((JobKind::Work, Condition::ParentsDone)),
        "x" => Ok((JobKind::Work, Condition::ParentsFailed)),
        "l" => join(JoinReading::List),
        "g" => join(JoinReading::Gather),
        "e" => join(JoinReading::Empty),
        "d" => join(JoinReading::Discard),
        "f" => join(JoinReading::First),
        other => Err(unknown("kind", other)),
    }
}

pub(crate) fn hold_of_key(text: &str, time: Option<i64>) -> Result<KeyHold, DriverError> {
    match (text, timeout(time)?) {
        ("p", _) => Ok(KeyHold::UntilPruned),
        ("d", _) => Ok(KeyHold::UntilDone),
        ("t", _) => Ok(KeyHold::UntilTerminal),
        ("f", Some(time)) => Ok(KeyHold::For(time)),
        (other, _) => Err(unknown("hold of a key", other)),
    }
}

pub(crate) fn policy(text: &str) -> Result<FailurePolicy, DriverError> {
    match text {
        "b" => Ok(FailurePolicy::Block),
        "c" => Ok(FailurePolicy::Cancel),
        "f" => Ok(FailurePolicy::FailFast),
        "n" => Ok(FailurePolicy::Continue),
        other => Err(unknown("policy", other)),
    }
}

pub(crate) fn ended(text: &str) -> Result<State, DriverError> {
    match text {
        "d" => Ok(State::Done),
        "q" => Ok(State::Dlq),
        "c" => Ok(State::Cancelled),
        other => Err(unknown("end", other)),
    }
}

/// A line of a list, and its place in it.
pub(crate) fn summary(row: &Row) -> Result<(i64, JobSummary), DriverError> {
    let mut job = JobSummary::new(
        id(get(row, 1)?)?,
        name(JobType::new(get::<&str>(row, 2)?))?,
        name(QueueName::new(get::<&str>(row, 3)?))?,
        state(get(row, 4)?)?,
        time(get(row, 8)?)?,
    );
    job.priority = number(get(row, 5)?)?;
    job.run_at = optional_time(get(row, 6)?)?;
    job.due_at = optional_time(get(row, 7)?)?;
    job.started_at = optional_time(get(row, 9)?)?;
    job.finished_at = optional_time(get(row, 10)?)?;
    job.attempts = number(get(row, 11)?)?;
    job.max_attempts = optional_number(get(row, 12)?)?;
    job.deliveries = number(get(row, 13)?)?;
    job.expirations = number(get(row, 14)?)?;
    job.held = held(get(row, 15)?, get(row, 16)?)?;
    job.last_error = text(get(row, 17)?);
    job.reason = text(get(row, 18)?);
    job.flow = optional_id(get(row, 19)?)?;
    job.payload_bytes = number(get(row, 20)?)?;
    Ok((get(row, 0)?, job))
}

pub(crate) fn counts(row: &Row) -> Result<QueueCounts, DriverError> {
    let mut counts = QueueCounts::new(name(QueueName::new(get::<&str>(row, 0)?))?);
    counts.states = states(row, 1)?;
    counts.oldest_ready = optional_time(get(row, 8)?)?;
    counts.paused_since = optional_time(get(row, 9)?)?;
    Ok(counts)
}

/// Seven columns of counts from the given one on.
fn states(row: &Row, from: usize) -> Result<StateCounts, DriverError> {
    let mut counts = StateCounts::default();
    let order = [
        State::Ready,
        State::Scheduled,
        State::Blocked,
        State::Inflight,
        State::Done,
        State::Dlq,
        State::Cancelled,
    ];
    for (at, state) in order.into_iter().enumerate() {
        *counts.get_mut(state) = number(get(row, from + at)?)?;
    }
    Ok(counts)
}

/// A flow, and its place in the list.
pub(crate) fn flow(row: &Row) -> Result<(i64, FlowRecord), DriverError> {
    let tail = (id(get(row, 4)?)?, state(get(row, 5)?)?);
    let (members, finished_at) = (states(row, 6)?, optional_time(get(row, 13)?)?);
    let flow = FlowRecord::new(id(get(row, 1)?)?, time(get(row, 3)?)?, tail, members, finished_at);
    let flow_name =
        get::<Option<&str>>(row, 2)?.map(|text| name(FlowName::new(text))).transpose()?;
    Ok((get(row, 0)?, flow.named(flow_name)))
}
