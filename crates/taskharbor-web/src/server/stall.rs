//! [`EndStalled`]: ends a connection whose client does not read.
//!
//! What is left to write to such a client stays in memory, and its connection takes the place of another.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// How long a client may take no bytes although there are some for it.
const STALL_TIME: Duration = Duration::from_secs(30);

/// A connection on which a write fails when the other side takes no bytes for too long.
#[derive(Debug)]
pub(super) struct EndStalled<T> {
    stream: T,
    /// Runs while there is something that the other side does not take.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> EndStalled<T> {
    pub(super) const fn new(stream: T) -> Self {
        Self { stream, stalled: None }
    }

    /// Ends a wait that is too long.
    fn bounded<R>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_TIME)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for EndStalled<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for EndStalled<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::Instant,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (server, _client) = duplex(16);
        let (mut server, begun) = (EndStalled::new(server), Instant::now());
        let error = server.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), STALL_TIME.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_gets_everything() {
        let (server, mut client) = duplex(16);
        let mut server = EndStalled::new(server);
        let read = async {
            let mut read = Vec::new();
            while read.len() < 64 {
                sleep(STALL_TIME - Duration::from_secs(1)).await;
                client.read_buf(&mut read).await.unwrap();
            }
            read.len()
        };
        let (written, read) = tokio::join!(server.write_all(&[0; 64]), read);
        written.unwrap();
        assert_eq!(read, 64);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_nothing_to_write_stays_open() {
        let (server, mut client) = duplex(16);
        let mut server = EndStalled::new(server);
        server.write_all(b"one").await.unwrap();
        sleep(STALL_TIME * 10).await;
        server.write_all(b"two").await.unwrap();
        let mut read = [0; 6];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"onetwo");
    }
}
