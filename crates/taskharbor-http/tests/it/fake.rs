//! A server that sends the answers of a test, byte for byte.

use std::{net::SocketAddr, sync::Arc};

use taskharbor_http::{Config, HttpDriver};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// The behaviour of a connection after the request was read.
#[derive(Clone)]
pub(crate) enum Then {
    /// These bytes are written and the connection is closed.
    Answer(Vec<u8>),
    /// Nothing is written until the client goes away.
    Hang(Arc<Hang>),
}

/// What happens at a server that hangs.
#[derive(Default)]
pub(crate) struct Hang {
    /// A request has arrived.
    pub(crate) arrived: Notify,
    /// Its client has gone away.
    pub(crate) gone: Notify,
}

/// Bounds as a server tells them.
pub(crate) const BOUNDS: &str =
    r#"{"limits":{"payload_bytes":1048576,"flows":true},"request_bytes":100000}"#;

/// An answer with a content type and a body, and a length that is as given.
pub(crate) fn answer(status: &str, kind: &str, body: &str, length: usize) -> Then {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
    Then::Answer(format!("{head}connection: close\r\n\r\n{body}").into_bytes())
}

pub(crate) fn json(status: &str, body: &str) -> Then {
    answer(status, "application/json", body, body.len())
}

/// A server that tells bounds, and does one thing with all other requests.
pub(crate) async fn server(then: Then) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, then.clone()));
        }
    });
    address
}

/// A driver of such a server.
pub(crate) async fn driver(then: Then) -> HttpDriver {
    let address = server(then).await;
    let config = Config::from_url(&format!("http://{address}?token=hunter2")).unwrap();
    HttpDriver::open(config).await.unwrap()
}

async fn serve(mut stream: TcpStream, then: Then) {
    let request = read(&mut stream).await;
    if request.starts_with("GET ") {
        let Then::Answer(bytes) = json("200 OK", BOUNDS) else { return };
        stream.write_all(&bytes).await.unwrap();
        return;
    }
    match then {
        Then::Answer(bytes) => {
            // A client that has seen enough may be gone.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Then::Hang(hang) => {
            hang.arrived.notify_one();
            let _ = stream.read(&mut [0; 1]).await;
            hang.gone.notify_one();
        }
    }
}

/// One request with its body.
async fn read(stream: &mut TcpStream) -> String {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).await.unwrap_or(0);
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            body.len() >= length.map_or(0, |length| length.parse().unwrap())
        });
        if whole || count == 0 {
            return text.into_owned();
        }
    }
}
