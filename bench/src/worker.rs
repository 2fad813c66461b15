//! A worker on the memory driver, beside the least that could do the same: a channel that feeds
//! spawned tasks.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Client, Context, Handlers, Job, JobResult, Worker};
use tokio::sync::{Notify, mpsc};

use crate::stopwatch::{Stopwatch, now};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub(crate) const JOBS: usize = 100_000;
const ROUNDS: usize = 7;
const CONCURRENCY: usize = 1_000;
const SAMPLES: usize = 5_000;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "noop")]
struct Noop {}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "stamp")]
struct Stamp {}

/// Counts down, and tells when nothing is left.
struct Countdown {
    left: AtomicUsize,
    over: Notify,
}

impl Countdown {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(count), over: Notify::new() })
    }

    fn one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.over.notify_one();
        }
    }
}

pub(crate) fn run() -> Outcome {
    runtime()?.block_on(async {
        // As a task, because that is where applications have their loops.
        let measured = tokio::spawn(async {
            throughput().await.map_err(|error| error.to_string())?;
            latency().await.map_err(|error| error.to_string())
        });
        Ok(measured.await??)
    })
}

/// Two threads on every machine, so that figures can be compared.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

async fn throughput() -> Outcome {
    println!("worker on the memory driver, {JOBS} jobs that do nothing, {CONCURRENCY} at once");
    let (mut bare, mut worked, mut ratios) =
        (Stopwatch::default(), Stopwatch::default(), Vec::new());
    let mut enqueued = Stopwatch::default();
    for _ in 0..ROUNDS {
        let started = now();
        bare.time(JOBS, channel_and_spawn()).await;
        let bare_took = started.elapsed();
        let driver = filled(&mut enqueued).await?;
        let started = now();
        worked.time(JOBS, drain(&driver)).await?;
        ratios.push(bare_took.as_secs_f64() / started.elapsed().as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    println!("  enqueue, 1,000 in a call             {:>10.0} jobs/s", enqueued.rate());
    println!("  channel and spawn                    {:>10.0} jobs/s", bare.rate());
    println!("  worker, from reserve to ack          {:>10.0} jobs/s", worked.rate());
    println!(
        "  ratio, median of {ROUNDS} rounds              {:>10.2} (wanted: 0.25 or more; {:.2} to {:.2})",
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1],
    );
    Ok(())
}

async fn channel_and_spawn() {
    let countdown = Countdown::new(JOBS);
    let (sender, mut receiver) = mpsc::channel::<usize>(CONCURRENCY);
    let counting = Arc::clone(&countdown);
    tokio::spawn(async move {
        while receiver.recv().await.is_some() {
            let countdown = Arc::clone(&counting);
            tokio::spawn(async move { countdown.one() });
        }
    });
    for n in 0..JOBS {
        if sender.send(n).await.is_err() {
            return;
        }
    }
    countdown.over.notified().await;
}

pub(crate) async fn filled(watch: &mut Stopwatch) -> Outcome<AnyDriver> {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    for _ in 0..JOBS / 1_000 {
        let jobs = (0..1_000).map(|_| Noop {});
        let call = async { client.enqueue_many(jobs).await };
        watch.time(1_000, call).await?;
    }
    Ok(driver)
}

async fn noop(_: Noop, _: Context) -> JobResult {
    Ok(())
}

/// Runs all jobs; over when the last of them is recorded.
pub(crate) async fn drain(driver: &AnyDriver) -> Outcome {
    let countdown = Countdown::new(JOBS);
    let counting = Arc::clone(&countdown);
    let worker = Worker::builder(driver)
        .handlers(Handlers::new().on(noop))
        .queue("default", CONCURRENCY)
        .observer(move |event: &taskharbor::Event<'_>| {
            if matches!(event, taskharbor::Event::Succeeded { .. }) {
                counting.one();
            }
        });
    let running = worker.build()?.start();
    countdown.over.notified().await;
    running.shutdown().await?;
    Ok(())
}

/// How long from the call to enqueue until the handler runs, on a worker that has nothing to do.
async fn latency() -> Outcome {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    let (started, mut starts) = mpsc::unbounded_channel::<Instant>();
    let stamp = move |_: Stamp, _: Context| {
        let sent = started.send(now());
        async move { sent.map_err(|_| "the receiver was dropped") }
    };
    let worker = Worker::builder(&driver).handlers(Handlers::new().on(stamp)).queue("default", 4);
    let running = worker.build()?.start();
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        // Long enough for every thread to have gone to sleep.
        tokio::time::sleep(Duration::from_micros(200)).await;
        let enqueued = now();
        client.enqueue(Stamp {}).await?;
        let start = starts.recv().await.ok_or("the worker has ended")?;
        samples.push(start.duration_since(enqueued));
    }
    running.shutdown().await?;
    samples.sort();
    println!("time from enqueue to start on an idle worker, {SAMPLES} jobs one by one");
    for (name, at) in [("median", 2), ("99 of 100", 100)] {
        let micros = samples[SAMPLES - 1 - SAMPLES / at].as_micros();
        let wanted = if at == 2 { " (wanted: below 200)" } else { "" };
        println!("  {name:<36} {micros:>10} µs{wanted}");
    }
    Ok(())
}
