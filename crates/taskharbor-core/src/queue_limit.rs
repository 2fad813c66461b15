//! Limits of queues and their lanes, which operators and services configure.
//!
//! A lane is a part of a queue: the jobs of one tenant, host or account. Lanes of a queue take
//! turns. Limits and rates apply to a queue, to each of its lanes, and to lanes by name. They are
//! stored settings that a driver enforces; this module reads no clock and no store.

use std::{collections::BTreeMap, time::Duration};

pub use crate::rate::Rate;

use crate::{
    QueueName, Timestamp,
    check::{self, size},
    error::{Denied, InvalidRequest},
    name::{LaneName, NameError, OwnerName},
    schedule::Declaration,
};

/// The limits of one queue. Values that are not set do not limit it.
///
/// ```
/// use std::time::Duration;
/// use taskharbor_core::admin::{QueueLimits, Rate};
///
/// let limits = QueueLimits::new()
///     .inflight(50)
///     .per_lane(2)
///     .rate(Rate::per(90, Duration::from_secs(10)).burst(10))
///     .weight("gold", 3);
/// assert!(limits.check().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueLimits {
    /// How many jobs of the queue may be inflight at once.
    pub inflight: Option<u32>,
    /// How fast jobs of the queue may be granted.
    pub rate: Option<Rate>,
    /// How many jobs of each lane may be inflight at once.
    pub per_lane: Option<u32>,
    /// How fast jobs of each lane may be granted.
    pub lane_rate: Option<Rate>,
    /// The lanes with settings of their own.
    #[cfg_attr(feature = "serde", serde(default))]
    pub lanes: BTreeMap<LaneName, LaneLimits>,
    /// The first invalid name of a lane, until [`QueueLimits::check`] tells it.
    #[cfg_attr(feature = "serde", serde(skip))]
    invalid_lane: Option<NameError>,
}

/// The settings of one lane. For values that are not set, the limits of every lane of the queue
/// apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneLimits {
    /// How many of its jobs may be inflight at once.
    pub inflight: Option<u32>,
    /// How fast its jobs may be granted.
    pub rate: Option<Rate>,
    /// Its weight: the number of jobs in a turn; 1 unless it is set.
    pub weight: Option<u32>,
}

impl QueueLimits {
    /// The greatest number of jobs inflight that can be set.
    pub const MAX_INFLIGHT: u32 = 1_000_000;
    /// How long the charge and the hold of a queue or lane are kept after the end of both.
    pub const KEPT_FOR: Duration = Duration::from_secs(3_600);
    /// The greatest weight.
    pub const MAX_WEIGHT: u32 = 1_000;
    /// The greatest number of lanes with settings of their own in one queue.
    pub const MAX_LANES: usize = 1_000;

    /// No limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a charge and a hold, the later of which ends at `end`, are forgotten by a prune at `now`.
    #[must_use]
    pub fn is_forgotten(end: Timestamp, now: Timestamp) -> bool {
        // RAT-5
        end.checked_add(Self::KEPT_FOR).is_some_and(|until| until <= now)
    }

    /// At most this many jobs of the queue are inflight at once, on all machines together.
    #[must_use]
    pub const fn inflight(mut self, jobs: u32) -> Self {
        self.inflight = Some(jobs);
        self
    }

    /// Jobs of the queue are granted no faster than this.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// At most this many jobs of each lane are inflight at once.
    #[must_use]
    pub const fn per_lane(mut self, jobs: u32) -> Self {
        self.per_lane = Some(jobs);
        self
    }

    /// Jobs of each lane are granted no faster than this.
    #[must_use]
    pub const fn lane_rate(mut self, rate: Rate) -> Self {
        self.lane_rate = Some(rate);
        self
    }

    /// Sets the weight of this lane: the number of jobs in its turn. [`QueueLimits::check`] reports
    /// an invalid name.
    #[must_use]
    pub fn weight(self, lane: impl AsRef<str>, weight: u32) -> Self {
        self.change_lane(lane.as_ref(), |limits| limits.weight = Some(weight))
    }

    /// Sets the settings of one lane, in place of those it had. [`QueueLimits::check`] reports an
    /// invalid name.
    #[must_use]
    pub fn lane(self, lane: impl AsRef<str>, limits: LaneLimits) -> Self {
        self.change_lane(lane.as_ref(), |stored| *stored = limits)
    }

    fn change_lane(mut self, lane: &str, change: impl FnOnce(&mut LaneLimits)) -> Self {
        match LaneName::new(lane) {
            Ok(lane) => change(self.lanes.entry(lane).or_default()),
            Err(error) => self.invalid_lane = self.invalid_lane.or(Some(error)),
        }
        self
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every number and name.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::Lane`], [`InvalidRequest::OutOfRange`], [`InvalidRequest::Rate`],
    /// [`InvalidRequest::EmptyLane`].
    pub fn check(&self) -> Result<(), InvalidRequest> {
        // LIM-9
        if let Some(error) = &self.invalid_lane {
            return Err(InvalidRequest::Lane(error.clone()));
        }
        check_inflight("the limit of inflight jobs", self.inflight)?;
        check_inflight("the limit of inflight jobs per lane", self.per_lane)?;
        let lanes = "the number of lanes with settings of their own";
        check::range(lanes, self.lanes.len(), 0, Self::MAX_LANES)?;
        for rate in [self.rate, self.lane_rate].into_iter().flatten() {
            rate.check()?;
        }
        for (name, lane) in &self.lanes {
            if *lane == LaneLimits::default() {
                return Err(InvalidRequest::EmptyLane(name.clone()));
            }
            check_inflight("the limit of inflight jobs of a lane", lane.inflight)?;
            if let Some(weight) = lane.weight {
                check::range("the weight of a lane", size(weight), 1, size(Self::MAX_WEIGHT))?;
            }
            lane.rate.map_or(Ok(()), |rate| rate.check())?;
        }
        Ok(())
    }

    /// How many jobs a turn of this lane has. Jobs without a lane are one lane.
    #[must_use]
    pub fn weight_of(&self, lane: Option<&LaneName>) -> u32 {
        lane.and_then(|lane| self.lanes.get(lane)?.weight).unwrap_or(1)
    }

    /// The bound of the whole queue.
    #[must_use]
    pub const fn of_queue(&self) -> Bound {
        Bound { inflight: self.inflight, rate: self.rate }
    }

    /// The bound of this lane. Jobs without a lane are bounded only by the queue.
    #[must_use]
    pub fn of_lane(&self, lane: Option<&LaneName>) -> Bound {
        // LIM-3
        let Some(lane) = lane else { return Bound::default() };
        let own = self.lanes.get(lane);
        Bound {
            inflight: own.and_then(|own| own.inflight).or(self.per_lane),
            rate: own.and_then(|own| own.rate).or(self.lane_rate),
        }
    }

    /// Whether a limit of the queue or of a lane counts inflight jobs.
    #[must_use]
    pub fn counts_inflight(&self) -> bool {
        self.inflight.is_some()
            || self.per_lane.is_some()
            || self.lanes.values().any(|lane| lane.inflight.is_some())
    }
}

fn check_inflight(what: &'static str, limit: Option<u32>) -> Result<(), InvalidRequest> {
    match limit {
        Some(limit) => check::range(what, size(limit), 1, size(QueueLimits::MAX_INFLIGHT)),
        None => Ok(()),
    }
}

impl LaneLimits {
    /// No settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At most this many jobs of the lane are inflight at once.
    #[must_use]
    pub const fn inflight(mut self, jobs: u32) -> Self {
        self.inflight = Some(jobs);
        self
    }

    /// Jobs of the lane are granted no faster than this.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// A turn of the lane has this many jobs.
    #[must_use]
    pub const fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight);
        self
    }
}

/// The bound of a queue or a lane: its limit and its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// How many jobs may be inflight at once.
    pub inflight: Option<u32>,
    /// How fast jobs may be granted.
    pub rate: Option<Rate>,
}

/// How much of a bound is used at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// How many leases are valid.
    pub inflight: usize,
    /// Up to when the rate is charged; any time that has passed if it is not.
    pub tat: Timestamp,
    /// Until when nothing is granted; any time that has passed if there is no hold.
    pub held_until: Timestamp,
}

impl Usage {
    /// Nothing is used.
    pub const NONE: Self =
        Self { inflight: 0, tat: Timestamp::EPOCH, held_until: Timestamp::EPOCH };

    /// This many leases, a rate charged up to `tat`, and a hold until `held_until`.
    #[must_use]
    pub const fn new(inflight: usize, tat: Timestamp, held_until: Timestamp) -> Self {
        Self { inflight, tat, held_until }
    }
}

/// Why a job that is ready is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HeldBack {
    /// The queue or lane is on hold.
    OnHold {
        /// Until then.
        until: Timestamp,
    },
    /// As many jobs are inflight as may be.
    Full {
        /// The number of inflight jobs.
        inflight: usize,
        /// The limit.
        limit: u32,
    },
    /// The rate allows no job now.
    Rate {
        /// It allows the next one then.
        next: Timestamp,
    },
}

impl Bound {
    /// How many more jobs may be granted at `now`.
    #[must_use]
    pub fn room(&self, usage: &Usage, now: Timestamp) -> usize {
        // RAT-4
        if now < usage.held_until {
            return 0;
        }
        // LIM-1, LIM-6
        let places =
            self.inflight.map_or(usize::MAX, |limit| size(limit).saturating_sub(usage.inflight));
        let allowed = self.rate.map_or(usize::MAX, |rate| rate.allowed(usage.tat, now));
        places.min(allowed)
    }

    /// Why nothing may be granted at `now`, if so.
    #[must_use]
    pub fn held_back(&self, usage: &Usage, now: Timestamp) -> Option<HeldBack> {
        // LIM-4
        if now < usage.held_until {
            return Some(HeldBack::OnHold { until: usage.held_until });
        }
        if let Some(limit) = self.inflight
            && usage.inflight >= size(limit)
        {
            return Some(HeldBack::Full { inflight: usage.inflight, limit });
        }
        let rate = self.rate.filter(|rate| rate.allowed(usage.tat, now) == 0)?;
        Some(HeldBack::Rate { next: rate.next(usage.tat) })
    }
}

impl HeldBack {
    /// The first instant at which time alone lets a job go; `None` if a place has to be freed.
    #[must_use]
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::OnHold { until } => Some(*until),
            Self::Rate { next } => Some(*next),
            Self::Full { .. } => None,
        }
    }
}

/// The limit, rate or hold that keeps a job from starting: one of its queue, or one of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldJob {
    /// Whether the limit is the lane's.
    pub by_lane: bool,
    /// Why.
    pub why: HeldBack,
}

impl HeldJob {
    /// Held back by its lane, or else by its queue.
    #[must_use]
    pub const fn new(by_lane: bool, why: HeldBack) -> Self {
        Self { by_lane, why }
    }
}

impl QueueLimits {
    /// What holds a ready job of this lane back at `now`: a limit of the queue, else one of the lane.
    #[must_use]
    pub fn held_back(
        &self,
        lane: Option<&LaneName>,
        of_queue: &Usage,
        of_lane: &Usage,
        now: Timestamp,
    ) -> Option<HeldJob> {
        let queue = self.of_queue().held_back(of_queue, now);
        let lane = || self.of_lane(lane).held_back(of_lane, now);
        queue
            .map(|why| HeldJob::new(false, why))
            .or_else(|| lane().map(|why| HeldJob::new(true, why)))
    }
}

/// The limits of a queue as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitsRecord {
    /// The queue.
    pub queue: QueueName,
    /// The owner that declared them; `None` if they have no owner.
    pub owner: Option<OwnerName>,
    /// The limits.
    pub limits: QueueLimits,
}

impl LimitsRecord {
    /// These limits of this queue.
    #[must_use]
    pub const fn new(queue: QueueName, owner: Option<OwnerName>, limits: QueueLimits) -> Self {
        Self { queue, owner, limits }
    }

    /// Denies a change to limits of another owner.
    ///
    /// # Errors
    ///
    /// [`Denied::LimitsOwned`].
    pub fn check_owner(&self, owner: Option<&OwnerName>) -> Result<(), Denied> {
        // LIM-8
        if self.owner.as_ref() == owner {
            return Ok(());
        }
        Err(Denied::LimitsOwned { queue: self.queue.clone(), owner: self.owner.clone() })
    }
}

/// The limits of all queues of one owner, declared at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitsDeclaration {
    /// Whose limits they are.
    pub owner: OwnerName,
    /// The version of the list, as for schedules: both count for one owner.
    pub version: Option<u64>,
    /// The whole list: limits of the owner that are not in it are removed.
    pub limits: Vec<(QueueName, QueueLimits)>,
}

impl LimitsDeclaration {
    /// These are all limits of `owner`.
    #[must_use]
    pub const fn new(
        owner: OwnerName,
        version: Option<u64>,
        limits: Vec<(QueueName, QueueLimits)>,
    ) -> Self {
        Self { owner, version, limits }
    }

    /// Denies a declaration that is older than what the owner has declared.
    ///
    /// # Errors
    ///
    /// [`Denied::NewerVersion`].
    pub fn check_version(&self, stored: Option<u64>) -> Result<(), Denied> {
        Declaration::check_against(self.version, stored)
    }

    pub(crate) fn check(&self) -> Result<(), InvalidRequest> {
        Declaration::check_range(self.version)?;
        if let Some(queue) = check::repeated(self.limits.iter().map(|(queue, _)| queue)) {
            return Err(InvalidRequest::DuplicateQueue(queue.clone()));
        }
        self.limits.iter().try_for_each(|(_, limits)| limits.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_that_cannot_be_are_refused() {
        let second = Duration::from_secs(1);
        let lane = |limits| QueueLimits::new().lane("a", limits);
        for (limits, words) in [
            (QueueLimits::new().inflight(0), "is 0: choose 1 to 1000000"),
            (QueueLimits::new().per_lane(0), "is 0: choose 1"),
            (QueueLimits::new().rate(Rate::per(0, second)), "jobs of a rate is 0"),
            (QueueLimits::new().rate(Rate::per(1, second).burst(0)), "burst of a rate is 0"),
            (QueueLimits::new().rate(Rate::per(1, Duration::ZERO)), "cannot be counted"),
            (QueueLimits::new().rate(Rate::per(1, Duration::MAX)), "cannot be counted"),
            (
                QueueLimits::new().lane_rate(Rate::per(1, second).burst(u32::MAX)),
                "cannot be counted",
            ),
            (QueueLimits::new().weight("a", 0), "weight of a lane is 0"),
            (QueueLimits::new().weight("a", 1_001), "choose 1 to 1000"),
            (QueueLimits::new().weight("", 1), "lane name is empty"),
            (lane(LaneLimits::new()), "lane a has no settings"),
            (lane(LaneLimits::new().inflight(0)), "inflight jobs of a lane is 0"),
        ] {
            let error = limits.check().unwrap_err().to_string();
            assert!(error.contains(words), "{limits:?}: {error}");
        }
    }

    #[test]
    fn a_lane_with_its_own_limit_takes_it_in_place_of_the_common_one() {
        let limits = QueueLimits::new().per_lane(2).lane("gold", LaneLimits::new().inflight(5));
        let bound = |lane: &str| limits.of_lane(Some(&LaneName::new(lane).unwrap())).inflight;
        assert_eq!((bound("gold"), bound("tin")), (Some(5), Some(2)));
        assert_eq!(limits.of_lane(None), Bound::default());
    }
}
