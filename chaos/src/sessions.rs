//! Sixteen sessions that do random operations of the contract to the same jobs, in rounds.
//!
//! A session is a caller with a handle of its own. All sessions write down what they were answered. At
//! the end of a round everything is drained, and the answers are compared with each other and with what
//! is stored. Then the store is emptied, so that a run of an hour needs no more memory than one of a
//! minute.
//!
//! The time that callers pass moves on by a millisecond with every call. So leases run out while other
//! sessions work, however fast the machine is.

mod drain;
mod event;
mod job;
mod session;
mod verdict;
mod world;

use std::{sync::Arc, time::Duration};

use taskharbor_core::{Admin, Driver, Timestamp};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{Outcome, choice::StoreKind, store::Store};
use drain::Drainer;
use event::Event;
use session::Session;
use verdict::Verdict;
use world::World;

const SESSIONS: usize = 16;
/// How long sessions work before everything is checked.
const ROUND: Duration = Duration::from_secs(15);
/// No drain and check of a round takes longer, unless something hangs.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs rounds for this long.
pub(crate) async fn run(kind: StoreKind, seed: u64, time: Duration) -> Outcome {
    let store = Store::make(kind).await?;
    let began = Instant::now();
    let mut now = Timestamp::from_micros(1_800_000_000_000_000)?;
    let mut round = 0;
    while began.elapsed() + Duration::from_secs(1) < time {
        let left = time.saturating_sub(began.elapsed()).min(ROUND);
        let world = Arc::new(World::new(round, now));
        let failed = |error| format!("round {round}: {error}");
        let events = work(&store, &world, seed, left).await.map_err(failed)?;
        let finish = finish(&store, &world, events);
        let finished = timeout(DRAIN_TIMEOUT, finish).await;
        now = finished.map_err(|_| failed(hangs("the end of a round")))?.map_err(failed)?;
        round += 1;
    }
    match store.deadlocks().await? {
        0 => Ok(()),
        count => Err(format!("the server found {count} deadlocks").into()),
    }
}

fn hangs(what: &str) -> Box<dyn std::error::Error + Send + Sync> {
    format!("{what} takes more than {DRAIN_TIMEOUT:?}").into()
}

/// Lets all sessions work, each with a handle of its own; answers what they saw.
async fn work(store: &Store, world: &Arc<World>, seed: u64, time: Duration) -> Outcome<Vec<Event>> {
    let mut sessions = JoinSet::new();
    let deadline = Instant::now() + time;
    for number in 0..SESSIONS {
        let handle = store.open().await?;
        let seed = seed ^ ((number as u64) << 48) ^ ((world.round as u64) << 32);
        let session = Session::new(number, handle, Arc::clone(world), seed);
        sessions.spawn(session.run(deadline));
    }
    let mut events = Vec::new();
    while let Some(seen) = sessions.join_next().await {
        events.extend(seen??);
    }
    Ok(events)
}

/// Drains the store, judges everything, and empties the store; answers the time for the next round.
async fn finish(store: &Store, world: &Arc<World>, mut events: Vec<Event>) -> Outcome<Timestamp> {
    // A handle that has learnt nothing about the store looks at all of it.
    let handle = store.open().await?;
    let driver = &handle.driver;
    let mut drainer = Drainer::new(driver, world);
    drainer.drain().await?;
    events.append(&mut drainer.events);
    let stored = drainer.stored().await?;
    if let Some(problem) = driver.check().await?.first() {
        return Err(format!("the store is inconsistent: {problem}").into());
    }
    drainer.copy_to_memory(stored.len()).await?;
    let verdict = Verdict::of(&events, &stored);
    println!("  round {}: {}; {verdict}", world.round, world.calls());
    verdict.fail()?;
    let now = drainer.empty().await?;
    if handle.is_own() {
        driver.close().await?;
    }
    Ok(now)
}
