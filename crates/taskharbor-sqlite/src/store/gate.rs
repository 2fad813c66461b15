//! [`Gate`]: the limits of one queue and how much of them is used, as one call sees it.
//!
//! What counts is derived from the rows of the jobs. Charges and holds have rows of their own.

use std::{
    collections::{HashMap, hash_map},
    sync::Arc,
};

use rusqlite::{Row, params};
use taskharbor_core::{
    QueueName, Timestamp,
    admin::{Bound, HeldBack, HeldJob, QueueLimits, Usage},
    driver::LaneRange,
    name::LaneName,
};

use super::{Store, earlier, limit};
use crate::{
    entry::{number, optional_time},
    error::Fault,
    queue_memory::{Lane, LimitsCache, QueueMemory},
    statement as sql,
};

/// The limits of one queue and how much of them is used.
#[derive(Debug)]
pub(super) struct Gate {
    queue: QueueName,
    now: Timestamp,
    pub(super) is_paused: bool,
    /// Whether jobs with a lane wait or are inflight.
    pub(super) is_laned: bool,
    /// Whether a lane was charged or is on hold.
    has_lane_uses: bool,
    limits: Option<Arc<QueueLimits>>,
    whole: Meter,
    /// The lanes that were looked at.
    lanes: HashMap<LaneName, Meter>,
    /// When time alone lets a job go that was held back.
    pub(super) next: Option<Timestamp>,
    /// Whether the number of jobs inflight held a job back.
    pub(super) is_starved: bool,
}

/// A bound and how much of it is used.
#[derive(Debug)]
struct Meter {
    bound: Bound,
    usage: Usage,
    is_charged: bool,
}

impl Meter {
    fn charge(&mut self, now: Timestamp) {
        self.usage.inflight += 1;
        // RAT-2
        if let Some(rate) = self.bound.rate {
            self.usage.tat = rate.charge(self.usage.tat, now);
            self.is_charged = true;
        }
    }
}

impl Gate {
    /// Whether jobs are granted in the order of their positions alone.
    pub(super) fn is_open(&self) -> bool {
        !self.is_laned && self.limits.is_none() && !self.is_held()
    }

    /// Whether leases of the queue count.
    pub(super) const fn counts(&self) -> bool {
        self.limits.is_some()
    }

    pub(super) fn weight_of(&self, lane: Option<&LaneName>) -> u32 {
        self.limits.as_ref().map_or(1, |limits| limits.weight_of(lane))
    }

    /// The lanes in the order of their turns.
    pub(super) fn order<'m>(&self, memory: &'m QueueMemory) -> [LaneRange<'m>; 2] {
        memory.turn.ranges(|lane| self.weight_of(lane))
    }

    /// Whether the whole queue is on hold.
    pub(super) fn is_held(&self) -> bool {
        self.whole.usage.held_until > self.now
    }

    /// Whether the limits of the whole queue allow a job.
    pub(super) fn has_room(&self) -> bool {
        self.whole.bound.room(&self.whole.usage, self.now) > 0
    }

    /// Notes what keeps back a job that is due, by the whole queue.
    pub(super) fn note_held(&mut self) {
        self.note(self.whole.bound.held_back(&self.whole.usage, self.now));
    }

    fn note(&mut self, why: Option<HeldBack>) {
        let Some(why) = why else { return };
        // RAT-3, WAK-3
        match why.until() {
            Some(until) => self.note_due(until),
            None => self.is_starved = true,
        }
    }

    /// A job may be granted from this instant on.
    pub(super) fn note_due(&mut self, at: Timestamp) {
        self.next = earlier(self.next, Some(at));
    }

    /// A job of this lane was granted.
    pub(super) fn charge(&mut self, lane: Option<&LaneName>) {
        self.whole.charge(self.now);
        if let Some(meter) = lane.and_then(|lane| self.lanes.get_mut(lane)) {
            meter.charge(self.now);
        }
    }
}

impl Store<'_> {
    pub(super) fn gate(
        &self,
        queue: &QueueName,
        now: Timestamp,
        cache: &mut LimitsCache,
    ) -> Result<Gate, Fault> {
        let mut statement = self.statement(sql::QUEUE)?;
        let mut rows = statement.query([queue.as_str()])?;
        let row = rows.next()?.ok_or_else(|| Fault::damaged("a version"))?;
        let limits = cached_limits(row, cache)?;
        let bound = limits.as_ref().map_or_else(Bound::default, |limits| limits.of_queue());
        let mut usage = read_usage(row, 1)?;
        // LIM-1
        if bound.inflight.is_some() {
            usage.inflight = self.leases(sql::LEASES, params![queue.as_str(), now.as_micros()])?;
        }
        Ok(Gate {
            queue: queue.clone(),
            now,
            is_paused: optional_time(row, 0)?.is_some(),
            is_laned: row.get(5)?,
            has_lane_uses: row.get(4)?,
            limits,
            whole: Meter { bound, usage, is_charged: false },
            lanes: HashMap::new(),
            next: None,
            is_starved: false,
        })
    }

    fn leases(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, Fault> {
        self.statement(sql)?.query_row(params, |row| Ok(number(row, 0)))?
    }

    fn meter<'g>(&self, gate: &'g mut Gate, lane: &LaneName) -> Result<&'g mut Meter, Fault> {
        match gate.lanes.entry(lane.clone()) {
            hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
            hash_map::Entry::Vacant(unknown) => {
                let limits = gate.limits.as_ref();
                let bound = limits.map_or_else(Bound::default, |it| it.of_lane(Some(lane)));
                let (queue, mut usage) = (gate.queue.as_str(), Usage::NONE);
                if gate.has_lane_uses {
                    let mut statement = self.statement(sql::LANE_USE)?;
                    let mut rows = statement.query([queue, lane.as_str()])?;
                    if let Some(row) = rows.next()? {
                        usage = read_usage(row, 0)?;
                    }
                }
                // LIM-1, LIM-3
                if bound.inflight.is_some() {
                    let row = params![queue, gate.now.as_micros(), lane.as_str()];
                    usage.inflight = self.leases(sql::LANE_LEASES, row)?;
                }
                Ok(unknown.insert(Meter { bound, usage, is_charged: false }))
            }
        }
    }

    /// Whether the limits of a lane, which has a job that is due, allow one; notes what keeps it back
    /// if they do not.
    pub(super) fn lane_has_room(&self, gate: &mut Gate, lane: &Lane) -> Result<bool, Fault> {
        let Some(lane) = lane else { return Ok(true) };
        if gate.limits.is_none() && !gate.has_lane_uses {
            return Ok(true);
        }
        let now = gate.now;
        let meter = self.meter(gate, lane)?;
        if meter.bound.room(&meter.usage, now) > 0 {
            return Ok(true);
        }
        let why = meter.bound.held_back(&meter.usage, now);
        gate.note(why);
        Ok(false)
    }

    /// What holds a ready job of this lane back.
    pub(super) fn held_back(&self, gate: &mut Gate, lane: &Lane) -> Result<Option<HeldJob>, Fault> {
        // LIM-4
        let (now, whole) = (gate.now, gate.whole.usage);
        let of_lane = match lane {
            Some(lane) => self.meter(gate, lane)?.usage,
            None => Usage::NONE,
        };
        let none = Arc::default();
        let limits = gate.limits.as_ref().unwrap_or(&none);
        Ok(limits.held_back(lane.as_ref(), &whole, &of_lane, now))
    }

    /// Writes what was charged to rates.
    pub(super) fn write_charges(&self, gate: &Gate) -> Result<(), Fault> {
        let queue = gate.queue.as_str();
        if gate.whole.is_charged {
            let row = params![queue, gate.whole.usage.tat.as_micros()];
            self.execute(sql::CHARGE_QUEUE, row)?;
        }
        for (lane, meter) in gate.lanes.iter().filter(|(_, meter)| meter.is_charged) {
            let row = params![queue, lane.as_str(), meter.usage.tat.as_micros()];
            self.execute(sql::CHARGE_LANE, row)?;
        }
        Ok(())
    }

    /// Forgets charges and holds that ended long ago.
    pub(super) fn forget_ended(&self, now: Timestamp) -> Result<(), Fault> {
        // RAT-5
        let kept_for = i64::try_from(QueueLimits::KEPT_FOR.as_micros()).unwrap_or(i64::MAX);
        let before = now.as_micros().saturating_sub(kept_for);
        self.execute(sql::FORGET_LANES, [before])?;
        self.execute(sql::FORGET_QUEUES, [before])?;
        self.execute(sql::DROP_IDLE_QUEUES, []).map(drop)
    }
}

fn cached_limits(
    row: &Row<'_>,
    cache: &mut LimitsCache,
) -> Result<Option<Arc<QueueLimits>>, Fault> {
    let text = row.get_ref(3)?.as_str_or_null().map_err(|_| Fault::damaged("a text"))?;
    let Some(text) = text else { return Ok(None) };
    match cache {
        Some((known, limits)) if known == text => Ok(Some(Arc::clone(limits))),
        _ => {
            let limits = Arc::new(limit::parse(text)?);
            *cache = Some((text.to_owned(), Arc::clone(&limits)));
            Ok(Some(limits))
        }
    }
}

/// The charge and the hold of a queue or lane.
fn read_usage(row: &Row<'_>, at: usize) -> Result<Usage, Fault> {
    let or_past = |it: Option<Timestamp>| it.unwrap_or(Timestamp::EPOCH);
    let (tat, held_until) = (optional_time(row, at)?, optional_time(row, at + 1)?);
    Ok(Usage::new(0, or_past(tat), or_past(held_until)))
}
