//! Processes that are killed, and processes that wake each other.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use taskharbor_core::{Admin, Driver, State};
use taskharbor_sqlite::SqliteDriver;

use crate::{
    crash,
    fixture::{NOON, put, queue, single, state, take},
    process::{child, told},
    temp_dir::TempDir,
};

/// A few rounds of what `cargo xtask crash sqlite` does for long.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kills() {
    let seed = std::env::var("TASKHARBOR_SEED").ok().and_then(|it| it.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("TASKHARBOR_SEED={seed}");
    let temp = TempDir::new();
    let dir = temp.dir().to_str().unwrap().to_owned();
    let command = || Ok(child("kill::a_child_that_is_killed", &dir));
    let mut random = fastrand::Rng::with_seed(seed);
    let tally = crash::rounds(temp.dir().to_owned(), 5, &mut random, command).await.unwrap();
    let crash::Tally { enqueued, done, left } = tally;
    println!("{enqueued} enqueued, {done} done, {left} left");
    assert!(enqueued > 0);
}

/// Not a test by itself.
#[test]
fn a_child_that_is_killed() {
    let Some(dir) = told() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(crash::child(std::path::Path::new(&dir))).unwrap();
}

#[tokio::test]
async fn a_commit_of_another_process_wakes() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    let mut command = child("kill::a_child_that_waits_for_work", temp.file().to_str().unwrap());
    let mut waiting = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
    let mut until = |what: &str| {
        for line in lines.by_ref() {
            if line.unwrap().contains(what) {
                return;
            }
        }
        panic!("the child has ended before it said {what:?}");
    };
    until("watching");
    put(&driver, "a").await;
    until("woken");
    assert!(waiting.wait().unwrap().success());
    assert_eq!(state(&driver, "a").await, Some(State::Done));
    assert_eq!(driver.check().await.unwrap(), []);
}

/// Not a test by itself.
#[tokio::test]
async fn a_child_that_waits_for_work() {
    let Some(path) = told() else { return };
    let driver = SqliteDriver::open(path).await.unwrap();
    let mut watch = driver.watch(vec![queue()]).await.unwrap();
    println!("watching");
    let waiting = async {
        loop {
            if let Some(leased) = take(&driver).await {
                return single(&driver).ack(&leased, None, NOON).await.unwrap();
            }
            assert!(watch.woken().await.is_some());
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("no wake-up");
    println!("woken");
}
