//! [`Model`]: all that is known of one store, put together from the answers of the poller's calls.
//!
//! It is pure: answers and times go in, the overview and the history come out. At most [`MAX_QUEUES`]
//! queues are told apart; the rest is summed.

use std::collections::{BTreeMap, HashMap};

use taskharbor::{QueueCounts, QueueLimits, QueueName, State, StateCounts, Timestamp};
use taskharbor_core::admin::{Setting, WorkerRecord};

use super::{
    arrival::Arrivals,
    histogram::Histogram,
    overview::{OtherQueues, Overview, QueueOverview},
    series::{Point, Series, jobs, to_f32},
    tracker::{QueueWork, Tracker},
};

/// The greatest number of queues with counts of their own.
pub(super) const MAX_QUEUES: usize = 500;
/// Where a poll stops counting the jobs of one state and queue.
pub(super) const AT_MOST: usize = 10_000;
/// A queue that has been without jobs, workers and pause for so long makes room for another.
const FORGET_AFTER_MICROS: i64 = 600_000_000;

/// All that is known of one store.
#[derive(Debug, Default)]
pub(super) struct Model {
    queues: BTreeMap<QueueName, Queue>,
    other: Other,
    tracker: Tracker,
    limits: HashMap<QueueName, QueueLimits>,
    /// Pages of a list that goes on.
    pages: Pages,
    schedules_late: usize,
    counted_at: Option<Timestamp>,
    exact_at: Option<Timestamp>,
    /// Whether a count has reached the cap since the last exact one.
    is_capped: bool,
}

#[derive(Debug, Default)]
struct Pages {
    workers: Vec<WorkerRecord>,
    limits: HashMap<QueueName, QueueLimits>,
}

/// One queue.
#[derive(Debug, Default)]
struct Queue {
    states: StateCounts,
    /// States whose number the last poll did not count to its end.
    capped: Vec<State>,
    oldest_ready: Option<Timestamp>,
    paused_since: Option<Timestamp>,
    arrivals: Arrivals,
    series: Series,
    used_at: Option<Timestamp>,
    /// Up to when waits are part of the series.
    waits_until: Option<Timestamp>,
}

/// The queues without counts of their own, together.
#[derive(Debug, Default)]
struct Other {
    queues: usize,
    states: StateCounts,
    series: Series,
}

impl Model {
    /// Takes over counts; `at_most` is where they stopped.
    pub(super) fn count(
        &mut self,
        counts: Vec<QueueCounts>,
        at_most: Option<usize>,
        now: Timestamp,
    ) {
        let work = self.tracker.work(now);
        let mut previous = HashMap::new();
        for (name, queue) in &mut self.queues {
            previous.insert(name.clone(), std::mem::take(&mut queue.states));
            // Without jobs a queue is not listed.
            (queue.oldest_ready, queue.paused_since) = (None, None);
            queue.capped.clear();
        }
        let mut rest = Other { series: std::mem::take(&mut self.other.series), ..Other::default() };
        self.is_capped = false;
        for counted in counts {
            let Some(queue) = self.room_for(&counted.queue) else {
                rest.queues += 1;
                rest.states = [rest.states, counted.states].into_iter().sum();
                continue;
            };
            queue.used_at = Some(now);
            (queue.oldest_ready, queue.paused_since) = (counted.oldest_ready, counted.paused_since);
            queue.states = counted.states;
            if let Some(at_most) = at_most {
                let before = previous.remove(&counted.queue).unwrap_or_default();
                queue.cap(at_most, &before);
                self.is_capped |= !queue.capped.is_empty();
            }
        }
        if at_most.is_none() {
            self.exact_at = Some(now);
        }
        self.counted_at = Some(now);
        for queue in work.keys() {
            if let Some(queue) = self.room_for(queue) {
                queue.used_at = Some(now);
            }
        }
        self.other = rest;
        self.sample(&work, now);
        self.forget(now);
    }

    /// The queue of this name, if it has counts of its own.
    fn room_for(&mut self, name: &QueueName) -> Option<&mut Queue> {
        let has_room = self.queues.len() < MAX_QUEUES;
        if !has_room && !self.queues.contains_key(name) {
            return None;
        }
        Some(self.queues.entry(name.clone()).or_default())
    }

    fn sample(&mut self, work: &HashMap<QueueName, QueueWork>, now: Timestamp) {
        let second = now.as_micros().div_euclid(1_000_000);
        let mut rest = QueueWork::default();
        for (name, work) in work {
            if !self.queues.contains_key(name) {
                rest.out = Some(rest.out.unwrap_or(0.0) + work.out.unwrap_or(0.0));
                rest.failed = Some(rest.failed.unwrap_or(0.0) + work.failed.unwrap_or(0.0));
            }
        }
        for (name, queue) in &mut self.queues {
            let work = work.get(name).copied().unwrap_or(QueueWork::IDLE);
            queue.arrivals.add(now, &queue.states, &queue.capped, work.out);
            let waits = self.tracker.waits(name, now);
            let new = self.tracker.waits_since(name, queue.waits_until);
            queue.waits_until = Some(now);
            queue.series.add(second, queue.point(&work, &waits, now), &new);
        }
        if self.other.queues > 0 {
            let (out, failed) = (to_f32(rest.out), to_f32(rest.failed));
            let ready = jobs(self.other.states.ready);
            let point = Point { ready, out, failed, ..Point::UNKNOWN };
            self.other.series.add(second, point, &Histogram::default());
        }
    }

    fn forget(&mut self, now: Timestamp) {
        if self.queues.len() < MAX_QUEUES {
            return;
        }
        self.queues.retain(|_, queue| {
            let used = queue.used_at.unwrap_or(now);
            now.as_micros() - used.as_micros() < FORGET_AFTER_MICROS
        });
    }

    /// Takes over a page of the workers; the last one completes the list.
    pub(super) fn workers(&mut self, page: Vec<WorkerRecord>, is_last: bool, now: Timestamp) {
        self.pages.workers.extend(page);
        if is_last {
            let workers = std::mem::take(&mut self.pages.workers);
            self.tracker.update(&workers, now);
        }
    }

    /// Takes over a page of the limits of queues; the last one completes the list.
    pub(super) fn limits(&mut self, page: Vec<Setting>, is_last: bool) {
        for setting in page {
            if let Setting::Limits(record) = setting
                && self.pages.limits.len() < 2 * MAX_QUEUES
            {
                self.pages.limits.insert(record.queue, record.limits);
            }
        }
        if is_last {
            self.limits = std::mem::take(&mut self.pages.limits);
        }
    }

    /// Takes over how many schedules are late.
    pub(super) fn late(&mut self, schedules: usize) {
        self.schedules_late = schedules;
    }

    /// Nothing was asked for a while: lists begin anew, and what happened meanwhile is not known.
    pub(super) fn look_away(&mut self) {
        self.pages = Pages::default();
        self.tracker.look_away();
        for queue in self.queues.values_mut() {
            queue.arrivals = Arrivals::default();
        }
    }

    /// Whether an exact count would say more than the last poll did.
    pub(super) const fn is_capped(&self) -> bool {
        self.is_capped
    }

    /// When jobs were counted last.
    pub(super) const fn counted_at(&self) -> Option<Timestamp> {
        self.counted_at
    }

    /// What is known, at this time.
    pub(super) fn overview(&self, now: Timestamp) -> Overview {
        let work = self.tracker.work(now);
        let (workers, workers_overdue) = self.tracker.workers(now);
        let queues = self.queues.iter();
        let queues = queues.filter(|(name, queue)| !queue.is_empty() || work.contains_key(*name));
        let of_queue = |(name, queue): (&QueueName, &Queue)| {
            let work = work.get(name).copied().unwrap_or(QueueWork::IDLE);
            let waits = self.tracker.waits(name, now);
            let limits = self.limits.get(name).cloned();
            queue.overview(name, &work, &waits, limits, now)
        };
        let other = (self.other.queues > 0)
            .then_some(OtherQueues { queues: self.other.queues, states: self.other.states });
        Overview {
            at: self.counted_at,
            at_most: AT_MOST,
            exact_at: self.exact_at,
            queues: queues.map(of_queue).collect(),
            other,
            workers,
            workers_overdue,
            schedules_late: self.schedules_late,
            ..Overview::default()
        }
    }

    /// The series of all queues, those that are busy first, and of the other queues together.
    pub(super) fn series(&self) -> (Vec<(&QueueName, &Series)>, Option<&Series>) {
        let busy = |queue: &Queue| {
            let last = queue.series.last().map(|step| queue.series.seconds.get(step));
            let number = |number: f32| if number.is_finite() { number } else { 0.0 };
            last.map_or(0.0, |point| number(point.ready) + 60.0 * number(point.out))
        };
        let mut all: Vec<_> = self.queues.iter().collect();
        all.sort_by(|(_, a), (_, b)| busy(b).total_cmp(&busy(a)));
        let other = (self.other.queues > 0).then_some(&self.other.series);
        (all.into_iter().map(|(name, queue)| (name, &queue.series)).collect(), other)
    }
}

impl Queue {
    /// Marks the states that were not counted to their end, and takes what was known of them.
    fn cap(&mut self, at_most: usize, before: &StateCounts) {
        for &state in State::ALL {
            let count = self.states.get_mut(state);
            if *count >= at_most {
                *count = (*count).max(before.get(state));
                self.capped.push(state);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.states.total() == 0 && self.paused_since.is_none()
    }

    fn point(&self, work: &QueueWork, waits: &Histogram, now: Timestamp) -> Point {
        Point {
            ready: jobs(self.states.ready),
            r#in: to_f32(self.arrivals.rate(now)),
            out: to_f32(work.out),
            failed: to_f32(work.failed),
            p50: to_f32(waits.percentile(0.5)),
            p95: to_f32(waits.percentile(0.95)),
        }
    }

    fn overview(
        &self,
        name: &QueueName,
        work: &QueueWork,
        waits: &Histogram,
        limits: Option<QueueLimits>,
        now: Timestamp,
    ) -> QueueOverview {
        QueueOverview {
            queue: name.clone(),
            states: self.states,
            estimated: self.capped.iter().map(|state| state.as_str()).collect(),
            oldest_ready: self.oldest_ready,
            paused_since: self.paused_since,
            workers: work.workers,
            in_per_s: self.arrivals.rate(now),
            out_per_s: work.out,
            failed_per_s: work.failed,
            wait_p50_ms: waits.percentile(0.5),
            wait_p95_ms: waits.percentile(0.95),
            limits,
        }
    }
}

#[cfg(test)]
mod tests;
