//! One job for many idle workers, each with connections of its own: how many of them ask the server for
//! it, and how soon it starts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    AnyDriver, Client, Context, Driver, DriverError, Handlers, Job, JobResult, Running, Worker,
};
use taskharbor_core::Admin;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};
use tokio::sync::mpsc;

use super::super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{Store, WakeUps, open},
};
use crate::finding::{Bound, Rounds, finding, head, percentile_ms, ratio};
use crate::stopwatch::now;

const SCHEMA: &str = "herd";
const JOBS: usize = 100;
/// Long enough for workers to have learned of each other.
const SETTLING: Duration = Duration::from_secs(20);
/// Long enough for every worker to have asked and gone to sleep.
const PAUSE: Duration = Duration::from_millis(150);
const MOST_CALLS: f64 = 5.0;
/// A hundred processes that share two cores may be so much slower than one.
const TIMES: f64 = 3.0;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "stamp", queue = "herd")]
struct Stamp {}

/// Counts calls to reserve.
#[derive(Clone, Default)]
pub(crate) struct Reserves(pub(crate) Arc<AtomicUsize>);

impl<D: Driver + Admin> Hook<D> for Reserves {
    async fn around(&self, call: Call, next: Next<'_, D>) -> Result<Answer, DriverError> {
        if matches!(call, Call::Reserve { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        next.make(call).await
    }
}

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("herd: one job at a time for {} idle workers", sizes.workers));
    let [mut alone, mut calls_alone] = [Rounds::default(), Rounds::default()];
    let [mut many, mut calls_many] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let (calls, p99) = fleet(server, sizes, 1).await?;
        calls_alone.push(calls);
        alone.push(p99);
        let (calls, p99) = fleet(server, sizes, sizes.workers).await?;
        calls_many.push(calls);
        many.push(p99);
    }
    finding("reserves per job, one worker", &calls_alone, "", 1, Bound::None);
    let what = format!("reserves per job, {} workers", sizes.workers);
    finding(&what, &calls_many, "", 1, Bound::AtMost(MOST_CALLS));
    finding("enqueue to start, p99, one worker", &alone, " ms", 2, Bound::None);
    let what = format!("enqueue to start, p99, {} workers", sizes.workers);
    finding(&what, &many, " ms", 2, Bound::None);
    ratio("  the second over the first", &many.over(&alone), Bound::AtMost(TIMES));
    Ok(())
}

/// Reserves per job, and the p99 of the time from enqueue to start.
async fn fleet(server: &Server, sizes: &Sizes, workers: usize) -> Outcome<(f64, f64)> {
    let store = Store::new(server, SCHEMA, sizes.payload).await?;
    let (told, mut starts) = mpsc::unbounded_channel::<Instant>();
    let reserves = Reserves::default();
    let mut running: Vec<Running> = Vec::new();
    for _ in 0..workers {
        let driver = open(server, SCHEMA, WakeUps::On).await?;
        let driver = AnyDriver::new(Intercept::new(driver, reserves.clone()));
        let told = told.clone();
        let stamp = move |_: Stamp, _: Context| {
            let _ = told.send(now());
            async { JobResult::Ok(()) }
        };
        let worker = Worker::builder(&driver).handlers(Handlers::new().on(stamp));
        running.push(worker.queue("herd", 4).build()?.start());
    }
    let client = Client::new(&AnyDriver::new(store.driver.clone()));
    tokio::time::sleep(SETTLING).await;
    quiet(&reserves, workers).await;
    let (mut samples, before) = (Vec::new(), reserves.0.load(Ordering::Relaxed));
    for _ in 0..JOBS {
        let began = now();
        client.enqueue(Stamp {}).await?;
        let at = starts.recv().await.ok_or("the workers have ended")?;
        samples.push(at.duration_since(began));
        tokio::time::sleep(PAUSE).await;
    }
    let calls = reserves.0.load(Ordering::Relaxed) - before;
    for worker in running {
        worker.shutdown().await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "an average needs no more than 52 bits")]
    let each = calls as f64 / JOBS as f64;
    Ok((each, percentile_ms(&samples, 99)))
}

/// Waits until all workers have looked for jobs, and none has for a second.
async fn quiet(reserves: &Reserves, workers: usize) {
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let calls = reserves.0.load(Ordering::Relaxed);
        if calls >= workers && calls == before {
            return;
        }
        before = calls;
    }
}
