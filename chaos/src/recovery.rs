//! How soon work goes on after a worker process was killed with many jobs in its hands, and how soon one
//! that has nothing to do ends when it is asked to.

use std::time::Duration;

use taskharbor::Client;
use taskharbor_core::{
    Admin, AnyDriver,
    admin::{Counts, StateCounts},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Outcome,
    choice::StoreKind,
    store::{Dir, Store},
    workers::{Held, LEASE, Process},
};

const JOBS: usize = 1_000;
/// How much longer than the lease of the killed worker it may take until all its jobs are done.
const MAX_DELAY: Duration = Duration::from_secs(2);
const MAX_SHUTDOWN: Duration = Duration::from_secs(1);
/// How long everything else may take.
const PATIENCE: Duration = Duration::from_secs(60);
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
    let ended = shutdown(&store.url(), &dir).await?;
    println!("  a worker with nothing to do ended {ended:.2?} after SIGTERM");
    let mut problems = Vec::new();
    if recovered > LEASE + MAX_DELAY {
        problems.push(format!("recovery took longer than the lease and {MAX_DELAY:?}"));
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
    timeout(PATIENCE, wait).await.map_err(|_| format!("not within {PATIENCE:?}: {what}"))?
}
