//! The library on a file: client and worker, in one process and across openings, and the
//! application's own transactions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../crash/mod.rs"]
mod crash;
mod harbor;
#[path = "../real/mod.rs"]
mod real;

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, Driver, EnqueueError, Handlers, Job, JobResult, Outcome,
    State, Worker,
};
use taskharbor_sqlite::{Config, SqliteDriver, rusqlite};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "double", output = u64)]
struct Double {
    number: u64,
}

async fn double(job: Double, _: Context) -> JobResult<u64> {
    Ok(job.number * 2)
}

/// A directory of its own, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let name = format!("taskharbor-library-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("jobs.db")
    }

    async fn driver(&self) -> SqliteDriver {
        SqliteDriver::open_with(Config::new(self.file()).create(true)).await.unwrap()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it takes too long")
}

#[tokio::test]
async fn jobs_survive_between_two_openings_by_url() {
    let temp = TempDir::new("url");
    let url = format!("sqlite:{}?create=true&synchronous=normal", temp.file().display());
    let driver = taskharbor::connect(&url).await.unwrap();
    driver.migrate().await.unwrap();
    let id = Client::new(&driver).enqueue(Double { number: 4 }).await.unwrap().id().clone();
    driver.close().await.unwrap();

    let driver = taskharbor::connect(&format!("sqlite:{}", temp.file().display())).await.unwrap();
    let worker = Worker::builder(&driver).handlers(Handlers::new().on(double));
    let running = worker.queue("default", 4).build().unwrap().start();
    let handle = Client::new(&driver).enqueue(Double { number: 21 }).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 42);
    running.shutdown().await.unwrap();
    let record = driver.inspect(id, driver.now().await.unwrap()).await.unwrap().unwrap();
    assert_eq!(record.state, State::Done);
}

#[tokio::test]
async fn a_worker_of_another_opening_runs_what_is_enqueued_here() {
    let temp = TempDir::new("two");
    let (here, there) = (temp.driver().await, temp.driver().await);
    let worker = Worker::builder(&AnyDriver::new(there)).handlers(Handlers::new().on(double));
    let running = worker.queue("default", 4).build().unwrap().start();
    let client = Client::new(&AnyDriver::new(here));
    for number in 0..10 {
        let handle = client.enqueue(Double { number }).await.unwrap();
        assert_eq!(soon(handle.wait()).await.unwrap(), number * 2);
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_job_is_enqueued_in_the_transaction_of_the_application() {
    let temp = TempDir::new("within");
    let sqlite = temp.driver().await;
    let client = Client::new(&AnyDriver::new(sqlite.clone()));
    let mut conn = rusqlite::Connection::open(temp.file()).unwrap();
    conn.execute_batch("CREATE TABLE orders (number INTEGER)").unwrap();

    let mut tx = sqlite.begin(&mut conn).unwrap();
    tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    let handle = client.enqueue(Double { number: 1 }).within(&mut tx).await.unwrap();
    tx.commit().unwrap();

    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let lost = client.enqueue(Double { number: 2 });
    let lost = sqlite.within(&tx, |jobs| async move { lost.within(jobs).await });
    let lost = lost.unwrap().unwrap();
    tx.rollback().unwrap();

    let other = TempDir::new("other");
    let other = Client::new(&AnyDriver::new(other.driver().await));
    let mut tx = sqlite.begin(&mut conn).unwrap();
    let refused = other.enqueue(Double { number: 3 }).within(&mut tx).await;
    assert!(matches!(refused, Err(EnqueueError::OtherStore)), "{refused:?}");
    drop(tx);

    let driver = AnyDriver::new(sqlite);
    let worker = Worker::builder(&driver).handlers(Handlers::new().on(double));
    let running = worker.queue("default", 4).build().unwrap().start();
    assert_eq!(soon(handle.wait()).await.unwrap(), 2);
    running.shutdown().await.unwrap();
    let now = driver.now().await.unwrap();
    assert!(driver.inspect(lost.id().clone(), now).await.unwrap().is_none());
}

#[derive(Clone)]
struct App {
    sqlite: SqliteDriver,
}

async fn book(job: Double, cx: Context<App>) -> JobResult<Outcome<u64>> {
    let sqlite = &cx.state().sqlite;
    let mut conn = rusqlite::Connection::open(sqlite.path())?;
    let mut tx = sqlite.begin(&mut conn)?;
    tx.execute("INSERT INTO orders VALUES (?1)", [i64::try_from(job.number)?])?;
    let done = cx.ack_in(&mut tx, job.number).await?;
    tx.commit()?;
    Ok(done)
}

#[tokio::test]
async fn a_job_is_completed_in_the_transaction_of_its_handler() {
    let temp = TempDir::new("ack");
    let sqlite = temp.driver().await;
    let conn = rusqlite::Connection::open(temp.file()).unwrap();
    conn.execute_batch("CREATE TABLE orders (number INTEGER)").unwrap();
    let driver = AnyDriver::new(sqlite.clone());
    let handlers = Handlers::new().on(book).with_state(App { sqlite });
    let worker = Worker::builder(&driver).handlers(handlers).queue("default", 4);
    let running = worker.build().unwrap().start();
    let handle = Client::new(&driver).enqueue(Double { number: 7 }).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 7);
    running.shutdown().await.unwrap();
    let orders: i64 =
        conn.query_row("SELECT sum(number) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chord_ends_once_even_if_workers_are_killed() {
    let temp = TempDir::new("crash");
    crash::survives(&format!("sqlite:{}?create=true", temp.file().display())).await;
}
