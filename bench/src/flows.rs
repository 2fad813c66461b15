//! Flows beside plain jobs on the same store: starting them, running their members, and how soon the
//! finalizer begins.
//!
//! `cargo xtask bench flows [url…]` measures the stores at these addresses, the one in memory without
//! any; `cargo xtask bench postgres flows` measures on a private server.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    AnyDriver, Blob, Client, Context, Flow, Handlers, Job, JobResult, Worker, connect,
};
use taskharbor_core::{
    Driver, JobId, JobType, NewJob, QueueName,
    driver::{Demand, Enqueue, Leased, Reserve, Settle, Settlement, Transition},
    job::JobSet,
    name::Holder,
};
use tokio::sync::mpsc;

use crate::{
    finding::{Bound, Rounds, figure, head, percentile, rate, ratio},
    stopwatch::now,
    worker::runtime,
};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const MEMBERS: usize = 10_000;
const BATCH: usize = 500;
const ROUNDS: usize = 5;
const SAMPLES: usize = 300;
const LEASE: Duration = Duration::from_secs(60);

/// Measures the stores at these addresses.
pub(crate) fn run(urls: &[&str]) -> Result<(), Box<dyn Error>> {
    let urls = if urls.is_empty() { vec!["memory:"] } else { urls.to_vec() };
    let urls: Vec<String> = urls.into_iter().map(str::to_owned).collect();
    let measured = async move {
        let measured = tokio::spawn(async move {
            for url in urls {
                let driver = connect(&url).await?;
                driver.migrate().await?;
                measure(&driver).await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
        measured.await?
    };
    runtime()?.block_on(measured).map_err(|error| error as Box<dyn Error>)
}

pub(crate) async fn measure(driver: &AnyDriver) -> Outcome {
    throughput(driver).await?;
    latency(driver).await
}

async fn throughput(driver: &AnyDriver) -> Outcome {
    head(&format!("flows: a chord of {MEMBERS} members beside {MEMBERS} plain jobs"));
    let [mut plain_start, mut chord_start] = [Rounds::default(), Rounds::default()];
    let [mut plain_drain, mut chord_drain] = [Rounds::default(), Rounds::default()];
    for _ in 0..ROUNDS {
        let jobs = jobs(driver).await?;
        let began = now();
        enqueue(driver, JobSet::plain(jobs)).await?;
        plain_start.push(per_second(began));
        let began = now();
        drain(driver, "default", MEMBERS).await?;
        plain_drain.push(per_second(began));

        let chord = chord(driver).await?;
        let began = now();
        enqueue(driver, chord).await?;
        chord_start.push(per_second(began));
        let began = now();
        drain(driver, "default", MEMBERS).await?;
        chord_drain.push(per_second(began));
        // The finalizer.
        drain(driver, "default", 1).await?;
    }
    rate("plain jobs enqueued in bulk", &plain_start);
    rate("members of a chord started", &chord_start);
    ratio("starting, chord over plain", &chord_start.over(&plain_start), Bound::AtLeast(0.5));
    rate("plain jobs drained", &plain_drain);
    rate("members of a chord drained", &chord_drain);
    ratio("draining, chord over plain", &chord_drain.over(&plain_drain), Bound::AtLeast(0.6));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
fn per_second(began: Instant) -> f64 {
    MEMBERS as f64 / began.elapsed().as_secs_f64()
}

fn queue() -> Outcome<QueueName> {
    Ok(QueueName::new("default")?)
}

async fn jobs(driver: &AnyDriver) -> Outcome<Vec<NewJob>> {
    let ids = JobId::generate_many(driver.now().await?, MEMBERS)?;
    let (queue, job_type, payload) = (queue()?, JobType::new("noop")?, Blob::from(&[b'1'; 100]));
    let job = |id| NewJob::new(id, queue.clone(), job_type.clone(), payload.clone());
    Ok(ids.into_iter().map(job).collect())
}

/// As the library stores it: the members, a join behind them, the finalizer behind that.
async fn chord(driver: &AnyDriver) -> Outcome<JobSet> {
    let mut jobs = jobs(driver).await?;
    let ids = JobId::generate_many(driver.now().await?, 2)?;
    let join = NewJob::join(ids[0].clone(), queue()?, jobs.iter().map(|job| job.id.clone()));
    let finalizer = NewJob::new(ids[1].clone(), queue()?, JobType::new("noop")?, b"1");
    jobs.extend([join, finalizer.after([ids[0].clone()])]);
    Ok(JobSet::flow(jobs))
}

async fn enqueue(driver: &AnyDriver, set: JobSet) -> Outcome {
    let now = driver.now().await?;
    for answer in driver.enqueue(Enqueue::new(vec![set], now)).await? {
        answer?;
    }
    Ok(())
}

async fn reserve(driver: &AnyDriver, queue: &str, limit: usize) -> Outcome<Vec<Leased>> {
    let demands = vec![Demand::new(QueueName::new(queue)?, limit)];
    let request = Reserve::new(demands, Holder::new("bench")?, driver.now().await?, LEASE);
    Ok(driver.reserve(request).await?.jobs)
}

/// Acks these jobs, each with a small output.
async fn ack(driver: &AnyDriver, jobs: Vec<Leased>) -> Outcome {
    let items = jobs.into_iter().map(|it| {
        let output = Some(Blob::from(b"42"));
        Settlement::new(it.job.id, it.lease.token, Transition::Ack { output })
    });
    let settle = Settle::new(items.collect(), driver.now().await?);
    for answer in driver.settle(settle).await? {
        answer?;
    }
    Ok(())
}

/// Reserves and acks this many jobs.
async fn drain(driver: &AnyDriver, queue: &str, count: usize) -> Outcome {
    let mut left = count;
    while left > 0 {
        let jobs = reserve(driver, queue, BATCH.min(left)).await?;
        if jobs.is_empty() {
            return Err(format!("{left} jobs are not there").into());
        }
        left -= jobs.len();
        ack(driver, jobs).await?;
    }
    Ok(())
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "plain", queue = "latency")]
struct Plain {}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "member", queue = "members", output = u64)]
struct Member {}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "last", queue = "latency", input = Vec<u64>)]
struct Last {}

/// From the call that enqueues a plain job to its start, and from the call that acks the last member
/// of a chord to the finalizer's start, in turns.
async fn latency(driver: &AnyDriver) -> Outcome {
    let (told, mut starts) = mpsc::unbounded_channel::<Instant>();
    let also = told.clone();
    let handlers = Handlers::new()
        .on(move |_: Plain, _: Context| {
            let _ = told.send(now());
            async { JobResult::Ok(()) }
        })
        .on(move |_: Last, _: Context| {
            let _ = also.send(now());
            async { JobResult::Ok(()) }
        });
    let worker = Worker::builder(driver).handlers(handlers).queue("latency", 10).build()?.start();
    let client = Client::new(driver);
    let ended = "the worker has ended";
    let [mut enqueued, mut finalized] = [Vec::new(), Vec::new()];
    for _ in 0..SAMPLES {
        let began = now();
        client.enqueue(Plain {}).await?;
        enqueued.push(millis(began, starts.recv().await.ok_or(ended)?));
        client.start(Flow::chord([Member {}, Member {}, Member {}], Last {})).await?;
        drain(driver, "members", 2).await?;
        let last = reserve(driver, "members", 1).await?;
        let began = now();
        ack(driver, last).await?;
        finalized.push(millis(began, starts.recv().await.ok_or(ended)?));
    }
    worker.shutdown().await?;
    for samples in [&mut enqueued, &mut finalized] {
        samples.sort_by(f64::total_cmp);
    }
    let (plain, chord) = (percentile(&enqueued, 50), percentile(&finalized, 50));
    head("flows: how soon the finalizer starts, medians");
    figure("enqueue of a plain job to its start", plain, " ms", 3, Bound::None);
    figure("ack of the last member to the finalizer's start", chord, " ms", 3, Bound::None);
    figure("the second over the first", chord / plain, "", 2, Bound::AtMost(2.0));
    Ok(())
}

fn millis(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}
