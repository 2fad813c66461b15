//! Sixty-four tasks that race for the jobs of queues with lanes, limits and rates.
//!
//! The tasks share some handles. On PostgreSQL, half of the handles go through a proxy that cuts their
//! connections. An observer writes down when each call was sent and answered. A lease is surely held from
//! the answer to reserve until the call that ends it is sent, or until it ends by the clock that all tasks
//! share. At the end the verdict compares what was surely so with the limits that may have been in force.

mod drain;
mod history;
mod observer;
mod queue;
mod setting;
mod task;
mod verdict;

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use taskharbor_core::Admin;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{Outcome, choice::StoreKind, store::Store, workers::proxy::Proxy};
use drain::Drainer;
use observer::Observer;
use setting::Settings;
use task::{Line, Task};
use verdict::Verdict;

const TASKS: usize = 64;
const HANDLES: usize = 8;
/// The time that tasks have: this, and so much more for each job. What is left then is drained.
const BASE: Duration = Duration::from_secs(10);
const EACH: Duration = Duration::from_millis(10);
/// No drain takes longer, unless something hangs.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);
/// How often connections are cut.
const CUT_MS: std::ops::Range<u64> = 500..2_500;

/// Lets tasks work until this many jobs have ended, and checks what happened.
pub(crate) async fn run(kind: StoreKind, seed: u64, jobs: usize) -> Outcome {
    let store = Store::make(kind).await?;
    let observer = Arc::new(Observer::new(jobs));
    let direct = store.open().await?.driver;
    let settings = Arc::new(Settings::new(direct.clone()));
    settings.begin(&observer, &mut Rng::with_seed(seed)).await?;
    let began = Instant::now();
    work(&store, (&observer, &settings), seed, jobs).await?;
    let drainer = Drainer { driver: &direct, observer: &observer, settings: &settings };
    let worked = began.elapsed();
    let left = observer.live();
    timeout(DRAIN_TIMEOUT, finish(&drainer))
        .await
        .map_err(|_| format!("the drain takes more than {DRAIN_TIMEOUT:?}"))??;
    let problems = direct.check().await?;
    println!("  {worked:.1?}, {left} jobs were left to drain; {}", observer.calls());
    let turns = if kind == StoreKind::Memory { 1 } else { HANDLES };
    let verdict = Verdict::of(&observer.take_history(), turns);
    println!("  {verdict}");
    verdict.fail()?;
    if let Some(problem) = problems.first() {
        return Err(format!("the store is inconsistent: {problem}").into());
    }
    match store.deadlocks().await? {
        0 => Ok(()),
        count => Err(format!("the server found {count} deadlocks").into()),
    }
}

async fn finish(drainer: &Drainer<'_>) -> Outcome {
    drainer.drain().await?;
    drainer.count_places().await?;
    drainer.list().await
}

/// Lets all tasks work until few jobs are left.
async fn work(
    store: &Store,
    (observer, settings): (&Arc<Observer>, &Arc<Settings>),
    seed: u64,
    jobs: usize,
) -> Outcome {
    let proxy = match store {
        Store::Postgres(server) => Some(Arc::new(Proxy::start(server.port()).await?)),
        Store::Memory(_) | Store::Sqlite(_) => None,
    };
    let mut lines = Vec::new();
    for number in 0..HANDLES {
        let proxy = proxy.as_deref().filter(|_| number % 2 == 0);
        let driver = store.open_through(proxy).await?;
        lines.push(Line { driver, is_cut: proxy.is_some() });
    }
    let cutter = proxy.map(|proxy| tokio::spawn(cut(proxy, Rng::with_seed(seed))));
    let deadline = Instant::now() + BASE + EACH * u32::try_from(jobs)?;
    let few = i64::try_from(jobs / 20)?;
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let line = lines[number % HANDLES].clone();
        let shared = (Arc::clone(observer), Arc::clone(settings));
        let task = Task::new(number, line, shared, (seed, few)).run(deadline);
        tasks.spawn(async move { (number, task.await) });
    }
    while let Some(ended) = tasks.join_next().await {
        let (number, outcome) = ended?;
        outcome.map_err(|error| format!("task {number}: {error}"))?;
    }
    if let Some(cutter) = cutter {
        cutter.abort();
    }
    Ok(())
}

/// Cuts all connections, again and again.
async fn cut(proxy: Arc<Proxy>, mut random: Rng) {
    loop {
        sleep(Duration::from_millis(random.u64(CUT_MS))).await;
        proxy.cut();
    }
}
