//! Connections to a server on a socket.

use std::{future::pending, time::Duration};

use taskharbor::AnyDriver;
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, serve};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use crate::rig::Rig;

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_and_does_not_read_loses_its_connection() {
    const REQUESTS: usize = 200;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = AnyDriver::new(MemoryDriver::new());
    let stores = Stores::new().add("main", StoreKind::Memory, &store).unwrap();
    let web = Web::new().anonymous(Access::new("ada", Role::Viewer));
    let server = tokio::spawn(serve(listener, stores, web, pending()));

    // More than the buffers of both sockets take.
    let answer_bytes = Rig::new().description().await.to_string().len();
    assert!(answer_bytes * REQUESTS > 32 << 20, "{answer_bytes}");
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /v1/openapi.json HTTP/1.1\r\nhost: {address}\r\n\r\n");
    client.write_all(request.repeat(REQUESTS).as_bytes()).await.unwrap();
    sleep(Duration::from_secs(60)).await;

    let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
    while let Ok(bytes @ 1..) = client.read(&mut buffer).await {
        read += bytes;
    }
    assert!(read < answer_bytes * REQUESTS / 2, "{read} of {answer_bytes} each");
    assert!(!server.is_finished(), "others are served");
    server.abort();
}
