//! Server-sent events as a body, written by a task through a channel.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::problem::Problem;

/// A comment, which keeps proxies from closing a stream in which nothing happens.
pub(crate) const HEARTBEAT: Bytes = Bytes::from_static(b": alive\n\n");
/// The longest time in which nothing is sent.
pub(crate) const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// One event with JSON as its data.
pub(crate) fn event(name: &str, data: &impl Serialize) -> Result<Bytes, Problem> {
    // JSON has no line breaks of its own, so it is one line of data.
    let json = serde_json::to_string(data).map_err(|error| Problem::internal(&error))?;
    Ok(format!("event: {name}\ndata: {json}\n\n").into())
}

/// Answers with what comes out of the channel, until its sender is dropped.
pub(crate) fn answer(events: mpsc::Receiver<Bytes>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        // Proxies that collect answers would keep events back.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::new(Events(events))).into_response()
}

struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
