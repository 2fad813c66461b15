//! Requests as plain as they can be, so that what is measured is the server.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

use super::super::Outcome;

async fn send(address: SocketAddr, path: &str) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Asks once; fails unless the answer is a success.
pub(super) async fn get(address: SocketAddr, path: &str) -> Outcome {
    let mut answer = Vec::new();
    send(address, path).await?.read_to_end(&mut answer).await?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(format!("GET {path}: {}", String::from_utf8_lossy(&answer)).into());
    }
    Ok(())
}

/// A stream of events, as a browser keeps it open.
pub(super) struct Stream {
    end: oneshot::Sender<()>,
    task: JoinHandle<usize>,
}

/// Opens a stream of events.
pub(super) async fn listen(address: SocketAddr, path: &str) -> Outcome<Stream> {
    let mut stream = send(address, path).await?;
    let (end, mut ended) = oneshot::channel();
    let task = tokio::spawn(async move {
        let (mut events, mut buffer) = (0, vec![0; 64 * 1024]);
        loop {
            let read = tokio::select! {
                _ = &mut ended => return events,
                read = stream.read(&mut buffer) => read,
            };
            match read {
                Ok(length @ 1..) => {
                    events += buffer[..length].windows(6).filter(|it| it == b"event:").count();
                }
                _ => return events,
            }
        }
    });
    Ok(Stream { end, task })
}

impl Stream {
    /// Closes it; answers how many events came.
    pub(super) async fn end(self) -> usize {
        // It may have ended by itself.
        let _ = self.end.send(());
        self.task.await.unwrap_or_default()
    }
}
