//! The comparison of the slots of a schedule with the stored jobs.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

use taskharbor_core::{JobId, State, Timestamp, admin::SlotTotals};

use crate::{Outcome, workers::producer::Acknowledged};

/// The distance of two slots.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// The stored jobs, and when each was stored.
pub(super) type Jobs = HashMap<JobId, Timestamp>;

/// What a schedule says of itself when no worker is left.
pub(super) struct Fired {
    pub(super) name: &'static str,
    /// Its slots from here on,
    pub(super) first: Timestamp,
    /// and before this one, are fired.
    pub(super) next: Timestamp,
    pub(super) totals: SlotTotals,
}

impl Fired {
    /// The slots that are fired, with the ids of their jobs.
    fn slots(&self) -> Outcome<Vec<(JobId, Timestamp)>> {
        let slots =
            std::iter::successors(Some(self.first), |slot| Some(slot.saturating_add(EVERY)));
        let named = |slot: Timestamp| {
            let text = slot.to_string().replace(".000000", "");
            Ok((JobId::new(format!("{}@{text}", self.name))?, slot))
        };
        slots.take_while(|slot| *slot < self.next).map(named).collect()
    }

    /// The promises that were broken.
    pub(super) fn problems(&self, jobs: &Jobs) -> Outcome<Vec<String>> {
        let slots = self.slots()?;
        let missing = slots.iter().filter(|(id, _)| !jobs.contains_key(id));
        let mut problems: Vec<String> =
            missing.map(|(id, _)| format!("{id}: the slot has no job")).collect();
        let prefix = format!("{}@", self.name);
        let stored = jobs.keys().filter(|id| id.as_str().starts_with(&prefix)).count();
        if stored != slots.len() {
            problems.push(format!("{}: {stored} jobs for {} slots", self.name, slots.len()));
        }
        if self.totals != SlotTotals::new(u64::try_from(slots.len())?, 0, 0) {
            problems.push(format!("{}: {:?} for {} slots", self.name, self.totals, slots.len()));
        }
        Ok(problems)
    }

    /// How many slots there were, and how late workers came to fire them.
    pub(super) fn summary(&self, jobs: &Jobs) -> Outcome<String> {
        let slots = self.slots()?;
        let late = slots.iter().filter_map(|(id, slot)| Some(jobs.get(id)?.since(*slot)));
        let mut late: Vec<Duration> = late.collect();
        late.sort();
        let at = |share: usize| late.get(late.len() * share / 100).copied().unwrap_or_default();
        let last = late.last().copied().unwrap_or_default();
        Ok(format!(
            "schedule {}: {} slots, fired after {:.0?} (median), {:.0?} (p99), {last:.0?} (last)",
            self.name,
            slots.len(),
            at(50),
            at(99),
        ))
    }
}

/// The jobs that have to be there, and done.
pub(super) fn acknowledged(fired: &[Fired]) -> Outcome<Acknowledged> {
    let mut jobs = Vec::new();
    for fired in fired {
        jobs.extend(fired.slots()?.into_iter().map(|(id, _)| (id, State::Done)));
    }
    Ok(Acknowledged { jobs, ..Acknowledged::default() })
}
