//! The history of many tasks on one store, and the check that it is possible.
//!
//! Every call is recorded with the moments at which it began and ended, counted on one counter.
//! Two calls of which one ended before the other began have an order; of others nothing is known,
//! and nothing is assumed. The grants of one job are ordered by the deliveries that they show.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use taskharbor_core::{
    JobId, NewJob, State, Timestamp,
    driver::{Enqueued, Extended, LeaseToken, Leased, Settled},
    error::{Refusal, Rejected},
    job::JobRecord,
    life::LifeStep,
    name::Holder,
};

/// Everything that happened.
#[derive(Debug, Default)]
pub(crate) struct History {
    counter: AtomicU64,
    events: Mutex<Vec<Event>>,
}

/// One answer to one call.
#[derive(Debug)]
pub(crate) struct Event {
    began: u64,
    ended: u64,
    now: Timestamp,
    what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Enqueue {
        job: NewJob,
        answer: Result<Enqueued, Rejected>,
    },
    Grant {
        holder: Holder,
        leased: Leased,
    },
    /// All leases of a holder end at `now`.
    Evict(Holder),
    Extend {
        id: JobId,
        token: LeaseToken,
        answer: Result<Extended, Refusal>,
    },
    Settle {
        id: JobId,
        token: LeaseToken,
        step: LifeStep,
        answer: Result<Settled, Refusal>,
    },
}

impl History {
    /// The moment at which a call begins.
    pub(crate) fn begin(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::SeqCst)
    }

    /// Records answers to a call that has just ended.
    pub(crate) fn end(&self, began: u64, now: Timestamp, what: impl IntoIterator<Item = What>) {
        let ended = self.counter.fetch_add(1, Ordering::SeqCst);
        let events = what.into_iter().map(|what| Event { began, ended, now, what });
        self.events.lock().expect("no panic while it is locked").extend(events);
    }

    /// Every contradiction between what happened and the contract, given what was left in the
    /// store when all work was done.
    pub(crate) fn contradictions(self, stored: &HashMap<JobId, JobRecord>) -> Vec<String> {
        let events = self.events.into_inner().expect("no panic while it is locked");
        let evictions = events.iter().filter_map(|event| match &event.what {
            What::Evict(holder) => Some((event, holder)),
            _ => None,
        });
        let mut checker = Checker { stored, evictions: evictions.collect(), found: Vec::new() };
        let mut jobs: HashMap<&JobId, OneJob<'_>> = HashMap::new();
        for event in &events {
            let id = match &event.what {
                What::Enqueue { job, .. } => &job.id,
                What::Grant { leased, .. } => &leased.job.id,
                What::Evict(_) => continue,
                What::Extend { id, .. } | What::Settle { id, .. } => id,
            };
            jobs.entry(id).or_default().add(event);
        }
        checker.keys(&events);
        checker.tokens(&events);
        for (id, job) in &mut jobs {
            job.grants.sort_by_key(|(_, leased)| leased.job.deliveries);
            checker.stored_once(id, job);
            checker.grants(id, job);
            checker.leases(id, job);
            checker.endings(id, job);
            checker.parents(id, job, &events);
        }
        let inserted = jobs.values().filter(|job| job.inserted().next().is_some()).count();
        checker.expect(stored.len() == inserted, "S11", || {
            format!("{} jobs are stored, {inserted} were inserted", stored.len())
        });
        checker.found
    }
}

/// What happened to one job.
#[derive(Default)]
struct OneJob<'a> {
    enqueues: Vec<(&'a NewJob, &'a Result<Enqueued, Rejected>)>,
    grants: Vec<(&'a Event, &'a Leased)>,
    holders: HashMap<LeaseToken, &'a Holder>,
    extends: Vec<(&'a Event, LeaseToken, &'a Result<Extended, Refusal>)>,
    settles: Vec<(&'a Event, LeaseToken, LifeStep, &'a Result<Settled, Refusal>)>,
}

impl<'a> OneJob<'a> {
    fn add(&mut self, event: &'a Event) {
        match &event.what {
            What::Enqueue { job, answer } => self.enqueues.push((job, answer)),
            What::Grant { holder, leased } => {
                self.grants.push((event, leased));
                self.holders.insert(leased.lease.token, holder);
            }
            What::Evict(_) => {}
            What::Extend { token, answer, .. } => self.extends.push((event, *token, answer)),
            What::Settle { token, step, answer, .. } => {
                self.settles.push((event, *token, *step, answer));
            }
        }
    }

    fn inserted(&self) -> impl Iterator<Item = &'a NewJob> {
        let inserted =
            |answer: &&Result<Enqueued, Rejected>| answer.as_ref().is_ok_and(Enqueued::is_new);
        self.enqueues.iter().filter(move |(_, answer)| inserted(answer)).map(|(job, _)| *job)
    }

    fn extensions(&self, token: LeaseToken) -> impl Iterator<Item = (&'a Event, &'a Extended)> {
        let of_token = self.extends.iter().filter(move |(_, by, _)| *by == token);
        of_token.filter_map(|(event, _, answer)| Some((*event, answer.as_ref().ok()?)))
    }

    fn applied(&self, token: LeaseToken) -> impl Iterator<Item = (&'a Event, LifeStep)> {
        let of_token = self.settles.iter().filter(move |(_, by, ..)| *by == token);
        let applied = of_token.filter(|(.., answer)| **answer == Ok(Settled::Applied));
        applied.map(|(event, _, step, _)| (*event, *step))
    }

    /// The latest end that the lease can have had when `event` happened: `event` itself, if it is
    /// an extension, and what began after it do not count.
    fn lease_end(&self, leased: &Leased, event: Option<&Event>) -> Timestamp {
        let counts = |other: &Event| {
            event.is_none_or(|event| other.began < event.ended && !std::ptr::eq(other, event))
        };
        let extended = self.extensions(leased.lease.token).filter(|(other, _)| counts(other));
        let latest = extended.map(|(_, it)| it.lease.expires_at).max();
        latest.map_or(leased.lease.expires_at, |end| end.max(leased.lease.expires_at))
    }

    /// An eviction that ended the lease before `act`, at its time or earlier, if no extension can have
    /// come in between.
    fn evicted_before(
        &self,
        token: LeaseToken,
        grant: &Event,
        evictions: &[&'a Event],
        act: &Event,
    ) -> Option<&'a Event> {
        let is_extended = |since: &Event| {
            let mut between = self.extensions(token).map(|(event, _)| event).filter(|event| {
                since.began < event.ended && event.began < act.ended && !std::ptr::eq(*event, act)
            });
            between.next().is_some()
        };
        evictions.iter().copied().find(|it| {
            grant.ended < it.began && it.ended < act.began && it.now <= act.now && !is_extended(it)
        })
    }

    /// Refusals of a token.
    fn refusals(&self, token: LeaseToken) -> impl Iterator<Item = &'a Event> {
        let extends =
            self.extends.iter().filter(move |(_, by, answer)| *by == token && answer.is_err());
        let settles =
            self.settles.iter().filter(move |(_, by, _, answer)| *by == token && answer.is_err());
        extends.map(|(event, ..)| *event).chain(settles.map(|(event, ..)| *event))
    }
}

/// Collects contradictions, each under the name of the invariant it breaks.
struct Checker<'a> {
    stored: &'a HashMap<JobId, JobRecord>,
    evictions: Vec<(&'a Event, &'a Holder)>,
    found: Vec<String>,
}

impl<'a> Checker<'a> {
    fn expect(&mut self, holds: bool, invariant: &str, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.found.push(format!("{invariant}: {}", otherwise()));
        }
    }

    /// The evictions that may have ended a lease of this holder that was granted by this call.
    fn evictions_after(&self, grant: &Event, holder: Option<&Holder>) -> Vec<&'a Event> {
        let of_holder = self.evictions.iter().filter(|(_, evicted)| Some(*evicted) == holder);
        of_holder.map(|(event, _)| *event).filter(|event| grant.began < event.ended).collect()
    }

    /// S10: all enqueues with one key name one job, which one of them stored.
    fn keys(&mut self, events: &[Event]) {
        let mut by_key: HashMap<_, Vec<&Enqueued>> = HashMap::new();
        for event in events {
            if let What::Enqueue { job, answer: Ok(answer) } = &event.what
                && let Some(key) = &job.idempotency_key
            {
                by_key.entry((&job.queue, key)).or_default().push(answer);
            }
        }
        for (key, answers) in by_key {
            let ids: HashSet<_> = answers.iter().map(|answer| answer.id()).collect();
            let new: HashSet<_> =
                answers.iter().filter(|answer| answer.is_new()).map(|answer| answer.id()).collect();
            self.expect(ids.len() == 1 && new == ids, "S10", || format!("{key:?}: {answers:?}"));
        }
    }

    /// S3: no token is given twice.
    fn tokens(&mut self, events: &[Event]) {
        let mut seen = HashSet::new();
        for event in events {
            if let What::Grant { leased, .. } = &event.what {
                self.expect(seen.insert(leased.lease.token), "S3", || format!("{leased:?} again"));
            }
        }
    }

    /// S1, S13: what was inserted is stored, was inserted once, and has come to an end; what was
    /// only rejected is not stored.
    fn stored_once(&mut self, id: &JobId, job: &OneJob<'_>) {
        let inserted = job.inserted().count();
        let record = self.stored.get(id);
        self.expect(inserted <= 1, "S10", || format!("{id} was inserted {inserted} times"));
        self.expect((inserted == 1) == record.is_some(), "S1", || {
            format!("{id} was inserted {inserted} times and is stored as {record:?}")
        });
        let is_held = |record: &JobRecord| {
            let failed = |parent| self.stored.get(parent).is_some_and(|it| it.state == State::Dlq);
            record.state == State::Blocked && record.parents.iter().any(failed)
        };
        let over = record.is_none_or(|record| record.state.is_terminal() || is_held(record));
        self.expect(over, "S1", || format!("{id} never came to an end"));
    }

    /// S7, S8, S9: grants are not early, are counted, and show what was enqueued.
    fn grants(&mut self, id: &JobId, job: &OneJob<'_>) {
        let Some(new) = job.inserted().next() else { return };
        let counted: Vec<u32> =
            job.grants.iter().map(|(_, leased)| leased.job.deliveries).collect();
        let expected: Vec<u32> = (1..).take(counted.len()).collect();
        self.expect(counted == expected, "S8", || format!("{id} was granted as {counted:?}"));
        let stored = self.stored.get(id).map(|record| record.job.deliveries);
        let last = u32::try_from(counted.len()).ok();
        self.expect(stored == last, "S8", || format!("{id} shows {stored:?} of {last:?} grants"));
        let mut attempts = 0;
        // Before the first retry the job waits for the time it was enqueued with.
        let mut run_at = new.run_at;
        for (event, leased) in &job.grants {
            let seen = &leased.job;
            self.expect(seen.attempts == attempts, "S8", || {
                format!("{id} was granted with {} attempts, not {attempts}", seen.attempts)
            });
            let early = run_at.max(seen.run_at).is_some_and(|run_at| run_at > event.now);
            self.expect(!early && seen.queue == new.queue, "S7", || format!("{event:?}"));
            let retried = job.applied(leased.lease.token).any(|(_, step)| step == LifeStep::Retry);
            if retried {
                (attempts, run_at) = (attempts + 1, None);
            }
            let same = seen.payload == new.payload
                && seen.headers == new.headers
                && seen.job_type == new.job_type;
            self.expect(same, "S9", || format!("{id} is granted as {seen:?}, not {new:?}"));
        }
    }

    /// S2, S4, S12: leases exclude each other, and only their holders act, and only while they
    /// last.
    fn leases(&mut self, id: &JobId, job: &OneJob<'_>) {
        for (at, (grant, leased)) in job.grants.iter().enumerate() {
            let token = leased.lease.token;
            let evictions = self.evictions_after(grant, job.holders.get(&token).copied());
            let end = job.lease_end(leased, None);
            let next = job.grants.get(at + 1).map(|(event, _)| *event);
            let settled = job.applied(token).next().map(|(event, _)| event);
            if let (Some(next), None) = (next, settled) {
                let ended = evictions.iter().filter(|it| it.began < next.ended).map(|it| it.now);
                let end = ended.fold(end, Timestamp::min);
                self.expect(next.now >= end, "S2", || format!("{id}: {next:?} before {end}"));
            }
            let acts = job.applied(token).map(|(event, _)| event);
            let acts = acts.chain(job.extensions(token).map(|(event, _)| event));
            for act in acts {
                let end = job.lease_end(leased, Some(act));
                self.expect(act.now < end, "S4", || format!("{id}: {act:?} at or after {end}"));
                let evicted = job.evicted_before(token, grant, &evictions, act);
                self.expect(evicted.is_none(), "S4", || format!("{id}: {act:?} after {evicted:?}"));
                let late = next.is_some_and(|next| act.began > next.ended);
                self.expect(!late, "S4", || format!("{id}: {act:?} after {next:?}"));
            }
            for (event, extended) in job.extensions(token) {
                let earlier = job.extensions(token).filter(|(other, _)| other.ended < event.began);
                let least = earlier.map(|(_, other)| other.lease.expires_at).max();
                let least = least.unwrap_or(leased.lease.expires_at);
                // After an eviction there is a shorter lease to extend.
                let was_evicted = evictions.iter().any(|it| it.began < event.ended);
                let shortened = extended.lease.expires_at < least && !was_evicted;
                self.expect(!shortened, "S12", || format!("{id}: {event:?} shortens {least}"));
                let after_end = settled.is_some_and(|settled| settled.ended < event.began);
                self.expect(!after_end, "S4", || format!("{id}: {event:?} after {settled:?}"));
            }
            for refusal in job.refusals(token) {
                let settled_before = settled.is_some_and(|it| it.began < refusal.ended);
                let taken_before = next.is_some_and(|next| next.began < refusal.ended);
                let mut ended = evictions.iter().filter(|it| it.began < refusal.ended);
                let over =
                    refusal.now >= leased.lease.expires_at || ended.any(|it| it.now <= refusal.now);
                self.expect(settled_before || taken_before || over, "S4", || {
                    format!("{id}: {refusal:?} without a reason")
                });
            }
            let count = job.applied(token).count();
            self.expect(count <= 1, "S4", || format!("{id}: {count} settlements by one token"));
        }
        let known: HashSet<_> = job.grants.iter().map(|(_, leased)| leased.lease.token).collect();
        for (event, token, step, answer) in &job.settles {
            let applied = job.applied(*token).next().is_some();
            let right = match answer {
                Ok(Settled::Applied) => known.contains(token),
                Ok(Settled::AlreadyTerminal) => applied,
                Err(_) => true,
            };
            self.expect(right, "S4", || format!("{id}: {step:?} in {event:?}"));
        }
    }

    /// S5, S6: a job ends once and is not granted afterwards.
    fn endings(&mut self, id: &JobId, job: &OneJob<'_>) {
        let ends = |step: LifeStep| State::Inflight.after(step).is_some_and(State::is_terminal);
        let endings: Vec<&Event> = job
            .grants
            .iter()
            .flat_map(|(_, leased)| job.applied(leased.lease.token))
            .filter(|(_, step)| ends(*step))
            .map(|(event, _)| event)
            .collect();
        self.expect(endings.len() <= 1, "S6", || format!("{id} ended in {endings:?}"));
        for ending in endings {
            let after = job.grants.iter().find(|(grant, _)| grant.began > ending.ended);
            self.expect(after.is_none(), "S5", || format!("{id}: {after:?} after {ending:?}"));
        }
    }

    /// S14: a member is granted only after each of its parents was acked.
    fn parents(&mut self, id: &JobId, job: &OneJob<'_>, events: &[Event]) {
        let parents: HashSet<&JobId> = job.inserted().flat_map(|new| &new.parents).collect();
        let Some((first, _)) = job.grants.first().filter(|_| !parents.is_empty()) else { return };
        let acked: HashSet<&JobId> = events
            .iter()
            .filter(|event| event.began < first.ended)
            .filter_map(|event| match &event.what {
                What::Settle { id, step: LifeStep::Ack, answer: Ok(Settled::Applied), .. } => {
                    Some(id)
                }
                _ => None,
            })
            .filter(|id| parents.contains(id))
            .collect();
        self.expect(acked.len() == parents.len(), "S14", || {
            format!("{id} was granted after {} of {} parents", acked.len(), parents.len())
        });
    }
}
