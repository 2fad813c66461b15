//! How many of a hundred idle listeners look for one job, and how soon one of them has it: where
//! they take turns, and where each of them looks at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use taskharbor_core::{
    Driver, QueueName,
    driver::{Demand, Reserve, Settle, Settlement, Transition},
    name::Holder,
};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
use tokio::sync::mpsc;

use super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{Clock, Hints, LEASE, QUEUE, Store, open},
};
use crate::finding::{Bound, Rounds, figure, head, percentile, ratio};
use crate::stopwatch::now;

const LISTENERS: usize = 100;
const JOBS: usize = 40;
const SLOTS: usize = 10;
/// For longer than it takes a listener to count the others again.
const SETTLING: Duration = Duration::from_secs(20);
/// If no listener has looked for this long, all have ended that will look for a job.
const QUIET: Duration = Duration::from_millis(400);

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("fleet: one job at a time for {LISTENERS} idle listeners"));
    let store = Store::new(server, "fleet", sizes.payload).await?;
    let (looks, (granted, mut grants)) = (Arc::default(), mpsc::unbounded_channel());
    for _ in 0..LISTENERS {
        let schema = SchemaName::new("fleet")?;
        let config = Config::from_url(&server.url())?.schema(schema).pool_size(1);
        let driver = PostgresDriver::open(config).await?;
        tokio::spawn(serve(driver, store.clock, Arc::clone(&looks), granted.clone()));
    }
    tokio::time::sleep(SETTLING).await;
    let announcing = open(server, "fleet", Hints::On).await?;
    // A driver with workers of its own never notifies inside its calls.
    let _watch = announcing.watch(vec![QueueName::new("elsewhere")?]).await?;
    let silent = open(server, "fleet", Hints::Off).await?;
    let channel = SchemaName::new("fleet")?.channel();
    let (mut in_turn, mut at_once) = (Side::default(), Side::default());
    for number in 0..2 * JOBS {
        let is_in_turn = number % 2 == 0;
        let before = looks.load(Ordering::SeqCst);
        let began = now();
        if is_in_turn {
            announcing.enqueue(store.jobs(1)?).await?;
        } else {
            // The name of a queue alone wakes every listener.
            silent.enqueue(store.jobs(1)?).await?;
            store.sql.execute("SELECT pg_notify($1, $2)", &[&channel, &QUEUE]).await?;
        }
        let granted_at: Instant = grants.recv().await.ok_or("no listener is left")?;
        until_quiet(&looks).await;
        let side = if is_in_turn { &mut in_turn } else { &mut at_once };
        side.looks.push(count(looks.load(Ordering::SeqCst) - before)?);
        side.millis.push(granted_at.duration_since(began).as_secs_f64() * 1e3);
    }
    let p99 = in_turn.print("in turn", Bound::AtMost(5.0));
    let mut rounds = Rounds::default();
    rounds.push(p99 / at_once.print("all at once", Bound::None));
    ratio("enqueue to grant, p99, in turn / all at once", &rounds, Bound::AtMost(1.0));
    Ok(())
}

#[derive(Default)]
struct Side {
    looks: Vec<f64>,
    millis: Vec<f64>,
}

impl Side {
    /// Prints the figures; answers with the 99th percentile of the time.
    fn print(&mut self, name: &str, bound: Bound) -> f64 {
        self.looks.sort_by(f64::total_cmp);
        self.millis.sort_by(f64::total_cmp);
        for (percent, bound) in [(50, Bound::None), (90, bound), (100, Bound::None)] {
            let what = format!("looks for one job, {name}, p{percent}");
            figure(&what, percentile(&self.looks, percent), "", 0, bound);
        }
        for percent in [50, 99] {
            let what = format!("enqueue to grant, {name}, p{percent}");
            figure(&what, percentile(&self.millis, percent), " ms", 1, Bound::None);
        }
        percentile(&self.millis, 99)
    }
}

/// Looks whenever it is woken, as an idle worker does.
async fn serve(
    driver: PostgresDriver,
    clock: Clock,
    looks: Arc<AtomicUsize>,
    granted: mpsc::UnboundedSender<Instant>,
) -> Outcome {
    let queue = QueueName::new(QUEUE)?;
    let mut watch = driver.watch(vec![queue.clone()]).await?;
    loop {
        watch.woken().await;
        let demands = vec![Demand::new(queue.clone(), SLOTS)];
        let request = Reserve::new(demands, Holder::new("fleet")?, clock.now(), LEASE);
        let jobs = driver.reserve(request).await?.jobs;
        looks.fetch_add(1, Ordering::SeqCst);
        if jobs.is_empty() {
            continue;
        }
        granted.send(now())?;
        let ack = Transition::Ack { output: None };
        let items =
            jobs.into_iter().map(|it| Settlement::new(it.job.id, it.lease.token, ack.clone()));
        driver.settle(Settle::new(items.collect(), clock.now())).await?;
    }
}

/// Waits until all looks for a job are over.
async fn until_quiet(looks: &AtomicUsize) {
    let mut before = usize::MAX;
    while before != looks.load(Ordering::SeqCst) {
        before = looks.load(Ordering::SeqCst);
        tokio::time::sleep(QUIET).await;
    }
}

fn count(number: usize) -> Outcome<f64> {
    Ok(f64::from(u32::try_from(number)?))
}
