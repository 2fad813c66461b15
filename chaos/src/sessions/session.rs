//! One session: a caller that does one random thing after another and writes down the answers.

mod deed;
mod read;
mod write;

use std::{collections::HashSet, sync::Arc, time::Duration};

use fastrand::Rng;
use taskharbor_core::{Driver, DriverError, JobId, Timestamp, driver::LeaseToken};
use tokio::time::{Instant, timeout};

use super::{
    event::{Event, What},
    job::Maker,
    world::World,
};
use crate::{Outcome, store::Handle};

/// No call takes longer, unless it hangs.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Above this many live jobs, sessions work instead of enqueueing.
const MAX_LIVE: i64 = 1_500;

pub(crate) struct Session {
    number: usize,
    handle: Handle,
    world: Arc<World>,
    random: Rng,
    maker: Maker,
    held: Vec<Held>,
    events: Vec<Event>,
}

/// A job that this session holds, or held.
#[derive(Clone)]
struct Held {
    id: JobId,
    token: LeaseToken,
    attempts: u32,
}

/// A call in flight: when it began, and its `now`.
#[derive(Clone, Copy)]
struct Begun {
    moment: u64,
    now: Timestamp,
}

impl Session {
    pub(crate) fn new(number: usize, handle: Handle, world: Arc<World>, seed: u64) -> Self {
        let (random, maker) = (Rng::with_seed(seed), Maker::new(world.round, number));
        Self { number, handle, world, random, maker, held: Vec::new(), events: Vec::new() }
    }

    /// Works until the deadline; answers what it saw.
    pub(crate) async fn run(mut self, deadline: Instant) -> Outcome<Vec<Event>> {
        let queues = self.queues()?;
        let _watch = self.handle.driver.watch(queues).await?;
        while Instant::now() < deadline {
            let (name, called) = self.call().await;
            let told = |problem: String| format!("session {}, {name}: {problem}", self.number);
            match called {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(told(chain(&*error)).into()),
                None => return Err(told(format!("no answer for {CALL_TIMEOUT:?}")).into()),
            }
        }
        if self.handle.is_own() {
            self.close().await?;
        }
        Ok(self.events)
    }

    /// A closed handle is of no use.
    async fn close(&mut self) -> Outcome {
        self.handle.driver.close().await?;
        match self.handle.driver.store_time().await {
            Err(DriverError::Closed) => Ok(()),
            other => Err(format!("a closed handle answers {other:?}").into()),
        }
    }

    /// Does one thing; `None` if it took too long.
    async fn call(&mut self) -> (&'static str, Option<Outcome>) {
        macro_rules! called {
            ($name:ident) => {
                (stringify!($name), timeout(CALL_TIMEOUT, self.$name()).await.ok())
            };
        }
        let has_room = self.world.live() < MAX_LIVE;
        match self.random.u8(..100) {
            0..=15 if has_room => called!(enqueue),
            16..=20 if has_room && self.handle.has_transactions() => called!(transaction),
            0..=35 => called!(reserve),
            36..=60 => called!(settle),
            61..=65 => called!(settle_stale),
            66..=72 => called!(extend),
            73..=82 => called!(manage),
            83..=86 => called!(manage_flows),
            87..=89 => called!(prune),
            90..=91 => called!(configure),
            _ => called!(read),
        }
    }

    fn begin(&self) -> Begun {
        Begun { moment: self.world.moment(), now: self.world.tick() }
    }

    /// Writes down what a call was answered.
    fn end(&mut self, begun: Begun, call: &'static str, seen: impl IntoIterator<Item = What>) {
        self.world.count(call, 1);
        let ended = self.world.moment();
        let Begun { moment: began, now } = begun;
        self.events.extend(seen.into_iter().map(|what| Event { began, ended, now, what }));
    }

    /// Some of the jobs that this session held, each once.
    fn some_held(&mut self) -> Vec<Held> {
        self.random.shuffle(&mut self.held);
        let count = self.held.len().min(self.random.usize(1..16));
        let (mut seen, mut some) = (HashSet::new(), Vec::new());
        for held in self.held.split_off(self.held.len() - count) {
            match seen.insert(held.id.clone()) {
                true => some.push(held),
                false => self.held.push(held),
            }
        }
        some
    }

    /// Some tokens of any session, each job once; most are worthless by now.
    fn some_tokens(&mut self) -> Vec<(JobId, LeaseToken)> {
        let recent = self.world.recent();
        let mut tokens = Vec::new();
        for _ in 0..self.random.usize(1..10).min(recent.tokens.len()) {
            tokens.push(recent.tokens[self.random.usize(..recent.tokens.len())].clone());
        }
        drop(recent);
        let mut seen = HashSet::new();
        tokens.retain(|(id, _)| seen.insert(id.clone()));
        tokens
    }

    /// Some jobs of any session, each once.
    fn some_jobs(&mut self) -> Vec<JobId> {
        let recent = self.world.recent();
        some(&mut self.random, &recent.jobs)
    }

    fn some_flows(&mut self) -> Vec<JobId> {
        let recent = self.world.recent();
        some(&mut self.random, &recent.flows)
    }
}

fn some(random: &mut Rng, all: &std::collections::VecDeque<JobId>) -> Vec<JobId> {
    let picks = random.usize(1..8).min(all.len());
    let picked: HashSet<JobId> =
        (0..picks).map(|_| all[random.usize(..all.len())].clone()).collect();
    let mut picked: Vec<JobId> = picked.into_iter().collect();
    // Sets have no order that a seed could repeat.
    picked.sort();
    random.shuffle(&mut picked);
    picked
}

/// An error with all its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
