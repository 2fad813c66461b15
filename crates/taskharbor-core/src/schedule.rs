//! Schedules: records with a next slot, and the firing that moves it on.
//!
//! A schedule is a stored record. Its definition says when it is due and which jobs it makes; a
//! driver does not read it. Firing stores the jobs of a slot and moves the record to the slot after it
//! in one atomic step, if the record is still the one that the caller read. So each slot
//! is fired once, and no process has to be in charge.

use crate::{
    Blob, JobId, NewJob, Text, Timestamp, check,
    driver::{Enqueue, Enqueued, Limits},
    error::{Denied, InvalidRequest, Rejected},
    job::{JobSet, SetKind},
    name::{OwnerName, ScheduleName},
    set::CheckedSet,
};

/// A schedule to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewSchedule {
    /// Identifies it.
    pub name: ScheduleName,
    /// When it is due and which jobs it makes; a driver does not read it.
    pub definition: Blob,
    /// Its first slot; `None` if it has none.
    pub next_slot: Option<Timestamp>,
    /// Whether a stored schedule of this name that has a next slot keeps it.
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
pub struct Declaration {
    /// Whose schedules they are.
    pub owner: OwnerName,
    /// Refused if the owner has declared a higher one. `None` always applies.
    pub version: Option<u64>,
    /// All of them: a schedule of the owner that is not here is removed.
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
        // SCH-11
        match (self.version, stored) {
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
pub struct ScheduleRecord {
    /// Identifies it.
    pub name: ScheduleName,
    /// The owner that declared it; `None` if it was put on its own.
    pub owner: Option<OwnerName>,
    /// When it is due and which jobs it makes.
    pub definition: Blob,
    /// The next slot; `None` after the last one.
    pub next_slot: Option<Timestamp>,
    /// Since when it is paused.
    pub paused_since: Option<Timestamp>,
    /// Changes with every change of the record. No record of this name has had it before.
    pub revision: u64,
    /// What became of its slots so far.
    pub totals: SlotTotals,
    /// Why the last firing stored no jobs, if it failed.
    pub error: Option<Text>,
    /// The last firings, the newest last.
    pub firings: Vec<Firing>,
}

/// What became of the slots of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotTotals {
    /// Slots whose job was stored.
    pub stored: u64,
    /// Slots whose job was not stored, because another stood in its place.
    pub skipped: u64,
    /// Slots that the caller left out.
    pub missed: u64,
}

impl SlotTotals {
    /// So many of each.
    #[must_use]
    pub const fn new(stored: u64, skipped: u64, missed: u64) -> Self {
        Self { stored, skipped, missed }
    }
}

/// One slot that was fired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Takes over another definition and its next slot; answers whether it differed. What happened so
    /// far stays, and a paused schedule stays paused.
    pub fn redefine(&mut self, new: NewSchedule) -> bool {
        // SCH-9
        if self.definition == new.definition {
            return false;
        }
        let kept = self.next_slot.filter(|_| new.keeps_slot);
        self.next_slot = kept.or(new.next_slot);
        (self.definition, self.error) = (new.definition, None);
        true
    }

    /// Pauses it; answers whether it was not paused before.
    pub const fn pause(&mut self, now: Timestamp) -> bool {
        // SCH-6
        let was_paused = self.paused_since.is_some();
        if !was_paused {
            self.paused_since = Some(now);
        }
        !was_paused
    }

    /// Resumes it with its next slot; answers whether it was paused.
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

    /// Denies to change a schedule of another owner.
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

/// Asks for schedules that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueSchedules {
    /// Only those behind the schedule with this next slot and name, in the order of the answer.
    pub after: Option<(Timestamp, ScheduleName)>,
    /// At most so many.
    pub limit: usize,
    /// The current time.
    pub now: Timestamp,
}

impl DueSchedules {
    /// At most `limit` schedules that are due at `now`.
    #[must_use]
    pub const fn new(limit: usize, now: Timestamp) -> Self {
        Self { after: None, limit, now }
    }

    /// Those behind the schedule with this next slot and name.
    #[must_use]
    pub fn after(mut self, next_slot: Timestamp, name: ScheduleName) -> Self {
        self.after = Some((next_slot, name));
        self
    }

    /// The request for the next page, if `answer` is a full page.
    #[must_use]
    pub fn next_page(&self, answer: &Due) -> Option<Self> {
        let last = answer.schedules.last().filter(|_| answer.schedules.len() >= self.limit)?;
        Some(self.clone().after(last.next_slot?, last.name.clone()))
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)
    }
}

/// Schedules that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Due {
    /// They, by next slot and name.
    pub schedules: Vec<ScheduleRecord>,
    /// The earliest slot after now of those that are not paused.
    pub next: Option<Timestamp>,
}

impl Due {
    /// These are due, and the next one at `next`.
    #[must_use]
    pub const fn new(schedules: Vec<ScheduleRecord>, next: Option<Timestamp>) -> Self {
        Self { schedules, next }
    }
}

/// Asks to fire schedules.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fire {
    /// What to fire; each is applied whole or not at all.
    pub items: Vec<FireSchedule>,
    /// The time that becomes the jobs' `created_at`.
    pub now: Timestamp,
}

/// One firing of a schedule: the jobs of some slots, and which slot is next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FireSchedule {
    /// The schedule.
    pub name: ScheduleName,
    /// The revision of the record that the caller read.
    pub revision: u64,
    /// The slots that get jobs, in their order.
    pub slots: Vec<SlotJobs>,
    /// The next slot; `None` after the last one.
    pub next_slot: Option<Timestamp>,
    /// How many slots get no job.
    pub missed: u64,
    /// Why slots that were due get no job, if that is a failure.
    pub error: Option<Text>,
    /// Changes nothing while another job holds the key of the slot's job. There is one slot then.
    pub waits_for_key: bool,
}

/// A slot and its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotJobs {
    /// The instant for which the jobs are made.
    pub at: Timestamp,
    /// The jobs: a flow, or one job.
    pub set: JobSet,
}

impl SlotJobs {
    /// These jobs for the slot at this instant.
    #[must_use]
    pub const fn new(at: Timestamp, set: JobSet) -> Self {
        Self { at, set }
    }

    /// The job that stands for the slot: the flow's tail, or the only job.
    #[must_use]
    pub fn job<'a>(&'a self, checked: &CheckedSet) -> &'a NewJob {
        &self.set.jobs[checked.tail()]
    }
}

impl FireSchedule {
    /// Moves a schedule to its next slot, if it still has this revision.
    #[must_use]
    pub const fn new(name: ScheduleName, revision: u64, next_slot: Option<Timestamp>) -> Self {
        Self {
            name,
            revision,
            slots: Vec::new(),
            next_slot,
            missed: 0,
            error: None,
            waits_for_key: false,
        }
    }

    /// Stores the jobs of these slots.
    #[must_use]
    pub fn slots(mut self, slots: impl IntoIterator<Item = SlotJobs>) -> Self {
        self.slots.extend(slots);
        self
    }

    /// Counts so many slots as missed.
    #[must_use]
    pub const fn missed(mut self, missed: u64) -> Self {
        self.missed = missed;
        self
    }

    /// Records why slots that were due get no job.
    #[must_use]
    pub fn error(mut self, error: Text) -> Self {
        self.error = Some(error);
        self
    }

    /// Changes nothing while another job holds the key of the slot's job.
    #[must_use]
    pub const fn waits_for_key(mut self) -> Self {
        self.waits_for_key = true;
        self
    }
}

impl Fire {
    /// A request to fire these.
    #[must_use]
    pub const fn new(items: Vec<FireSchedule>, now: Timestamp) -> Self {
        Self { items, now }
    }

    /// Checks the size of the call, and what does not depend on a store.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] for a schedule that is named twice, two jobs of one id, a slot without jobs
    /// or with several that are no flow, and a call that is too large.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        // SCH-17
        if let Some(name) = check::repeated(self.items.iter().map(|it| &it.name)) {
            return Err(InvalidRequest::DuplicateSchedule(name.clone()));
        }
        let slots = || self.items.iter().flat_map(|item| &item.slots);
        for item in self.items.iter().filter(|item| item.waits_for_key) {
            let what = "the number of slots of a firing that waits for a key";
            check::range(what, item.slots.len(), 0, 1)?;
        }
        for slot in slots().filter(|slot| slot.set.kind == SetKind::Plain) {
            check::range(
                "the number of jobs of a slot that are no flow",
                slot.set.jobs.len(),
                1,
                1,
            )?;
        }
        check::range(
            "the number of items in one call",
            self.items.len(),
            0,
            Limits::MAX_CALL_JOBS,
        )?;
        Enqueue::check_sets(|| slots().map(|slot| &slot.set))?;
        let ids: Vec<_> =
            slots().flat_map(|slot| slot.set.jobs.iter().map(|job| &job.id)).collect();
        match check::repeated(ids.into_iter()) {
            Some(id) => Err(InvalidRequest::DuplicateJob(id.clone())),
            None => Ok(()),
        }
    }
}

/// Why a schedule was not fired. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FireRefused {
    /// No such schedule is stored.
    #[error("no such schedule is stored")]
    NotFound,
    /// The record has changed since the caller read it, or another call is changing it.
    #[error("the schedule has changed since it was read: read it again")]
    Changed,
    /// The schedule is paused.
    #[error("the schedule is paused")]
    Paused,
    /// Another job holds the key of the slot's job.
    #[error("job {0} of the schedule is not terminal yet")]
    KeyHeld(JobId),
    /// The jobs of a slot cannot be stored.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}
