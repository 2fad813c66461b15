//! graphile_worker, driven by the benchmarks: a process that executes the commands on its standard input
//! and answers each with one line, `ok <figure>` or `error <reason>`.
//!
//! `taskharbor-bench-peer <url> <schema>`, then
//!
//! - `migrate`
//! - `fill jobs=N bulk=N payload=N`: stores jobs in bulk; answers seconds
//! - `drain jobs=N concurrency=N local=N queues=N delay=N poll=N connections=N work=N`: runs this many
//!   jobs; answers the seconds until the last of them is recorded. Times are milliseconds, and 0
//!   leaves a setting at its default
//! - `single seconds=N payload=N`: stores one job after another; answers how many

use std::{
    error::Error,
    io::{BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use graphile_worker::{
    Database, IntoTaskHandlerResult, JobComplete, JobCompleteContext, JobSpec, LocalQueueConfig,
    TaskHandler, WorkerContext, WorkerOptions, WorkerUtils, tokio_postgres::TokioPostgresDatabase,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// As many connections as graphile_worker opens by default.
const CONNECTIONS: usize = 20;

/// Milliseconds that a handler takes.
static WORK: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Serialize, Deserialize)]
struct Noop {
    pad: String,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        match WORK.load(Ordering::Relaxed) {
            0 => {}
            millis => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
        Ok::<(), String>(())
    }
}

impl Noop {
    /// Whose JSON has this length if there is room for it.
    fn of_length(length: usize) -> Self {
        Self { pad: "x".repeat(length.saturating_sub(10)) }
    }
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: taskharbor-bench-peer <url> <schema>";
    let peer = Peer { url: arguments.next().ok_or(usage)?, schema: arguments.next().ok_or(usage)? };
    // Two threads, as the benchmark has.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let peer = peer.clone();
        // As a task, because that is where applications have their loops.
        let task = runtime.spawn(async move { peer.obey(&line).await });
        let answer = match runtime.block_on(task)? {
            Ok(figure) => format!("ok {figure}"),
            Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

#[derive(Clone)]
struct Peer {
    url: String,
    schema: String,
}

impl Peer {
    async fn obey(&self, line: &str) -> Outcome<f64> {
        let (command, sizes) = line.split_once(' ').unwrap_or((line, ""));
        let sizes = Sizes(sizes);
        match command {
            "migrate" => {
                self.utils(1)?.migrate().await?;
                Ok(0.0)
            }
            "fill" => self.fill(&sizes).await,
            "drain" => self.drain(&sizes).await,
            "single" => self.single(&sizes).await,
            _ => Err(format!("unknown command {command:?}").into()),
        }
    }

    fn database(&self, connections: usize) -> Outcome<Database> {
        Ok(TokioPostgresDatabase::from_url(&self.url, connections)?.into())
    }

    fn utils(&self, connections: usize) -> Outcome<WorkerUtils> {
        Ok(WorkerUtils::new(self.database(connections)?, self.schema.as_str()))
    }

    async fn fill(&self, sizes: &Sizes<'_>) -> Outcome<f64> {
        let (jobs, bulk) = (sizes.get("jobs")?, sizes.get("bulk")?);
        let (utils, spec) = (self.utils(1)?, JobSpec::default());
        let job = Noop::of_length(sizes.get("payload")?);
        // Opens the connection and prepares, before the clock runs.
        utils.migrate().await?;
        let started = now();
        for start in (0..jobs).step_by(bulk) {
            let count = bulk.min(jobs - start);
            let batch: Vec<_> = (0..count).map(|_| (job.clone(), &spec)).collect();
            let stored = utils.add_jobs::<Noop>(&batch).await?.len();
            if stored < count {
                return Err(format!("{stored} of {count} jobs were stored").into());
            }
        }
        Ok(started.elapsed().as_secs_f64())
    }

    async fn drain(&self, sizes: &Sizes<'_>) -> Outcome<f64> {
        WORK.store(u64::try_from(sizes.get("work")?)?, Ordering::Relaxed);
        let left = Arc::new(AtomicUsize::new(sizes.get("jobs")?));
        let over = Arc::new(Notify::new());
        let ended = Arc::clone(&over);
        let connections = match sizes.get("connections")? {
            0 => CONNECTIONS,
            connections => connections,
        };
        let mut options = WorkerOptions::default()
            .database(self.database(connections)?)
            .schema(self.schema.as_str())
            .listen_os_shutdown_signals(false)
            .define_job::<Noop>()
            .on(JobComplete, move |_: JobCompleteContext| {
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    ended.notify_one();
                }
                async {}
            });
        let millis = |name| -> Outcome<Duration> {
            Ok(Duration::from_millis(u64::try_from(sizes.get(name)?)?))
        };
        if sizes.get("concurrency")? > 0 {
            options = options.concurrency(sizes.get("concurrency")?);
        }
        if sizes.get("local")? > 0 {
            let queues = sizes.get("queues")?.max(1);
            let config = LocalQueueConfig::default().with_size(sizes.get("local")?);
            options = options.local_queue(config.with_queue_count(queues));
        }
        if sizes.get("delay")? > 0 {
            options = options.complete_job_batch_delay(millis("delay")?);
        }
        if sizes.get("poll")? > 0 {
            options = options.poll_interval(millis("poll")?);
        }
        let worker = Arc::new(options.init().await?);
        let running = Arc::clone(&worker);
        let started = now();
        let running = tokio::spawn(async move { running.run().await });
        over.notified().await;
        let took = started.elapsed().as_secs_f64();
        worker.request_shutdown();
        running.await??;
        Ok(took)
    }

    async fn single(&self, sizes: &Sizes<'_>) -> Outcome<f64> {
        let spell = Duration::from_secs(u64::try_from(sizes.get("seconds")?)?);
        let (utils, job) = (self.utils(1)?, Noop::of_length(sizes.get("payload")?));
        // Opens the connection, before the clock runs.
        utils.migrate().await?;
        let (started, mut count) = (now(), 0_u32);
        while started.elapsed() < spell {
            utils.add_job(job.clone(), JobSpec::default()).await?;
            count += 1;
        }
        Ok(f64::from(count))
    }
}

/// What stands behind a command, as `name=number`.
struct Sizes<'a>(&'a str);

impl Sizes<'_> {
    fn get(&self, name: &str) -> Outcome<usize> {
        let mut pairs = self.0.split(' ').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(known, _)| *known == name);
        let (_, value) = found.ok_or_else(|| format!("{name} is missing"))?;
        Ok(value.parse()?)
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
