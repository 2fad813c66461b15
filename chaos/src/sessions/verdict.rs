//! The check that the answers to all sessions and the stored jobs keep every promise.

mod account;
mod lease;
mod life;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use taskharbor_core::{JobId, NewJob, State, Timestamp, driver::LeaseToken, life::LifeStep};

use super::event::{Deed, Event, Origin, Stored, What};
use crate::Outcome;

/// What was found.
pub(crate) struct Verdict {
    problems: Vec<String>,
    stored: usize,
    removed: usize,
    grants: usize,
}

impl Verdict {
    /// Compares the events of a round with what was stored when all work was done.
    pub(crate) fn of(events: &[Event], stored: &HashMap<JobId, State>) -> Self {
        let round = Round::of(events, stored);
        let mut problems = Vec::new();
        let removed = round.account(&mut problems);
        round.check_tokens(&mut problems);
        for (id, job) in &round.jobs {
            round.check_leases(id, job, &mut problems);
            round.check_life(id, job, &mut problems);
        }
        // Maps have no order that a run could repeat.
        problems.sort();
        let grants = round.jobs.values().map(|job| job.grants.len()).sum();
        Self { problems, stored: stored.len(), removed, grants }
    }

    pub(crate) fn fail(self) -> Outcome {
        crate::fail_if_any(&self.problems)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stored, removed, grants, .. } = self;
        write!(f, "{grants} grants, {stored} jobs stored at the end, {removed} removed")
    }
}

/// Everything that happened in a round, by job.
struct Round<'a> {
    stored: &'a HashMap<JobId, State>,
    jobs: HashMap<&'a JobId, History<'a>>,
    /// The flows with which people or failures interfered.
    interfered: HashSet<&'a JobId>,
    pruned: usize,
}

/// Everything that happened to one job.
#[derive(Default)]
struct History<'a> {
    /// How often it was stored, and as what.
    stored: usize,
    new: Option<&'a NewJob>,
    origin: Option<&'a Origin>,
    rolled_back: bool,
    /// In the order of deliveries.
    grants: Vec<Grant<'a>>,
    acts: HashMap<LeaseToken, Acts<'a>>,
    settled_before: Vec<LeaseToken>,
    deeds: Vec<Deed>,
    /// The jobs that it expanded into.
    expansion: Option<&'a Stored>,
    /// Enqueues that were answered with this job, because it holds their key.
    keys: Vec<&'a NewJob>,
}

/// What was accepted from one token.
#[derive(Default)]
struct Acts<'a> {
    extended: Vec<(&'a Event, Timestamp)>,
    settled: Vec<(&'a Event, LifeStep)>,
}

struct Grant<'a> {
    event: &'a Event,
    token: LeaseToken,
    expires_at: Timestamp,
    delivery: u32,
}

impl<'a> Round<'a> {
    fn of(events: &'a [Event], stored: &'a HashMap<JobId, State>) -> Self {
        let (jobs, interfered) = (HashMap::new(), HashSet::new());
        let mut round = Self { stored, jobs, interfered, pruned: 0 };
        for event in events {
            round.add(event);
        }
        for job in round.jobs.values_mut() {
            job.grants.sort_by_key(|grant| (grant.delivery, grant.event.ended));
        }
        round.interfered = round.interfered();
        round
    }

    fn job(&mut self, id: &'a JobId) -> &mut History<'a> {
        self.jobs.entry(id).or_default()
    }

    fn add(&mut self, event: &'a Event) {
        match &event.what {
            What::Stored(set) => self.add_stored(set),
            What::KeyHeld { job, by } => self.job(by).keys.push(job),
            What::RolledBack(id) => self.job(id).rolled_back = true,
            What::Granted { id, token, expires_at, delivery } => {
                let (token, expires_at, delivery) = (*token, *expires_at, *delivery);
                self.job(id).grants.push(Grant { event, token, expires_at, delivery });
            }
            What::Extended { id, token, expires_at } => {
                let acts = self.job(id).acts.entry(*token).or_default();
                acts.extended.push((event, *expires_at));
            }
            What::Settled { id, token, step } => {
                self.job(id).acts.entry(*token).or_default().settled.push((event, *step));
            }
            What::SettledBefore { id, token } => self.job(id).settled_before.push(*token),
            What::Managed { id, deed } => self.job(id).deeds.push(*deed),
            What::Pruned(count) => self.pruned += count,
        }
    }

    fn add_stored(&mut self, set: &'a Stored) {
        for new in &set.jobs {
            let job = self.job(&new.id);
            job.stored += 1;
            (job.new, job.origin) = (Some(new), Some(&set.origin));
        }
        if let Origin::Expansion(of) = &set.origin {
            self.job(of).expansion = Some(set);
        }
    }

    /// The flow of a job.
    fn flow(&self, id: &'a JobId) -> Option<&'a JobId> {
        let job = self.jobs.get(id)?;
        match job.origin? {
            Origin::Flow(tail) => Some(tail),
            Origin::Expansion(of) => Some(self.flow(of).unwrap_or(of)),
            Origin::Plain => job.expansion.is_some().then_some(id),
        }
    }

    fn flow_deed(&self, id: &'a JobId, deed: Deed) -> bool {
        let flow = self.flow(id).and_then(|flow| self.jobs.get(flow));
        flow.is_some_and(|flow| flow.deeds.contains(&deed))
    }

    /// Whether cancellation of a job was requested, by itself or with its flow.
    fn was_cancelled(&self, id: &'a JobId, job: &History<'_>) -> bool {
        job.deeds.contains(&Deed::Cancel) || self.flow_deed(id, Deed::CancelFlow)
    }

    /// Whether the job, or one that expanded into it, may have left its flow.
    fn may_be_detached(&self, id: &'a JobId) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        job.deeds.contains(&Deed::Detach)
            || matches!(job.origin, Some(Origin::Expansion(of)) if self.may_be_detached(of))
    }

    /// Whether it is known that the job was stored. Jobs of an expansion are not if the expanded job
    /// was cancelled before.
    fn was_stored(&self, id: &'a JobId, job: &History<'_>) -> bool {
        let Some(Origin::Expansion(of)) = job.origin else { return job.stored > 0 };
        let Some(parent) = self.jobs.get(of) else { return false };
        let is_certain = !self.was_cancelled(of, parent) && self.was_stored(of, parent);
        is_certain || self.stored.contains_key(id) || !job.grants.is_empty()
    }
}

impl History<'_> {
    fn is_shared(id: &JobId) -> bool {
        super::job::is_shared(id)
    }

    /// The latest end that the lease can have had when `act` happened, `act` itself aside.
    fn lease_end(&self, grant: &Grant<'_>, act: Option<&Event>) -> Timestamp {
        let counts = |other: &Event| {
            act.is_none_or(|act| other.began < act.ended && !std::ptr::eq(other, act))
        };
        let extended = self.acts.get(&grant.token).into_iter().flat_map(|acts| &acts.extended);
        let extended = extended.filter(|(event, _)| counts(event));
        extended.map(|(_, end)| *end).fold(grant.expires_at, Timestamp::max)
    }

    fn is_settled_by(&self, token: LeaseToken) -> bool {
        self.acts.get(&token).is_some_and(|acts| !acts.settled.is_empty())
    }

    fn settled(&self) -> impl Iterator<Item = (&Event, LifeStep)> {
        self.acts.values().flat_map(|acts| acts.settled.iter().map(|(event, step)| (*event, *step)))
    }
}

impl Round<'_> {
    /// No two grants have one token.
    fn check_tokens(&self, problems: &mut Vec<String>) {
        let mut seen = HashSet::new();
        for (id, job) in &self.jobs {
            for grant in &job.grants {
                if !seen.insert(grant.token) {
                    problems.push(format!("{id}: a token was granted twice"));
                }
            }
        }
    }
}
