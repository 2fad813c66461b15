//! Reads the body of a request, within the bounds of its endpoint and of the server.
//!
//! A call of the contract may be large, and many of them at once would take all memory. So the part of a
//! body beyond the first MiB takes permits, and a request that finds none left is refused.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, StatusCode, header},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{app::App, problem::Problem};

const MIB: usize = 1024 * 1024;

/// The room that a body takes, until it is dropped.
pub(super) struct Room {
    permits: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Takes room for a body of this size.
    fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let has = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        // The first MiB is free: as many small requests as may be answered at once fit anyway.
        let wanted = (bytes.saturating_sub(1) / MIB).saturating_sub(has);
        let Ok(wanted @ 1..) = u32::try_from(wanted) else { return Ok(()) };
        let Ok(more) = Arc::clone(&self.permits).try_acquire_many_owned(wanted) else {
            return Err(busy());
        };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// Reads a body of at most this many bytes.
pub(super) async fn read(
    app: &App,
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
) -> Result<(Bytes, Room), Problem> {
    let mut room = Room { permits: Arc::clone(&app.body_room), taken: None };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    let length = length.map_or(0, |length: u64| usize::try_from(length).unwrap_or(usize::MAX));
    if length > limit {
        return Err(too_large(limit));
    }
    room.grow(length)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| busy())?;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Problem::invalid("the body ended too early"))?;
        let Ok(data) = frame.into_data() else { continue };
        let size = bytes.len().saturating_add(data.len());
        if size > limit {
            return Err(too_large(limit));
        }
        room.grow(size)?;
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), room))
}

fn busy() -> Problem {
    let detail = "large requests take as much memory as they may: try again, or send less";
    Problem::unavailable("busy", "the server is busy", detail)
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        "the request is too large",
        format!("the body is larger than {limit} bytes: send less in one request"),
    )
}
