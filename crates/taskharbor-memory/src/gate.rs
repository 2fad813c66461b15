//! [`Gate`]: the limits of one queue, and how much of them is used.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use taskharbor_core::{
    Timestamp,
    admin::{HeldJob, QueueLimits, Usage},
    driver::{LaneRange, Turn},
    name::{LaneName, OwnerName},
};

use crate::{queue::Lane, store::JobSlot};

/// The limits of one queue, and how much of them is used.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Limits and their owner.
    pub(crate) set: Option<(QueueLimits, Option<OwnerName>)>,
    /// For queues without limits.
    none: QueueLimits,
    /// One for all handles: LAN-5.
    turn: Turn,
    /// The leases, by lane and by when they end. Kept for queues with limits alone.
    leases: BTreeMap<Lane, BTreeSet<(Timestamp, JobSlot)>>,
    /// Up to when the rate of the queue is charged.
    tat: Option<Timestamp>,
    /// Until when the queue is on hold.
    held_until: Option<Timestamp>,
    lanes: HashMap<LaneName, LaneUse>,
    /// Whether a limit kept a job back when a reserve last granted less than it was asked for, and
    /// no watch was woken since.
    pub(crate) is_starved: bool,
}

/// What is charged to a lane.
#[derive(Debug, Default)]
struct LaneUse {
    tat: Option<Timestamp>,
    held_until: Option<Timestamp>,
}

impl Gate {
    /// Whether nothing has to be remembered about it.
    pub(crate) fn is_open(&self) -> bool {
        self.set.is_none() && self.held_until.is_none() && self.lanes.is_empty()
    }

    pub(crate) fn limits(&self) -> &QueueLimits {
        self.set.as_ref().map_or(&self.none, |(limits, _)| limits)
    }

    /// Sets or removes the limits. `leases` are those that exist: they count (LIM-6).
    pub(crate) fn set(
        &mut self,
        limits: Option<(QueueLimits, Option<OwnerName>)>,
        leases: impl Iterator<Item = (Lane, Timestamp, JobSlot)>,
    ) {
        self.leases.clear();
        self.set = limits;
        if self.set.is_some() {
            for (lane, ends, slot) in leases {
                self.leases.entry(lane).or_default().insert((ends, slot));
            }
        } else {
            self.tat = None;
            self.lanes.values_mut().for_each(|lane| lane.tat = None);
            self.lanes.retain(|_, lane| lane.held_until.is_some());
        }
    }

    /// Keeps a lease that begins. LIM-1.
    pub(crate) fn lease(&mut self, lane: &Lane, ends: Timestamp, slot: JobSlot) {
        if self.set.is_some() {
            self.leases.entry(lane.clone()).or_default().insert((ends, slot));
        }
    }

    /// Forgets a lease that ends. LIM-5.
    pub(crate) fn free(&mut self, lane: &Lane, ends: Timestamp, slot: JobSlot) {
        if let Some(leases) = self.leases.get_mut(lane) {
            leases.remove(&(ends, slot));
            if leases.is_empty() {
                self.leases.remove(lane);
            }
        }
    }

    /// The leases that are kept.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (&Lane, Timestamp, JobSlot)> {
        let of_lane = |(lane, leases): (_, &BTreeSet<(Timestamp, JobSlot)>)| {
            leases.iter().map(move |(ends, slot)| (lane, *ends, *slot)).collect::<Vec<_>>()
        };
        self.leases.iter().flat_map(of_lane)
    }

    /// The lanes in the order of their turns, as ranges of names.
    pub(crate) fn order(&self) -> [LaneRange<'_>; 2] {
        self.turn.ranges(|lane| self.limits().weight_of(lane))
    }

    /// How many jobs the limits of the whole queue allow.
    pub(crate) fn room(&self, now: Timestamp) -> usize {
        if self.is_open() {
            return usize::MAX;
        }
        self.limits().of_queue().room(&self.usage(now), now)
    }

    /// How many jobs the limits of a lane allow.
    pub(crate) fn lane_room(&self, lane: &Lane, now: Timestamp) -> usize {
        if self.is_open() {
            return usize::MAX;
        }
        self.limits().of_lane(lane.as_ref()).room(&self.lane_usage(lane, now), now)
    }

    /// What holds a ready job of this lane back.
    pub(crate) fn held_back(&self, lane: &Lane, now: Timestamp) -> Option<HeldJob> {
        let (queue, of_lane) = (self.usage(now), self.lane_usage(lane, now));
        self.limits().held_back(lane.as_ref(), &queue, &of_lane, now)
    }

    /// A job of this lane was granted.
    pub(crate) fn charge(&mut self, lane: &Lane, now: Timestamp) {
        let weight = self.limits().weight_of(lane.as_ref());
        self.turn.take(lane.as_ref(), weight);
        let limits = self.set.as_ref().map(|(limits, _)| limits);
        // RAT-2
        if let Some(rate) = limits.and_then(|limits| limits.rate) {
            self.tat = Some(rate.charge(self.tat.unwrap_or(Timestamp::EPOCH), now));
        }
        if let Some(lane) = lane
            && let Some(rate) = limits.and_then(|limits| limits.of_lane(Some(lane)).rate)
        {
            let used = self.lanes.entry(lane.clone()).or_default();
            used.tat = Some(rate.charge(used.tat.unwrap_or(Timestamp::EPOCH), now));
        }
    }

    /// Holds the queue or a lane until an instant, or ends the hold. RAT-4.
    pub(crate) fn hold(&mut self, lane: Option<LaneName>, until: Option<Timestamp>) {
        match lane {
            None => {
                self.held_until =
                    until.map(|until| self.held_until.max(Some(until)).unwrap_or(until));
            }
            Some(lane) => {
                let used = self.lanes.entry(lane).or_default();
                used.held_until =
                    until.map(|until| used.held_until.max(Some(until)).unwrap_or(until));
                self.lanes.retain(|_, lane| lane.held_until.is_some() || lane.tat.is_some());
            }
        }
    }

    /// Forgets the charge and the hold of the queue and of lanes of which both ended long ago. RAT-5.
    pub(crate) fn forget_ended(&mut self, now: Timestamp) {
        let is_ended = |tat: Option<Timestamp>, held_until: Option<Timestamp>| {
            tat.max(held_until).is_none_or(|end| QueueLimits::is_forgotten(end, now))
        };
        if is_ended(self.tat, self.held_until) {
            (self.tat, self.held_until) = (None, None);
        }
        self.lanes.retain(|_, lane| !is_ended(lane.tat, lane.held_until));
    }

    /// The lanes that are on hold at `now`.
    pub(crate) fn held_lanes(&self, now: Timestamp) -> impl Iterator<Item = &LaneName> {
        let is_held =
            move |(_, it): &(&LaneName, &LaneUse)| it.held_until.is_some_and(|it| it > now);
        self.lanes.iter().filter(is_held).map(|(lane, _)| lane)
    }

    /// Whether the queue is on hold at `now`.
    pub(crate) fn is_held(&self, now: Timestamp) -> bool {
        self.held_until.is_some_and(|until| until > now)
    }

    fn usage(&self, now: Timestamp) -> Usage {
        let inflight = match self.limits().inflight {
            Some(_) => self.leases.values().map(|leases| valid(leases, now)).sum(),
            None => 0,
        };
        usage(inflight, self.tat, self.held_until)
    }

    fn lane_usage(&self, lane: &Lane, now: Timestamp) -> Usage {
        let Some(name) = lane else { return Usage::NONE };
        let inflight = self.leases.get(lane).map_or(0, |leases| valid(leases, now));
        let used = self.lanes.get(name);
        usage(inflight, used.and_then(|it| it.tat), used.and_then(|it| it.held_until))
    }
}

fn usage(inflight: usize, tat: Option<Timestamp>, held_until: Option<Timestamp>) -> Usage {
    let or_past = |it: Option<Timestamp>| it.unwrap_or(Timestamp::EPOCH);
    Usage::new(inflight, or_past(tat), or_past(held_until))
}

/// How many leases are valid at `now`.
fn valid(leases: &BTreeSet<(Timestamp, JobSlot)>, now: Timestamp) -> usize {
    leases.range((now, JobSlot::MAX)..).count()
}
