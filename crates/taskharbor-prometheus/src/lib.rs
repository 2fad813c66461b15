//! Prometheus metrics of [TaskHarbor](taskharbor).
//!
//! [`Metrics`] observes the clients and workers of a process. [`QueueGauges`] reads the number of
//! jobs of each queue; run it in one process only.
//!
//! ```
//! # use taskharbor::{AnyDriver, BoxError, Client, Handlers, Worker};
//! use taskharbor_prometheus::Metrics;
//!
//! # async fn run(driver: &AnyDriver, handlers: Handlers) -> Result<(), BoxError> {
//! let metrics = Metrics::new();
//! let client = Client::builder(driver).observer(metrics.clone()).build()?;
//! let worker = Worker::builder(driver).handlers(handlers).observer(metrics.clone());
//! # let _ = (client, worker);
//! // In one process, before it is scraped:
//! metrics.queues().refresh(driver).await?;
//! let body = metrics.encode();
//! # let _ = body;
//! # Ok(())
//! # }
//! ```
//!
//! [The guide] has the table of metrics, and says how to serve them. Labels are names
//! of queues, job types, schedules and workers, and fixed words. Payloads, headers and ids never
//! become labels.
//!
//! An event about a queue and a type that were seen before allocates nothing.
//!
//! [The guide]: https://docs.rs/taskharbor/latest/taskharbor/guide/observability/

mod call;
mod job;
mod label;
mod queue;
mod worker;

use std::{fmt, sync::Arc};

use prometheus_client::{encoding::text, registry::Registry};
use taskharbor::{Event, Observer, ReleaseReason};
use taskharbor_core::clock::{Clock, StoreClock};

use call::Calls;
use job::{JobOutcome, Jobs};
use worker::Workers;

pub use queue::QueueGauges;

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The number of queues, of job types, of schedules and of workers that have a label of their own.
/// The others share the label `other`.
pub const MAX_NAMES: usize = 200;

/// The metrics of the clients and workers of a process. Clones share the numbers.
///
/// It is an [`Observer`]: give a clone to each client and worker of the process.
///
/// ```
/// # use taskharbor::{AnyDriver, BoxError, Client, Handlers, Worker};
/// use taskharbor_prometheus::{CONTENT_TYPE, Metrics};
///
/// # fn build(driver: &AnyDriver, handlers: Handlers) -> Result<(), BoxError> {
/// let metrics = Metrics::new();
/// let client = Client::builder(driver).observer(metrics.clone()).build()?;
/// let worker = Worker::builder(driver).handlers(handlers).observer(metrics.clone());
/// # drop((client, worker));
///
/// // The answer to GET /metrics:
/// let (content_type, body) = (CONTENT_TYPE, metrics.encode());
/// # drop((content_type, body));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    jobs: Jobs,
    calls: Calls,
    workers: Workers,
    queues: QueueGauges,
    clock: Option<Arc<dyn Clock>>,
}

impl Metrics {
    /// Creates metrics that are all zero. Waiting times of jobs are measured with this machine's
    /// clock.
    #[must_use]
    pub fn new() -> Self {
        Self::assemble(None)
    }

    /// Does the same as [`Metrics::new`], but measures waiting times of jobs with this clock. The
    /// store's clock ([`AnyDriver::clock`](taskharbor::AnyDriver::clock)) is exact even if the
    /// machine's own clock is wrong.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::assemble(Some(clock))
    }

    fn assemble(clock: Option<Arc<dyn Clock>>) -> Self {
        let mut inner = Inner {
            registry: Registry::default(),
            jobs: Jobs::new(),
            calls: Calls::new(),
            workers: Workers::default(),
            queues: QueueGauges::new(),
            clock,
        };
        let mut registry = Registry::default();
        inner.register(&mut registry);
        inner.registry = registry;
        Self(Arc::new(inner))
    }

    /// Registers all metrics, including those of [`Metrics::queues`], in a registry of the
    /// application. The registry must have no prefix.
    pub fn register(&self, registry: &mut Registry) {
        self.0.register(registry);
    }

    /// The gauges of queues and schedules, which show nothing before [`QueueGauges::refresh`].
    #[must_use]
    pub fn queues(&self) -> &QueueGauges {
        &self.0.queues
    }

    /// Returns all metrics in the text format of OpenMetrics, to be served as [`CONTENT_TYPE`].
    #[must_use]
    pub fn encode(&self) -> String {
        encode(&self.0.registry)
    }

    fn waited(&self, available_at: taskharbor::Timestamp) -> f64 {
        let now = self.0.clock.as_ref().map_or_else(StoreClock::wall_time, |clock| clock.now());
        // Zero if this machine's clock is behind.
        now.since(available_at).as_secs_f64()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Inner {
    fn register(&self, registry: &mut Registry) {
        self.jobs.register(registry);
        self.calls.register(registry);
        self.workers.register(registry);
        self.queues.register(registry);
    }
}

fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut text, registry);
    text
}

impl Observer for Metrics {
    fn on(&self, event: &Event<'_>) {
        let Inner { jobs, calls, workers, .. } = &*self.0;
        match event {
            Event::Enqueued { job_type, queue, is_new, .. } => {
                jobs.of(queue, job_type, |job| {
                    job.enqueued(*is_new).inc();
                });
            }
            Event::Started { job, .. } => jobs.of(&job.queue, &job.job_type, |it| {
                let run = it.runs();
                run.started.inc();
                run.wait_seconds.observe(self.waited(job.available_at));
            }),
            Event::Failed { job, took, .. } => jobs.of(&job.queue, &job.job_type, |job| {
                job.runs().run_seconds.observe(took.as_secs_f64());
            }),
            Event::Succeeded { job, took, .. } => jobs.of(&job.queue, &job.job_type, |it| {
                let run = it.runs();
                run.run_seconds.observe(took.as_secs_f64());
                run.finished(JobOutcome::Done).inc();
                run.attempts.observe(f64::from(job.attempts) + 1.0);
            }),
            Event::Retried { job, .. } => jobs.finished(job, JobOutcome::Retried),
            Event::DeadLettered { job, .. } => jobs.of(&job.queue, &job.job_type, |it| {
                let run = it.runs();
                run.finished(JobOutcome::Dead).inc();
                run.attempts.observe(f64::from(job.attempts) + 1.0);
            }),
            Event::Released { job, why: ReleaseReason::CancelRequested, .. } => {
                jobs.finished(job, JobOutcome::Cancelled);
            }
            Event::Released { job, .. } => jobs.finished(job, JobOutcome::Released),
            Event::LeaseLost { job, why, .. } => {
                calls.lease_lost(why);
                jobs.finished(job, JobOutcome::Lost);
            }
            Event::Called { operation, items, took, error, .. } => {
                calls.called(*operation, *items, *took, *error);
            }
            Event::StoreUnavailable { .. } => calls.set_up(false),
            Event::StoreBack { .. } => calls.set_up(true),
            Event::LeaseExtended { .. } => calls.lease_extended(),
            Event::WorkerStarted { name, version, .. } => workers.started(name, *version),
            Event::WorkerStopped { name, .. } => workers.stopped(name),
            _ => {}
        }
    }
}

/// The programs in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/observability.md")]
struct Guide;
