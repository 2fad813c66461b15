//! [`Stream`]: a stream of wake-ups over a connection of its own.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::{Method, StatusCode, body::Incoming, header};
use taskharbor_core::{
    DriverError,
    wire::{WakeEvent, WatchRequest},
};
use tokio::time::timeout;

use super::event::Events;
use crate::{
    body,
    connection::{Sender, Target},
    failure::{self, Failure},
};

/// How long it may take until the first event is there.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a stream may be silent. The server sends a sign of life every 15 s.
const MAX_SILENCE: Duration = Duration::from_secs(45);
/// How much is read of an answer that is no stream.
const MAX_PROBLEM_BYTES: usize = 64 * 1024;

pub(super) struct Stream {
    body: Incoming,
    events: Events,
    /// The connection is used as long as this is kept.
    _sender: Sender,
}

impl Stream {
    /// A stream about this, and the first events of it. The server watches by then.
    pub(super) async fn open(
        target: &Target,
        request: &WatchRequest,
    ) -> Result<(Self, Vec<WakeEvent>), DriverError> {
        let opened = timeout(OPEN_TIMEOUT, Self::open_without_a_limit(target, request)).await;
        opened.unwrap_or_else(|_| {
            let server = Arc::clone(&target.shown);
            Err(Failure::Timeout { server, limit: OPEN_TIMEOUT }.into())
        })
    }

    async fn open_without_a_limit(
        target: &Target,
        request: &WatchRequest,
    ) -> Result<(Self, Vec<WakeEvent>), DriverError> {
        let json = serde_json::to_vec(request).map_err(DriverError::backend)?;
        let request = target.request(Method::POST, "driver/watch", Bytes::from(json))?;
        let mut sender = target.dial().await?;
        let response = sender.send_request(request).await.map_err(|it| target.lost(&it))?;
        let (head, mut body) = response.into_parts();
        let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |it| it.as_bytes());
        if head.status != StatusCode::OK || !kind.starts_with(b"text/event-stream") {
            let text = body::read(&mut body, MAX_PROBLEM_BYTES).await.unwrap_or_default();
            return Err(failure::judge(&target.shown, head.status, &head.headers, &text));
        }
        let mut stream = Self { body, events: Events::default(), _sender: sender };
        loop {
            match stream.next().await {
                Some(first) if first.is_empty() => {}
                Some(first) => return Ok((stream, first)),
                None => {
                    let (server, cause) =
                        (Arc::clone(&target.shown), "the stream ended".to_owned());
                    return Err(Failure::Lost { server, cause }.into());
                }
            }
        }
    }

    /// The next events, or none with a sign of life. `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Vec<WakeEvent>> {
        let piece = timeout(MAX_SILENCE, body::next(&mut self.body)).await.ok()??;
        self.events.feed(&piece.ok()?).ok()
    }
}
