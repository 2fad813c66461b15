//! The line protocol between the benchmarks and the systems that they compare.
//!
//! A side is a program that is called with a URL and the name of a schema. It reads commands from its standard
//! input, one in a line, and answers each with one line: `ok <figure>…` or `error <reason>`.
//!
//! | command | what it does | figures |
//! |---|---|---|
//! | `migrate` | installs the tables | |
//! | `fill jobs= bulk= payload= limit=` | enqueues in bulk | seconds, jobs |
//! | `single seconds= payload=` | enqueues one job after another | jobs |
//! | `drain jobs= best= all= limit=` | runs a worker until so many jobs have run | seconds, jobs |
//! | `start best=`, `count`, `stop` | the same in steps, for several processes at once | jobs so far |
//! | `latency jobs= rate= best=` | enqueues at a rate for an idle worker | p50 and p99 in milliseconds |
//! | `prune` | removes finished jobs | jobs |
//!
//! `best=1` is the fastest documented setting, `best=0` the default one. With `all=1`, a drain ends when all jobs
//! of the store are recorded as finished, otherwise when so many handlers have run. A drain or a fill that
//! reaches its limit, in seconds, answers with what it has done so far. `work=` is the time in milliseconds that
//! each handler takes, 0 if it is missing. `handlers=` replaces the number of jobs that a setting runs at once.

use std::{
    error::Error,
    io::{BufRead, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::timeout};

/// A result whose error is told to the benchmark.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long a worker may take to end.
const SHUTDOWN: Duration = Duration::from_secs(10);
/// How long a worker is idle before latencies are measured.
const IDLE: Duration = Duration::from_secs(2);
/// How often a side looks whether the last jobs are recorded.
const LOOK: Duration = Duration::from_millis(2);

/// A system that is compared.
pub trait System: Clone + Send + Sync + 'static {
    /// Enqueues jobs. Its connections are open.
    type Producer: Producer;
    /// A running worker.
    type Running: Running;

    /// Installs the tables.
    fn migrate(&self) -> impl Future<Output = Outcome> + Send;

    /// Opens a producer.
    fn producer(&self) -> impl Future<Output = Outcome<Self::Producer>> + Send;

    /// Starts a worker whose handlers call [`Probe::handle`].
    fn start(
        &self,
        setting: Setting,
        probe: Arc<Probe>,
    ) -> impl Future<Output = Outcome<Self::Running>> + Send;

    /// Whether the store has no job that is waiting or inflight.
    fn is_drained(&self) -> impl Future<Output = Outcome<bool>> + Send;

    /// Removes finished jobs; answers how many, or 0 if the system does not keep them.
    fn prune(&self) -> impl Future<Output = Outcome<u64>> + Send;
}

/// Enqueues jobs.
pub trait Producer: Send {
    /// Enqueues one job.
    fn one(&mut self, number: usize, pad: String) -> impl Future<Output = Outcome> + Send;

    /// Enqueues many jobs in one call.
    fn many(&mut self, count: usize, pad: String) -> impl Future<Output = Outcome> + Send;
}

/// A running worker.
pub trait Running: Send {
    /// Ends it, and with it the jobs that it runs.
    fn stop(self) -> impl Future<Output = Outcome> + Send;
}

/// How a worker is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As its documents advise for throughput, and not as it comes.
    pub is_best: bool,
    /// Jobs at once, if the benchmark gives a number.
    pub handlers: Option<usize>,
}

impl Setting {
    /// Jobs at once: as given, or as this setting has them.
    #[must_use]
    pub fn handlers_or(self, default: usize, best: usize) -> usize {
        self.handlers.unwrap_or(if self.is_best { best } else { default })
    }
}

/// Counts the jobs that have run, and notes when.
#[derive(Debug, Default)]
pub struct Probe {
    target: usize,
    count: AtomicUsize,
    reached: Notify,
    work: Duration,
    starts: Option<Mutex<Vec<(usize, Instant)>>>,
}

impl Probe {
    /// Is called by each handler with the number of its job.
    pub async fn handle(&self, number: usize) {
        if let Some(starts) = &self.starts {
            starts.lock().unwrap_or_else(PoisonError::into_inner).push((number, now()));
        }
        if !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        if self.count.fetch_add(1, Ordering::AcqRel) + 1 == self.target {
            self.reached.notify_one();
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn starts(&self) -> Vec<(usize, Instant)> {
        let starts = self.starts.as_ref();
        starts
            .map(|it| it.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .unwrap_or_default()
    }
}

/// Obeys the lines on the standard input, on two threads as all sides do.
///
/// # Errors
///
/// Returns an error if a stream breaks. What a command fails with is an answer.
pub fn serve<S: System>(system: &S) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut started = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (system, mut worker) = (system.clone(), started.take());
        // As a task, because that is where applications have their loops.
        let task = runtime.spawn(async move {
            let answer = obey(&system, &line, &mut worker).await;
            (answer, worker)
        });
        let (answer, worker) = runtime.block_on(task)?;
        started = worker;
        let answer = match answer {
            Ok(figures) => {
                let figures = figures.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
                format!("ok {figures}")
            }
            Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", answer.trim_end())?;
        out.flush()?;
    }
    // What a library has left running does not keep the process.
    runtime.shutdown_background();
    Ok(())
}

type Started<S> = Option<(<S as System>::Running, Arc<Probe>)>;

async fn obey<S: System>(system: &S, line: &str, started: &mut Started<S>) -> Outcome<Vec<f64>> {
    let (command, sizes) = line.split_once(' ').unwrap_or((line, ""));
    let sizes = Sizes(sizes);
    match command {
        "migrate" => system.migrate().await.map(|()| vec![0.0]),
        "fill" => fill(system, &sizes).await,
        "single" => single(system, &sizes).await,
        "drain" => drain(system, &sizes).await,
        "latency" => latency(system, &sizes).await,
        "start" => {
            let probe = Arc::new(Probe { work: sizes.work()?, ..Probe::default() });
            *started = Some((system.start(sizes.setting()?, Arc::clone(&probe)).await?, probe));
            Ok(vec![0.0])
        }
        "count" => {
            let (_, probe) = started.as_ref().ok_or("no worker was started")?;
            Ok(vec![to_f64(probe.count())])
        }
        "stop" => {
            let (worker, probe) = started.take().ok_or("no worker was started")?;
            stop(worker).await?;
            Ok(vec![to_f64(probe.count())])
        }
        "prune" => Ok(vec![system.prune().await? as f64]),
        _ => Err(format!("unknown command {command:?}").into()),
    }
}

async fn fill<S: System>(system: &S, sizes: &Sizes<'_>) -> Outcome<Vec<f64>> {
    let (jobs, bulk) = (sizes.get("jobs")?, sizes.get("bulk")?.max(1));
    let (pad, limit) = (pad(sizes.get("payload")?), sizes.limit()?);
    let mut producer = system.producer().await?;
    let (started, mut done) = (now(), 0);
    while done < jobs && started.elapsed() < limit {
        let count = bulk.min(jobs - done);
        producer.many(count, pad.clone()).await?;
        done += count;
    }
    Ok(vec![started.elapsed().as_secs_f64(), to_f64(done)])
}

async fn single<S: System>(system: &S, sizes: &Sizes<'_>) -> Outcome<Vec<f64>> {
    let spell = Duration::from_secs(u64::try_from(sizes.get("seconds")?)?);
    let pad = pad(sizes.get("payload")?);
    let mut producer = system.producer().await?;
    let (started, mut count) = (now(), 0);
    while started.elapsed() < spell {
        producer.one(count, pad.clone()).await?;
        count += 1;
    }
    Ok(vec![to_f64(count)])
}

async fn drain<S: System>(system: &S, sizes: &Sizes<'_>) -> Outcome<Vec<f64>> {
    let (target, limit) = (sizes.get("jobs")?, sizes.limit()?);
    let is_all = sizes.get("all")? > 0;
    let probe = Arc::new(Probe { target, work: sizes.work()?, ..Probe::default() });
    // Opens the connection that looks for the end.
    system.is_drained().await?;
    let started = now();
    let worker = system.start(sizes.setting()?, Arc::clone(&probe)).await?;
    let mut done = match timeout(limit, probe.reached.notified()).await {
        Ok(()) => target,
        Err(_) => probe.count(),
    };
    while is_all && done >= target && !system.is_drained().await? {
        if started.elapsed() > limit + SHUTDOWN {
            return Err("all jobs have run, and not all are recorded as finished".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    let took = started.elapsed().as_secs_f64();
    done = done.min(target);
    stop(worker).await?;
    Ok(vec![took, to_f64(done)])
}

async fn latency<S: System>(system: &S, sizes: &Sizes<'_>) -> Outcome<Vec<f64>> {
    let (target, rate) = (sizes.get("jobs")?, sizes.get("rate")?.max(1));
    let starts = Some(Mutex::new(Vec::with_capacity(target)));
    let probe = Arc::new(Probe { target, starts, ..Probe::default() });
    let mut producer = system.producer().await?;
    let worker = system.start(sizes.setting()?, Arc::clone(&probe)).await?;
    tokio::time::sleep(IDLE).await;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
    let mut enqueued = Vec::with_capacity(target);
    for number in 0..target {
        ticks.tick().await;
        enqueued.push(now());
        producer.one(number, pad(sizes.get("payload")?)).await?;
    }
    let all = timeout(sizes.limit()?, probe.reached.notified()).await;
    let starts = probe.starts();
    stop(worker).await?;
    if all.is_err() {
        return Err(format!("{} of {target} jobs have started in time", starts.len()).into());
    }
    let millis = |(number, start): &(usize, Instant)| {
        let enqueued = enqueued.get(*number)?;
        Some(start.saturating_duration_since(*enqueued).as_secs_f64() * 1e3)
    };
    let mut millis: Vec<f64> = starts.iter().filter_map(millis).collect();
    millis.sort_by(f64::total_cmp);
    Ok(vec![percentile(&millis, 50), percentile(&millis, 99)])
}

/// Ends a worker. A system that does not end in time is ended with its process.
async fn stop(worker: impl Running) -> Outcome {
    match timeout(SHUTDOWN, worker.stop()).await {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}

/// Makes the payload, `{"number":0,"pad":"…"}`, about as long as this if there is room for it.
fn pad(length: usize) -> String {
    "x".repeat(length.saturating_sub(21))
}

/// The value below which so many of a hundred are.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// What stands behind a command, as `name=number`.
#[derive(Debug)]
struct Sizes<'a>(&'a str);

impl Sizes<'_> {
    fn find(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn get(&self, name: &str) -> Outcome<usize> {
        let value = self.find(name).ok_or_else(|| format!("{name} is missing"))?;
        Ok(value.parse()?)
    }

    fn setting(&self) -> Outcome<Setting> {
        let handlers = self.find("handlers").map(str::parse).transpose()?;
        Ok(Setting { is_best: self.get("best")? > 0, handlers })
    }

    fn limit(&self) -> Outcome<Duration> {
        Ok(Duration::from_secs(u64::try_from(self.get("limit")?)?))
    }

    fn work(&self) -> Outcome<Duration> {
        let millis = self.find("work").map_or(Ok(0), str::parse)?;
        Ok(Duration::from_millis(millis))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure needs no more than 52 bits")]
fn to_f64(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
