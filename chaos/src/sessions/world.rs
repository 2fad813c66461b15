//! The state that all sessions of a round share: the time, the order of calls, and jobs that others know, too.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use taskharbor_core::{JobId, Timestamp, driver::LeaseToken};

/// How far a call moves the time.
const TICK_US: i64 = 1_000;
/// How many jobs and tokens are remembered for others to use.
const RECENT: usize = 300;
const RECENT_FLOWS: usize = 40;

pub(crate) struct World {
    pub(crate) round: usize,
    now: AtomicI64,
    moments: AtomicU64,
    /// Jobs stored and not ended yet, about.
    live: AtomicI64,
    recent: Mutex<Recent>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
}

/// Jobs, flows and tokens that any session may use.
#[derive(Default)]
pub(crate) struct Recent {
    pub(crate) jobs: VecDeque<JobId>,
    pub(crate) flows: VecDeque<JobId>,
    pub(crate) tokens: VecDeque<(JobId, LeaseToken)>,
}

impl Recent {
    pub(crate) fn add_job(&mut self, id: JobId) {
        remember(&mut self.jobs, id, RECENT);
    }

    pub(crate) fn add_flow(&mut self, id: JobId) {
        remember(&mut self.flows, id, RECENT_FLOWS);
    }

    pub(crate) fn add_token(&mut self, id: JobId, token: LeaseToken) {
        remember(&mut self.tokens, (id, token), RECENT);
    }
}

fn remember<T>(all: &mut VecDeque<T>, one: T, limit: usize) {
    if all.len() == limit {
        all.pop_front();
    }
    all.push_back(one);
}

impl World {
    pub(crate) fn new(round: usize, now: Timestamp) -> Self {
        Self {
            round,
            now: AtomicI64::new(now.as_micros()),
            moments: AtomicU64::new(0),
            live: AtomicI64::new(0),
            recent: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    /// The time of the next call.
    pub(crate) fn tick(&self) -> Timestamp {
        time(self.now.fetch_add(TICK_US, Ordering::SeqCst))
    }

    /// The next moment in the order of calls.
    pub(crate) fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn add_live(&self, count: i64) {
        self.live.fetch_add(count, Ordering::Relaxed);
    }

    /// Counted again: what is cancelled or removed is not told one by one.
    pub(crate) fn set_live(&self, count: usize) {
        self.live.store(i64::try_from(count).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn live(&self) -> i64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, call: &'static str, count: usize) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(call).or_default() += count as u64;
    }

    /// How often what was called.
    pub(crate) fn calls(&self) -> String {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let counts: Vec<String> =
            calls.iter().map(|(call, count)| format!("{call} {count}")).collect();
        counts.join(", ")
    }
}

fn time(micros: i64) -> Timestamp {
    // A run moves the time by hours at most.
    Timestamp::from_micros(micros).unwrap_or(Timestamp::MAX)
}
