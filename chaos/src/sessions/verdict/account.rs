//! Jobs that were stored and are gone were removed: purged by name, or counted by a prune.

use taskharbor_core::JobId;

use super::{Deed, History, Round};

impl<'a> Round<'a> {
    /// Compares what is gone with what was removed; answers how many jobs that are.
    pub(super) fn account(&self, problems: &mut Vec<String>) -> usize {
        let (mut gone, mut by_prune, mut unsure) = (0, 0, 0);
        for (id, job) in &self.jobs {
            if self.is_uncertain(id, job) {
                unsure += 1;
                continue;
            }
            let is_there = usize::from(self.stored.contains_key(*id));
            let removed = job.stored.saturating_sub(is_there);
            let purged = self.purged(id, job).min(removed);
            gone += removed;
            by_prune += removed - purged;
            // It left with its flow, or stayed behind and was pruned later.
            if purged > 0 && self.is_in_purged_flow(id) && self.may_be_detached(id) {
                unsure += purged;
            }
            let named = job.deeds.iter().filter(|deed| **deed == Deed::Purge).count();
            if named > removed {
                problems.push(format!("{id}: purged {named} times, but removed {removed} times"));
            }
        }
        let pruned = self.pruned;
        if !(by_prune..=by_prune + unsure).contains(&pruned) {
            problems.push(format!(
                "{by_prune} to {} jobs are gone that were not purged, and {pruned} were pruned",
                by_prune + unsure
            ));
        }
        gone
    }

    /// How often the job was purged, by its own name or with its flow.
    fn purged(&self, id: &'a JobId, job: &History<'_>) -> usize {
        let named = job.deeds.iter().filter(|deed| **deed == Deed::Purge).count();
        named + usize::from(self.is_in_purged_flow(id))
    }
}
