//! A place is freed by one process, and a worker of another that waits for it gets the next job.

use std::time::{Duration, Instant};

use taskharbor::{AnyDriver, Context, Driver, DriverError, Handlers, JobResult, Worker};
use taskharbor_core::{Admin, admin::QueueLimits};
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};

use super::{
    super::{
        Outcome,
        server::Server,
        size::Sizes,
        store::{QUEUE, Store, WakeUps, open},
    },
    Shape,
};
use crate::finding::{Bound, Rounds, finding, head, median_ms, percentile_ms};
use crate::{noop::Noop, stopwatch::now};

const SCHEMA: &str = "freed";
const TIMES: usize = 100;
/// Long enough for the worker to have asked in vain and gone to sleep.
const PAUSE: Duration = Duration::from_millis(60);
/// No place stays free for longer, unless its worker was not woken.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
const MOST_MS: f64 = 20.0;

/// Tells when a reserve was answered with a job.
#[derive(Clone)]
struct Grants(UnboundedSender<Instant>);

impl<D: Driver + Admin> Hook<D> for Grants {
    async fn around(&self, call: Call, next: Next<'_, D>) -> Result<Answer, DriverError> {
        let answer = next.make(call).await?;
        if matches!(&answer, Answer::Reserve(reserved) if !reserved.jobs.is_empty()) {
            // The benchmark may have ended.
            let _ = self.0.send(now());
        }
        Ok(answer)
    }
}

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head("lanes, freed: from the settle that frees the only place to the next reserve's answer");
    let [mut median, mut p99] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let store = Store::new(server, SCHEMA, sizes.payload).await?;
        Shape::of(0, Some(QueueLimits::new().inflight(1))).limit(&store).await?;
        let (told, mut grants) = unbounded_channel();
        let driver = open(server, SCHEMA, WakeUps::On).await?;
        let driver = AnyDriver::new(Intercept::new(driver, Grants(told)));
        let noop = |_: Noop, _: Context| async { JobResult::Ok(()) };
        let worker = Worker::builder(&driver).handlers(Handlers::new().on(noop)).queue(QUEUE, 4);
        let running = worker.build()?.start();
        let mut samples = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            samples.push(once(&store, &mut grants).await?);
        }
        running.shutdown().await?;
        store.check().await?;
        median.push(median_ms(&samples));
        p99.push(percentile_ms(&samples, 99));
    }
    finding("settle to reserve's answer, median", &median, " ms", 2, Bound::None);
    finding("settle to reserve's answer, p99", &p99, " ms", 2, Bound::AtMost(MOST_MS));
    Ok(())
}

/// Takes the place before the worker does, lets a job wait for it, and frees it.
async fn once(store: &Store, grants: &mut UnboundedReceiver<Instant>) -> Outcome<Duration> {
    let held = loop {
        store.fill(1, 1).await?;
        match store.reserve(1).await? {
            jobs if jobs.is_empty() => {
                // The worker was faster.
                timeout(WAIT_LIMIT, grants.recv()).await?.ok_or("the worker has ended")?;
                sleep(PAUSE).await;
            }
            jobs => break jobs,
        }
    };
    store.fill(1, 1).await?;
    sleep(PAUSE).await;
    let began = now();
    store.ack(held).await?;
    let granted = timeout(WAIT_LIMIT, grants.recv()).await?.ok_or("the worker has ended")?;
    // The worker ends its job.
    sleep(PAUSE).await;
    Ok(granted.saturating_duration_since(began))
}
