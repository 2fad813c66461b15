//! [`Tracker`]: rates from what workers announce.
//!
//! A worker announces what it has done since it started, about every ten seconds. What it did between two
//! announcements, divided by the time between them, is its rate, until the next one comes or the
//! announcement expires. So a rate lags behind by one interval and is an average over it. Every start of a
//! worker is counted for itself, because a worker that restarts begins at zero. What a worker did after its
//! last announcement is not known.

use std::collections::{BTreeMap, HashMap, HashSet};

use taskharbor::{QueueInfo, QueueName, Timestamp, WorkerInfo};
use taskharbor_core::{admin::WorkerRecord, driver::Incarnation, name::Holder};

use super::histogram::{Histogram, to_f64};

/// The most workers whose rates are known.
const MAX_WORKERS: usize = 5_000;
/// How long waits count for percentiles. A worker announces itself at least twice in this time.
const WINDOW_MICROS: i64 = 30_000_000;
/// The least time for which a rate means something.
const SHORTEST_MICROS: i64 = 500_000;

/// What workers are doing, by queue.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    workers: HashMap<(Holder, Incarnation), Worker>,
    /// Since when every start of a worker has been noticed.
    watched_since: Option<Timestamp>,
    /// Waits that were counted in the last half minute.
    waits: HashMap<QueueName, Vec<(Timestamp, Histogram)>>,
    overdue: usize,
}

#[derive(Debug)]
struct Worker {
    seen_at: Timestamp,
    expires_at: Timestamp,
    totals: BTreeMap<QueueName, Totals>,
    rates: BTreeMap<QueueName, Rates>,
    /// Whether its rates are known.
    is_measured: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    done: u64,
    dead: u64,
    failed: u64,
    wait: Histogram,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    out: f64,
    failed: f64,
}

/// What the workers of one queue are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueueWork {
    /// How many serve it.
    pub(super) workers: usize,
    /// Jobs done or dead-lettered in a second; `None` until a worker has announced itself twice.
    pub(super) out: Option<f64>,
    /// Executions failed in a second.
    pub(super) failed: Option<f64>,
}

impl QueueWork {
    /// No worker serves the queue.
    pub(super) const IDLE: Self = Self { workers: 0, out: Some(0.0), failed: Some(0.0) };
}

impl Tracker {
    /// Takes over all workers that the store lists.
    pub(super) fn update(&mut self, listed: &[WorkerRecord], now: Timestamp) {
        let mut seen = HashSet::new();
        self.overdue = listed.iter().filter(|record| !record.is_valid(now)).count();
        let valid = listed.iter().filter(|record| record.is_valid(now));
        for record in valid.take(MAX_WORKERS) {
            let key = (record.holder.clone(), record.incarnation);
            self.see(&key, record, now);
            seen.insert(key);
        }
        self.workers.retain(|key, _| seen.contains(key));
        self.watched_since = Some(now);
        let is_recent =
            |(at, _): &(Timestamp, Histogram)| now.as_micros() - at.as_micros() < WINDOW_MICROS;
        self.waits.retain(|_, waits| {
            waits.retain(is_recent);
            !waits.is_empty()
        });
    }

    /// Forgets when it looked last: what happens until it looks again goes unnoticed.
    pub(super) fn look_away(&mut self) {
        self.watched_since = None;
    }

    fn see(&mut self, key: &(Holder, Incarnation), record: &WorkerRecord, now: Timestamp) {
        let before = self.workers.remove(key);
        if before.as_ref().is_some_and(|it| it.seen_at >= record.seen_at) {
            self.workers.extend(before.map(|worker| (key.clone(), worker)));
            return;
        }
        let totals = read(record);
        // Its first announcement was noticed, or it started after the last look and had done nothing.
        let is_new = self.watched_since.is_some_and(|since| record.started_at > since);
        let base = match &before {
            Some(worker) => Some((worker.seen_at, Some(&worker.totals))),
            None => is_new.then_some((record.started_at, None)),
        };
        let valid_for = record.expires_at.as_micros() - record.seen_at.as_micros();
        let mut worker = Worker {
            seen_at: record.seen_at,
            expires_at: record.expires_at,
            totals,
            rates: BTreeMap::new(),
            is_measured: false,
        };
        if let Some((since, earlier)) = base {
            let micros = record.seen_at.as_micros() - since.as_micros();
            // Over a longer time announcements went unseen, and an average says nothing about today.
            if (SHORTEST_MICROS..=valid_for.max(WINDOW_MICROS)).contains(&micros) {
                self.measure(&mut worker, earlier, micros, now);
            } else if let Some(before) = before.filter(|_| micros < SHORTEST_MICROS) {
                // Too early to tell: the two announcements count as one.
                (worker.rates, worker.is_measured) = (before.rates, before.is_measured);
                (worker.seen_at, worker.totals) = (before.seen_at, before.totals);
            }
        }
        self.workers.insert(key.clone(), worker);
    }

    fn measure(
        &mut self,
        worker: &mut Worker,
        earlier: Option<&BTreeMap<QueueName, Totals>>,
        micros: i64,
        now: Timestamp,
    ) {
        let seconds = to_f64(micros.unsigned_abs()) / 1e6;
        for (queue, totals) in &worker.totals {
            let before = earlier.and_then(|it| it.get(queue)).copied().unwrap_or_default();
            let new = |now: u64, before: u64| to_f64(now.saturating_sub(before)) / seconds;
            let rates = Rates {
                out: new(totals.done, before.done) + new(totals.dead, before.dead),
                failed: new(totals.failed, before.failed),
            };
            worker.rates.insert(queue.clone(), rates);
            let wait = totals.wait.since(&before.wait);
            if wait != Histogram::default() {
                self.waits.entry(queue.clone()).or_default().push((now, wait));
            }
        }
        worker.is_measured = true;
    }

    /// What the workers of each queue are doing.
    pub(super) fn work(&self, now: Timestamp) -> HashMap<QueueName, QueueWork> {
        let mut work = HashMap::<QueueName, QueueWork>::new();
        for worker in self.workers.values().filter(|worker| now < worker.expires_at) {
            for queue in worker.totals.keys() {
                let of_queue = work.entry(queue.clone()).or_default();
                of_queue.workers += 1;
                if worker.is_measured {
                    let rates = worker.rates.get(queue).copied().unwrap_or_default();
                    *of_queue.out.get_or_insert_default() += rates.out;
                    *of_queue.failed.get_or_insert_default() += rates.failed;
                }
            }
        }
        work
    }

    /// How long jobs of this queue that started lately had waited.
    pub(super) fn waits(&self, queue: &QueueName, now: Timestamp) -> Histogram {
        let is_recent = |at: Timestamp| now.as_micros() - at.as_micros() < WINDOW_MICROS;
        self.waits_where(queue, is_recent)
    }

    /// How long jobs of this queue had waited of which workers have told since then.
    pub(super) fn waits_since(&self, queue: &QueueName, then: Option<Timestamp>) -> Histogram {
        self.waits_where(queue, |at| then.is_none_or(|then| at > then))
    }

    fn waits_where(&self, queue: &QueueName, is_wanted: impl Fn(Timestamp) -> bool) -> Histogram {
        let mut sum = Histogram::default();
        for (at, wait) in self.waits.get(queue).into_iter().flatten() {
            if is_wanted(*at) {
                sum.add(wait);
            }
        }
        sum
    }

    /// How many workers are valid, and how many are overdue.
    pub(super) fn workers(&self, now: Timestamp) -> (usize, usize) {
        let valid = self.workers.values().filter(|worker| now < worker.expires_at).count();
        (valid, self.overdue + self.workers.len() - valid)
    }
}

/// What a worker says about its queues. A name that is none and a second entry of one name are left out.
fn read(record: &WorkerRecord) -> BTreeMap<QueueName, Totals> {
    let info = WorkerInfo::read(&record.info).unwrap_or_default();
    let mut totals = BTreeMap::new();
    for QueueInfo { name, done, dead, failed, wait, .. } in info.queues {
        if let Ok(queue) = QueueName::new(name) {
            let wait = Histogram::read(&wait).unwrap_or_default();
            totals.entry(queue).or_insert(Totals { done, dead, failed, wait });
        }
    }
    totals
}

#[cfg(test)]
mod tests;
