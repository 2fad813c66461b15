//! [`Schedules`]: all schedules of one service.

use std::collections::{HashMap, HashSet};

use taskharbor_core::{
    Blob, Timestamp,
    admin::{Declaration, NewSchedule, ScheduleRecord},
    driver::Limits,
    name::OwnerName,
};

use super::{Definition, InvalidSchedule, Schedule, ScheduleFault};
use crate::codec::Format;

/// All schedules of one service, the owner. Declaring the list removes the schedules of this owner
/// that are not in it. Schedules of other owners are not touched.
///
/// ```
/// use std::time::Duration;
///
/// use taskharbor::{Schedule, Schedules};
///
/// let ours = Schedules::owned_by("billing")
///     .version(7)
///     .add(Schedule::cron("invoices", "0 3 * * *").raw("invoices:make", b"{}"))
///     .add(Schedule::every("poll", Duration::from_secs(30)).raw("bank:poll", b"{}"));
/// ```
#[derive(Debug)]
#[must_use = "schedules do nothing until they are declared"]
pub struct Schedules {
    owner: String,
    version: Option<u64>,
    schedules: Vec<Schedule>,
}

/// Lets schedules keep their slots if they are due and their calendars stay the same. A store would
/// give them the first slot after now, and the slots that are due would be lost.
pub(crate) fn keep_due_slots(new: &mut [NewSchedule], due: &[ScheduleRecord]) {
    let stored: HashMap<_, _> = due.iter().map(|it| (&it.name, &it.definition)).collect();
    let calendar = |definition: &Blob| Definition::decode(definition).ok().map(|it| it.calendar);
    for new in new {
        if let Some(stored) = stored.get(&new.name) {
            let stored = calendar(stored);
            new.keeps_slot |= stored.is_some() && stored == calendar(&new.definition);
        }
    }
}

/// The same schedules, each first due at its first slot after `now`.
pub(crate) fn first_slots(mut declaration: Declaration, now: Timestamp) -> Declaration {
    for new in &mut declaration.schedules {
        // It was checked when the list was made, so it can be read.
        if let Ok(definition) = Definition::decode(&new.definition) {
            new.next_slot = definition.calendar.next_after(now).unwrap_or_default();
        }
    }
    declaration
}

impl Schedules {
    /// An empty list of this owner.
    pub fn owned_by(owner: impl Into<String>) -> Self {
        Self { owner: owner.into(), version: None, schedules: Vec::new() }
    }

    /// The version of this list, such as the number of a build. A list with a lower version than
    /// the stored one changes nothing, so that an old process that is still running does not undo a
    /// deploy. Defaults to none: the process that starts last decides.
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Adds a schedule.
    #[expect(clippy::should_implement_trait, reason = "it is no sum")]
    pub fn add(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// What is declared at `now`.
    pub(crate) fn into_declaration(
        self,
        format: &Format,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Declaration, InvalidSchedule> {
        let owner = OwnerName::new(&self.owner);
        let owner = owner.map_err(|it| ScheduleFault::from(it).of(&self.owner, "owned_by"))?;
        if let Some(version) = self.version.filter(|it| *it > Declaration::MAX_VERSION) {
            let range = "at most 9223372036854775807";
            let fault = ScheduleFault::OutOfRange(version.to_string(), range);
            return Err(fault.of(&self.owner, "version"));
        }
        let mut names = HashSet::new();
        if let Some(twice) = self.schedules.iter().find(|it| !names.insert(&it.name)) {
            return Err(ScheduleFault::DuplicateName.of(&twice.name, "name"));
        }
        let schedules = self.schedules.into_iter().map(|it| it.into_new(format, limits, now));
        Ok(Declaration::new(owner, self.version, schedules.collect::<Result<_, _>>()?))
    }
}
