//! A transaction that keeps an old snapshot open: dead rows pile up before the ready ones, and the
//! driver begins to look behind them. What others put there all the same must not wait for ever.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, JobId, Timestamp,
    admin::{Action, Manage},
    driver::{Enqueue, LeaseToken, Settle, Settlement, Transition},
    job::JobSet,
};
use taskharbor_postgres::{Config, PostgresDriver};
use tokio::time::{Instant, sleep};
use tokio_postgres::NoTls;

use crate::{
    fixture::{id, job, noon, reserve, store_at, tokens},
    harness::{server::Server, store},
};

/// This many dead rows take longer than a moment to walk through.
const DEAD: usize = 60_000;
const BACKLOG: usize = 40_000;
const LEASE: Duration = Duration::from_secs(600);

fn seconds(seconds: u64) -> Timestamp {
    noon().saturating_add(Duration::from_secs(seconds))
}

async fn fill(driver: &PostgresDriver, prefix: &str, count: usize, now: Timestamp) {
    for start in (0..count).step_by(5_000) {
        let end = count.min(start + 5_000);
        let jobs = (start..end).map(|number| job(format!("{prefix}{number}"))).collect();
        driver.enqueue(Enqueue::new(vec![JobSet::plain(jobs)], now)).await.unwrap();
    }
}

async fn end(driver: &PostgresDriver, jobs: Vec<(JobId, LeaseToken)>, now: Timestamp) {
    let ack = || Transition::Ack { output: None };
    let items = jobs.into_iter().map(|(id, token)| Settlement::new(id, token, ack()));
    let answers = driver.settle(Settle::new(items.collect(), now)).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
}

/// Many jobs in one call take long as well, and there is nothing to begin behind for that.
#[tokio::test]
async fn the_order_is_exact_after_a_call_that_took_long_for_its_jobs() {
    let store = store::named().await;
    fill(store.driver(), "a", 40_000, seconds(1)).await;
    let other = store.another().await;
    let start = Instant::now();
    let granted = store.reserve(reserve(30_000, seconds(2), LEASE)).await.unwrap();
    println!("{} jobs took {:?}", granted.jobs.len(), start.elapsed());
    store_at(&other, job("early"), seconds(0)).await;
    store_at(&other, job("urgent").priority(1), seconds(2)).await;
    let granted = store.reserve(reserve(2, seconds(2), LEASE)).await.unwrap();
    let order: Vec<_> = tokens(&granted.jobs).into_iter().map(|(id, _)| id).collect();
    assert_eq!(order, [id("urgent"), id("early")]);
}

/// Takes jobs and ends them until it is told to stop, and gives one back each time: that puts a job
/// before the position where the driver begins, while other calls are in flight.
async fn work(driver: PostgresDriver, stop: Arc<AtomicBool>, ran: Arc<Mutex<HashSet<JobId>>>) {
    let now = seconds(100);
    while !stop.load(Ordering::SeqCst) {
        let granted = driver.reserve(reserve(5, now, LEASE)).await.unwrap();
        assert_eq!(granted.jobs.len(), 5, "the backlog must last, or nothing is proved");
        let mut granted = tokens(&granted.jobs);
        let back = granted.iter().rposition(|(id, _)| id.as_str().starts_with('b'));
        if let Some((id, token)) = back.map(|at| granted.swap_remove(at)) {
            let back = Transition::Release { run_at: None, started: false, note: None };
            let item = Settlement::new(id, token, back);
            driver.settle(Settle::new(vec![item], now)).await.unwrap();
        }
        ran.lock().unwrap().extend(granted.iter().map(|(id, _)| id.clone()));
        end(&driver, granted, now).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_for_ever_behind_the_rows_that_an_old_snapshot_keeps() {
    let server = Server::start_with("autovacuum = off\nsynchronous_commit = off");
    let open = async || {
        PostgresDriver::open(Config::from_url(&server.url()).unwrap().pool_size(4)).await.unwrap()
    };
    let (driver, other) = (open().await, open().await);
    driver.migrate().await.unwrap();

    // Leased from the beginning, before all others: to be released, and to run out.
    fill(&driver, "front", 2, seconds(0)).await;
    let front = driver.reserve(reserve(1, seconds(0), LEASE)).await.unwrap();
    let runs_out = Duration::from_millis(2_500);
    driver.reserve(reserve(1, seconds(0), runs_out)).await.unwrap();
    fill(&driver, "a", DEAD, seconds(1)).await;
    let (pin, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM taskharbor.th_live";
    pin.batch_execute(snapshot).await.unwrap();
    for _ in 0..DEAD / 5_000 {
        let granted = driver.reserve(reserve(5_000, seconds(2), LEASE)).await.unwrap();
        end(&driver, tokens(&granted.jobs), seconds(2)).await;
    }
    let start = Instant::now();
    let granted = other.reserve(reserve(1, seconds(2), LEASE)).await.unwrap();
    assert_eq!(granted.jobs.len(), 0);
    println!("who looks at everything walks for {:?}", start.elapsed());
    fill(&other, "b", BACKLOG, seconds(3)).await;

    let (stop, ran) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let works =
        [(); 3].map(|()| tokio::spawn(work(driver.clone(), Arc::clone(&stop), Arc::clone(&ran))));
    // All of this by another process, so that the driver is not told.
    let back = tokens(&front.jobs).remove(0);
    let back = Settlement::new(
        back.0,
        back.1,
        Transition::Release { run_at: None, started: false, note: None },
    );
    other.settle(Settle::new(vec![back], seconds(100))).await.unwrap()[0].clone().unwrap();
    store_at(&other, job("urgent").priority(5), seconds(100)).await;
    store_at(&other, job("early"), seconds(0)).await;
    let raised = vec![id(format!("b{}", BACKLOG - 1))];
    let raise = Action::SetPriority(1);
    other.manage(Manage::new(raised.clone(), raise, seconds(100))).await.unwrap();

    let mut waited_for = vec![id("front0"), id("front1"), id("urgent"), id("early")];
    waited_for.extend(raised);
    let start = Instant::now();
    loop {
        let missing: Vec<_> = {
            let ran = ran.lock().unwrap();
            waited_for.iter().filter(|id| !ran.contains(*id)).cloned().collect()
        };
        if missing.is_empty() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "never run: {missing:?}");
        sleep(Duration::from_millis(10)).await;
    }
    println!("all were run within {:?}", start.elapsed());
    stop.store(true, Ordering::SeqCst);
    for work in works {
        work.await.unwrap();
    }

    // Without the snapshot, the order is exact again.
    pin.batch_execute("COMMIT").await.unwrap();
    pin.batch_execute("VACUUM taskharbor.th_live").await.unwrap();
    let rest = driver.reserve(reserve(BACKLOG, seconds(200), LEASE)).await.unwrap();
    end(&driver, tokens(&rest.jobs), seconds(200)).await;
    for (name, priority, at) in [("x", 0, 202), ("y", 0, 201), ("z", 3, 203)] {
        store_at(&other, job(name).priority(priority), seconds(at)).await;
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        let granted = driver.reserve(reserve(1, seconds(300), LEASE)).await.unwrap();
        order.extend(tokens(&granted.jobs).into_iter().map(|(id, _)| id));
    }
    assert_eq!(order, [id("z"), id("y"), id("x")]);
    assert_eq!(driver.check().await.unwrap(), []);
}
