//! Running work that blocks.

use crate::{JobError, JobResult, middleware::panicked};

/// Runs work that blocks its thread or computes for long, on a thread made for that.
///
/// The work returns a `Result`; what cannot fail ends with `Ok::<_, JobError>(…)`.
///
/// A handler that blocks keeps a thread of the runtime from everything else. Its leases are kept
/// all the same, since the lease keeper has a thread of its own; but other handlers wait.
///
/// ```
/// # use taskharbor::{Call, Data, JobResult};
/// # async fn handler(image: Vec<u8>, cx: taskharbor::Context) -> JobResult<usize> {
/// let call = cx.clone();
/// let size = taskharbor::blocking(move || {
///     let mut sum = 0;
///     for byte in image {
///         if call.is_cancelled() {
///             return Err("stopped half way");
///         }
///         sum += usize::from(byte);
///     }
///     Ok(sum)
/// })
/// .await?;
/// # Ok(size)
/// # }
/// ```
///
/// # Errors
///
/// What the work fails with; a panic in it is a failure too.
///
/// # Cancel safety
///
/// Dropping the future does not stop the work, as nothing can stop a thread: let it look at
/// [`Call::is_cancelled`](crate::Call::is_cancelled) from time to time.
pub async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> JobResult<T>
where
    T: Send + 'static,
    E: Into<JobError>,
{
    let work = move || work().map_err(Into::into);
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(match error.try_into_panic() {
            Ok(panic) => panicked(&*panic),
            Err(_) => JobError::from("the runtime was shut down before the work began"),
        }),
    }
}
