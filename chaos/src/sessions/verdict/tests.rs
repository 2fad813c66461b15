//! For every promise that is checked, a history that breaks it, which must be reported.

use std::{collections::HashMap, time::Duration};

use taskharbor_core::{
    JobId, JobType, NewJob, QueueName, State, Timestamp, driver::LeaseToken, life::LifeStep,
    name::IdempotencyKey,
};

use super::{
    super::event::{Deed, Event, Origin, Stored, What},
    Verdict,
};

fn id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

fn job(text: &str) -> NewJob {
    NewJob::new(id(text), QueueName::new("q").unwrap(), JobType::new("t").unwrap(), b"")
}

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH.saturating_add(Duration::from_millis(millis))
}

/// Calls, one after another.
#[derive(Default)]
struct Story {
    events: Vec<Event>,
    stored: HashMap<JobId, State>,
}

impl Story {
    /// A call at this time, after all others.
    fn then(mut self, millis: u64, what: What) -> Self {
        let began = self.events.len() as u64 * 2;
        self.events.push(Event { began, ended: began + 1, now: at(millis), what });
        self
    }

    fn put(self, jobs: Vec<NewJob>, origin: Origin) -> Self {
        self.then(0, What::Stored(Stored { jobs, origin }))
    }

    fn grant(self, millis: u64, job: &str, delivery: u32) -> Self {
        let (token, expires_at) = (LeaseToken::from_bits(delivery.into()), at(millis + 100));
        self.then(millis, What::Granted { id: id(job), token, expires_at, delivery })
    }

    fn settle(self, millis: u64, job: &str, delivery: u32, step: LifeStep) -> Self {
        let token = LeaseToken::from_bits(delivery.into());
        self.then(millis, What::Settled { id: id(job), token, step })
    }

    fn deed(self, job: &str, deed: Deed) -> Self {
        self.then(50, What::Managed { id: id(job), deed })
    }

    /// Is stored at the end.
    fn ends(mut self, job: &str, state: State) -> Self {
        self.stored.insert(id(job), state);
        self
    }

    fn problems(&self) -> Vec<String> {
        Verdict::of(&self.events, &self.stored).problems
    }

    #[track_caller]
    fn is_fine(&self) {
        assert_eq!(self.problems(), [""; 0]);
    }

    #[track_caller]
    fn is_reported(&self, words: &str) {
        let problems = self.problems();
        assert!(problems.iter().any(|problem| problem.contains(words)), "{problems:?}");
    }
}

/// A job that was stored and leased from 10 to 110.
fn granted() -> Story {
    Story::default().put(vec![job("a")], Origin::Plain).grant(10, "a", 1)
}

fn done() -> Story {
    granted().settle(20, "a", 1, LifeStep::Ack)
}

#[test]
fn a_job_that_is_done_is_fine() {
    done().ends("a", State::Done).is_fine();
}

#[test]
fn a_job_that_is_gone_has_to_have_been_removed() {
    done().is_reported("1 to 1 jobs are gone that were not purged, and 0 were pruned");
    done().then(200, What::Pruned(1)).is_fine();
    done().deed("a", Deed::Purge).is_fine();
    done().ends("a", State::Done).then(200, What::Pruned(1)).is_reported("and 1 were pruned");
    done().ends("a", State::Done).deed("a", Deed::Purge).is_reported("purged 1 times");
}

#[test]
fn a_job_has_to_end() {
    granted().ends("a", State::Ready).is_reported("ready after everything was drained");
    done().ends("a", State::Dlq).is_reported("ended by [Ack] and is Some(Dlq)");
    let twice = done().grant(30, "a", 2).settle(40, "a", 2, LifeStep::Ack);
    twice.ends("a", State::Done).is_reported("in 1 lives");
    let requeued = granted().settle(20, "a", 1, LifeStep::Fail).deed("a", Deed::Requeue);
    requeued.grant(60, "a", 2).settle(70, "a", 2, LifeStep::Ack).ends("a", State::Done).is_fine();
}

#[test]
fn a_lease_excludes_others_until_it_ends() {
    let again = |millis| granted().grant(millis, "a", 2).settle(millis, "a", 2, LifeStep::Ack);
    again(110).ends("a", State::Done).is_fine();
    again(109).ends("a", State::Done).is_reported("before its lease ended");
    let (token, expires_at) = (LeaseToken::from_bits(1), at(300));
    let extended = granted().then(20, What::Extended { id: id("a"), token, expires_at });
    let again = extended.grant(299, "a", 2).settle(299, "a", 2, LifeStep::Ack);
    again.ends("a", State::Done).is_reported("before its lease ended");
}

#[test]
fn a_token_of_an_older_grant_is_worthless() {
    let stale = granted().grant(110, "a", 2).settle(100, "a", 1, LifeStep::Ack);
    stale.ends("a", State::Done).is_reported("accepted after the job was granted again");
    let late = granted().settle(110, "a", 1, LifeStep::Ack);
    late.ends("a", State::Done).is_reported("accepted after its lease ended");
    let unknown = granted().settle(20, "a", 7, LifeStep::Ack);
    unknown.ends("a", State::Done).is_reported("a token that no reserve answered");
    let token = LeaseToken::from_bits(1);
    let repeated = granted().then(20, What::SettledBefore { id: id("a"), token });
    repeated.ends("a", State::Done).is_reported("never made");
}

#[test]
fn tokens_and_deliveries_are_not_given_twice() {
    let gap = granted().grant(110, "a", 3).settle(120, "a", 3, LifeStep::Ack);
    gap.ends("a", State::Done).is_reported("the deliveries are [1, 3]");
    let twice = granted().put(vec![job("b")], Origin::Plain).grant(10, "b", 1);
    twice.is_reported("a token was granted twice");
}

#[test]
fn what_was_rolled_back_is_not_there() {
    let story = Story::default().then(0, What::RolledBack(id("a")));
    story.is_fine();
    story.grant(10, "a", 1).is_reported("its transaction was rolled back");
    Story::default().ends("b", State::Done).grant(10, "b", 1).is_reported("no enqueue stored it");
}

#[test]
fn a_finalizer_runs_after_its_parents() {
    let flow = || {
        let join = NewJob::join(id("j"), QueueName::new("q").unwrap(), [id("a")]);
        let jobs = vec![job("a"), join, job("end").after([id("j")])];
        Story::default().put(jobs, Origin::Flow(id("end")))
    };
    let ends = |story: Story| {
        let jobs = ["a", "j", "end"];
        jobs.into_iter().fold(story, |story, job| story.ends(job, State::Done))
    };
    let right = flow().grant(10, "a", 1).settle(20, "a", 1, LifeStep::Ack);
    let right = right.then(
        30,
        What::Granted {
            id: id("end"),
            token: LeaseToken::from_bits(9),
            expires_at: at(130),
            delivery: 1,
        },
    );
    let end = What::Settled { id: id("end"), token: LeaseToken::from_bits(9), step: LifeStep::Ack };
    ends(right.then(40, end)).is_fine();
    let early = flow().grant(10, "end", 1).settle(20, "end", 1, LifeStep::Ack);
    ends(early).is_reported("granted before its parent a was done");
}

#[test]
fn the_jobs_of_an_expansion_are_stored_unless_the_job_was_cancelled() {
    let origin = Origin::Expansion(id("a"));
    let expanded = || {
        let expanded = granted().settle(20, "a", 1, LifeStep::Expand).ends("a", State::Done);
        expanded.put(vec![job("x")], origin.clone())
    };
    expanded().is_reported("1 to 1 jobs are gone");
    expanded().deed("a", Deed::Cancel).is_fine();
}

#[test]
fn a_key_is_answered_with_the_job_that_has_it() {
    let keyed =
        |text: &str, key: &str| job(text).idempotency_key(IdempotencyKey::new(key).unwrap());
    let held = |key| {
        let story = Story::default().put(vec![keyed("a", "k")], Origin::Plain);
        let story = story.then(5, What::KeyHeld { job: keyed("b", key), by: id("a") });
        story.grant(10, "a", 1).settle(20, "a", 1, LifeStep::Ack).ends("a", State::Done)
    };
    held("k").is_fine();
    held("other").is_reported("whose key it does not have");
}
