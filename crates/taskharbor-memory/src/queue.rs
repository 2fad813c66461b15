//! [`Queue`]: the lines of one queue, in the order in which Reserve grants.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use taskharbor_core::{QueueName, StateCounts, Timestamp};

use crate::store::Slot;

/// Where a job stands in a line: by time, then by insertion.
pub(crate) type Place = (Timestamp, u64, Slot);

/// The jobs of one queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) paused_since: Option<Timestamp>,
    /// Ready and scheduled jobs: a line for each priority, by due time. No line is empty.
    lines: BTreeMap<Reverse<i16>, BTreeSet<Place>>,
    /// Inflight jobs by the end of their leases.
    leases: BTreeSet<Place>,
    /// How many jobs are in each state; those scheduled are counted as ready.
    pub(crate) counts: StateCounts,
}

impl Queue {
    pub(crate) fn new(name: QueueName) -> Self {
        Self {
            name,
            paused_since: None,
            lines: BTreeMap::new(),
            leases: BTreeSet::new(),
            counts: StateCounts::default(),
        }
    }

    /// Whether there is anything to remember about it.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts.total() == 0 && self.paused_since.is_none()
    }

    pub(crate) fn line_up(&mut self, priority: i16, place: Place) {
        self.lines.entry(Reverse(priority)).or_default().insert(place);
    }

    pub(crate) fn step_out(&mut self, priority: i16, place: &Place) {
        if let Some(line) = self.lines.get_mut(&Reverse(priority)) {
            line.remove(place);
            if line.is_empty() {
                self.lines.remove(&Reverse(priority));
            }
        }
    }

    pub(crate) fn lease(&mut self, place: Place) {
        self.leases.insert(place);
    }

    pub(crate) fn unlease(&mut self, place: &Place) {
        self.leases.remove(place);
    }

    /// The job whose lease was over first, if one is over at `now`.
    pub(crate) fn first_expired(&self, now: Timestamp) -> Option<Slot> {
        let (expires_at, _, slot) = self.leases.first()?;
        (*expires_at <= now).then_some(*slot)
    }

    /// The best jobs that are due at `now`, best first.
    pub(crate) fn best(&self, limit: usize, now: Timestamp) -> Vec<Slot> {
        let due = |line: &'_ BTreeSet<Place>| {
            let places = line.iter().take_while(move |(due_at, ..)| *due_at <= now);
            places.map(|(.., slot)| *slot).take(limit).collect::<Vec<_>>()
        };
        self.lines.values().flat_map(due).take(limit).collect()
    }

    /// When something may be granted that cannot be at `now`, once all that can be was.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let firsts = self.lines.values().chain([&self.leases]).filter_map(BTreeSet::first);
        firsts.map(|(at, ..)| *at).min()
    }

    /// How many jobs are due at `now`, and the earliest due time among them.
    pub(crate) fn due(&self, now: Timestamp) -> (usize, Option<Timestamp>) {
        let count = |line: &BTreeSet<Place>| line.range(..=(now, u64::MAX, Slot::MAX)).count();
        let oldest = self.lines.values().filter_map(BTreeSet::first).map(|(at, ..)| *at).min();
        (self.lines.values().map(count).sum(), oldest.filter(|at| *at <= now))
    }

    /// Every place in every line, with its priority.
    pub(crate) fn places(&self) -> impl Iterator<Item = (i16, &Place)> {
        self.lines.iter().flat_map(|(priority, line)| line.iter().map(|place| (priority.0, place)))
    }

    /// Every lease.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &Place> {
        self.leases.iter()
    }
}
