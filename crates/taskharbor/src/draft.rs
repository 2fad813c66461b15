//! Translates the options of an application to a job for a store.

use taskharbor_core::{
    Blob, JobId, JobType, NewJob, QueueName, Timestamp,
    error::NoRandomness,
    job::{HeaderError, Headers},
    name::{IdempotencyKey, LaneName, NameError},
};

use crate::{CodecError, Options, header, job::When};

/// Why a job could not be made; nothing was stored.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJob {
    /// Invalid name: of a queue, a lane, a job type, a flow or an idempotency key.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Invalid header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The codec cannot encode the job's data.
    #[error(transparent)]
    Encode(#[from] CodecError),
    /// The delay ends after the year 9999.
    #[error("the delay ends after the year 9999: choose a shorter one")]
    DelayTooLong,
    /// The operating system has no randomness to make an id of.
    #[error(transparent)]
    NoId(#[from] NoRandomness),
}

taskharbor_core::debug_as_display!(InvalidJob);

/// These headers, with the label that the options give.
pub(crate) fn labelled(headers: Headers, options: &Options) -> Result<Headers, HeaderError> {
    match &options.label {
        Some(label) => headers.with_any(header::LABEL, label),
        None => Ok(headers),
    }
}

/// A job of this type and these bytes; `headers` are those it starts with.
pub(crate) fn job(
    id: JobId,
    job_type: &str,
    payload: Blob,
    headers: Headers,
    options: &Options,
    now: Timestamp,
) -> Result<NewJob, InvalidJob> {
    let queue = QueueName::new(options.queue_name())?;
    let mut job = NewJob::new(id, queue, JobType::new(job_type)?, payload).headers(headers);
    for (name, value) in &options.headers {
        job.headers = job.headers.with(name, value)?;
    }
    job.headers = labelled(job.headers, options)?;
    job.run_at = match options.when {
        Some(When::At(run_at)) => Some(run_at),
        Some(When::After(delay)) => Some(now.checked_add(delay).ok_or(InvalidJob::DelayTooLong)?),
        None => None,
    };
    if let Some(timeout) = options.timeout {
        job = job.timeout(timeout);
    }
    job.max_attempts = options.max_attempts;
    job.priority = options.priority.unwrap_or_default();
    job.lane = options.lane.as_ref().map(LaneName::new).transpose()?;
    job.on_failure = options.failure_policy.unwrap_or_default();
    if let Some(key) = &options.idempotency_key {
        let hold = options.key_hold.unwrap_or_default();
        job = job.idempotency_key(IdempotencyKey::new(key)?).key_hold(hold);
    }
    Ok(job)
}
