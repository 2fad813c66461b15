//! [`Tally`]: what a worker has done, counted by queue since it started.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use taskharbor_core::{QueueName, Timestamp, job::JobView};

use super::pool::SlotPools;
use crate::{Event, QueueInfo};

const BUCKETS: usize = QueueInfo::BUCKETS.len() + 1;

/// The counts of all queues of a worker, in the order of its pools.
#[derive(Debug)]
pub(super) struct Tally(Vec<QueueTally>);

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
        Self(std::iter::repeat_with(QueueTally::default).take(queues).collect())
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
            Event::LeaseLost { job, .. } => of(job).map_or((), |queue| add(&queue.lost)),
            _ => {}
        }
    }

    fn of(&self, queue: &QueueName, pools: &SlotPools) -> Option<&QueueTally> {
        // Most workers serve one queue, and then no name has to be hashed.
        if let [only] = &**pools {
            return self.0.first().filter(|_| only.queue == *queue);
        }
        self.0.get(pools.find(queue)?)
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
        self.0.iter().zip(pools.iter()).map(read).collect()
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
}
