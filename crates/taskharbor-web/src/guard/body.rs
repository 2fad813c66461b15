//! Reads the body of a request, within the bounds of its endpoint and of the server.
//!
//! A call of the contract may be large, and many of them at once would take all memory. So the part of a
//! body beyond the first MiB takes permits as it arrives, and a request that finds none left is refused.
//! What a client only announces takes nothing, and a body that arrives slowly is not waited for.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, StatusCode, header},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::{app::App, problem::Problem};

const MIB: usize = 1024 * 1024;
/// How long a body may take to arrive, beside the time for its size.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The slowest that a large body may arrive.
const MIN_BYTES_PER_SECOND: usize = 256 * 1024;

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
    body: Body,
    limit: usize,
) -> Result<(Bytes, Room), Problem> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    let length = length.map_or(0, |length: u64| usize::try_from(length).unwrap_or(usize::MAX));
    if length > limit {
        return Err(too_large(limit));
    }
    let mut room = Room { permits: Arc::clone(&app.body_room), taken: None };
    let bytes = receive(&mut room, body, limit).await?;
    Ok((bytes, room))
}

async fn receive(room: &mut Room, mut body: Body, limit: usize) -> Result<Bytes, Problem> {
    let start = Instant::now();
    let mut bytes = Vec::new();
    loop {
        let for_size = Duration::from_secs((bytes.len() / MIN_BYTES_PER_SECOND) as u64);
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = timeout_at(start + BODY_TIME + for_size, frame);
        let Some(frame) = frame.await.map_err(|_| too_slow())? else { break };
        let frame = frame.map_err(|_| Problem::invalid("the body ended too early"))?;
        let Ok(data) = frame.into_data() else { continue };
        let size = bytes.len().saturating_add(data.len());
        if size > limit {
            return Err(too_large(limit));
        }
        room.grow(size)?;
        bytes.try_reserve(data.len()).map_err(|_| busy())?;
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

fn busy() -> Problem {
    let detail = "large requests take as much memory as they may: try again, or send less";
    Problem::unavailable("busy", "the server is busy", detail)
}

fn too_slow() -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "body_too_slow",
        "the body of the request arrives too slowly",
        format!(
            "it may take {BODY_TIME:?} and a second more for each {} KiB: send less in one request",
            MIN_BYTES_PER_SECOND / 1024
        ),
    )
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        "the request is too large",
        format!("the body is larger than {limit} bytes: send less in one request"),
    )
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use hyper::body::Frame;
    use tokio::time::{Sleep, sleep};

    use super::*;

    /// A body that arrives in parts of a MiB, each after a pause.
    struct Parts {
        left: usize,
        pause: Duration,
        next: Pin<Box<Sleep>>,
    }

    impl Parts {
        fn body(count: usize, pause: Duration) -> Body {
            Body::new(Self { left: count, pause, next: Box::pin(sleep(pause)) })
        }
    }

    impl HttpBody for Parts {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            if self.next.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.left -= 1;
            let pause = self.pause;
            self.next = Box::pin(sleep(pause));
            Poll::Ready(Some(Ok(Frame::data(vec![b' '; MIB].into()))))
        }
    }

    fn room(permits: &Arc<Semaphore>) -> Room {
        Room { permits: Arc::clone(permits), taken: None }
    }

    #[tokio::test(start_paused = true)]
    async fn the_part_beyond_the_first_mib_takes_room_until_it_is_dropped() {
        let permits = Arc::new(Semaphore::new(4));
        let (mut first, mut second) = (room(&permits), room(&permits));
        let read = receive(&mut first, Parts::body(4, Duration::ZERO), 8 * MIB).await.unwrap();
        assert_eq!((read.len(), permits.available_permits()), (4 * MIB, 1));
        let refused = receive(&mut second, Parts::body(3, Duration::ZERO), 8 * MIB).await;
        assert_eq!(refused.unwrap_err().code, "busy");
        let refused = receive(&mut second, Parts::body(3, Duration::ZERO), 2 * MIB).await;
        assert_eq!(refused.unwrap_err().code, "too_large");
        drop((first, second));
        assert_eq!(permits.available_permits(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_as_long_as_it_makes_progress() {
        let permits = Arc::new(Semaphore::new(100));
        let steady = Parts::body(20, Duration::from_secs(4));
        let read = receive(&mut room(&permits), steady, 20 * MIB).await.unwrap();
        assert_eq!(read.len(), 20 * MIB);
        let (start, slow) = (Instant::now(), Parts::body(20, Duration::from_secs(6)));
        let refused = receive(&mut room(&permits), slow, 20 * MIB).await.unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (408, "body_too_slow"));
        assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    }
}
