//! A way to a server that can be cut, stalled, or swallow everything without a word.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
};

use crate::Outcome;

/// Passes bytes on between clients and a server on this machine.
pub(crate) struct Proxy {
    port: u16,
    line: watch::Sender<Line>,
}

/// The state of the line. Connections have numbers in the order in which they were made.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    made: u64,
    /// Connections below this are closed.
    cut: u64,
    /// Connections below this stay open, and nothing passes over them any more.
    swallowed: u64,
    /// Nothing passes over any connection for now.
    is_stalled: bool,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let line = watch::Sender::new(Line::default());
        let state = line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut number = 0;
                state.send_modify(|line| {
                    number = line.made;
                    line.made += 1;
                });
                tokio::spawn(pass_on(client, server, number, state.subscribe()));
            }
        });
        Ok(Self { port, line })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        self.line.send_modify(|line| line.cut = line.made);
    }

    /// From here on nothing passes over the connections there are, and neither side is told.
    pub(crate) fn swallow(&self) {
        self.line.send_modify(|line| line.swallowed = line.made);
    }

    /// Holds up everything, or lets it pass again.
    pub(crate) fn stall(&self, is_stalled: bool) {
        self.line.send_modify(|line| line.is_stalled = is_stalled);
    }
}

async fn pass_on(client: TcpStream, server: u16, number: u64, mut line: watch::Receiver<Line>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let up = copy(from_client, to_server, number, line.clone());
    let down = copy(from_server, to_client, number, line.clone());
    tokio::select! {
        _ = line.wait_for(|line| number < line.cut) => {}
        // When one side has ended, so does the other.
        () = up => {}
        () = down => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: u64,
    mut line: watch::Receiver<Line>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        let passes = |line: &Line| number >= line.swallowed && !line.is_stalled;
        if line.wait_for(passes).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it is sent.
    async fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut read, mut write) = stream.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
            }
        });
        port
    }

    async fn says(stream: &mut TcpStream, byte: u8) -> bool {
        let mut answer = [0];
        stream.write_all(&[byte]).await.is_ok()
            && matches!(stream.read(&mut answer).await, Ok(1) if answer == [byte])
    }

    async fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
    }

    #[tokio::test]
    async fn nothing_is_lost_on_a_line_that_is_held_up() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stream = connect(&proxy).await;
        assert!(says(&mut stream, 1).await);
        proxy.stall(true);
        stream.write_all(&[2]).await.unwrap();
        proxy.stall(false);
        let mut answer = [0];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [2]);
    }

    #[tokio::test]
    async fn a_line_that_is_cut_ends_and_one_that_is_swallowed_says_nothing() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut cut = connect(&proxy).await;
        assert!(says(&mut cut, 1).await);
        proxy.cut();
        assert!(!says(&mut cut, 2).await);
        let mut swallowed = connect(&proxy).await;
        assert!(says(&mut swallowed, 3).await);
        proxy.swallow();
        swallowed.write_all(&[4]).await.unwrap();
        // Others get through, after it has tried.
        assert!(says(&mut connect(&proxy).await, 5).await);
        let silence = swallowed.try_read(&mut [0]).unwrap_err();
        assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    }
}
