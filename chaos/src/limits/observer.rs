//! The state that all tasks share: the clock, the order of calls, the history, and jobs that others know, too.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    JobId, Timestamp,
    driver::{LeaseToken, Reserved},
};
use tokio::time::Instant;

use super::history::{Grant, History, Moment};

/// The time of the callers at the beginning.
const BEGIN_US: i64 = 1_800_000_000_000_000;
/// How many ids are remembered for requeues and run-nows.
const RECENT: usize = 300;

/// Writes down calls and answers. One lock is around the order, the clock and the history, so that times
/// never run against the order.
pub(crate) struct Observer {
    started: Instant,
    /// How far the clock was set forward, in microseconds.
    ahead_us: AtomicI64,
    /// Jobs that may still be enqueued.
    left: AtomicUsize,
    /// Jobs that were enqueued and have not ended, about.
    live: AtomicI64,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    next: u64,
    history: History,
    /// Jobs that were dead-lettered, and jobs that wait for their time.
    recent: VecDeque<JobId>,
    calls: BTreeMap<&'static str, u64>,
}

impl Observer {
    pub(crate) fn new(jobs: usize) -> Self {
        Self {
            started: Instant::now(),
            ahead_us: AtomicI64::new(0),
            left: AtomicUsize::new(jobs),
            live: AtomicI64::new(0),
            log: Mutex::default(),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, log: &mut Log) -> Moment {
        log.next += 1;
        Moment { order: log.next, at: self.now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let ahead = self.ahead_us.load(Ordering::SeqCst);
        Timestamp::from_micros(BEGIN_US.saturating_add(passed).saturating_add(ahead))
            .unwrap_or(Timestamp::MAX)
    }

    /// Sets the clock forward.
    pub(crate) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.ahead_us.fetch_add(by, Ordering::SeqCst);
    }

    /// Reserves the right to enqueue up to this many jobs; answers how many.
    pub(crate) fn take_jobs(&self, wanted: usize) -> usize {
        let take = |left: usize| Some(left.saturating_sub(wanted));
        let before = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        before.map_or(0, |before| before.min(wanted))
    }

    /// Whether all jobs were enqueued, and most have ended.
    pub(crate) fn is_nearly_done(&self, few: i64) -> bool {
        self.left.load(Ordering::SeqCst) == 0 && self.live() <= few
    }

    pub(crate) fn live(&self) -> i64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn add_live(&self, count: i64) {
        self.live.fetch_add(count, Ordering::Relaxed);
    }

    /// A call is about to be sent.
    pub(crate) fn send(&self, call: &'static str) -> Moment {
        let mut log = self.log();
        *log.calls.entry(call).or_default() += 1;
        self.moment(&mut log)
    }

    /// A call that may end these leases is about to be sent.
    pub(crate) fn send_end(&self, tokens: impl IntoIterator<Item = LeaseToken>) -> Moment {
        let mut log = self.log();
        *log.calls.entry("settle").or_default() += 1;
        let moment = self.moment(&mut log);
        tokens.into_iter().for_each(|token| log.history.end(token, moment.order));
        moment
    }

    /// A call was answered, or given up.
    pub(crate) fn count(&self, what: &'static str) {
        *self.log().calls.entry(what).or_default() += 1;
    }

    /// A call was answered: adds what is known by it.
    pub(crate) fn answer<T>(&self, add: impl FnOnce(&mut History, Moment) -> T) -> T {
        let mut log = self.log();
        let moment = self.moment(&mut log);
        add(&mut log.history, moment)
    }

    /// A reserve that was sent at a moment was answered.
    pub(crate) fn granted(&self, sent: Moment, reserved: &Reserved) {
        self.answer(|history, answered| {
            for leased in &reserved.jobs {
                let (job, lease) = (&leased.job, leased.lease);
                let grant = Grant {
                    job: job.id.clone(),
                    queue: job.queue.clone(),
                    lane: job.lane.clone(),
                    delivery: job.deliveries,
                    sent,
                    answered,
                    expires_at: lease.expires_at,
                    ended: None,
                };
                history.add_grant(grant, lease.token);
            }
        });
    }

    /// Remembers a job that a person could requeue or run now.
    pub(crate) fn remember(&self, id: JobId) {
        let recent = &mut self.log().recent;
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(id);
    }

    /// One of them.
    pub(crate) fn recall(&self, pick: impl FnOnce(usize) -> usize) -> Option<JobId> {
        let recent = &mut self.log().recent;
        if recent.is_empty() {
            return None;
        }
        let at = pick(recent.len());
        recent.swap_remove_back(at)
    }

    /// How often what was called, or happened.
    pub(crate) fn calls(&self) -> String {
        let log = self.log();
        let counts: Vec<String> =
            log.calls.iter().map(|(call, count)| format!("{call} {count}")).collect();
        counts.join(", ")
    }

    /// Everything that was written down.
    pub(crate) fn take_history(&self) -> History {
        std::mem::take(&mut self.log().history)
    }
}
