//! [`Tally`]: what a worker has done, counted by queue since it started.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{QueueName, Timestamp, job::JobView};

use super::pool::SlotPools;
use crate::{Event, QueueInfo};

const BUCKETS: usize = QueueInfo::BUCKETS.len() + 1;

/// The counts of a worker.
#[derive(Debug)]
pub(super) struct Tally {
    /// In the order of its pools.
    queues: Vec<QueueTally>,
    lost_lately: LastHour,
}

/// Counts what happened in the last hour, in steps of five minutes.
#[derive(Debug, Default)]
struct LastHour(Mutex<VecDeque<(i64, u64)>>);

impl LastHour {
    const STEPS: i64 = 12;
    const STEP_MICROS: i64 = 300_000_000;

    fn add(&self, now: Timestamp) {
        let step = now.as_micros() / Self::STEP_MICROS;
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.back_mut() {
            Some((last, count)) if *last == step => *count += 1,
            _ => counts.push_back((step, 1)),
        }
        counts.retain(|(at, _)| step - at < Self::STEPS);
    }

    fn read(&self, now: Timestamp) -> u64 {
        let step = now.as_micros() / Self::STEP_MICROS;
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().filter(|(at, _)| step - at < Self::STEPS).map(|(_, count)| count).sum()
    }
}

#[derive(Debug, Default)]
struct QueueTally {
    started: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    released: AtomicU64,
    lost: AtomicU64,
    wait: Histogram,
    run: Histogram,
}

#[derive(Debug, Default)]
struct Histogram([AtomicU64; BUCKETS]);

impl Histogram {
    fn add(&self, took: Duration) {
        let millis = took.as_micros().div_ceil(1_000);
        let at = QueueInfo::BUCKETS.iter().position(|end| millis <= u128::from(*end));
        add(&self.0[at.unwrap_or(BUCKETS - 1)]);
    }

    fn read(&self) -> Vec<u64> {
        self.0.iter().map(read).collect()
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl Tally {
    pub(super) fn new(queues: usize) -> Self {
        let queues = std::iter::repeat_with(QueueTally::default).take(queues).collect();
        Self { queues, lost_lately: LastHour::default() }
    }

    /// Counts an event, if it is one that is counted.
    pub(super) fn note(
        &self,
        event: &Event<'_>,
        pools: &SlotPools,
        now: impl FnOnce() -> Timestamp,
    ) {
        let of = |job: &JobView| self.of(&job.queue, pools);
        match event {
            Event::Started { job } => {
                if let Some(queue) = of(job) {
                    add(&queue.started);
                    queue.wait.add(now().since(job.available_at));
                }
            }
            Event::Succeeded { job, took } => {
                if let Some(queue) = of(job) {
                    add(&queue.done);
                    queue.run.add(*took);
                }
            }
            Event::Failed { job, took, .. } => {
                if let Some(queue) = of(job) {
                    add(&queue.failed);
                    queue.run.add(*took);
                }
            }
            Event::DeadLettered { job, .. } => of(job).map_or((), |queue| add(&queue.dead)),
            Event::Released { job, .. } => of(job).map_or((), |queue| add(&queue.released)),
            Event::LeaseLost { job, .. } => {
                if let Some(queue) = of(job) {
                    add(&queue.lost);
                    self.lost_lately.add(now());
                }
            }
            _ => {}
        }
    }

    fn of(&self, queue: &QueueName, pools: &SlotPools) -> Option<&QueueTally> {
        // Most workers serve one queue, and then no name has to be hashed.
        if let [only] = &**pools {
            return self.queues.first().filter(|_| only.queue == *queue);
        }
        self.queues.get(pools.find(queue)?)
    }

    /// How many leases were lost in the last hour.
    pub(super) fn lost_in_hour(&self, now: Timestamp) -> u64 {
        self.lost_lately.read(now)
    }

    /// What is said about the queues.
    pub(super) fn read(&self, pools: &SlotPools) -> Vec<QueueInfo> {
        let read = |(tally, pool): (&QueueTally, &super::pool::SlotPool)| QueueInfo {
            name: pool.queue.as_str().to_owned(),
            slots: pool.concurrency,
            busy: pool.busy(),
            started: read(&tally.started),
            done: read(&tally.done),
            failed: read(&tally.failed),
            dead: read(&tally.dead),
            released: read(&tally.released),
            lost: read(&tally.lost),
            wait: tally.wait.read(),
            run: tally.run.read(),
        };
        self.queues.iter().zip(pools.iter()).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_first_bucket_that_has_room_for_it() {
        let histogram = Histogram::default();
        for (micros, bucket) in
            [(0, 0), (1_000, 0), (1_001, 1), (600_000_000, 10), (600_000_001, 11)]
        {
            let before = histogram.read()[bucket];
            histogram.add(Duration::from_micros(micros));
            assert_eq!(histogram.read()[bucket], before + 1, "{micros}");
        }
    }

    #[test]
    fn what_happened_more_than_an_hour_ago_is_not_counted() {
        let lately = LastHour::default();
        let at = |minutes: i64| Timestamp::from_micros(minutes * 60_000_000).unwrap();
        for minute in [0, 4, 30] {
            lately.add(at(minute));
        }
        for (minute, count) in [(30, 3), (59, 3), (60, 1), (89, 1), (90, 0)] {
            assert_eq!(lately.read(at(minute)), count, "{minute}");
        }
        lately.add(at(600));
        assert_eq!(lately.0.lock().unwrap().len(), 1);
    }
}
