//! Several on one file.

use std::{collections::HashSet, time::Duration};

use taskharbor_core::{
    Admin, Driver, DriverError, State,
    admin::Counts,
    driver::{Demand, Enqueue, Reserve, Settle, Settlement, Transition, Watch},
    name::{Holder, IdempotencyKey},
};
use taskharbor_sqlite::{SqliteDriver, Synchronous, rusqlite};

use crate::{
    fixture::{LEASE, NOON, id, job, put, queue, run, single, state},
    temp_dir::TempDir,
};

async fn open(temp: &TempDir) -> SqliteDriver {
    let config = temp.config().synchronous(Synchronous::Normal);
    SqliteDriver::open_with(config.busy_timeout(Duration::from_secs(30))).await.unwrap()
}

/// Takes and acks until nothing is left; the ids that were granted.
async fn drain(driver: SqliteDriver) -> Vec<String> {
    let mut granted = Vec::new();
    loop {
        let demands = vec![Demand::new(queue(), 7)];
        let request = Reserve::new(demands, Holder::new("drain").unwrap(), NOON, LEASE);
        let jobs = driver.reserve(request).await.unwrap().jobs;
        if jobs.is_empty() {
            return granted;
        }
        granted.extend(jobs.iter().map(|leased| leased.job.id.to_string()));
        let ack = |leased: taskharbor_core::driver::Leased| {
            Settlement::new(leased.job.id, leased.lease.token, Transition::Ack { output: None })
        };
        let request = Settle::new(jobs.into_iter().map(ack).collect(), NOON);
        for answer in driver.settle(request).await.unwrap() {
            answer.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_on_one_file_share_the_work_and_nothing_is_granted_twice() {
    let temp = TempDir::new();
    let first = open(&temp).await;
    let jobs = (0..2_000).map(|number| job(&number.to_string()).into()).collect();
    first.enqueue(Enqueue::new(jobs, NOON)).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(tokio::spawn(drain(open(&temp).await)));
    }
    let (mut all, mut count) = (HashSet::new(), 0);
    for task in tasks {
        let granted = task.await.unwrap();
        count += granted.len();
        all.extend(granted);
    }
    assert_eq!((count, all.len()), (2_000, 2_000));
    assert_eq!(first.counts(Counts::new(NOON)).await.unwrap()[0].states.done, 2_000);
    assert_eq!(first.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_of_one_driver_each_get_their_own_answer() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    let tasks: Vec<_> = (0..500)
        .map(|number| {
            let driver = driver.clone();
            tokio::spawn(async move {
                let text = (number / 2).to_string();
                single(&driver).enqueue_job(job(&text), NOON).await.unwrap().is_new()
            })
        })
        .collect();
    let mut new = 0;
    for task in tasks {
        new += usize::from(task.await.unwrap());
    }
    assert_eq!(new, 250);
    assert_eq!(driver.check().await.unwrap(), []);
}

/// Waits for a wake-up for as long as it takes, within reason.
async fn woken(watch: &mut Watch) {
    let woken = tokio::time::timeout(Duration::from_secs(10), watch.woken()).await;
    assert!(matches!(woken, Ok(Some(_))), "no watch was woken");
}

#[tokio::test]
async fn a_commit_of_another_wakes() {
    let temp = TempDir::new();
    let (here, there) = (open(&temp).await, open(&temp).await);
    let mut watch = here.watch(vec![queue()]).await.unwrap();
    assert!(watch.can_wake());
    // There may be one for what was before.
    for text in ["a", "b", "c"] {
        put(&there, text).await;
        woken(&mut watch).await;
    }
    // By another program.
    let conn = rusqlite::Connection::open(temp.file()).unwrap();
    conn.execute("UPDATE th_state SET reason = 'people'", []).unwrap();
    woken(&mut watch).await;
}

#[tokio::test]
async fn the_end_of_a_job_wakes_a_caller_of_another() {
    let temp = TempDir::new();
    let (here, there) = (open(&temp).await, open(&temp).await);
    put(&there, "a").await;
    let mut watch = here.watch_job(id("a")).await.unwrap();
    // There is one for what was before.
    woken(&mut watch).await;
    run(&there, "a").await;
    woken(&mut watch).await;
}

#[tokio::test]
async fn what_one_does_another_sees_at_once() {
    let temp = TempDir::new();
    let (here, there) = (open(&temp).await, open(&temp).await);
    for number in 0..50 {
        let text = number.to_string();
        put(&here, &text).await;
        assert_eq!(state(&there, &text).await, Some(State::Ready));
        let manage = taskharbor_core::admin::Manage::new(
            vec![id(&text)],
            taskharbor_core::admin::Action::Cancel,
            NOON,
        );
        there.manage(manage).await.unwrap().remove(0).unwrap();
        assert_eq!(state(&here, &text).await, Some(State::Cancelled));
    }
}

#[tokio::test]
async fn reads_do_not_wait_for_a_transaction_that_writes() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    put(&driver, "a").await;
    let mut conn = rusqlite::Connection::open(temp.file()).unwrap();
    let other = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let writing = tokio::spawn({
        let driver = driver.clone();
        async move { put(&driver, "b").await }
    });
    for _ in 0..100 {
        assert_eq!(state(&driver, "a").await, Some(State::Ready));
        assert_eq!(driver.counts(Counts::new(NOON)).await.unwrap()[0].states.ready, 1);
    }
    assert!(!writing.is_finished());
    drop(other);
    writing.await.unwrap();
    assert_eq!(state(&driver, "b").await, Some(State::Ready));
}

#[tokio::test]
async fn a_call_that_fails_in_a_shared_transaction_is_rolled_back_alone() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    let mut conn = rusqlite::Connection::open(temp.file()).unwrap();
    conn.execute_batch(
        "CREATE TRIGGER no_keys BEFORE INSERT ON th_key
         BEGIN SELECT RAISE(ABORT, 'no keys here'); END",
    )
    .unwrap();
    // While another connection has the file locked, calls gather, and then share a transaction.
    let other = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let mut keyed = job("written after it");
    keyed.idempotency_key = Some(IdempotencyKey::new("key").unwrap());
    let failing = Enqueue::new(vec![job("written first").into(), keyed.into()], NOON);
    let (.., failed, (), ()) = tokio::join!(
        biased;
        put(&driver, "before"),
        put(&driver, "beside"),
        driver.enqueue(failing),
        put(&driver, "after"),
        async { drop(other) },
    );
    let failed = failed.unwrap_err();
    assert!(matches!(failed, DriverError::Backend(_)), "{failed:?}");
    for text in ["before", "beside", "after"] {
        assert_eq!(state(&driver, text).await, Some(State::Ready), "{text}");
    }
    for text in ["written first", "written after it"] {
        assert_eq!(state(&driver, text).await, None, "{text}");
    }
    assert_eq!(driver.check().await.unwrap(), []);
}
