//! Bodies: the JSON of a request, and an answer that is read to its end and no further than a bound.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// What is set aside at most for an answer before it arrives.
const FIRST_BYTES: usize = 1024 * 1024;

/// The body of a request, whole.
#[derive(Debug)]
pub(crate) struct Whole(Option<Bytes>);

impl Whole {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Why an answer could not be read to its end.
#[derive(Debug)]
pub(crate) enum ReadError {
    TooLarge,
    Lost(hyper::Error),
}

/// The next piece of an answer; `None` at its end.
pub(crate) async fn next(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            // Trailers say nothing to us.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The whole answer, if it has at most `limit` bytes.
pub(crate) async fn read(body: &mut Incoming, limit: usize) -> Result<Bytes, ReadError> {
    let expected = body.size_hint().lower();
    if usize::try_from(expected).map_or(true, |bytes| bytes > limit) {
        return Err(ReadError::TooLarge);
    }
    let mut whole = Vec::new();
    while let Some(piece) = next(body).await {
        let piece = piece.map_err(ReadError::Lost)?;
        if whole.len() + piece.len() > limit {
            return Err(ReadError::TooLarge);
        }
        // Most answers come in one piece.
        if whole.is_empty() && body.is_end_stream() {
            return Ok(piece);
        }
        if whole.is_empty() {
            whole.reserve(usize::try_from(expected).unwrap_or(0).min(FIRST_BYTES));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}
