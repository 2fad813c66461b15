//! Draining jobs that do nothing: in batches, and by a worker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Context, Event, Handlers, Job, JobResult, Worker};
use tokio::sync::Notify;

use super::{
    Outcome,
    raw::Raw,
    size::Sizes,
    store::{QUEUE, Store},
};
use crate::{
    finding::{Bound, Rounds, head, per_second, rate, ratio},
    stopwatch::now,
};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "noop")]
struct Noop {
    pad: String,
}

async fn noop(_: Noop, _: Context) -> JobResult {
    Ok(())
}

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    let (jobs, batch) = (sizes.jobs, sizes.batch);
    head(&format!("drain: {jobs} jobs that do nothing, {batch} in a call"));
    let [mut raw, mut bare, mut worker] = [Rounds::default(), Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let store = Store::new(sizes.payload).await?;
        let calls = store.calls(jobs, sizes.bulk)?;
        let mut beside = Raw::new().await?;
        beside.enqueue(&calls)?;
        let started = now();
        if beside.drain(batch)? != jobs {
            return Err("raw SQLite lost jobs".into());
        }
        raw.push(per_second(jobs, started.elapsed()));
        store.fill(jobs, sizes.bulk).await?;
        let started = now();
        while store.step(batch).await? > 0 {}
        bare.push(per_second(jobs, started.elapsed()));
        store.fill(jobs, sizes.bulk).await?;
        worker.push(per_second(jobs, work(&store, jobs, sizes.concurrency).await?));
        store.check().await?;
    }
    rate("raw SQLite, reserve + ack", &raw);
    rate("driver, reserve + ack", &bare);
    rate(&format!("worker, {} handlers at once", sizes.concurrency), &worker);
    ratio("driver / raw", &bare.over(&raw), Bound::AtLeast(0.5));
    ratio("worker / raw", &worker.over(&raw), Bound::AtLeast(0.5));
    Ok(())
}

/// Runs so many jobs; over when the last of them is recorded.
pub(crate) async fn work(store: &Store, jobs: usize, concurrency: usize) -> Outcome<Duration> {
    let (left, over) = (Arc::new(AtomicUsize::new(jobs)), Arc::new(Notify::new()));
    let ended = Arc::clone(&over);
    let driver = AnyDriver::new(store.driver.clone());
    let worker = Worker::builder(&driver)
        .handlers(Handlers::new().on(noop))
        .queue(QUEUE, concurrency)
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
