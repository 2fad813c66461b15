//! Lanes of a queue: which lane has the turn, and the status of lanes for operators.

use std::ops::Bound;

use crate::{
    QueueName, Timestamp, admin::Cursor, check, driver::Limits, error::InvalidRequest,
    name::LaneName, queue_limit::HeldJob,
};

/// The lane that has the turn in a queue. The jobs without a lane are one lane, `None`, the first.
///
/// Lanes have turns in the order of their names. The next lane is the one that had the last turn if
/// that turn is not used up, and otherwise the lane after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    last: Option<Option<LaneName>>,
    used: u32,
}

impl Turn {
    /// The turn after `used` jobs of a turn of `lane` were granted.
    #[must_use]
    pub const fn of(lane: Option<LaneName>, used: u32) -> Self {
        Self { last: Some(lane), used }
    }

    /// The lane that had the last turn, and how many jobs of it; `None` before the first.
    #[must_use]
    pub fn last(&self) -> Option<(Option<&LaneName>, u32)> {
        self.last.as_ref().map(|lane| (lane.as_ref(), self.used))
    }

    /// Two ranges of lanes, by name: the lanes of the first come before those of the second. `weight`
    /// is how many jobs a turn of the last lane has.
    #[must_use]
    pub fn ranges(&self, weight: impl FnOnce(Option<&LaneName>) -> u32) -> [LaneRange<'_>; 2] {
        // LAN-2
        let Some(last) = &self.last else {
            return [(Bound::Unbounded, Bound::Unbounded), EMPTY];
        };
        if self.used < weight(last.as_ref()) {
            return [
                (Bound::Included(last), Bound::Unbounded),
                (Bound::Unbounded, Bound::Excluded(last)),
            ];
        }
        [(Bound::Excluded(last), Bound::Unbounded), (Bound::Unbounded, Bound::Included(last))]
    }

    /// A job of this lane was granted; `weight` is how many jobs a turn of it has.
    pub fn take(&mut self, lane: Option<&LaneName>, weight: u32) {
        let goes_on =
            self.used < weight && self.last.as_ref().is_some_and(|last| last.as_ref() == lane);
        if goes_on {
            self.used += 1;
        } else {
            *self = Self::of(lane.cloned(), 1);
        }
    }
}

/// A range of lanes, as maps by lane take it.
pub type LaneRange<'a> = (Bound<&'a Option<LaneName>>, Bound<&'a Option<LaneName>>);

/// No lane comes before the first.
const EMPTY: LaneRange<'static> = (Bound::Unbounded, Bound::Excluded(&None));

/// Asks for a page of the lanes of a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListLanes {
    /// The queue.
    pub queue: QueueName,
    /// After the last lane of the page that gave this.
    pub after: Option<Cursor>,
    /// The greatest number of items to return.
    pub limit: usize,
    /// The current time.
    pub now: Timestamp,
}

impl ListLanes {
    /// The first page.
    #[must_use]
    pub const fn new(queue: QueueName, limit: usize, now: Timestamp) -> Self {
        Self { queue, after: None, limit, now }
    }

    /// The page after the one that gave `cursor`.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)
    }

    /// The lane after which the page begins; `None` for the first page.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::Cursor`] for a cursor of another list.
    pub fn begin(&self) -> Result<Option<Option<LaneName>>, InvalidRequest> {
        let Some(cursor) = &self.after else { return Ok(None) };
        let text = cursor.as_str().strip_prefix("lane-").ok_or(InvalidRequest::Cursor)?;
        if text.is_empty() {
            return Ok(Some(None));
        }
        let lane = LaneName::new(text).map_err(|_| InvalidRequest::Cursor)?;
        Ok(Some(Some(lane)))
    }
}

/// A lane of a queue: one that has ready or inflight jobs, or that is on hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneStatus {
    /// The lane; `None` for the jobs without one.
    pub lane: Option<LaneName>,
    /// How many of its jobs are ready.
    pub ready: usize,
    /// How many of its jobs are inflight.
    pub inflight: usize,
    /// The limit, rate or hold that keeps a ready job of the lane from starting.
    pub held_back: Option<HeldJob>,
}

impl LaneStatus {
    /// A lane with this many jobs.
    #[must_use]
    pub const fn new(
        lane: Option<LaneName>,
        ready: usize,
        inflight: usize,
        held_back: Option<HeldJob>,
    ) -> Self {
        Self { lane, ready, inflight, held_back }
    }

    /// The cursor of the page after this lane.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let name = self.lane.as_ref().map_or("", LaneName::as_str);
        Cursor::new(format!("lane-{name}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The lanes that get the next turns, if each has jobs without end.
    fn turns(turn: &mut Turn, weights: &[(&str, u32)], count: usize) -> Vec<String> {
        let lanes: BTreeMap<Option<LaneName>, u32> =
            weights.iter().map(|(lane, weight)| (LaneName::new(lane).ok(), *weight)).collect();
        let mut given = Vec::new();
        for _ in 0..count {
            let weight = |lane: Option<&LaneName>| lanes.get(&lane.cloned()).copied().unwrap_or(1);
            let ranges = turn.ranges(weight);
            let mut order = ranges.into_iter().flat_map(|range| lanes.range(range));
            let (lane, weight) =
                order.next().map(|(lane, weight)| (lane.clone(), *weight)).unwrap();
            drop(order);
            turn.take(lane.as_ref(), weight);
            given.push(lane.map_or_else(String::new, |lane| lane.to_string()));
        }
        given
    }

    #[test]
    fn lanes_take_turns_by_name_and_jobs_without_one_are_the_first() {
        let mut turn = Turn::default();
        let given = turns(&mut turn, &[("b", 1), ("", 1), ("a", 1)], 7);
        assert_eq!(given, ["", "a", "b", "", "a", "b", ""]);
    }

    #[test]
    fn a_turn_has_as_many_jobs_as_the_weight_of_its_lane_says() {
        let mut turn = Turn::default();
        let given = turns(&mut turn, &[("gold", 3), ("tin", 1)], 2);
        assert_eq!(given, ["gold", "gold"]);
        assert_eq!(
            turns(&mut turn, &[("gold", 3), ("tin", 1)], 4),
            ["gold", "tin", "gold", "gold"]
        );
    }

    #[test]
    fn a_lane_that_is_gone_leaves_its_turn_to_the_next() {
        let mut turn = Turn::of(LaneName::new("b").ok(), 1);
        assert_eq!(turns(&mut turn, &[("a", 1), ("c", 1)], 3), ["c", "a", "c"]);
        let mut only = Turn::of(LaneName::new("c").ok(), 1);
        assert_eq!(turns(&mut only, &[("c", 2)], 3), ["c", "c", "c"]);
    }

    #[test]
    fn a_cursor_leads_to_the_lanes_after_its_own() {
        let queue = QueueName::new("q").unwrap();
        let request = |cursor| ListLanes::new(queue.clone(), 1, Timestamp::EPOCH).after(cursor);
        let lane = LaneName::new("a b").ok();
        for lane in [None, lane] {
            let status = LaneStatus::new(lane.clone(), 0, 0, None);
            assert_eq!(request(status.cursor()).begin(), Ok(Some(lane)));
        }
        assert_eq!(request(Cursor::new("job-1")).begin(), Err(InvalidRequest::Cursor));
    }
}
