//! Granting jobs of a queue that has lanes, limits or a hold: by turns, as far as the limits allow.
//!
//! A reserve goes once around the lanes of a priority that have a job in line, beginning with the lane
//! whose turn it is. One seek leads from a lane to the next. Then it goes on with the lanes that have
//! more, which it knows by then.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    time::Duration,
};

use rusqlite::params;
use taskharbor_core::{
    Timestamp,
    driver::{Demand, Limits},
};

use super::{
    Store, earlier,
    enqueue::place,
    gate::Gate,
    reserve::{Position, Walk, Walked},
};
use crate::{
    entry::{self, time},
    error::Fault,
    queue_memory::{Lane, Lanes, QueueMemory, Stopped},
    statement as sql,
};

/// How many lanes of a queue a call looks at (LAN-4).
const MAX_LOOKS: usize = 1_000;
/// How many jobs of a priority a call puts into their lines.
const MAX_LINED_UP: usize = 10_000;
/// How long to wait before going on behind the last of them if nothing was granted.
const PAUSE: Duration = Duration::from_millis(20);
const TICK: Duration = Duration::from_micros(1);
/// How many grants are written at once.
const MAX_UNWRITTEN: usize = 1_000;

/// One reserve of one queue.
pub(super) struct Turns<'a> {
    pub(super) demand: &'a Demand,
    /// How many jobs the call has granted when the demand is met.
    pub(super) wanted: usize,
    pub(super) gate: Gate,
    pub(super) memory: &'a mut QueueMemory,
    /// How many lanes may still be looked at.
    looks: usize,
    /// Where the jobs stood that were granted (ORD-1).
    positions: Vec<(Reverse<i16>, Timestamp, i64)>,
    /// Whether it goes on where another call has stopped.
    is_resumed: bool,
    /// When the first job may be granted of the lanes that the calls before looked at, and whether one may have become
    /// available there since.
    due_before: Option<Timestamp>,
    is_disturbed: bool,
}

/// The jobs of one lane and priority.
struct Line {
    lane: Lane,
    priority: i64,
    /// Those that were read and are due.
    ahead: VecDeque<i64>,
    /// Behind the last that was read.
    from: Position,
    /// Whether no more are due.
    is_dry: bool,
}

/// The result of a turn.
enum Turned {
    /// It is used up.
    Over,
    /// The lane has no more to give.
    Out,
    /// The walk is over.
    Walked(Walked),
}

impl<'a> Turns<'a> {
    pub(super) fn new(
        demand: &'a Demand,
        wanted: usize,
        gate: Gate,
        memory: &'a mut QueueMemory,
    ) -> Self {
        Self {
            demand,
            wanted,
            gate,
            memory,
            looks: MAX_LOOKS,
            positions: Vec::new(),
            is_resumed: false,
            due_before: None,
            is_disturbed: false,
        }
    }

    fn queue(&self) -> &str {
        self.demand.queue.as_str()
    }

    fn order(&self) -> Vec<Lanes> {
        let owned =
            |(begin, end): taskharbor_core::driver::LaneRange<'_>| (begin.cloned(), end.cloned());
        self.gate.order(self.memory).into_iter().map(owned).collect()
    }

    /// The lane that has the next turn among these.
    fn next_of(&self, lines: &BTreeMap<Lane, Line>) -> Option<Lane> {
        let order = self.gate.order(self.memory);
        order.into_iter().find_map(|lanes| Some(lines.range(lanes).next()?.0.clone()))
    }

    /// How many jobs are left of the turn of this lane.
    fn left_of_turn(&self, lane: &Lane) -> u32 {
        let weight = self.gate.weight_of(lane.as_ref());
        match self.memory.turn.last() {
            Some((last, used)) if last == lane.as_ref() && used < weight => weight - used,
            _ => weight,
        }
    }
}

impl Store<'_> {
    /// Grants what a queue has to give; when the next job may be granted, if the demand is not met.
    pub(super) fn grant_by_turns(
        &mut self,
        mut turns: Turns<'_>,
        walk: &mut Walk<'_>,
    ) -> Result<(Walked, Option<Timestamp>), Fault> {
        let (first, now) = (walk.granted.len(), walk.request.now);
        let walked = loop {
            match self.walk_by_turns(&mut turns, walk)? {
                Walked::Again => {}
                walked => break walked,
            }
        };
        self.write_grants(walk)?;
        self.write_charges(&turns.gate)?;
        // RES-5
        let granted = walk.granted.split_off(first);
        let mut granted: Vec<_> = turns.positions.iter().copied().zip(granted).collect();
        granted.sort_by_key(|(position, _)| *position);
        walk.granted.extend(granted.into_iter().map(|(_, leased)| leased));
        let next_due = match walked {
            Walked::Met | Walked::Again => None,
            Walked::Full => soon(now),
            // LAN-4
            Walked::Stopped => self.stop(&mut turns, now)?,
            Walked::Dry => {
                let due = earlier(turns.due_before, self.next_by_turns(&mut turns, now)?);
                let due = due.map(|due| due.max(now.saturating_add(TICK)));
                if turns.is_disturbed { earlier(due, shortly(now)) } else { due }
            }
        };
        // WAK-3
        let gate = &turns.gate;
        if gate.is_starved || matches!(walked, Walked::Dry) && !turns.is_resumed {
            turns.memory.is_starved = gate.is_starved;
        }
        Ok((walked, next_due))
    }

    /// When to go on behind the last lane. A call that granted nothing notes when the lanes that it looked at may have more.
    fn stop(&self, turns: &mut Turns<'_>, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
        if turns.memory.stopped.is_none() {
            return Ok(soon(now));
        }
        let due = earlier(turns.due_before, self.next_by_turns(turns, now)?);
        if let Some(stopped) = &mut turns.memory.stopped {
            stopped.due = due;
        }
        Ok(shortly(now))
    }

    fn walk_by_turns(
        &mut self,
        turns: &mut Turns<'_>,
        walk: &mut Walk<'_>,
    ) -> Result<Walked, Fault> {
        let mut stopped = turns.memory.stopped.take();
        if let Some(stopped) = &stopped {
            turns.is_resumed = true;
            turns.due_before = stopped.due;
            turns.is_disturbed = stopped.is_disturbed;
        }
        let mut below = stopped.as_ref().map_or(i64::from(i16::MAX), |it| it.priority) + 1;
        // ORD-1, RAT-4
        while turns.gate.has_room()
            && let Some(priority) = self.priority_below(turns, below)?
        {
            below = priority;
            self.line_up(turns, priority, walk.request.now)?;
            let stopped = stopped.take().filter(|it| it.priority == priority);
            match self.walk_lanes(turns, priority, stopped, walk)? {
                Walked::Dry => {}
                walked => return Ok(walked),
            }
        }
        Ok(Walked::Dry)
    }

    /// Grants jobs of one priority, lane by lane.
    fn walk_lanes(
        &mut self,
        turns: &mut Turns<'_>,
        priority: i64,
        stopped: Option<Stopped>,
        walk: &mut Walk<'_>,
    ) -> Result<Walked, Fault> {
        let (is_resumed, before) = (stopped.is_some(), walk.granted.len());
        let order = stopped.map_or_else(|| turns.order(), |stopped| stopped.left);
        let mut lines = BTreeMap::new();
        // LAN-2
        for (at, (begin, end)) in order.iter().enumerate() {
            let mut begin = begin.clone();
            while turns.gate.has_room()
                && let Some(mut line) = self.next_line(turns, priority, &begin)?
                && is_before(&line.lane, end)
            {
                if turns.looks == 0 {
                    // A call that grants nothing must not look at the same lanes again.
                    if turns.positions.is_empty() {
                        let rest = order[at + 1..].iter().cloned();
                        let left = [(begin, end.clone())].into_iter().chain(rest).collect();
                        let is_disturbed = turns.is_disturbed;
                        let stopped = Stopped { priority, left, due: None, is_disturbed };
                        turns.memory.stopped = Some(stopped);
                    }
                    return Ok(Walked::Stopped);
                }
                turns.looks -= 1;
                begin = Bound::Excluded(line.lane.clone());
                match self.take_turn(&mut line, 1, turns, walk)? {
                    Turned::Over => drop(lines.insert(line.lane.clone(), line)),
                    Turned::Out => {}
                    Turned::Walked(walked) => return Ok(walked),
                }
            }
        }
        if is_resumed && walk.granted.len() > before {
            // Not all lanes that have more are known.
            return Ok(Walked::Stopped);
        }
        while turns.gate.has_room()
            && let Some(lane) = turns.next_of(&lines)
            && let Some(mut line) = lines.remove(&lane)
        {
            let share = (turns.wanted - walk.granted.len()) / (lines.len() + 1) + 1;
            match self.take_turn(&mut line, share, turns, walk)? {
                Turned::Over => drop(lines.insert(lane, line)),
                Turned::Out => {}
                Turned::Walked(walked) => return Ok(walked),
            }
        }
        Ok(Walked::Dry)
    }

    /// Grants what is left of the turn of a lane, and reads this many positions at once.
    fn take_turn(
        &mut self,
        line: &mut Line,
        share: usize,
        turns: &mut Turns<'_>,
        walk: &mut Walk<'_>,
    ) -> Result<Turned, Fault> {
        let weight = turns.gate.weight_of(line.lane.as_ref());
        let mut left = turns.left_of_turn(&line.lane);
        let share = share.max(usize::try_from(left).unwrap_or(usize::MAX));
        while left > 0 {
            let Some(seq) = self.next_in_line(line, share, turns, walk.request.now)? else {
                return Ok(Turned::Out);
            };
            // LIM-1, LIM-3
            if !turns.gate.has_room() || !self.lane_has_room(&mut turns.gate, &line.lane)? {
                return Ok(Turned::Out);
            }
            line.ahead.pop_front();
            let Some(due) = self.due_job(seq, turns.demand)? else { continue };
            let priority = Reverse(due.entry.life.priority);
            if !self.grant(due, walk)? {
                return Ok(Turned::Walked(Walked::Again));
            }
            turns.memory.turn.take(line.lane.as_ref(), weight);
            turns.gate.charge(line.lane.as_ref());
            left -= 1;
            let at = walk.granted.last().map_or(Timestamp::EPOCH, |it| it.job.available_at);
            turns.positions.push((priority, at, seq));
            if walk.granted.len() == turns.wanted {
                return Ok(Turned::Walked(Walked::Met));
            }
            if walk.bytes > Limits::MAX_CALL_BYTES {
                return Ok(Turned::Walked(Walked::Full));
            }
            if turns.positions.len().is_multiple_of(MAX_UNWRITTEN) {
                self.write_grants(walk)?;
            }
        }
        Ok(Turned::Over)
    }

    /// The next priority that has jobs.
    fn priority_below(&self, turns: &Turns<'_>, below: i64) -> Result<Option<i64>, Fault> {
        let row = params![turns.queue(), below];
        let plain: Option<i64> = self.find(sql::NEXT_PRIORITY, row)?;
        let laned: Option<i64> = match turns.gate.is_laned {
            true => self.find(sql::NEXT_LANED_PRIORITY, row)?,
            false => None,
        };
        Ok(plain.max(laned))
    }

    /// Puts jobs of a priority that are due into the lines of their lanes.
    fn line_up(&self, turns: &mut Turns<'_>, priority: i64, now: Timestamp) -> Result<(), Fault> {
        if !turns.gate.is_laned {
            return Ok(());
        }
        let row = params![turns.queue(), priority, now.as_micros(), place(MAX_LINED_UP)];
        if self.execute(sql::LINE_UP, row)? == MAX_LINED_UP
            && let Some(soon) = soon(now)
        {
            turns.gate.note_due(soon);
        }
        Ok(())
    }

    /// The next lane that has jobs in line.
    fn next_line(
        &self,
        turns: &Turns<'_>,
        priority: i64,
        begin: &Bound<Lane>,
    ) -> Result<Option<Line>, Fault> {
        let queue = turns.queue();
        if matches!(begin, Bound::Unbounded | Bound::Included(None)) {
            let row = params![queue, priority, -1, -1, 1];
            let mut statement = self.statement(sql::PLAIN_FROM)?;
            let mut rows = statement.query(row)?;
            if rows.next()?.is_some() {
                return Ok(Some(Line::new(None, priority)));
            }
        }
        if !turns.gate.is_laned {
            return Ok(None);
        }
        // No name comes between one and the same with a NUL, and no name has one.
        let from = match begin {
            Bound::Included(Some(lane)) => lane.to_string(),
            Bound::Excluded(Some(lane)) => format!("{lane}\0"),
            Bound::Unbounded | Bound::Included(None) | Bound::Excluded(None) => String::new(),
        };
        let mut statement = self.statement(sql::NEXT_LINE)?;
        let mut rows = statement.query(params![queue, priority, from])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Line::new(entry::lane(row, 0)?, priority)))
    }

    /// The next job of a lane that is due. It stays in its line.
    fn next_in_line(
        &self,
        line: &mut Line,
        share: usize,
        turns: &mut Turns<'_>,
        now: Timestamp,
    ) -> Result<Option<i64>, Fault> {
        if line.ahead.is_empty() && !line.is_dry {
            let limit = share.clamp(1, MAX_UNWRITTEN);
            let lane = line.lane.as_ref().map(taskharbor_core::name::LaneName::as_str);
            let sql = if lane.is_some() { sql::LINE_FROM } else { sql::PLAIN_FROM };
            let mut statement = self.statement(sql)?;
            let (queue, Position { available_at, seq }) = (turns.demand.queue.as_str(), line.from);
            let limit_row = place(limit);
            let mut rows = match lane {
                Some(lane) => statement.query(params![
                    queue,
                    line.priority,
                    available_at,
                    seq,
                    limit_row,
                    lane
                ])?,
                None => {
                    statement.query(params![queue, line.priority, available_at, seq, limit_row])?
                }
            };
            let mut seen = 0;
            while let Some(row) = rows.next()? {
                seen += 1;
                line.from = Position { available_at: row.get(0)?, seq: row.get(1)? };
                if line.from.available_at > now.as_micros() {
                    line.is_dry = true;
                    break;
                }
                line.ahead.push_back(line.from.seq);
            }
            line.is_dry |= seen < limit;
        }
        Ok(line.ahead.front().copied())
    }

    /// When the next job may be granted, now that none may be.
    fn next_by_turns(
        &self,
        turns: &mut Turns<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Fault> {
        let (mut below, mut has_due) = (i64::from(i16::MAX) + 1, turns.gate.has_room());
        // RES-7
        if turns.gate.is_laned
            && let Some(at) =
                self.find(sql::LINED_AFTER, params![turns.queue(), now.as_micros()])?
        {
            turns.gate.note_due(time(at)?);
        }
        while let Some(priority) = self.priority_below(turns, below)? {
            below = priority;
            let row = params![turns.queue(), priority, now.as_micros()];
            let plain: Option<i64> = self.find(sql::PLAIN_AFTER, row)?;
            let laned: Option<i64> = match turns.gate.is_laned {
                true => self.find(sql::LANED_AFTER, row)?,
                false => None,
            };
            for at in [plain, laned].into_iter().flatten() {
                turns.gate.note_due(time(at)?);
            }
            if !has_due && self.has_due(turns, priority, now)? {
                has_due = true;
                turns.gate.note_held();
            }
        }
        Ok(turns.gate.next)
    }

    /// Whether a job of this priority could be granted but for the limits of the queue.
    fn has_due(&self, turns: &Turns<'_>, priority: i64, now: Timestamp) -> Result<bool, Fault> {
        let queue = turns.queue();
        let plain: Option<i64> = self.find(sql::FIRST_AT, params![queue, priority])?;
        if plain.is_some_and(|at| at <= now.as_micros()) {
            return Ok(true);
        }
        if !turns.gate.is_laned {
            return Ok(false);
        }
        let laned: Option<i64> = self.find(sql::LANED_AFTER, params![queue, priority, -1])?;
        if laned.is_some_and(|at| at <= now.as_micros()) {
            return Ok(true);
        }
        Ok(self.find::<String>(sql::NEXT_LINE, params![queue, priority, ""])?.is_some())
    }
}

impl Line {
    fn new(lane: Lane, priority: i64) -> Self {
        let from = Position { available_at: -1, seq: -1 };
        Self { lane, priority, ahead: VecDeque::new(), from, is_dry: false }
    }
}

/// When the next of several calls comes that look at lanes and grant nothing. RES-10.
fn shortly(now: Timestamp) -> Option<Timestamp> {
    Some(now.saturating_add(PAUSE))
}

/// The instant after `now`.
pub(super) fn soon(now: Timestamp) -> Option<Timestamp> {
    Timestamp::from_micros(now.as_micros() + 1).ok()
}

fn is_before(lane: &Lane, end: &Bound<Lane>) -> bool {
    match end {
        Bound::Unbounded => true,
        Bound::Included(end) => lane <= end,
        Bound::Excluded(end) => lane < end,
    }
}
