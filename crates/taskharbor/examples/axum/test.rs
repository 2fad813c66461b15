//! The example as a test: two users sign up over HTTP, each gets one mail, and the program stops.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use taskharbor_postgres::tokio_postgres::{self, Client};
use taskharbor_testkit::environment;
use tokio::{sync::oneshot, task::spawn_blocking, time::timeout};

use super::*;

/// The body of the answer.
async fn request(address: SocketAddr, head: &'static str, path: String, body: String) -> String {
    let ask = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{head} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        body.to_owned()
    };
    spawn_blocking(ask).await.unwrap()
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn each_user_gets_one_mail() {
    let server = environment::required("TASKHARBOR_TEST_POSTGRES");
    // A database of its own, as the example would have.
    let database = format!("axum_{}", std::process::id());
    let admin = connect(&server).await;
    admin.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();
    let (start, _) = server.rsplit_once('/').unwrap();
    let url = format!("{start}/{database}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn({
        let url = url.clone();
        async move { run(&url, listener, async { drop(stopped.await) }).await }
    });
    for (number, email) in [(1, "ada@example.com"), (2, "bob@example.com")] {
        let new = format!(r#"{{"email": "{email}"}}"#);
        let answer = request(address, "POST", "/users".to_owned(), new).await;
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["user"], number);
        let path = format!("/mails/{}", answer["job"].as_str().unwrap());
        assert_eq!(request(address, "GET", path, String::new()).await, "1");
    }
    stop.send(()).unwrap();
    timeout(Duration::from_secs(60), serving).await.unwrap().unwrap().unwrap();

    let db = connect(&url).await;
    let users = db.query("SELECT email, mails FROM users ORDER BY id", &[]).await.unwrap();
    let users: Vec<(&str, i64)> = users.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(users, [("ada@example.com", 1), ("bob@example.com", 1)]);
    // A database with connections cannot be dropped.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
    admin.query(end, &[&database]).await.unwrap();
    admin.batch_execute(&format!("DROP DATABASE {database}")).await.unwrap();
}
