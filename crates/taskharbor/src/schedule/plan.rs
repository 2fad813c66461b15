//! Chooses which due slots of a schedule are fired, by its policies. No I/O.

use std::time::Duration;

use taskharbor_core::{
    JobId, Text, Timestamp,
    admin::{Action, ScheduleRecord},
    driver::FireSchedule,
    name::ScheduleName,
};

use super::{
    Missed, Overlap,
    calendar::Count,
    definition::{Definition, DefinitionError},
    timing::NotAdvancing,
};
use crate::draft::InvalidJob;

/// The most jobs and bytes of one firing. Slots that do not fit are fired by the next one.
const MAX_JOBS: usize = 10_000;
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// What to do about a schedule that is due.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The firing.
    pub(crate) fire: FireSchedule,
    /// The job that the firing replaces. It is cancelled before the firing. If it is terminal, the
    /// cancellation is denied, which is not a failure.
    pub(crate) replaces: Option<(JobId, Action)>,
    /// The slots that the firing leaves out, until they are counted.
    left_out: Option<Count>,
}

impl Plan {
    const fn new(fire: FireSchedule) -> Self {
        Self { fire, replaces: None, left_out: None }
    }

    /// Counts this many of the slots that the firing leaves out. Answers whether all are counted: only then is the plan
    /// complete.
    pub(crate) fn count(&mut self, slots: u64) -> bool {
        let Some(left_out) = &mut self.left_out else { return true };
        match left_out.go_on(slots) {
            Ok(None) => return false,
            Ok(Some(missed)) => self.fire.missed = missed,
            Err(error) => {
                *self = unusable(self.fire.name.clone(), self.fire.revision, &error.into());
            }
        }
        self.left_out = None;
        true
    }
}

/// Only a newer worker can read the definition. This worker fires nothing.
#[derive(Debug, thiserror::Error)]
#[error("cannot fire schedule {name:?}: {cause}")]
pub(crate) struct NeedsNewerWorker {
    name: String,
    cause: DefinitionError,
}

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    #[error(transparent)]
    Timing(#[from] NotAdvancing),
    #[error(transparent)]
    Job(#[from] InvalidJob),
}

/// What to do about a schedule at `now`; the caller completes it with [`Plan::count`]. If no worker can use its definition, the firing stores no
/// jobs, records the error and leaves the schedule without a next slot.
pub(crate) fn plan(record: &ScheduleRecord, now: Timestamp) -> Result<Plan, NeedsNewerWorker> {
    let definition = match Definition::decode(&record.definition) {
        Err(DefinitionError::Malformed(why)) => Err(DefinitionError::Malformed(why).into()),
        Err(cause) => {
            return Err(NeedsNewerWorker { name: record.name.as_str().to_owned(), cause });
        }
        Ok(definition) => Ok(definition),
    };
    let plan = definition.and_then(|definition| firing(&definition, record, now));
    Ok(plan.unwrap_or_else(|error| unusable(record.name.clone(), record.revision, &error)))
}

fn unusable(name: ScheduleName, revision: u64, error: &Unusable) -> Plan {
    let fire = FireSchedule::new(name, revision, None);
    Plan::new(fire.error(Text::new(error.to_string())))
}

fn firing(
    definition: &Definition,
    record: &ScheduleRecord,
    now: Timestamp,
) -> Result<Plan, Unusable> {
    let unchanged = FireSchedule::new(record.name.clone(), record.revision, record.next_slot);
    let Some(first) = record.next_slot.filter(|first| *first <= now) else {
        return Ok(Plan::new(unchanged));
    };
    let calendar = &definition.calendar;
    let (max_age, at_most) = wanted(definition);
    let mut chosen = calendar.last(first.max(now.saturating_sub(max_age)), now, at_most)?;
    // Slots that are left out are older than the chosen ones.
    let left_out = match chosen.first() {
        Some(oldest) => calendar.count(first, *oldest)?,
        None => calendar.count(first, now.saturating_add(Duration::from_micros(1)))?,
    };
    let capacity = capacity(definition);
    let goes_on = chosen.len() > capacity;
    chosen.truncate(capacity);
    let next_slot = match chosen.last() {
        Some(last) if goes_on => calendar.next_after(*last)?,
        _ => calendar.next_after(now)?,
    };
    let slots = chosen.iter().map(|slot| definition.slot(&record.name, *slot));
    let slots = slots.collect::<Result<Vec<_>, _>>()?;
    let replaces = (definition.overlap == Overlap::Replace && !slots.is_empty())
        .then(|| previous(definition, record))
        .flatten();
    let fire = FireSchedule::new(record.name.clone(), record.revision, next_slot);
    let fire = fire.slots(slots);
    let fire = if definition.overlap == Overlap::Queue { fire.waits_for_key() } else { fire };
    Ok(Plan { fire, replaces, left_out: Some(left_out) })
}

/// The greatest age of a slot that is fired, and the most slots that are fired.
const fn wanted(definition: &Definition) -> (Duration, usize) {
    let (max_age, at_most) = match definition.missed {
        Missed::Latest => (definition.within, 1),
        Missed::Skip => (Definition::ON_TIME, 1),
        Missed::All { at_most } => (definition.within, at_most as usize),
    };
    // With `Replace`, each slot would cancel the job of the one before it.
    (max_age, if matches!(definition.overlap, Overlap::Replace) { 1 } else { at_most })
}

/// How many slots one firing may have.
fn capacity(definition: &Definition) -> usize {
    if definition.overlap == Overlap::Queue {
        return 1;
    }
    let (jobs, bytes) = (definition.template.jobs.len(), definition.template.bytes());
    (MAX_JOBS / jobs.max(1)).min(MAX_BYTES / bytes.max(1)).max(1)
}

/// The job of the last firing, and how it is cancelled.
fn previous(definition: &Definition, record: &ScheduleRecord) -> Option<(JobId, Action)> {
    let id = record.firings.last()?.job.id().clone();
    Some((id, if definition.template.is_flow { Action::CancelFlow } else { Action::Cancel }))
}

#[cfg(test)]
mod tests;
