//! The sizes and durations of the measurements.

use super::Outcome;
use crate::choice::set_sizes;

/// The sizes of everything; each can be given as `name=number`.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Jobs that are enqueued or drained.
    pub(crate) jobs: usize,
    /// Jobs in a call to reserve or settle.
    pub(crate) batch: usize,
    /// Jobs in a call to enqueue.
    pub(crate) bulk: usize,
    /// Bytes of a payload.
    pub(crate) payload: usize,
    /// How often the sides of a comparison take turns.
    pub(crate) rounds: usize,
    /// How many handlers a worker runs at once.
    pub(crate) concurrency: usize,
    /// Jobs that wait, and as many that are over, in a large store.
    pub(crate) backlog: usize,
    /// Members of a large flow.
    pub(crate) flow: usize,
    /// Seconds for which an idle worker is sent jobs, or watches.
    pub(crate) idle: usize,
}

impl Sizes {
    pub(crate) fn read(given: &[&str]) -> Outcome<Self> {
        let mut sizes = Self {
            jobs: 50_000,
            batch: 100,
            bulk: 1_000,
            payload: 100,
            rounds: 5,
            concurrency: 200,
            backlog: 1_000_000,
            flow: 100_000,
            idle: 10,
        };
        let mut places = [
            ("jobs", &mut sizes.jobs),
            ("batch", &mut sizes.batch),
            ("bulk", &mut sizes.bulk),
            ("payload", &mut sizes.payload),
            ("rounds", &mut sizes.rounds),
            ("concurrency", &mut sizes.concurrency),
            ("backlog", &mut sizes.backlog),
            ("flow", &mut sizes.flow),
            ("idle", &mut sizes.idle),
        ];
        set_sizes(given, &mut places)?;
        Ok(sizes)
    }
}
