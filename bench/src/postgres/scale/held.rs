//! A queue that a worker keeps empty, beside a transaction that is left open: no dead row behind it can
//! be removed.

use std::{sync::Arc, time::Duration};

use taskharbor_core::Driver;
use tokio::time::{MissedTickBehavior, interval};

use super::super::{Outcome, server::Server, size::Sizes, store::Store};
use crate::finding::{Bound, Rounds, finding, head, percentile_ms, ratio};
use crate::stopwatch::now;

/// Jobs in a second.
const RATE: u32 = 300;
/// Calls to enqueue in a second, on a machine that keeps up.
const CALLS: u32 = 100;
/// Jobs that the worker can take.
const DEMAND: usize = 100;
const TIMES: f64 = 5.0;

/// Transactions of the application that hold the horizon.
const OPEN: [(&str, &str); 2] = [
    ("an old snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class"),
    ("an open write transaction", "BEGIN; SELECT pg_current_xact_id()"),
];

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let length = Duration::from_secs(u64::try_from(sizes.seconds)?);
    head(&format!("held: {RATE} jobs/s are drained at once, a transaction is open for {length:?}"));
    for (name, begin) in OPEN {
        let [mut free, mut held, mut median] =
            [Rounds::default(), Rounds::default(), Rounds::default()];
        for _ in 0..sizes.rounds {
            let store = Arc::new(Store::new(server, "held", sizes.payload).await?);
            // Off the record: files, plans and caches.
            spell(&store, length / 10).await?;
            let before = spell(&store, length / 3).await?;
            let other = server.connect("public").await?;
            other.batch_execute(begin).await?;
            let beside = spell(&store, length).await?;
            other.batch_execute("COMMIT").await?;
            store.check().await?;
            // The cost grows with the time, so that its last third is what counts.
            let late = &beside[beside.len() * 2 / 3..];
            free.push(percentile_ms(&before, 99));
            held.push(percentile_ms(late, 99));
            median.push(percentile_ms(late, 50) / percentile_ms(&before, 50));
        }
        finding("reserve, p99, nothing is held", &free, " ms", 2, Bound::None);
        finding(&format!("reserve, p99, {name}"), &held, " ms", 2, Bound::None);
        ratio("  the second over the first", &held.over(&free), Bound::AtMost(TIMES));
        // A noisy machine has a high p99 at all times, which must not hide that every call got slower.
        ratio("  the same for medians", &median, Bound::AtMost(TIMES));
    }
    Ok(())
}

/// What each reserve took beside a steady producer.
async fn spell(store: &Arc<Store>, length: Duration) -> Outcome<Vec<Duration>> {
    let producer = tokio::spawn(produce(Arc::clone(store), length));
    let (started, mut samples) = (now(), Vec::new());
    let mut tick = ticks();
    while started.elapsed() < length {
        tick.tick().await;
        let began = now();
        let jobs = store.reserve(DEMAND).await?;
        samples.push(began.elapsed());
        if !jobs.is_empty() {
            store.ack(jobs).await?;
        }
    }
    producer.await??;
    Ok(samples)
}

/// Keeps the rate however slow the calls are: a later call has more jobs.
async fn produce(store: Arc<Store>, length: Duration) -> Outcome {
    let (started, mut made) = (now(), 0);
    let mut tick = ticks();
    while started.elapsed() < length {
        tick.tick().await;
        let due = usize::try_from(started.elapsed().as_millis() * u128::from(RATE) / 1_000)?;
        if due > made {
            store.driver.enqueue(store.jobs(due - made)?).await?;
            made = due;
        }
    }
    Ok(())
}

fn ticks() -> tokio::time::Interval {
    let mut tick = interval(Duration::from_secs(1) / CALLS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
