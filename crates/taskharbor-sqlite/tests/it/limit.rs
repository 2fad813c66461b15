//! Limits on one file that several use, and what is left of them in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, State,
    admin::{Change, Configure, Prune, QueueLimits, Rate},
    driver::{Demand, Leased, Reserve, Settle, Settlement, Transaction, Transition},
    name::Holder,
};
use taskharbor_sqlite::{SqliteDriver, rusqlite::Connection};

use crate::{
    fixture::{LEASE, NOON, id, job, lane, queue, state},
    lane::{limit, open, reserve, store},
    temp_dir::TempDir,
};

fn acks(jobs: &[Leased]) -> Settle {
    let ack = |leased: &Leased| {
        let ack = Transition::Ack { output: None };
        Settlement::new(leased.job.id.clone(), leased.lease.token, ack)
    };
    Settle::new(jobs.iter().map(ack).collect(), NOON)
}

/// Takes and acks until this many jobs are done, and counts those that are inflight.
async fn work(driver: SqliteDriver, inflight: Arc<AtomicUsize>, done: Arc<AtomicUsize>) {
    while done.load(Ordering::SeqCst) < 400 {
        let jobs = reserve(&driver, 4).await.jobs;
        let now = inflight.fetch_add(jobs.len(), Ordering::SeqCst) + jobs.len();
        assert!(now <= 5, "{now} are inflight");
        tokio::task::yield_now().await;
        inflight.fetch_sub(jobs.len(), Ordering::SeqCst);
        done.fetch_add(jobs.len(), Ordering::SeqCst);
        driver.settle(acks(&jobs)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_on_one_file_share_a_limit() {
    let temp = TempDir::new();
    let first = open(&temp).await;
    limit(&first, QueueLimits::new().inflight(5).per_lane(2)).await;
    store(&first, (0..400).map(|it| job(&it.to_string()).lane(lane(&(it % 7).to_string())))).await;
    let (inflight, done) = (Arc::default(), Arc::default());
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let work = work(open(&temp).await, Arc::clone(&inflight), Arc::clone(&done));
        tasks.push(tokio::spawn(work));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(first.check().await.unwrap(), []);
}

fn lane_rows(temp: &TempDir) -> i64 {
    let conn = Connection::open(temp.file()).unwrap();
    conn.query_row("SELECT count(*) FROM th_lane", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn charges_of_lanes_that_are_not_used_any_more_are_removed() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    limit(&driver, QueueLimits::new().lane_rate(Rate::per(1, Duration::from_secs(1)))).await;
    store(&driver, (0..3_900).map(|it| job(&it.to_string()).lane(lane(&it.to_string())))).await;
    for _ in 0..3 {
        assert_eq!(reserve(&driver, 1_000).await.jobs.len(), 1_000);
    }
    assert_eq!(lane_rows(&temp), 3_000);
    let tomorrow = NOON.saturating_add(Duration::from_secs(86_400));
    let demands = vec![Demand::new(queue(), 900)];
    let later = Reserve::new(demands, Holder::new("tester").unwrap(), tomorrow, LEASE);
    assert_eq!(driver.reserve(later).await.unwrap().jobs.len(), 900);
    let day_after = tomorrow.saturating_add(Duration::from_secs(86_400));
    driver.prune(Prune::new(1, tomorrow)).await.unwrap();
    assert_eq!(lane_rows(&temp), 900);
    driver.prune(Prune::new(1, day_after)).await.unwrap();
    assert_eq!(lane_rows(&temp), 0);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn what_is_not_set_any_more_leaves_no_row() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    let hold = |lane, until| Change::Hold { queue: queue(), lane, until };
    let set = |limits| Change::SetLimits { queue: queue(), limits };
    let changes = vec![
        hold(None, Some(NOON)),
        hold(Some(lane("a")), Some(NOON)),
        set(Some(QueueLimits::new().inflight(1))),
        Change::PauseQueue(queue()),
        set(None),
        hold(None, None),
        hold(Some(lane("a")), None),
        Change::ResumeQueue(queue()),
    ];
    driver.configure(Configure::new(changes, NOON)).await.unwrap();
    let conn = Connection::open(temp.file()).unwrap();
    let rows: i64 = conn
        .query_row(
            "SELECT (SELECT count(*) FROM th_queue) + (SELECT count(*) FROM th_lane)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn an_application_stores_and_settles_limited_jobs_in_its_own_transaction() {
    let temp = TempDir::new();
    let driver = open(&temp).await;
    limit(&driver, QueueLimits::new().per_lane(1)).await;
    let mut conn = Connection::open(temp.file()).unwrap();
    let mut tx = driver.begin(&mut conn).unwrap();
    let jobs = ["a", "b"].map(|text| job(text).lane(lane("blue")).into());
    tx.enqueue(taskharbor_core::driver::Enqueue::new(jobs.into(), NOON)).await.unwrap();
    tx.commit().unwrap();
    let first = reserve(&driver, 2).await.jobs;
    assert_eq!(first.len(), 1);
    assert_eq!(reserve(&driver, 2).await.jobs, []);
    let mut tx = driver.begin(&mut conn).unwrap();
    tx.settle(acks(&first)).await.unwrap().remove(0).unwrap();
    tx.commit().unwrap();
    let second = reserve(&driver, 2).await.jobs;
    assert_eq!(second[0].job.id, id("b"));
    assert_eq!(state(&driver, "a").await, Some(State::Done));
    assert_eq!(driver.check().await.unwrap(), []);
}
