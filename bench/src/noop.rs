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
use tokio::sync::Notify;

use crate::stopwatch::now;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "noop")]
pub(crate) struct Noop {
    pub(crate) pad: String,
}

async fn noop(_: Noop, _: Context) -> JobResult {
    Ok(())
}

/// Runs so many jobs of a queue; over when the last of them is recorded.
pub(crate) async fn work(
    driver: &AnyDriver,
    queue: &str,
    jobs: usize,
    concurrency: usize,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
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
        })
        .build()?;
    let started = now();
    let running = worker.start();
    over.notified().await;
    let took = started.elapsed();
    running.shutdown().await?;
    Ok(took)
}
