//! The result of a handler: an [`Outcome`] or a [`JobError`].

use std::{error::Error, fmt, time::Duration};

use taskharbor_core::{Text, error::chain};

use crate::Flow;

/// Any error that can cross threads.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The result that a handler returns.
pub type JobResult<T = ()> = Result<T, JobError>;

/// The outcome of a handler that did not fail.
///
/// ```
/// use std::time::Duration;
///
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Context, Job, JobResult, Outcome};
///
/// # async fn status_of(_: u64) -> Result<Option<String>, std::io::Error> { Ok(None) }
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "export:wait", output = String)]
/// struct WaitForExport {
///     export: u64,
/// }
///
/// async fn wait_for_export(job: WaitForExport, _: Context) -> JobResult<Outcome<String>> {
///     match status_of(job.export).await? {
///         Some(url) => Ok(Outcome::Done(url)),
///         None => Ok(Outcome::Snooze(Duration::from_secs(30))), // look again later
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<O> {
    /// The output.
    Done(O),
    /// A flow that will produce the output in the job's place.
    Continue(Flow<O>),
    /// The job runs again after this time. No attempt is charged.
    Snooze(Duration),
    /// The job was acknowledged in a transaction of the handler's own.
    /// [`Context::ack_in`](crate::Context::ack_in) returns it.
    #[non_exhaustive]
    Acked,
}

/// A value that a handler may return for a job with the output type `O`: the output itself, a
/// [`Flow`] that will produce it, or an [`Outcome`].
#[diagnostic::on_unimplemented(
    message = "the handler returns `{Self}`, but the job's output is `{O}`",
    label = "this handler's result does not fit its job",
    note = "return `{O}`, a `Flow<{O}>` that will produce it, or an `Outcome<{O}>`"
)]
pub trait IntoOutcome<O> {
    /// Converts the value into an outcome.
    fn into_outcome(self) -> Outcome<O>;
}

impl<O> IntoOutcome<O> for O {
    fn into_outcome(self) -> Outcome<O> {
        Outcome::Done(self)
    }
}

impl<O> IntoOutcome<O> for Flow<O> {
    fn into_outcome(self) -> Outcome<O> {
        Outcome::Continue(self)
    }
}

impl<O> IntoOutcome<O> for Outcome<O> {
    fn into_outcome(self) -> Outcome<O> {
        self
    }
}

/// The error of a handler, and whether the job is retried.
///
/// `?` converts any standard error, `anyhow::Error`, `&str` and `String` into it; such an error is
/// retried by the retry policy. Because of that conversion it does not implement [`Error`] itself.
///
/// ```
/// use std::time::Duration;
///
/// use taskharbor::{JobError, JobResult};
///
/// # struct Response { status: u16, body: String }
/// fn total(response: &Response) -> JobResult<u64> {
///     match response.status {
///         200 => Ok(response.body.parse()?), // any error: retried with backoff
///         404 => Err(JobError::unrecoverable("no such invoice")), // dead-lettered at once
///         _ => Err(JobError::retry_after(Duration::from_secs(60), "the server is busy")),
///     }
/// }
///
/// # let response = |status, body: &str| Response { status, body: body.to_owned() };
/// assert_eq!(total(&response(200, "42")).unwrap(), 42);
/// let error = total(&response(404, "")).unwrap_err();
/// assert!(error.is_unrecoverable());
/// assert_eq!(error.to_string(), "no such invoice");
/// ```
pub struct JobError {
    again: Again,
    source: BoxError,
}

/// Whether and when a failed job is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    ByPolicy,
    After(Duration),
    /// Nothing is charged, and the lane of the job waits for as long.
    Throttled(Duration),
    Never,
    /// The handler was not called, since this worker cannot read the job.
    Unreadable,
}

impl JobError {
    /// A permanent failure: the job is dead-lettered at once.
    #[must_use]
    pub fn unrecoverable(source: impl Into<BoxError>) -> Self {
        Self { again: Again::Never, source: source.into() }
    }

    /// This worker cannot read the job; another one perhaps can.
    pub(crate) fn unreadable(source: impl Into<BoxError>) -> Self {
        Self { again: Again::Unreadable, source: source.into() }
    }

    /// A failure after which the job is retried after this time, whatever the retry policy says. It
    /// counts as an attempt.
    #[must_use]
    pub fn retry_after(delay: Duration, source: impl Into<BoxError>) -> Self {
        Self { again: Again::After(delay), source: source.into() }
    }

    /// The service that the handler calls asks it to wait, for example with the status 429 and
    /// `Retry-After`. The job is released and runs again after this time. No attempt is charged.
    /// Its lane, or its queue if it has no lane, is held for the same time, so that its other jobs
    /// do not get the same response. A time of more than a day counts as a day.
    ///
    /// ```
    /// use std::time::Duration;
    /// use taskharbor::{JobError, JobResult};
    ///
    /// # struct Response { status: u16, retry_after: Duration }
    /// fn check(response: &Response) -> JobResult {
    ///     if response.status == 429 {
    ///         return Err(JobError::throttled(response.retry_after));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn throttled(retry_after: Duration) -> Self {
        let source = format!("throttled for {retry_after:?}").into();
        Self { again: Again::Throttled(retry_after), source }
    }

    /// Whether the failure is permanent: the job is dead-lettered without further attempts.
    #[must_use]
    pub const fn is_unrecoverable(&self) -> bool {
        matches!(self.again, Again::Never | Again::Unreadable)
    }

    /// The underlying error.
    #[must_use]
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }

    pub(crate) const fn again(&self) -> Again {
        self.again
    }

    /// The error and its causes as one line to be stored.
    pub(crate) fn text(&self) -> Text {
        Text::new(self.to_string())
    }
}

impl<E: Into<BoxError>> From<E> for JobError {
    fn from(source: E) -> Self {
        Self { again: Again::ByPolicy, source: source.into() }
    }
}

/// The error, then its causes, separated by colons.
impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(&*self.source))
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobError")
            .field("again", &self.again)
            .field("source", &self.source)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("mail was not sent")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("wrapped: {0}")]
    struct Repeating(#[source] std::io::Error);

    fn refused() -> std::io::Error {
        std::io::Error::other("connection refused")
    }

    #[test]
    fn the_text_names_every_cause_once() {
        assert_eq!(
            JobError::from(Outer(refused())).to_string(),
            "mail was not sent: connection refused"
        );
        assert_eq!(JobError::from(Repeating(refused())).to_string(), "wrapped: connection refused");
    }

    #[test]
    fn errors_come_by_question_mark_from_std_anyhow_and_text() {
        fn std_error() -> JobResult {
            Err(refused())?
        }
        fn any() -> JobResult {
            Err(anyhow::anyhow!("inner").context("outer"))?
        }
        fn text() -> JobResult {
            Err("plain")?
        }
        fn owned() -> JobResult {
            Err(String::from("owned"))?
        }
        let texts = [std_error(), any(), text(), owned()].map(|it| it.unwrap_err().to_string());
        assert_eq!(texts, ["connection refused", "outer: inner", "plain", "owned"]);
    }
}
