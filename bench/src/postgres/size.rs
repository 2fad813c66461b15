//! How much is measured, for how long.

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
    /// How many handlers a worker runs at once. It reserves half as many in a call.
    pub(crate) concurrency: usize,
    /// Jobs that wait, and as many that are over, in a large store.
    pub(crate) backlog: usize,
    /// Seconds for which a snapshot is held.
    pub(crate) held: usize,
    /// Seconds for which an idle worker is sent jobs.
    pub(crate) idle: usize,
    /// Seconds in which producers are counted, in each round.
    pub(crate) spell: usize,
}

impl Sizes {
    pub(crate) fn read(given: &[&str]) -> Outcome<Self> {
        let mut sizes = Self {
            jobs: 100_000,
            batch: 500,
            bulk: 1_000,
            payload: 100,
            rounds: 3,
            concurrency: 1_000,
            backlog: 1_000_000,
            held: 60,
            idle: 20,
            spell: 3,
        };
        let mut places = [
            ("jobs", &mut sizes.jobs),
            ("batch", &mut sizes.batch),
            ("bulk", &mut sizes.bulk),
            ("payload", &mut sizes.payload),
            ("rounds", &mut sizes.rounds),
            ("concurrency", &mut sizes.concurrency),
            ("backlog", &mut sizes.backlog),
            ("held", &mut sizes.held),
            ("idle", &mut sizes.idle),
            ("spell", &mut sizes.spell),
        ];
        set_sizes(given, &mut places)?;
        Ok(sizes)
    }
}
