//! A worker that drains jobs which do nothing.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Context, Event, Handlers, Job, JobResult, Worker};
use taskharbor_prometheus::Metrics;
use tokio::sync::Notify;

use crate::stopwatch::now;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "noop")]
pub(crate) struct Noop {
    pub(crate) pad: String,
}

impl Noop {
    /// Whose JSON has this length if there is room for it.
    pub(crate) fn of_length(length: usize) -> Self {
        Self { pad: "x".repeat(length.saturating_sub(10)) }
    }
}

/// Runs this many jobs of a queue; over when the last of them is recorded.
pub(crate) async fn work(
    driver: &AnyDriver,
    queue: &str,
    jobs: usize,
    concurrency: usize,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    work_for(Duration::ZERO, driver, queue, jobs, concurrency).await
}

/// The same with handlers that take some time.
pub(crate) async fn work_for(
    each: Duration,
    driver: &AnyDriver,
    queue: &str,
    jobs: usize,
    concurrency: usize,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    run(each, driver, queue, jobs, concurrency, None).await
}

/// The same for a worker that is observed.
pub(crate) async fn work_observed(
    driver: &AnyDriver,
    queue: &str,
    jobs: usize,
    concurrency: usize,
    metrics: Metrics,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    run(Duration::ZERO, driver, queue, jobs, concurrency, Some(metrics)).await
}

async fn run(
    each: Duration,
    driver: &AnyDriver,
    queue: &str,
    jobs: usize,
    concurrency: usize,
    metrics: Option<Metrics>,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let noop = move |_: Noop, _: Context| async move {
        if !each.is_zero() {
            tokio::time::sleep(each).await;
        }
        JobResult::Ok(())
    };
    let (left, over) = (Arc::new(AtomicUsize::new(jobs)), Arc::new(Notify::new()));
    let ended = Arc::clone(&over);
    let worker = Worker::builder(driver)
        .handlers(Handlers::new().on(noop))
        .queue(queue, concurrency)
        .observer(move |event: &Event<'_>| {
            let is_done = matches!(event, Event::Succeeded { .. });
            if is_done && left.fetch_sub(1, Ordering::AcqRel) == 1 {
                ended.notify_one();
            }
        });
    let worker = match metrics {
        Some(metrics) => worker.observer(metrics).build()?,
        None => worker.build()?,
    };
    let started = now();
    let running = worker.start();
    over.notified().await;
    let took = started.elapsed();
    running.shutdown().await?;
    Ok(took)
}
