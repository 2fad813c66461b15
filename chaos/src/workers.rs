//! Real worker processes that are killed, suspended, terminated and cut off from their store, while
//! jobs and chords are enqueued.
//!
//! Workers write every grant, run and settlement into a file beside the store. At the end everything is
//! repaired, and all jobs have to come to their ends in time. Then the file and the store are compared.

mod child;
mod fault;
mod job;
mod log;
mod process;
mod producer;
mod program;
pub(crate) mod proxy;
pub(crate) mod schedules;
mod verdict;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use taskharbor::Client;
use taskharbor_core::{
    Admin, AnyDriver, Driver, State,
    admin::{Counts, Filter, List, StateCounts},
    driver::{Settle, Settlement, Transition},
    job::JobSummary,
};
use taskharbor_testkit::Intercept;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Outcome,
    choice::StoreKind,
    store::{Dir, Store},
};
pub(crate) use job::Held;
pub(crate) use process::{Process, Recovery};
pub(crate) use program::run as run_program;

use child::Witness;
use fault::Havoc;
use log::{Line, Log};
use producer::{Acknowledged, Producer};
use program::Runs;
use verdict::Verdict;

/// The first argument of a process that is a worker.
pub(crate) const WORKER: &str = "worker";
/// The first argument of a process that is the handler of a job.
pub(crate) const PROGRAM: &str = "program";
/// How long a worker holds a job without a sign of life.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// How long it may take until all jobs have ended after everything was repaired.
const DRAIN: Duration = Duration::from_secs(90);

/// Is a worker process: its arguments are the address of the store, a directory, how many jobs it runs at
/// once, and how its jobs come back if it dies.
pub(crate) async fn work(arguments: &[String]) -> Outcome {
    match arguments {
        [url, dir, slots, recovery] => {
            let recovery = Recovery::parse(recovery).ok_or("no such way of recovery")?;
            child::work(url, Path::new(dir), slots.parse()?, recovery).await
        }
        _ => Err(
            "a worker process needs the address of a store, a directory, its slots and how its \
                  jobs come back"
                .into(),
        ),
    }
}

/// Breaks workers for this long, and checks the state of their jobs.
pub(crate) async fn run(kind: StoreKind, seed: u64, time: Duration) -> Outcome {
    let store = Store::make(kind).await?;
    let dir = Dir::make("log")?;
    let driver = store.open().await?.driver;
    // Of the same clock as the workers.
    let log = Arc::new(Log::open(&dir.0)?);
    let moved = AnyDriver::new(Intercept::new(store.open().await?.driver, Witness(log)));
    let stop = Arc::new(AtomicBool::new(false));
    let producer = Producer::new(&moved, &driver, seed);
    let repeated = Arc::clone(&producer.repeated);
    let producing = tokio::spawn(producer.run(Arc::clone(&stop)));
    let mut havoc = Havoc::start(&store, dir.0.clone(), seed).await?;
    let broken = havoc.run(Instant::now() + time).await;
    stop.store(true, Ordering::SeqCst);
    broken?;
    havoc.heal().await?;
    let late = |_| "an enqueue was not acknowledged although the store is back";
    let acknowledged = timeout(DRAIN, producing).await.map_err(late)???;
    tokio::select! {
        ended = timeout(DRAIN, drained(&driver)) => match ended {
            Ok(drained) => drained?,
            Err(_) => return Err(format!("not all jobs ended in {DRAIN:?}: {}", left(&driver).await?).into()),
        },
        ended = havoc.watch() => ended?,
    }
    let set_back_at = havoc.set_back_at().to_vec();
    let faults = havoc.end().await?;
    let mut verdict = judge(&driver, &dir.0, &acknowledged).await?;
    verdict.expect_work(&lines(&dir.0)?, &acknowledged.delayed, &set_back_at);
    println!("  {faults}, repeated enqueues {}", repeated.load(Ordering::Relaxed));
    println!("  {verdict}");
    verdict.fail()
}

async fn counts(driver: &AnyDriver) -> Outcome<StateCounts> {
    let counts = driver.counts(Counts::new(driver.now().await?)).await?;
    Ok(counts.into_iter().map(|of| of.states).sum())
}

/// Waits until every job has ended. The store may take a moment to come back.
async fn drained(driver: &AnyDriver) -> Outcome {
    loop {
        if let Ok(counts) = counts(driver).await
            && counts.done + counts.dlq + counts.cancelled == counts.total()
        {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn left(driver: &AnyDriver) -> Outcome<String> {
    Ok(format!("{:?}", counts(driver).await?))
}

/// What workers wrote down.
fn lines(dir: &Path) -> Outcome<Vec<Line>> {
    log::read(&std::fs::read_to_string(log::log_file(dir))?)
}

/// Compares what was acknowledged, what workers wrote down, and what is stored.
async fn judge(driver: &AnyDriver, dir: &Path, acknowledged: &Acknowledged) -> Outcome<Verdict> {
    let lines = lines(dir)?;
    let states = stored(driver).await?.into_iter().map(|job| (job.id, job.state)).collect();
    let mut verdict = Verdict::of(&lines, acknowledged, &states);
    for id in &acknowledged.programs {
        let state = states.get(id).copied();
        verdict
            .expect(state == Some(State::Done), || format!("{id}: acknowledged, and is {state:?}"));
    }
    for problem in Runs::read(dir)?.problems(&acknowledged.programs) {
        verdict.expect(false, || problem);
    }
    let client = Client::new(driver);
    for (id, sum) in &acknowledged.chords {
        let output = timeout(DRAIN, client.flow_handle::<u32>(id.clone()).wait()).await?;
        verdict.expect(matches!(output, Ok(output) if output == *sum), || {
            format!("chord {id} produced {output:?}, not {sum}")
        });
    }
    let mut accepted = 0;
    let stale = verdict.stale_tokens();
    for (id, token) in &stale {
        let ack = Settlement::new(id.clone(), *token, Transition::Ack { output: None });
        let answers = driver.settle(Settle::new(vec![ack], driver.now().await?)).await?;
        accepted += answers.iter().filter(|answer| answer.is_ok()).count();
    }
    verdict.expect(accepted == 0, || format!("{accepted} stale tokens were accepted"));
    for problem in driver.check().await? {
        verdict.expect(false, || format!("the store is inconsistent: {problem}"));
    }
    Ok(verdict)
}

async fn stored(driver: &AnyDriver) -> Outcome<Vec<JobSummary>> {
    let mut jobs = Vec::new();
    let mut request = List::new(Filter::all(), 1_000, driver.now().await?);
    loop {
        let page = driver.list(request.clone()).await?;
        jobs.extend(page.items);
        match page.next {
            Some(next) => request = request.after(next),
            None => return Ok(jobs),
        }
    }
}
