//! How much is measured, for how long.

use std::collections::BTreeMap;

use super::Outcome;
use crate::choice::set_sizes;

/// The sizes of everything; each can be given as `name=number`.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Jobs that are enqueued in bulk and drained.
    pub(crate) jobs: usize,
    /// Jobs in a call to enqueue.
    pub(crate) bulk: usize,
    /// Bytes of a payload.
    pub(crate) payload: usize,
    /// How often the sides take turns in the parts `drain` and `single`. Other parts have one round less.
    pub(crate) rounds: usize,
    /// Seconds after which a drain is stopped.
    pub(crate) limit: usize,
    /// Seconds in which single enqueues are counted.
    pub(crate) spell: usize,
    /// Seconds for which an idle worker is sent jobs, and how many in a second.
    pub(crate) idle: usize,
    pub(crate) rate: usize,
    /// Jobs whose log is measured.
    pub(crate) logged: usize,
    /// Jobs that are drained beside many others.
    pub(crate) few: usize,
    /// Those others: waiting, or finished.
    pub(crate) backlog: usize,
    /// Processes at once.
    pub(crate) processes: usize,
    /// Hundredths by which a gate may be slower than the best one.
    pub(crate) noise: usize,
    /// How often a noisy round is repeated at most, plus one.
    pub(crate) attempts: usize,
}

impl Sizes {
    pub(crate) fn read(given: &[&str]) -> Outcome<Self> {
        let mut sizes = Self {
            jobs: 50_000,
            bulk: 1_000,
            payload: 100,
            rounds: 3,
            limit: 4,
            spell: 2,
            idle: 3,
            rate: 50,
            logged: 5_000,
            few: 10_000,
            backlog: 100_000,
            processes: 4,
            noise: 25,
            attempts: 2,
        };
        set_sizes(given, &mut sizes.places())?;
        Ok(sizes)
    }

    fn places(&mut self) -> [(&'static str, &mut usize); 14] {
        [
            ("jobs", &mut self.jobs),
            ("bulk", &mut self.bulk),
            ("payload", &mut self.payload),
            ("rounds", &mut self.rounds),
            ("limit", &mut self.limit),
            ("spell", &mut self.spell),
            ("idle", &mut self.idle),
            ("rate", &mut self.rate),
            ("logged", &mut self.logged),
            ("few", &mut self.few),
            ("backlog", &mut self.backlog),
            ("processes", &mut self.processes),
            ("noise", &mut self.noise),
            ("attempts", &mut self.attempts),
        ]
    }

    /// By name, for the head of a run.
    pub(crate) fn named(&self) -> BTreeMap<String, usize> {
        let mut sizes = self.clone();
        sizes.places().into_iter().map(|(name, size)| (name.to_owned(), *size)).collect()
    }

    /// Rounds of the parts whose figures vary less, or that take longer.
    pub(crate) fn fewer_rounds(&self) -> usize {
        self.rounds.saturating_sub(1).max(1)
    }
}
