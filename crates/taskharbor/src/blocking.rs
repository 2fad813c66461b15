//! Running work that blocks.

use crate::{JobError, JobResult, middleware::panicked};

/// Runs work that blocks its thread or computes for long, on a thread for blocking work.
///
/// The work returns a `Result`; work that cannot fail ends with `Ok::<_, JobError>(…)`.
///
/// A handler that blocks keeps a thread of the runtime from everything else, so other handlers
/// wait. The leases are still extended, because that is done on a separate thread.
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
/// The error of the work; a panic in it is an error, too.
///
/// # Cancel safety
///
/// Dropping the future does not stop the work, because a thread cannot be stopped: let the work
/// check [`Call::is_cancelled`](crate::Call::is_cancelled) from time to time.
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
