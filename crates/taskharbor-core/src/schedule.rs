//! Schedules: records with a next slot, and the firing that moves it on.
//!
//! A schedule is a stored record. Its definition says when it is due and which jobs it makes; a
//! driver does not read it. Firing stores the jobs of a slot and moves the record to the slot after it
//! in one atomic step, if the record is still the one that the caller read. So each slot is fired
//! once, and no process has to be a leader.

use std::time::Duration;

use crate::{
    Blob, Text, Timestamp, check,
    driver::{Enqueued, FireSchedule, Limits},
    error::{Denied, FireRefused, InvalidRequest},
    name::{OwnerName, ScheduleName},
};

/// The step from an instant to the next.
const TICK: Duration = Duration::from_micros(1);

/// A schedule to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewSchedule {
    /// Identifies it.
    pub name: ScheduleName,
    /// When it is due and which jobs it makes; a driver does not read it.
    pub definition: Blob,
    /// Its first slot; `None` if it has none.
    pub next_slot: Option<Timestamp>,
    /// Whether a stored schedule of this name that has a next slot keeps it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub keeps_slot: bool,
}

impl NewSchedule {
    /// A schedule with this definition, first due at `next_slot`.
    #[must_use]
    pub fn new(
        name: ScheduleName,
        definition: impl Into<Blob>,
        next_slot: Option<Timestamp>,
    ) -> Self {
        Self { name, definition: definition.into(), next_slot, keeps_slot: false }
    }

    /// A stored schedule of this name keeps its next slot, if it has one. A slot that is due and not
    /// fired yet is then fired with this definition.
    #[must_use]
    pub const fn keep_slot(mut self) -> Self {
        self.keeps_slot = true;
        self
    }
}

/// All schedules of one owner, declared at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Declaration {
    /// Whose schedules they are.
    pub owner: OwnerName,
    /// The version of the list. It is denied if the owner has declared a higher one. A list without a
    /// version always applies.
    pub version: Option<u64>,
    /// The whole list: a schedule of the owner that is not in it is removed.
    pub schedules: Vec<NewSchedule>,
}

impl Declaration {
    /// The greatest version.
    pub const MAX_VERSION: u64 = i64::MAX.unsigned_abs();

    /// These are all schedules of `owner`.
    #[must_use]
    pub const fn new(owner: OwnerName, version: Option<u64>, schedules: Vec<NewSchedule>) -> Self {
        Self { owner, version, schedules }
    }

    /// Denies a declaration that is older than the one that is stored.
    ///
    /// # Errors
    ///
    /// [`Denied::NewerVersion`].
    pub fn check_version(&self, stored: Option<u64>) -> Result<(), Denied> {
        Self::check_against(self.version, stored)
    }

    pub(crate) fn check_against(declared: Option<u64>, stored: Option<u64>) -> Result<(), Denied> {
        // SCH-11
        match (declared, stored) {
            (Some(declared), Some(stored)) if declared < stored => {
                Err(Denied::NewerVersion { stored })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_range(version: Option<u64>) -> Result<(), InvalidRequest> {
        match version {
            Some(version) if version > Self::MAX_VERSION => Err(InvalidRequest::Version),
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), InvalidRequest> {
        Self::check_range(self.version)?;
        // SCH-17
        match check::repeated(self.schedules.iter().map(|it| &it.name)) {
            Some(name) => Err(InvalidRequest::DuplicateSchedule(name.clone())),
            None => Ok(()),
        }
    }
}

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleRecord {
    /// Identifies it.
    pub name: ScheduleName,
    /// The owner that declared it; `None` if it has no owner.
    pub owner: Option<OwnerName>,
    /// When it is due and which jobs it makes.
    pub definition: Blob,
    /// The next slot; `None` after the last one.
    pub next_slot: Option<Timestamp>,
    /// Since when it has been paused.
    pub paused_since: Option<Timestamp>,
    /// Another number after every change of the record. No earlier record of this name had it.
    pub revision: u64,
    /// The number of its slots by result.
    pub totals: SlotTotals,
    /// Why the last firing stored no jobs, if it failed.
    pub error: Option<Text>,
    /// The last firings, the newest last.
    pub firings: Vec<Firing>,
}

/// The number of slots of a schedule by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlotTotals {
    /// Slots whose job was stored.
    pub stored: u64,
    /// Slots whose job was not stored, because a job with its id or key was stored already.
    pub skipped: u64,
    /// Slots for which the caller made no job.
    pub missed: u64,
}

impl SlotTotals {
    /// This many of each.
    #[must_use]
    pub const fn new(stored: u64, skipped: u64, missed: u64) -> Self {
        Self { stored, skipped, missed }
    }
}

/// One slot that was fired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Firing {
    /// The slot.
    pub slot: Timestamp,
    /// When it was fired.
    pub fired_at: Timestamp,
    /// The job that stands for the slot, and whether it was stored by the firing.
    pub job: Enqueued,
}

impl Firing {
    /// `slot` was fired at `fired_at`, and `job` stands for it.
    #[must_use]
    pub const fn new(slot: Timestamp, fired_at: Timestamp, job: Enqueued) -> Self {
        Self { slot, fired_at, job }
    }
}

impl ScheduleRecord {
    /// A record of a schedule that has not been fired.
    #[must_use]
    pub fn new(new: NewSchedule, owner: Option<OwnerName>, revision: u64) -> Self {
        Self {
            name: new.name,
            owner,
            definition: new.definition,
            next_slot: new.next_slot,
            paused_since: None,
            revision,
            totals: SlotTotals::default(),
            error: None,
            firings: Vec::new(),
        }
    }

    /// Whether it may be fired at `now`.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        // SCH-8
        self.paused_since.is_none() && self.next_slot.is_some_and(|slot| slot <= now)
    }

    /// Replaces the definition, and the next slot unless it is kept. Returns whether the definition
    /// differed. Counts and firings stay, and a paused schedule stays paused. The caller may have computed
    /// the next slot before the last slot was fired: it is then put behind that one.
    pub fn redefine(&mut self, new: NewSchedule) -> bool {
        // SCH-9
        if self.definition == new.definition {
            return false;
        }
        let kept = self.next_slot.filter(|_| new.keeps_slot);
        let last = self.firings.last().map(|firing| firing.slot.saturating_add(TICK));
        let given = new.next_slot.map(|given| given.max(last.unwrap_or(given)));
        self.next_slot = kept.or(given);
        (self.definition, self.error) = (new.definition, None);
        true
    }

    /// Pauses it; returns whether it was not paused before.
    pub const fn pause(&mut self, now: Timestamp) -> bool {
        // SCH-6
        let was_paused = self.paused_since.is_some();
        if !was_paused {
            self.paused_since = Some(now);
        }
        !was_paused
    }

    /// Resumes it with its next slot; returns whether it was paused.
    ///
    /// # Errors
    ///
    /// [`Denied::ScheduleChanged`] if it is paused and has another revision.
    pub fn resume(&mut self, revision: u64, next_slot: Option<Timestamp>) -> Result<bool, Denied> {
        // SCH-7
        if self.paused_since.is_none() {
            return Ok(false);
        }
        if self.revision != revision {
            return Err(Denied::ScheduleChanged);
        }
        (self.paused_since, self.next_slot) = (None, next_slot);
        Ok(true)
    }

    /// Denies a change to a schedule of another owner.
    ///
    /// # Errors
    ///
    /// [`Denied::ScheduleOwned`].
    pub fn check_owner(&self, owner: Option<&OwnerName>) -> Result<(), Denied> {
        // SCH-12
        if self.owner.as_ref() == owner {
            return Ok(());
        }
        Err(Denied::ScheduleOwned { name: self.name.clone(), owner: self.owner.clone() })
    }

    /// Refuses a firing that does not fit the record.
    ///
    /// # Errors
    ///
    /// [`FireRefused::Changed`], [`FireRefused::Paused`].
    pub fn check_fire(&self, item: &FireSchedule) -> Result<(), FireRefused> {
        // SCH-3
        if self.revision != item.revision {
            return Err(FireRefused::Changed);
        }
        // SCH-6
        if self.paused_since.is_some() { Err(FireRefused::Paused) } else { Ok(()) }
    }

    /// Records what a firing has done: `jobs` has the job of each of its slots.
    pub fn record_firing(&mut self, fired: &FireSchedule, jobs: Vec<Enqueued>, now: Timestamp) {
        // SCH-2, SCH-14
        for (slot, job) in fired.slots.iter().zip(jobs) {
            let total =
                if job.is_new() { &mut self.totals.stored } else { &mut self.totals.skipped };
            *total += 1;
            self.firings.push(Firing::new(slot.at, now, job));
        }
        let kept = self.firings.len().saturating_sub(Limits::FIRINGS_KEPT);
        self.firings.drain(..kept);
        self.totals.missed = self.totals.missed.saturating_add(fired.missed).min(i64::MAX as u64);
        self.next_slot = fired.next_slot;
        self.error = fired.error.clone();
    }

    /// Whether the two records are the same but for their revisions, which belong to their stores.
    #[must_use]
    pub fn equals_but_revision(&self, other: &Self) -> bool {
        Self { revision: self.revision, ..other.clone() } == *self
    }
}
