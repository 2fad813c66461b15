//! For every promise that is checked, a log that breaks it, which must be reported.

use std::collections::HashMap;

use taskharbor_core::{JobId, State, driver::LeaseToken};

use super::{
    super::{
        log::{Line, What},
        producer::Acknowledged,
    },
    CLOCK_ERROR_US, NOTICED_US, SOON_US, Verdict,
};

fn id() -> JobId {
    JobId::new("a").unwrap()
}

fn token(delivery: u32) -> LeaseToken {
    LeaseToken::from_bits(delivery.into())
}

/// The end of the first lease.
const LEASE_END: i64 = 2_000_000;

/// Lines about one job, which was acknowledged and is stored as done.
#[derive(Clone, Default)]
struct Story(Vec<Line>);

impl Story {
    fn then(mut self, at: i64, what: What) -> Self {
        self.0.push(Line { at, clock: at, job: id(), what });
        self
    }

    /// The store's clock was so far ahead of the machine's from here on, or behind it.
    fn by_clock(mut self, from: usize, shift: i64) -> Self {
        for line in &mut self.0[from..] {
            line.clock += shift;
            if let What::Grant { expires_at, asked, .. } = &mut line.what {
                (*expires_at, *asked) = (*expires_at + shift, *asked + shift);
            }
        }
        self
    }

    fn run(self, at: i64, delivery: u32) -> Self {
        let expires_at = at + LEASE_END;
        self.then(at, What::Grant { delivery, token: token(delivery), expires_at, asked: at })
            .then(at, What::Start { delivery })
    }

    fn end(self, at: i64, delivery: u32) -> Self {
        self.then(at, What::End { delivery, succeeded: true })
    }

    fn ack(self, at: i64, delivery: u32) -> Self {
        self.then(at, What::Settle { token: token(delivery), began: at, ends: true })
    }

    fn judged(&self, state: Option<State>) -> Verdict {
        let jobs = vec![(id(), State::Done)];
        let acknowledged = Acknowledged { jobs, ..Acknowledged::default() };
        let stored = state.map(|state| (id(), state)).into_iter().collect::<HashMap<_, _>>();
        Verdict::of(&self.0, &acknowledged, &stored)
    }

    #[track_caller]
    fn is_fine(&self) {
        assert_eq!(self.judged(Some(State::Done)).problems, [""; 0]);
    }

    #[track_caller]
    fn is_reported(&self, words: &str) {
        let problems = self.judged(Some(State::Done)).problems;
        assert!(problems.iter().any(|problem| problem.contains(words)), "{problems:?}");
    }
}

fn done() -> Story {
    Story::default().run(0, 1).end(10, 1).ack(20, 1)
}

#[test]
fn what_was_acknowledged_is_done_and_ran() {
    done().is_fine();
    for state in [None, Some(State::Ready)] {
        assert_eq!(done().judged(state).problems.len(), 1, "{state:?}");
    }
    Story::default().is_reported("done after 0 runs that succeeded");
}

#[test]
fn a_run_may_begin_when_the_one_before_has_ended_or_lost_its_lease() {
    let again = |at| Story::default().run(0, 1).run(at, 2).end(at + 10, 2).ack(at + 20, 2);
    again(LEASE_END).is_fine();
    again(LEASE_END - CLOCK_ERROR_US).is_fine();
    again(LEASE_END - CLOCK_ERROR_US - 1).is_reported("before the lease of the run before ended");
    let failed = Story::default().run(0, 1).then(5, What::End { delivery: 1, succeeded: false });
    failed.run(10, 2).end(20, 2).ack(30, 2).is_fine();
}

#[test]
fn a_lease_lasts_as_long_as_the_clock_of_the_store_says() {
    let again = |at| Story::default().run(0, 1).run(at, 2).end(at + 10, 2).ack(at + 20, 2);
    // Set forward, the clock ends a lease early. Set back, it ends the lease late.
    again(5).by_clock(2, LEASE_END).is_fine();
    let (soon, back) = (LEASE_END / 2, -2 * LEASE_END);
    again(soon).by_clock(2, back).is_reported("before the lease of the run before ended");
    // The first worker gives up when no heartbeat was answered for as long as a lease.
    again(LEASE_END).by_clock(2, back).is_fine();
    // It was granted before the clock was set back, and starts after that.
    again(LEASE_END).by_clock(3, back).is_fine();
}

#[test]
fn a_heartbeat_counts_also_after_the_clock_was_set_back() {
    let (beat, back) = (LEASE_END / 2, -2 * LEASE_END);
    let extend = What::Extend { token: token(1), expires_at: LEASE_END };
    let again = |at| {
        Story::default()
            .run(0, 1)
            .then(beat, extend.clone())
            .run(at, 2)
            .end(at + 10, 2)
            .ack(at + 20, 2)
    };
    again(LEASE_END).by_clock(2, back).is_reported("before the lease of the run before ended");
    again(LEASE_END + beat).by_clock(2, back).is_fine();
}

#[test]
fn work_has_to_go_on_after_the_clock_was_set_back() {
    let judged_among = |started: i64, set_back_at: &[i64]| {
        let story = Story::default().run(started, 1);
        let mut verdict = story.judged(Some(State::Done));
        verdict.problems.clear();
        verdict.expect_work(&story.0, &[(id(), NOTICED_US + 1)], set_back_at);
        verdict.problems.len()
    };
    let judged = |started| judged_among(started, &[0]);
    assert_eq!(judged(NOTICED_US + SOON_US), 0);
    assert_eq!(judged(NOTICED_US + SOON_US + 1), 1);
    let late = NOTICED_US + SOON_US + 1;
    assert_eq!(judged_among(late, &[0, NOTICED_US]), 0, "it was set back again");
    assert_eq!(judged_among(late, &[0, NOTICED_US + SOON_US]), 1);
}

#[test]
fn a_heartbeat_keeps_others_away() {
    let (beat, expires_at) = (LEASE_END / 2, LEASE_END / 2 + LEASE_END);
    let extend = What::Extend { token: token(1), expires_at };
    let extended = Story::default().run(0, 1).then(beat, extend);
    let again = extended.run(LEASE_END, 2).end(LEASE_END + 10, 2).ack(LEASE_END + 20, 2);
    again.is_reported("before the lease of the run before ended");
}

#[test]
fn a_worker_that_lost_its_lease_changes_nothing() {
    let lost = Story::default().run(0, 1).run(LEASE_END, 2).end(LEASE_END + 5, 1);
    lost.clone().ack(LEASE_END + 10, 1).is_reported("settled it after it was lost");
    let story = lost.end(LEASE_END + 10, 2).ack(LEASE_END + 20, 2);
    story.is_fine();
    assert_eq!(story.judged(Some(State::Done)).stale_tokens(), [(id(), token(1))]);
}

#[test]
fn a_job_ends_once() {
    done().run(100, 2).end(110, 2).is_reported("delivered after delivery 1 had ended it");
    done().ack(30, 1).is_reported("ended 2 times");
}

#[test]
fn a_delivery_is_granted_and_started_once() {
    done().then(5, What::Start { delivery: 1 }).is_reported("started twice or ungranted");
    Story::default().then(5, What::Start { delivery: 1 }).is_reported("started twice or ungranted");
    done().run(0, 1).is_reported("a token was granted twice");
}
