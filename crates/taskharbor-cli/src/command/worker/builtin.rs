//! Handlers to try things with.

use std::time::Duration;

use taskharbor::{Blob, Context, Handlers, JobError, JobResult};

use crate::value;

/// `echo` produces its payload, `sleep` takes its time, `fail` fails.
pub(super) fn handlers() -> Handlers {
    Handlers::new().on_raw("echo", echo).on_raw("sleep", sleep).on_raw("fail", fail)
}

async fn echo(payload: Blob, _: Context) -> JobResult<Option<Blob>> {
    Ok(Some(payload))
}

/// The payload is a duration as JSON text, such as `"250ms"`; a second without one.
async fn sleep(payload: Blob, cx: Context) -> JobResult<Option<Blob>> {
    let wanted = match serde_json::from_slice::<String>(&payload) {
        Ok(text) => value::duration(&text).map_err(JobError::unrecoverable)?,
        Err(_) => Duration::from_secs(1),
    };
    tokio::select! {
        () = tokio::time::sleep(wanted) => Ok(None),
        reason = cx.cancelled() => Err(format!("woken: {reason:?}").into()),
    }
}

/// The payload is what it says as JSON text, if that is one.
async fn fail(payload: Blob, _: Context) -> JobResult<Option<Blob>> {
    let text = serde_json::from_slice::<String>(&payload);
    Err(text.unwrap_or_else(|_| "failed, as it was asked to".to_owned()).into())
}
