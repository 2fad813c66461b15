//! [`Queue`]: the jobs of one queue, in the order in which Reserve grants them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use taskharbor_core::{QueueName, Timestamp, admin::StateCounts};

use crate::store::Slot;

/// Where something stands in a line: by time, then by insertion.
pub(crate) type Position = (Timestamp, u64, Slot);

/// The jobs of one queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) paused_since: Option<Timestamp>,
    /// A line for each priority, by the time from which Reserve may grant: when a job falls due,
    /// or when the lease on it ends. No line is empty.
    lines: BTreeMap<Reverse<i16>, BTreeSet<Position>>,
    /// How many jobs are in each state; those scheduled are counted as ready.
    pub(crate) counts: StateCounts,
}

impl Queue {
    pub(crate) fn new(name: QueueName) -> Self {
        let counts = StateCounts::default();
        Self { name, paused_since: None, lines: BTreeMap::new(), counts }
    }

    /// Whether there is anything to remember about it.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts.total() == 0 && self.paused_since.is_none()
    }

    pub(crate) fn line_up(&mut self, priority: i16, place: Position) {
        self.lines.entry(Reverse(priority)).or_default().insert(place);
    }

    pub(crate) fn step_out(&mut self, priority: i16, place: &Position) {
        if let Some(line) = self.lines.get_mut(&Reverse(priority)) {
            line.remove(place);
            if line.is_empty() {
                self.lines.remove(&Reverse(priority));
            }
        }
    }

    /// The best job that may be granted at `now`.
    pub(crate) fn best(&self, now: Timestamp) -> Option<Slot> {
        // ORD-1, ORD-2, RES-1, RES-2
        let firsts = self.lines.values().filter_map(BTreeSet::first);
        firsts.filter(|(at, ..)| *at <= now).map(|(.., slot)| *slot).next()
    }

    /// When the next job may be granted.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.lines.values().filter_map(BTreeSet::first).map(|(at, ..)| *at).min()
    }

    /// All that may be granted at `now`.
    pub(crate) fn available(&self, now: Timestamp) -> impl Iterator<Item = &Position> {
        self.lines.values().flat_map(move |line| line.range(..=(now, u64::MAX, Slot::MAX)))
    }

    /// Every place in every line, with its priority.
    pub(crate) fn places(&self) -> impl Iterator<Item = (i16, &Position)> {
        self.lines.iter().flat_map(|(priority, line)| line.iter().map(|place| (priority.0, place)))
    }
}
