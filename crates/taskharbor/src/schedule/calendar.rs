//! [`Calendar`]: the slots of a schedule between its start and its end.

use taskharbor_core::Timestamp;

use super::timing::{NotAdvancing, Timing};

/// One microsecond, the step between two instants.
const TICK: std::time::Duration = std::time::Duration::from_micros(1);
const MICROS_PER_SECOND: i64 = 1_000_000;
/// Up to this many slots are found one by one.
const FEW: usize = 8;

/// When a schedule is due: its timing, its start and its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Calendar {
    pub(crate) timing: Timing,
    /// No slot is before this.
    pub(crate) starts_at: Option<Timestamp>,
    /// No slot is after this.
    pub(crate) ends_at: Option<Timestamp>,
}

type Slots<T> = Result<T, NotAdvancing>;

impl Calendar {
    /// Slots of a cron expression are counted one by one, up to this many. Those of an interval are
    /// computed.
    pub(crate) const MAX_COUNT: u64 = 100_000;

    /// The first slot after this instant.
    pub(crate) fn next_after(&self, after: Timestamp) -> Slots<Option<Timestamp>> {
        let start = self.starts_at.map(|start| start.saturating_sub(TICK));
        let next = self.timing.next_after(start.map_or(after, |start| start.max(after)))?;
        Ok(next.filter(|next| self.ends_at.is_none_or(|end| *next <= end)))
    }

    /// The first slot that is not before this instant.
    fn next_from(&self, from: Timestamp) -> Slots<Option<Timestamp>> {
        self.next_after(from.saturating_sub(TICK))
    }

    /// The first `limit` slots after this instant.
    pub(crate) fn upcoming(&self, after: Timestamp, limit: usize) -> Slots<Vec<Timestamp>> {
        self.walk(self.next_after(after)?, limit, |_| true)
    }

    /// The first `limit` slots from `from` on and before `to`.
    pub(crate) fn between(
        &self,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Slots<Vec<Timestamp>> {
        self.walk(self.next_from(from)?, limit, |slot| slot < to)
    }

    fn walk(
        &self,
        first: Option<Timestamp>,
        limit: usize,
        is_wanted: impl Fn(Timestamp) -> bool,
    ) -> Slots<Vec<Timestamp>> {
        let (mut slots, mut next) = (Vec::new(), first);
        while let Some(slot) = next.filter(|slot| slots.len() < limit && is_wanted(*slot)) {
            slots.push(slot);
            next = self.next_after(slot)?;
        }
        Ok(slots)
    }

    /// The last `limit` slots from `from` to `to`, both included, in their order.
    pub(crate) fn last(
        &self,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Slots<Vec<Timestamp>> {
        // Most often there are few, and a short walk finds them all.
        let mut slots = self.between(from, to.saturating_add(TICK), FEW)?;
        if slots.len() < FEW {
            return Ok(slots.split_off(slots.len().saturating_sub(limit)));
        }
        let mut end = to;
        slots.clear();
        while slots.len() < limit {
            let Some(slot) = self.last_in(from, end)? else { break };
            slots.push(slot);
            if slot <= from {
                break;
            }
            end = slot.saturating_sub(TICK);
        }
        slots.reverse();
        Ok(slots)
    }

    /// The last slot from `from` to `end`, found by bisection: after a long time without a worker, a
    /// walk from slot to slot would take too long.
    fn last_in(&self, from: Timestamp, end: Timestamp) -> Slots<Option<Timestamp>> {
        let slot_after = |after| Ok(self.next_after(after)?.filter(|slot| *slot <= end));
        // Look back further and further, because the last slot is most often near the end.
        let floor = from.saturating_sub(TICK);
        let mut back = std::time::Duration::from_secs(1);
        let mut last = loop {
            let low = end.saturating_sub(back).max(floor);
            match slot_after(low)? {
                Some(slot) if slot >= from => break slot,
                _ if low == floor => return Ok(None),
                _ => back *= 2,
            }
        };
        let mut empty_after = end;
        while empty_after.as_micros() - last.as_micros() >= MICROS_PER_SECOND {
            let middle = last.saturating_add(empty_after.since(last) / 2);
            match slot_after(middle)? {
                Some(slot) => last = slot,
                None => empty_after = middle,
            }
        }
        Ok(Some(last))
    }

    /// How many slots there are from `from` on and before `to`. Those of a cron expression are
    /// still to be counted.
    pub(crate) fn count(&self, from: Timestamp, to: Timestamp) -> Slots<Count> {
        let next = self.next_from(from)?.filter(|first| *first < to);
        let mut count = Count { calendar: self.clone(), next, to, slots: 0 };
        if let (Timing::Every(micros), Some(first)) = (&self.timing, next) {
            let end = self.ends_at.map_or(to, |end| to.min(end.saturating_add(TICK)));
            let span = end.as_micros() - TICK.as_micros() as i64 - first.as_micros();
            (count.slots, count.next) = ((span / micros + 1).unsigned_abs(), None);
        }
        Ok(count)
    }
}

/// A count of slots. Those of a cron expression are found one by one, which takes a while if they are many.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    calendar: Calendar,
    /// The first slot that is not counted yet.
    next: Option<Timestamp>,
    to: Timestamp,
    slots: u64,
}

impl Count {
    /// Counts this many slots more. Answers how many there are, once all are counted; slots of a cron
    /// expression up to [`Calendar::MAX_COUNT`].
    pub(crate) fn go_on(&mut self, slots: u64) -> Slots<Option<u64>> {
        let most = self.slots.saturating_add(slots).min(Calendar::MAX_COUNT);
        while let Some(slot) = self.next.filter(|_| self.slots < most) {
            self.slots += 1;
            self.next = self.calendar.next_after(slot)?.filter(|slot| *slot < self.to);
        }
        let is_all = self.next.is_none() || self.slots >= Calendar::MAX_COUNT;
        Ok(is_all.then_some(self.slots))
    }
}

#[cfg(test)]
mod tests;
