//! [`Queue`]: the jobs of one queue, in the order in which Reserve grants them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use taskharbor_core::{QueueName, Timestamp, admin::StateCounts, name::LaneName};

use crate::{gate::Gate, store::JobSlot};

/// Where something stands in a line: by time, then by insertion.
pub(crate) type Position = (Timestamp, u64, JobSlot);

/// A lane; `None` for the jobs without one.
pub(crate) type Lane = Option<LaneName>;

/// The lines of one priority, one for each lane: LAN-1. No line is empty.
type Lines = BTreeMap<Lane, BTreeSet<Position>>;

/// The jobs of one queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) paused_since: Option<Timestamp>,
    /// Lines for each priority, by the time from which Reserve may grant: when a job falls due,
    /// or when the lease on it ends. No priority is without a line.
    lines: BTreeMap<Reverse<i16>, Lines>,
    /// How many jobs are in each state; those scheduled are counted as ready.
    pub(crate) counts: StateCounts,
    pub(crate) gate: Gate,
}

impl Queue {
    pub(crate) fn new(name: QueueName) -> Self {
        let counts = StateCounts::default();
        Self { name, paused_since: None, lines: BTreeMap::new(), counts, gate: Gate::default() }
    }

    /// Whether there is anything to remember about it.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts.total() == 0 && self.paused_since.is_none() && self.gate.is_open()
    }

    pub(crate) fn line_up(&mut self, priority: i16, lane: &Lane, place: Position) {
        let lines = self.lines.entry(Reverse(priority)).or_default();
        match lines.get_mut(lane) {
            Some(line) => drop(line.insert(place)),
            None => drop(lines.insert(lane.clone(), BTreeSet::from([place]))),
        }
    }

    pub(crate) fn step_out(&mut self, priority: i16, lane: &Lane, place: &Position) {
        let Some(lines) = self.lines.get_mut(&Reverse(priority)) else { return };
        let Some(line) = lines.get_mut(lane) else { return };
        line.remove(place);
        if line.is_empty() {
            lines.remove(lane);
            if lines.is_empty() {
                self.lines.remove(&Reverse(priority));
            }
        }
    }

    /// The job that comes next at `now`.
    pub(crate) fn best(&self, now: Timestamp) -> Option<JobSlot> {
        // ORD-1, ORD-2, RES-1, RES-2, LAN-4
        if self.gate.room(now) == 0 {
            return None;
        }
        self.lines.values().find_map(|lines| self.best_of(lines, now))
    }

    /// The job of a priority whose lane has its turn.
    fn best_of(&self, lines: &Lines, now: Timestamp) -> Option<JobSlot> {
        let first = |line: &BTreeSet<Position>| {
            line.first().filter(|(at, ..)| *at <= now).map(|(.., slot)| *slot)
        };
        // LAN-2, LAN-3, LIM-3
        let mut order = self.gate.order().into_iter().flat_map(|range| lines.range(range));
        order.find_map(|(lane, line)| {
            let slot = first(line)?;
            (self.gate.lane_room(lane, now) > 0).then_some(slot)
        })
    }

    /// When the next job may be granted, if none may be granted at `now`.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let all = || self.lines.values().flat_map(BTreeMap::iter);
        let later = |line: &BTreeSet<Position>| {
            let mut later = line.range((now, u64::MAX, JobSlot::MAX)..);
            later.next().map(|(at, ..)| *at)
        };
        // RES-10: the end of a lease that has ended is not named.
        let by_time = all().filter_map(|(_, line)| later(line));
        let held = all().filter(|(_, line)| line.first().is_some_and(|(at, ..)| *at <= now));
        // RAT-3
        let by_limit = held.filter_map(|(lane, _)| self.gate.held_back(lane, now)?.why.until());
        by_time.chain(by_limit).min()
    }

    /// Whether a job waits at `now` for a place to be freed.
    pub(crate) fn is_starved(&self, now: Timestamp) -> bool {
        self.available(now).next().is_some()
    }

    /// All that may be granted at `now`, but for limits.
    pub(crate) fn available(&self, now: Timestamp) -> impl Iterator<Item = &Position> {
        let lines = self.lines.values().flat_map(BTreeMap::values);
        lines.flat_map(move |line| line.range(..=(now, u64::MAX, JobSlot::MAX)))
    }

    /// Every place in every line, with its priority and lane.
    pub(crate) fn places(&self) -> impl Iterator<Item = (i16, &Lane, &Position)> {
        let lines = self.lines.iter().flat_map(|(priority, lines)| {
            lines.iter().map(move |(lane, line)| (priority.0, lane, line))
        });
        lines.flat_map(|(priority, lane, line)| line.iter().map(move |it| (priority, lane, it)))
    }
}
