//! The time limit of a call to a store: no client and no worker waits for ever.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use taskharbor_core::DriverError;
use tokio::runtime::Handle;

/// Waits for a call. Without an answer within `limit`, the store counts as unavailable.
pub(crate) async fn in_time<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, DriverError>>,
) -> Result<T, DriverError> {
    let mut call = pin!(call);
    // Most calls on a store in memory are answered at once and need no timer.
    if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
        return answer;
    }
    // Without a runtime there are no timers, and the caller has to bound this.
    if Handle::try_current().is_err() {
        return call.await;
    }
    let late = |_| Err(DriverError::unavailable(format!("no answer within {limit:?}")));
    tokio::time::timeout(limit, call).await.unwrap_or_else(late)
}
