//! Granting and extending leases: what is sent and what the answers mean.

use taskharbor_core::{
    DriverError, JobType, NewJob, QueueName, Text, Timestamp,
    driver::{
        Demand, ExtendLeases, Extended, Extension, Lease, LeaseToken, Leased, Limits, Reserve,
    },
    error::Refusal,
    job::JobView,
    life::{Life, Stage},
};
use tokio_postgres::Row;

use crate::{
    answer::{
        count, get, headers, id, name, optional_id, optional_number, optional_time, time, unknown,
    },
    column::texts,
    floor::Place,
    settle::refusal,
    value::{Bits, Value},
};

/// What the statement that reserves is given.
pub(crate) fn values<'a>(
    request: &'a Reserve,
    expires_at: Timestamp,
    tokens: &[LeaseToken],
    limits: &Limits,
    floors: &'a [(QueueName, Place)],
) -> Vec<Value<'a>> {
    let wanted: usize = request.demands.iter().map(|demand| demand.limit).sum();
    // Only where payloads could be too much for one answer are they measured.
    let could_be = wanted.saturating_mul(limits.payload_bytes());
    let most = if could_be > Limits::MAX_CALL_BYTES { Limits::MAX_CALL_BYTES } else { 0 };
    let number = |number: usize| i64::try_from(number).ok();
    vec![
        Value::Texts(request.demands.iter().map(|it| Some(it.queue.as_str())).collect()),
        Value::BigInts(request.demands.iter().map(|it: &Demand| number(it.limit)).collect()),
        Value::Text(Some(request.holder.as_str())),
        Value::BigInt(Some(request.now.as_micros())),
        Value::BigInt(Some(expires_at.as_micros())),
        Value::Uuids(tokens.iter().map(|token| token.to_bits()).collect()),
        Value::BigInt(number(most)),
        Value::Texts(floors.iter().map(|(queue, _)| Some(queue.as_str())).collect()),
        Value::BigInts(floors.iter().map(|(_, it)| Some(i64::from(it.priority))).collect()),
        Value::BigInts(floors.iter().map(|(_, it)| Some(it.at)).collect()),
        Value::BigInts(floors.iter().map(|(_, it)| Some(it.seq)).collect()),
    ]
}

/// A row of the answer.
#[derive(Debug)]
pub(crate) enum Granted {
    /// A job, and its place in line.
    Job(Box<Leased>, Place),
    /// The end: when to ask again, whom to wake, and how long the lines took to walk.
    End { next_due: Option<Timestamp>, wakes: Vec<String>, walked_us: i64 },
}

pub(crate) fn read(row: &Row, expires_at: Timestamp) -> Result<Granted, DriverError> {
    let Some(job_id) = get::<Option<&str>>(row, 0)? else {
        return Ok(Granted::End {
            next_due: optional_time(get(row, 21)?)?,
            wakes: get::<Option<Vec<String>>>(row, 22)?.unwrap_or_default(),
            walked_us: get::<Option<i64>>(row, 23)?.unwrap_or_default(),
        });
    };
    let new = NewJob::new(
        id(job_id)?,
        name(QueueName::new(get::<&str>(row, 1)?))?,
        name(JobType::new(get::<&str>(row, 2)?))?,
        get::<&[u8]>(row, 3)?,
    );
    let mut job = JobView::assemble(&new, time(get(row, 8)?)?, &blank());
    job.headers = headers(get(row, 4)?)?;
    job.priority = crate::answer::number(get(row, 5)?)?;
    job.run_at = optional_time(get(row, 6)?)?;
    job.timeout = crate::record::timeout(get(row, 7)?)?;
    job.attempts = count(get(row, 9)?)?;
    job.max_attempts = optional_number(get(row, 10)?)?;
    job.last_error = get::<Option<&str>>(row, 11)?.map(Text::new);
    job.failed_at = optional_time(get(row, 12)?)?;
    job.deliveries = count(get(row, 13)?)?;
    job.expirations = count(get(row, 14)?)?;
    job.idempotency_key = crate::record::key(get(row, 15)?)?;
    job.flow = optional_id(get(row, 16)?)?;
    job.parent_count = count(get(row, 17)?)?;
    // JOB-8
    job.available_at = time(get(row, 19)?)?;
    job.condition = crate::record::kind(get(row, 24)?)?.1;
    job.on_failure = crate::record::policy(get(row, 25)?)?;
    let Bits(token) = get(row, 18)?;
    let place = Place { priority: job.priority, at: get(row, 19)?, seq: get(row, 20)? };
    let lease = Lease::new(LeaseToken::from_bits(token), expires_at);
    Ok(Granted::Job(Box::new(Leased::new(job, lease)), place))
}

/// The jobs in the order of their places. Queues and priorities come in order, but what is granted
/// of one priority by one statement comes in any.
pub(crate) fn in_order(mut granted: Vec<(Place, Leased)>) -> Vec<Leased> {
    let together = |(one, of): &(Place, Leased), (other, next): &(Place, Leased)| {
        one.priority == other.priority && of.job.queue == next.job.queue
    };
    for line in granted.chunk_by_mut(together) {
        line.sort_by_key(|(place, _)| (place.at, place.seq));
    }
    granted.into_iter().map(|(_, leased)| leased).collect()
}

/// A life of which everything is still to be filled in.
pub(crate) const fn blank() -> Life {
    Life::in_stage(Stage::Waiting, Timestamp::EPOCH)
}

/// What the statement that extends is given.
pub(crate) fn extension<'a>(request: &'a ExtendLeases, expires_at: Timestamp) -> Vec<Value<'a>> {
    let progress = |item: &'a Extension| item.progress.as_ref().map(Text::as_str);
    vec![
        Value::Texts(request.items.iter().map(|item| Some(item.id.as_str())).collect()),
        Value::Uuids(request.items.iter().map(|item| item.token.to_bits()).collect()),
        texts(request.items.iter().map(progress).collect()),
        Value::BigInt(Some(request.now.as_micros())),
        Value::BigInt(Some(expires_at.as_micros())),
    ]
}

pub(crate) fn extended(
    row: &Row,
    item: &Extension,
) -> Result<Result<Extended, Refusal>, DriverError> {
    match get::<&str>(row, 0)? {
        "applied" => {
            let expires_at = get::<Option<i64>>(row, 1)?.ok_or_else(|| unknown("lease", "none"))?;
            let lease = Lease::new(item.token, time(expires_at)?);
            Ok(Ok(Extended::new(lease, get(row, 2)?)))
        }
        other => refusal(other).map(Err),
    }
}
