//! Twice as many one-slot workers, each with connections of its own, as the queue has places.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taskharbor::{AnyDriver, Context, Event, Handlers, JobResult, Running, Worker};
use taskharbor_core::admin::QueueLimits;
use taskharbor_testkit::Intercept;
use tokio::sync::Notify;

use super::{
    super::{
        Outcome,
        scale::herd::Reserves,
        server::Server,
        size::Sizes,
        store::{QUEUE, Store, WakeUps, open},
    },
    Shape,
};
use crate::finding::{Bound, Rounds, finding, head, per_second, rate};
use crate::{noop::Noop, stopwatch::now};

const SCHEMA: &str = "fleet";

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (workers, jobs) = ((sizes.workers / 2).max(1), (sizes.jobs / 20).max(1));
    let places = (workers / 2).max(1);
    head(&format!("lanes, fleet: {jobs} jobs, {workers} workers with one slot, {places} places"));
    let [mut rates, mut calls] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let limits = QueueLimits::new().inflight(u32::try_from(places)?);
        let (done, each) = drain(server, sizes, limits, (workers, jobs)).await?;
        rates.push(done);
        calls.push(each);
    }
    rate("jobs", &rates);
    finding("reserves per job", &calls, "", 2, Bound::None);
    Ok(())
}

/// Jobs per second, and reserves per job.
async fn drain(
    server: &Server,
    sizes: &Sizes,
    limits: QueueLimits,
    (workers, jobs): (usize, usize),
) -> Outcome<(f64, f64)> {
    let store = Store::new(server, SCHEMA, sizes.payload).await?;
    Shape::of(0, Some(limits)).limit(&store).await?;
    let (left, over) = (Arc::new(AtomicUsize::new(jobs)), Arc::new(Notify::new()));
    let reserves = Reserves::default();
    let mut drivers = Vec::new();
    for _ in 0..workers {
        let driver = open(server, SCHEMA, WakeUps::On).await?;
        drivers.push(AnyDriver::new(Intercept::new(driver, reserves.clone())));
    }
    store.fill(jobs, sizes.bulk).await?;
    store.vacuum().await?;
    let started = now();
    let mut running: Vec<Running> = Vec::new();
    for driver in &drivers {
        let noop = |_: Noop, _: Context| async { JobResult::Ok(()) };
        let (left, ended) = (Arc::clone(&left), Arc::clone(&over));
        let observer = move |event: &Event<'_>| {
            let is_done = matches!(event, Event::Succeeded { .. });
            if is_done && left.fetch_sub(1, Ordering::AcqRel) == 1 {
                ended.notify_one();
            }
        };
        let worker = Worker::builder(driver).handlers(Handlers::new().on(noop)).queue(QUEUE, 1);
        running.push(worker.observer(observer).build()?.start());
    }
    over.notified().await;
    let (took, calls) = (started.elapsed(), reserves.0.load(Ordering::Relaxed));
    for worker in running {
        worker.shutdown().await?;
    }
    store.check().await?;
    #[expect(clippy::cast_precision_loss, reason = "an average needs no more than 52 bits")]
    let each = calls as f64 / jobs as f64;
    Ok((per_second(jobs, took), each))
}
