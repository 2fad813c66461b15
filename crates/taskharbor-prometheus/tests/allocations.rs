//! An event about a queue and a type that were seen before allocates nothing. A program of its own, because
//! it counts all allocations.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    alloc::System,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use taskharbor::{
    Client, Context, Event, Exponential, Handlers, Job, JobError, JobResult, Observer, Operation,
    testing::Harbor,
};
use taskharbor_prometheus::Metrics;

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Passes events on, and counts what that allocates, by the event's name.
#[derive(Clone)]
struct Counting {
    metrics: Metrics,
    counted: Arc<Mutex<Vec<(&'static str, usize)>>>,
}

fn name_of(event: &Event<'_>) -> &'static str {
    match event {
        Event::Enqueued { .. } => "enqueued",
        Event::Started { .. } => "started",
        Event::Failed { .. } => "failed",
        Event::Succeeded { .. } => "succeeded",
        Event::Retried { .. } => "retried",
        Event::DeadLettered { .. } => "dead-lettered",
        Event::Released { .. } => "released",
        Event::Called { operation: Operation::Settle, .. } => "called to settle",
        Event::Called { .. } => "called",
        _ => "another",
    }
}

impl Observer for Counting {
    fn on(&self, event: &Event<'_>) {
        let mut counted = self.counted.lock().unwrap();
        counted.reserve(1);
        let region = Region::new(GLOBAL);
        self.metrics.on(event);
        let stats = region.change();
        counted.push((name_of(event), stats.allocations + stats.reallocations));
    }
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "work")]
struct Work(u32);

async fn work(Work(n): Work, cx: Context) -> JobResult {
    match n % 4 {
        0 if cx.attempt() == 1 => Err("for now")?,
        1 => Err(JobError::unrecoverable("permanently")),
        2 if cx.delivery() == 1 => Err(JobError::throttled(Duration::from_millis(5))),
        _ => Ok(()),
    }
}

/// Runs on one thread, so no other test or task allocates meanwhile.
#[tokio::test(start_paused = true)]
async fn an_event_allocates_nothing_once_its_series_exist() {
    let counting = Counting { metrics: Metrics::new(), counted: Arc::default() };
    let (observer, retry) = (counting.clone(), Exponential::default().max_attempts(3));
    let harbor = Harbor::configured(Handlers::new().on(work), |worker| {
        worker.retry(retry).observer(observer)
    });
    let client = Client::builder(harbor.driver()).observer(counting.clone()).build().unwrap();
    for round in 0..2 {
        counting.counted.lock().unwrap().clear();
        for n in 0..40 {
            client.enqueue(Work(n)).await.unwrap();
        }
        harbor.advance(Duration::from_secs(600)).await;
        if round == 0 {
            let counted = counting.counted.lock().unwrap();
            assert!(counted.iter().any(|(_, count)| *count > 0), "the counter counts");
        }
    }
    let counted = counting.counted.lock().unwrap();
    let names = ["enqueued", "started", "failed", "succeeded", "retried", "dead-lettered"];
    for name in names.into_iter().chain(["released", "called", "called to settle"]) {
        let events: Vec<_> = counted.iter().filter(|(event, _)| *event == name).collect();
        assert!(!events.is_empty(), "no event {name}");
    }
    let allocating: Vec<_> = counted.iter().filter(|(_, count)| *count > 0).collect();
    assert!(allocating.is_empty(), "{allocating:?}");
}
