//! Firing schedules: which are due, and the jobs of their slots.

use crate::{
    JobId, NewJob, Text, Timestamp,
    admin::ScheduleRecord,
    check,
    driver::{Enqueue, Limits},
    error::{InvalidRequest, Rejected},
    job::{JobSet, SetKind},
    name::ScheduleName,
    set::CheckedSet,
};

/// Asks for schedules that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DueSchedules {
    /// The next slot and the name of the last schedule of the previous page.
    pub after: Option<(Timestamp, ScheduleName)>,
    /// The greatest number of items to return.
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

    /// The schedules after one with this next slot and name.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Due {
    /// The schedules, by next slot and name.
    pub schedules: Vec<ScheduleRecord>,
    /// The earliest slot after now of all schedules that are not paused.
    pub next: Option<Timestamp>,
}

impl Due {
    /// An answer with these schedules, and the time at which the next one is due.
    #[must_use]
    pub const fn new(schedules: Vec<ScheduleRecord>, next: Option<Timestamp>) -> Self {
        Self { schedules, next }
    }
}

/// Asks to fire schedules.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fire {
    /// The firings; each is applied whole or not at all.
    pub items: Vec<FireSchedule>,
    /// The time that becomes the jobs' `created_at`.
    pub now: Timestamp,
}

/// One firing of a schedule: the jobs of some slots, and which slot is next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FireSchedule {
    /// The schedule.
    pub name: ScheduleName,
    /// The revision of the record that the caller read.
    pub revision: u64,
    /// The slots that get jobs, in their order.
    #[cfg_attr(feature = "serde", serde(default))]
    pub slots: Vec<SlotJobs>,
    /// The next slot; `None` after the last one.
    pub next_slot: Option<Timestamp>,
    /// How many slots are missed: they were due and get no job.
    #[cfg_attr(feature = "serde", serde(default))]
    pub missed: u64,
    /// Why slots that were due get no job, if that is a failure.
    pub error: Option<Text>,
    /// Whether the firing is refused while another job holds the key of the slot's job. Such a
    /// firing has at most one slot.
    #[cfg_attr(feature = "serde", serde(default))]
    pub waits_for_key: bool,
}

/// A slot and its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlotJobs {
    /// The instant for which the jobs are made.
    pub at: Timestamp,
    /// The jobs: a flow, or one job.
    pub set: JobSet,
}

impl SlotJobs {
    /// Creates the jobs of the slot at this instant.
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

    /// Counts this many slots as missed.
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

    /// Refuses the firing while another job holds the key of the slot's job.
    #[must_use]
    pub const fn waits_for_key(mut self) -> Self {
        self.waits_for_key = true;
        self
    }
}

impl Fire {
    /// A request for these firings.
    #[must_use]
    pub const fn new(items: Vec<FireSchedule>, now: Timestamp) -> Self {
        Self { items, now }
    }

    /// Checks the size of the call, and what does not depend on a store.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] for a schedule that is named twice, two jobs with one id, a slot without jobs,
    /// a slot with several jobs that are not a flow, and a call that is too large.
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
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
