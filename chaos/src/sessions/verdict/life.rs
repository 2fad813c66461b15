//! Every job has one end in each of its lives, and members of flows run after their parents.

use std::collections::HashSet;

use taskharbor_core::{
    JobId, NewJob, State,
    job::{FailurePolicy, JobKind},
    life::LifeStep,
};

use super::{Deed, History, Origin, Round};

impl<'a> Round<'a> {
    pub(super) fn check_life(&self, id: &'a JobId, job: &History<'a>, problems: &mut Vec<String>) {
        if let Some(state) = self.stored.get(id).filter(|state| !state.is_terminal()) {
            problems.push(format!("{id}: {state} after everything was drained"));
        }
        let is_known = self.was_stored(id, job);
        if !is_known && (self.stored.contains_key(id) || !job.grants.is_empty()) {
            let why = if job.rolled_back {
                "its transaction was rolled back"
            } else {
                "no enqueue stored it"
            };
            problems.push(format!("{id}: it is there, but {why}"));
        }
        self.check_end(id, job, problems);
        self.check_parents(id, job, problems);
        let has_key = |asked: &&NewJob| {
            job.new.is_some_and(|new| {
                new.queue == asked.queue && new.idempotency_key == asked.idempotency_key
            })
        };
        if let Some(asked) = job.keys.iter().find(|asked| !has_key(asked)) {
            problems.push(format!("{id}: answered to {}, whose key it does not have", asked.id));
        }
    }

    fn check_end(&self, id: &'a JobId, job: &History<'_>, problems: &mut Vec<String>) {
        let ends = |step: LifeStep| State::Inflight.after(step).is_some_and(State::is_terminal);
        let ended: Vec<LifeStep> =
            job.settled().map(|(_, step)| step).filter(|step| ends(*step)).collect();
        let again = |deed: &&Deed| matches!(deed, Deed::Requeue | Deed::Detach);
        let lives = job.stored.max(1) + job.deeds.iter().filter(again).count();
        if ended.len() > lives {
            problems.push(format!("{id}: ended by {ended:?} in {lives} lives"));
        }
        if lives > 1 || self.was_cancelled(id, job) || !self.was_stored(id, job) {
            return;
        }
        let state = self.stored.get(id).copied();
        let is_right = match (ended.as_slice(), state) {
            ([LifeStep::Ack | LifeStep::Expand], Some(state)) => state == State::Done,
            ([LifeStep::Fail], Some(state)) => state == State::Dlq,
            // Members end with others, and joins by themselves.
            ([], state) => self.flow(id).is_some() && state != Some(State::Dlq),
            ([_], None) => true,
            _ => false,
        };
        if !is_right {
            problems.push(format!("{id}: ended by {ended:?} and is {state:?}"));
        }
    }

    /// Unless failures or people interfere, a job is granted after all its parents were settled.
    fn check_parents(&self, id: &'a JobId, job: &History<'a>, problems: &mut Vec<String>) {
        let (Some(new), Some(grant)) = (job.new, job.grants.first()) else { return };
        if new.is_failure_job() || new.parents.is_empty() || self.was_interfered_with(id) {
            return;
        }
        let mut waits_for: Vec<&JobId> = new.parents.iter().collect();
        while let Some(parent) = waits_for.pop() {
            let Some(history) = self.jobs.get(parent) else { continue };
            let Some(new) = history.new else { continue };
            if matches!(new.kind, JobKind::Join(_)) {
                waits_for.extend(&new.parents);
                continue;
            }
            let is_done = history.settled().any(|(event, step)| {
                matches!(step, LifeStep::Ack | LifeStep::Expand) && event.began < grant.event.ended
            });
            if !is_done {
                problems.push(format!("{id}: granted before its parent {parent} was done"));
            }
            // Its place was taken by the last job of the expansion.
            let jobs = history.expansion.map(|set| set.jobs.as_slice()).unwrap_or_default();
            let is_parent = |id: &JobId| jobs.iter().any(|job| job.parents.contains(id));
            waits_for.extend(jobs.iter().map(|job| &job.id).filter(|id| !is_parent(id)));
        }
    }

    /// Whether a member of the job's flow was cancelled or requeued, or others go on if it fails.
    fn was_interfered_with(&self, id: &'a JobId) -> bool {
        self.flow(id).is_none_or(|flow| self.interfered.contains(flow))
    }

    /// The flows with which people or failures interfered.
    pub(super) fn interfered(&self) -> HashSet<&'a JobId> {
        let members = self.jobs.iter().filter(|(_, job)| {
            let is_lenient = job.new.is_some_and(|new| new.on_failure == FailurePolicy::Continue);
            !job.deeds.is_empty() || is_lenient
        });
        members.filter_map(|(id, _)| self.flow(id)).collect()
    }

    /// Whether the job may have been removed together with its flow.
    pub(super) fn is_in_purged_flow(&self, id: &'a JobId) -> bool {
        self.flow_deed(id, Deed::PurgeFlow)
    }

    /// Whether it came by an expansion that may not have been stored.
    pub(super) fn is_uncertain(&self, id: &'a JobId, job: &History<'_>) -> bool {
        matches!(job.origin, Some(Origin::Expansion(_))) && !self.was_stored(id, job)
    }
}
