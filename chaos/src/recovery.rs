//! How soon work goes on after a worker process was killed with many jobs in its hands: with nothing but its
//! lease, under `taskharbor worker`, whose second process evicts it, and with fast recovery and no parent. And
//! how soon a worker that has nothing to do ends when it is asked to.

use std::time::Duration;

use taskharbor::Client;
use taskharbor_core::{
    Admin, AnyDriver, JobId, JobType, NewJob, QueueName,
    admin::{Counts, StateCounts},
    driver::{Driver, Enqueue},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Outcome,
    choice::StoreKind,
    store::{Dir, Store},
    workers::{Held, LEASE, Process, Recovery},
};

const JOBS: usize = 1_000;
/// How much longer than the lease of the killed worker it may take until all its jobs are done.
const MAX_DELAY: Duration = Duration::from_secs(2);
const MAX_SHUTDOWN: Duration = Duration::from_secs(1);
/// How long it may take until the first job of a worker that was killed is delivered again: under the command,
/// and with fast recovery.
const MAX_EVICTED: Duration = Duration::from_secs(1);
const MAX_FAST: Duration = Duration::from_secs(15);
/// How many jobs those workers hold.
const FEW: usize = 8;
/// How long everything else may take.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// How often the jobs are counted.
const TICK: Duration = Duration::from_millis(20);

pub(crate) async fn run(kind: StoreKind) -> Outcome {
    let store = Store::make(kind).await?;
    let dir = Dir::make("recovery")?;
    let driver = store.open().await?.driver;
    let recovered = recovery(&driver, &store.url(), &dir).await?;
    println!(
        "  {JOBS} jobs were done {recovered:.2?} after their worker was killed, lease {LEASE:?}"
    );
    let evicted = under_the_command(&driver, &store.url()).await?;
    println!(
        "  the first job of a `taskharbor worker` was delivered again {evicted:.2?} after SIGKILL"
    );
    let fast = with_fast_recovery(&store, &dir).await?;
    println!(
        "  with fast recovery and no parent, the first job was delivered again {fast:.2?} after SIGKILL"
    );
    let ended = shutdown(&store.url(), &dir).await?;
    println!("  a worker with nothing to do ended {ended:.2?} after SIGTERM");
    let mut problems = Vec::new();
    if recovered > LEASE + MAX_DELAY {
        problems.push(format!("recovery took longer than the lease and {MAX_DELAY:?}"));
    }
    if evicted > MAX_EVICTED {
        problems.push(format!("under the command, recovery took longer than {MAX_EVICTED:?}"));
    }
    if fast > MAX_FAST {
        problems.push(format!("fast recovery took longer than {MAX_FAST:?}"));
    }
    if ended > MAX_SHUTDOWN {
        problems.push(format!("the shutdown took longer than {MAX_SHUTDOWN:?}"));
    }
    crate::fail_if_any(&problems)
}

/// Kills a worker that holds all jobs; answers how long it takes another to do them.
async fn recovery(driver: &AnyDriver, url: &str, dir: &Dir) -> Outcome<Duration> {
    let client = Client::new(driver);
    client.enqueue_many((0..JOBS).map(|_| Held {})).await?;
    let first = Process::start(url, &dir.0, JOBS)?;
    until(driver, "the first worker has all jobs", |counts| counts.inflight == JOBS).await?;
    let mut second = Process::start(url, &dir.0, JOBS)?;
    second.until_working().await?;
    let killed = Instant::now();
    first.kill().await?;
    until(driver, "all jobs are done", |counts| counts.done == JOBS).await?;
    let took = killed.elapsed();
    second.end().await?;
    Ok(took)
}

/// Kills a `taskharbor worker` whose leases last for ten minutes; answers how long it takes until another one
/// has the first of its jobs.
async fn under_the_command(driver: &AnyDriver, url: &str) -> Outcome<Duration> {
    let queue = QueueName::new("evicted")?;
    let ids =
        (0..FEW).map(|n| JobId::new(format!("evicted-{n}"))).collect::<Result<Vec<_>, _>>()?;
    let sleep = JobType::new("sleep")?;
    let new =
        |id: &JobId| NewJob::new(id.clone(), queue.clone(), sleep.clone(), b"\"10m\"".as_slice());
    let sets = ids.iter().map(|id| new(id).into()).collect();
    driver.enqueue(Enqueue::new(sets, driver.now().await?)).await?;
    let first = Process::start_sleeper(url, queue.as_str(), FEW)?;
    until_delivered(driver, &ids, 1, FEW).await?;
    let mut second = Process::start_sleeper(url, queue.as_str(), FEW)?;
    second.until_working().await?;
    let killed = Instant::now();
    first.kill().await?;
    until_delivered(driver, &ids, 2, 1).await?;
    let took = killed.elapsed();
    second.kill().await?;
    Ok(took)
}

/// Kills a process with a worker whose leases last for ten minutes; answers how long it takes until another
/// process has the first of its jobs. Nothing but the other process knows that it died.
async fn with_fast_recovery(store: &Store, dir: &Dir) -> Outcome<Duration> {
    let (driver, url) = (store.open().await?.driver, store.url());
    let handles = Client::new(&driver).enqueue_many((0..FEW).map(|_| Held {})).await?;
    let ids: Vec<_> = handles.iter().map(|handle| handle.id().clone()).collect();
    let first = Process::start_with(&url, &dir.0, FEW, Recovery::Fast)?;
    until_delivered(&driver, &ids, 1, FEW).await?;
    let mut second = Process::start_with(&url, &dir.0, FEW, Recovery::Fast)?;
    second.until_working().await?;
    let killed = Instant::now();
    first.kill().await?;
    until_delivered(&driver, &ids, 2, 1).await?;
    let took = killed.elapsed();
    second.kill().await?;
    Ok(took)
}

/// Waits until this many of these jobs were delivered this often.
async fn until_delivered(
    driver: &AnyDriver,
    ids: &[JobId],
    deliveries: u32,
    count: usize,
) -> Outcome {
    let wait = async {
        loop {
            let (now, mut delivered) = (driver.now().await?, 0);
            for id in ids {
                let record = driver.inspect(id.clone(), now).await?;
                let record = record.ok_or("a job is gone")?;
                delivered += usize::from(record.job.deliveries >= deliveries);
            }
            if delivered >= count {
                return Outcome::Ok(());
            }
            sleep(TICK).await;
        }
    };
    let late = |_| format!("not within {WAIT_LIMIT:?}: {count} jobs with delivery {deliveries}");
    timeout(WAIT_LIMIT, wait).await.map_err(late)?
}

async fn shutdown(url: &str, dir: &Dir) -> Outcome<Duration> {
    let mut process = Process::start(url, &dir.0, JOBS)?;
    process.until_working().await?;
    let asked = Instant::now();
    process.end().await?;
    Ok(asked.elapsed())
}

async fn until(driver: &AnyDriver, what: &str, holds: impl Fn(&StateCounts) -> bool) -> Outcome {
    let wait = async {
        loop {
            let counts = driver.counts(Counts::new(driver.now().await?)).await?;
            if holds(&counts.into_iter().map(|of| of.states).sum()) {
                return Outcome::Ok(());
            }
            sleep(TICK).await;
        }
    };
    timeout(WAIT_LIMIT, wait).await.map_err(|_| format!("not within {WAIT_LIMIT:?}: {what}"))?
}
