//! From what an application says about a job to what a store is handed.

use taskharbor_core::{
    Blob, JobId, JobType, NewJob, QueueName, Timestamp,
    error::NoRandomness,
    job::{FailurePolicy, HeaderError, Headers},
    name::NameError,
};

use crate::{CodecError, Options, job::When};

/// Why a job could not be made; nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJob {
    /// A name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A header is refused.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The job's data cannot be written.
    #[error("the job cannot be encoded")]
    Encode(#[from] CodecError),
    /// The delay ends after the year 9999.
    #[error("the delay ends after the year 9999: choose a shorter one")]
    DelayTooLong,
    /// The operating system has no randomness to make an id of.
    #[error("no id could be made")]
    NoId(#[from] NoRandomness),
}

/// The header that holds what people call a job.
pub(crate) const LABEL: &str = "th-label";

/// The header that tells a job's failure policy to its worker, if it is not the default: what the
/// job grows into takes after it, and a worker is not told otherwise.
const ON_FAILURE: &str = "th-on-failure";

fn with_policy(headers: Headers, policy: FailurePolicy) -> Result<Headers, HeaderError> {
    let word = match policy {
        FailurePolicy::Block => return Ok(headers),
        FailurePolicy::Cancel => "cancel",
        FailurePolicy::FailFast => "fail_fast",
        FailurePolicy::Continue => "release",
    };
    headers.with_any(ON_FAILURE, word)
}

/// The failure policy of a job with these headers.
pub(crate) fn policy_in(headers: &Headers) -> FailurePolicy {
    match headers.get(ON_FAILURE) {
        Some("cancel") => FailurePolicy::Cancel,
        Some("fail_fast") => FailurePolicy::FailFast,
        Some("release") => FailurePolicy::Continue,
        _ => FailurePolicy::Block,
    }
}

/// These headers, with the label that the options give.
pub(crate) fn labelled(headers: Headers, options: &Options) -> Result<Headers, HeaderError> {
    match &options.label {
        Some(label) => headers.with_any(LABEL, label),
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
    job.on_failure = options.on_failure.unwrap_or_default();
    job.headers = with_policy(job.headers, job.on_failure)?;
    Ok(job)
}
