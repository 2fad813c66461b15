//! The sizes and durations of the measurements.

use super::Outcome;
use crate::choice::set_sizes;

/// The sizes of everything; each can be given as `name=number`.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Jobs that are drained, enqueued in bulk, or led through their whole life.
    pub(crate) jobs: usize,
    /// Jobs in a call to reserve or settle.
    pub(crate) batch: usize,
    /// Jobs in a call to enqueue.
    pub(crate) bulk: usize,
    /// Bytes of a payload.
    pub(crate) payload: usize,
    /// How often the sides of a comparison take turns.
    pub(crate) rounds: usize,
    /// How many handlers a worker runs at once in its best setting.
    pub(crate) concurrency: usize,
    /// Jobs that wait, and as many that are over, in a large store.
    pub(crate) backlog: usize,
    /// Terminal jobs in the store that the dashboard shows.
    pub(crate) finished: usize,
    /// Seconds for which a snapshot is held in front of a backlog.
    pub(crate) held: usize,
    /// Seconds for which a transaction is left open beside a queue that workers keep empty.
    pub(crate) seconds: usize,
    /// Seconds for which an idle worker is sent jobs.
    pub(crate) idle: usize,
    /// Seconds in which producers are counted, in each round.
    pub(crate) spell: usize,
    /// Members of a chord.
    pub(crate) members: usize,
    /// Queues in one call to reserve.
    pub(crate) queues: usize,
    /// Leased jobs in front of the queue.
    pub(crate) leased: usize,
    /// Jobs whose leases ran out together.
    pub(crate) expired: usize,
    /// Idle workers that one job may wake.
    pub(crate) workers: usize,
}

impl Sizes {
    pub(crate) fn read(given: &[&str]) -> Outcome<Self> {
        let mut sizes = Self {
            jobs: 100_000,
            batch: 500,
            bulk: 1_000,
            payload: 100,
            rounds: 3,
            concurrency: 2_000,
            backlog: 1_000_000,
            finished: 5_000_000,
            held: 60,
            seconds: 30,
            idle: 20,
            spell: 3,
            members: 10_000,
            queues: 1_000,
            leased: 25_000,
            expired: 500_000,
            workers: 100,
        };
        let mut places = [
            ("jobs", &mut sizes.jobs),
            ("batch", &mut sizes.batch),
            ("bulk", &mut sizes.bulk),
            ("payload", &mut sizes.payload),
            ("rounds", &mut sizes.rounds),
            ("concurrency", &mut sizes.concurrency),
            ("backlog", &mut sizes.backlog),
            ("finished", &mut sizes.finished),
            ("held", &mut sizes.held),
            ("seconds", &mut sizes.seconds),
            ("idle", &mut sizes.idle),
            ("spell", &mut sizes.spell),
            ("members", &mut sizes.members),
            ("queues", &mut sizes.queues),
            ("leased", &mut sizes.leased),
            ("expired", &mut sizes.expired),
            ("workers", &mut sizes.workers),
        ];
        set_sizes(given, &mut places)?;
        Ok(sizes)
    }
}
