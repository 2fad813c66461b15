//! Refusals: which reason is given, that nothing changes, and that other items are not disturbed.

use taskharbor_core::{
    Admin, Blob, Driver, State, Timestamp,
    admin::{Action, Manage},
    driver::{
        ExtendLeases, Extension, Lease, Leased, Limits, Settle, Settled, Settlement, Transition,
    },
    error::{Denied, InvalidRequest, InvalidTransition, Refusal, Rejected},
    job::FailedAttempt,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, STRANGER, T0, ack, ack_with, at, expand, extension, id, ids, invalid, job, job_in,
        release, retry, settlement, with_token,
    },
};

group! {
    refusal {
        a_job_that_is_not_stored_is_not_found ["REF-1" "REF-2"]
        a_purged_job_is_not_found ["REF-1" "REF-2"]
        a_terminal_job_is_not_inflight ["REF-1" "REF-2"]
        a_wrong_token_is_a_mismatch_during_and_after_the_lease ["REF-1" "REF-2"]
        the_right_token_expires ["REF-1" "REF-2"]
        one_refused_settlement_does_not_disturb_the_others ["REF-3" "REF-2"]
        one_refused_extension_does_not_disturb_the_others ["REF-3" "REF-2"]
        one_denied_wish_does_not_disturb_the_others ["REF-3"]
        a_job_settled_twice_in_a_call_fails_the_call ["REF-4"]
        a_job_extended_twice_in_a_call_fails_the_call ["REF-4"]
        a_job_managed_twice_in_a_call_fails_the_call ["REF-4"]
        an_unknown_job_named_twice_fails_the_call ["REF-4"]
        ids_that_look_alike_are_not_one_job ["REF-4" "JOB-3"]
    }
    flows {
        a_waiting_job_is_not_inflight ["REF-1" "REF-2"]
        what_fits_no_job_is_invalid_before_it_is_not_found ["REF-1" "REF-2"]
        what_fits_no_job_is_invalid_before_it_is_not_inflight ["REF-1" "REF-2"]
        what_fits_no_job_is_invalid_before_the_lease_matters ["REF-1" "REF-2"]
        an_expansion_that_meets_stored_jobs_is_the_last_reason ["REF-1" "REF-2"]
        one_impossible_settlement_does_not_disturb_the_others ["REF-3"]
    }
}

/// A lease on a job that was never granted.
async fn made_up(t: &DriverUnderTest, text: &str) -> Leased {
    let job = t.record(text, T0).await.job;
    Leased::new(job, Lease::new(STRANGER, at(60)))
}

async fn a_job_that_is_not_stored_is_not_found(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let mut leased = t.take_the("a", T0).await;
    for text in ["b", "A", "a ", "á"] {
        leased.job.id = id(text);
        t.refuses(&leased, Refusal::JobNotFound, T0).await;
    }
}

async fn a_purged_job_is_not_found(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Done).await.expect("a lease");
    t.act("a", Action::Purge, at(60)).await;
    t.refuses(&leased, Refusal::JobNotFound, at(60)).await;
}

/// A job in each of these states is not inflight to a stranger, early or late.
async fn none_is_inflight(t: &DriverUnderTest, states: [State; 3]) {
    for state in states {
        t.bring(job_in(state.as_str(), state.as_str()), state).await;
        let leased = made_up(t, state.as_str()).await;
        t.refuses(&leased, Refusal::JobNotInflight, T0).await;
        t.refuses(&leased, Refusal::JobNotInflight, at(2_000)).await;
    }
}

async fn a_waiting_job_is_not_inflight(t: DriverUnderTest) {
    none_is_inflight(&t, [State::Ready, State::Scheduled, State::Blocked]).await;
}

async fn a_terminal_job_is_not_inflight(t: DriverUnderTest) {
    none_is_inflight(&t, [State::Done, State::Dlq, State::Cancelled]).await;
}

async fn a_wrong_token_is_a_mismatch_during_and_after_the_lease(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    let other = with_token(&leased, STRANGER);
    for now in [T0, at(59), at(60), at(2_000)] {
        t.refuses(&other, Refusal::LeaseMismatch, now).await;
    }
}

async fn the_right_token_expires(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    for now in [at(60), at(2_000)] {
        t.refuses(&leased, Refusal::LeaseExpired, now).await;
    }
}

/// Changes that could be made to no job, each with the reason.
fn impossible() -> [(Transition, Refusal); 5] {
    let (bytes, max) = (Limits::MAX_OUTPUT_BYTES + 1, Limits::MAX_OUTPUT_BYTES);
    let output = Some(Blob::from(vec![0; bytes]));
    let failure = FailedAttempt::new(u32::MAX, "error", T0);
    let attempts = InvalidTransition::AttemptsOutOfRange(u32::MAX);
    let bad = job("bad").max_attempts(0);
    let rejected = Rejected::MaxAttemptsOutOfRange { job: id("bad") };
    [
        (Transition::Ack { output }, InvalidTransition::OutputTooLarge { bytes, max }),
        (Transition::Retry { failure: failure.clone(), run_at: None }, attempts.clone()),
        (Transition::Fail { failure, reason: "enough".into() }, attempts),
        (expand([]), InvalidTransition::Expansion(Rejected::EmptyFlow)),
        (expand([bad]), InvalidTransition::Expansion(rejected)),
    ]
    .map(|(transition, reason)| (transition, Refusal::Invalid(reason)))
}

/// A call that is impossible is refused for that reason, even if there are others, and changes nothing.
async fn assert_impossible(t: &DriverUnderTest, leased: &Leased, now: Timestamp) {
    let stored = t.snapshot(now).await;
    for (transition, reason) in impossible() {
        assert_eq!(t.settle(leased, transition, now).await, Err(reason));
    }
    assert_eq!(t.snapshot(now).await, stored);
}

async fn what_fits_no_job_is_invalid_before_it_is_not_found(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let mut leased = t.take_the("a", T0).await;
    leased.job.id = id("unknown");
    assert_impossible(&t, &leased, T0).await;
}

async fn what_fits_no_job_is_invalid_before_it_is_not_inflight(t: DriverUnderTest) {
    for state in [State::Ready, State::Scheduled, State::Blocked, State::Dlq] {
        t.bring(job_in(state.as_str(), state.as_str()), state).await;
        let leased = made_up(&t, state.as_str()).await;
        assert_impossible(&t, &leased, T0).await;
    }
}

async fn what_fits_no_job_is_invalid_before_the_lease_matters(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    let other = with_token(&leased, STRANGER);
    for (leased, now) in [(&leased, T0), (&leased, at(60)), (&other, T0), (&other, at(60))] {
        assert_impossible(&t, leased, now).await;
    }
}

async fn an_expansion_that_meets_stored_jobs_is_the_last_reason(t: DriverUnderTest) {
    t.put(job_in("elsewhere", "stored"), T0).await;
    t.bring(job_in("ready", "ready"), State::Ready).await;
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    let mut unknown = leased.clone();
    unknown.job.id = id("unknown");
    let overlap = Rejected::Overlap { job: id("stored") };
    let overlap = Refusal::Invalid(InvalidTransition::Expansion(overlap));
    let stored = t.snapshot(T0).await;
    for (leased, now, reason) in [
        (&unknown, T0, Refusal::JobNotFound),
        (&made_up(&t, "ready").await, T0, Refusal::JobNotInflight),
        (&with_token(&leased, STRANGER), T0, Refusal::LeaseMismatch),
        (&leased, at(60), Refusal::LeaseExpired),
        (&leased, T0, overlap),
    ] {
        let expansion = expand([job("new"), job_in("elsewhere", "stored").after([id("new")])]);
        assert_eq!(t.settle(leased, expansion, now).await, Err(reason));
    }
    assert_eq!(t.snapshot(T0).await, stored);
}

/// Four inflight jobs, called after the round.
async fn four(t: &DriverUnderTest, round: usize) -> Vec<Leased> {
    t.put_all((0..4).map(|n| job(&format!("{round}.{n}"))), T0).await;
    let jobs = t.take_many(4, T0).await;
    assert_eq!(jobs.len(), 4);
    jobs
}

/// Ways to spoil the lease on one job of a call, with the reason.
fn spoiled(leased: &Leased) -> [(Leased, Refusal); 3] {
    let mut unknown = leased.clone();
    unknown.job.id = id("unknown");
    let mut waiting = leased.clone();
    waiting.job.id = id("waiting");
    [
        (unknown, Refusal::JobNotFound),
        (waiting, Refusal::JobNotInflight),
        (with_token(leased, STRANGER), Refusal::LeaseMismatch),
    ]
}

async fn one_refused_settlement_does_not_disturb_the_others(t: DriverUnderTest) {
    t.put(job_in("elsewhere", "waiting"), T0).await;
    for round in 0..12 {
        let mut jobs = four(&t, round).await;
        let (position, way) = (round % 4, round / 4);
        let untouched = t.record(jobs[position].job.id.as_str(), T0).await;
        let (bad, reason) = spoiled(&jobs[position])[way].clone();
        let good = std::mem::replace(&mut jobs[position], bad);
        let items = jobs.iter().map(|it| settlement(it, ack_with("out"))).collect();
        let mut expected = vec![Ok(Settled::Applied); 4];
        expected[position] = Err(reason);
        assert_eq!(t.settle_all(items, T0).await, expected);
        assert_eq!(t.record(good.job.id.as_str(), T0).await, untouched);
        for (n, leased) in jobs.iter().enumerate().filter(|(n, _)| *n != position) {
            assert_eq!(t.state(leased.job.id.as_str(), T0).await, State::Done, "{n}");
        }
        t.apply(&good, ack(), T0).await;
    }
}

async fn one_impossible_settlement_does_not_disturb_the_others(t: DriverUnderTest) {
    for (round, (transition, reason)) in impossible().into_iter().enumerate() {
        let jobs = four(&t, round).await;
        let position = round % 4;
        let mut items: Vec<_> = jobs.iter().map(|it| settlement(it, ack())).collect();
        items[position].transition = transition;
        let mut expected = vec![Ok(Settled::Applied); 4];
        expected[position] = Err(reason);
        assert_eq!(t.settle_all(items, T0).await, expected);
        t.apply(&jobs[position], ack(), T0).await;
    }
}

async fn one_refused_extension_does_not_disturb_the_others(t: DriverUnderTest) {
    t.put(job_in("elsewhere", "waiting"), T0).await;
    for round in 0..12 {
        let mut jobs = four(&t, round).await;
        let (position, way) = (round % 4, round / 4);
        let untouched = t.record(jobs[position].job.id.as_str(), T0).await;
        let (bad, reason) = spoiled(&jobs[position])[way].clone();
        jobs[position] = bad;
        let report = |it: &Leased| extension(it).progress("half".into());
        let answers = t.extend_all(jobs.iter().map(report).collect(), at(30), LEASE).await;
        assert_eq!(answers.len(), 4);
        for (n, answer) in answers.into_iter().enumerate() {
            if n == position {
                assert_eq!(answer, Err(reason.clone()));
                continue;
            }
            assert_eq!(answer.expect("not refused").lease.expires_at, at(90));
            let record = t.record(&format!("{round}.{n}"), T0).await;
            assert_eq!(record.progress, Some("half".into()));
        }
        let record = t.record(&format!("{round}.{position}"), T0).await;
        assert_eq!(record, untouched);
    }
}

async fn one_denied_wish_does_not_disturb_the_others(t: DriverUnderTest) {
    t.put_all(["a", "b", "c"].map(job), T0).await;
    t.bring(job_in("over", "over"), State::Done).await;
    let wished = ids(&["a", "unknown", "b", "over", "c"]);
    let request = Manage::new(wished, Action::SetPriority(7), T0);
    let answers = t.driver.manage(request).await.expect("manage");
    let expected = [
        Ok(State::Ready),
        Err(Denied::JobNotFound),
        Ok(State::Ready),
        Err(Denied::WrongState(State::Done)),
        Ok(State::Ready),
    ];
    assert_eq!(answers, expected);
    for (text, priority) in [("a", 7), ("b", 7), ("c", 7), ("over", 0)] {
        assert_eq!(t.record(text, T0).await.job.priority, priority, "{text}");
    }
}

/// The positions of a pair in a call of four.
const PAIRS: [(usize, usize); 4] = [(0, 1), (0, 3), (1, 2), (2, 3)];

async fn a_job_settled_twice_in_a_call_fails_the_call(t: DriverUnderTest) {
    let jobs = four(&t, 0).await;
    let stored = t.snapshot(T0).await;
    for (first, second) in PAIRS {
        let mut items: Vec<_> = jobs.iter().map(|it| settlement(it, ack())).collect();
        items[second] = settlement(&jobs[first], retry(None, T0));
        let answer = t.driver.settle(Settle::new(items, T0)).await;
        let rule = InvalidRequest::DuplicateJob(jobs[first].job.id.clone());
        assert_eq!(invalid(answer), rule);
        assert_eq!(t.snapshot(T0).await, stored);
    }
}

async fn a_job_extended_twice_in_a_call_fails_the_call(t: DriverUnderTest) {
    let jobs = four(&t, 0).await;
    let stored = t.snapshot(T0).await;
    for (first, second) in PAIRS {
        let report = |it: &Leased| extension(it).progress("half".into());
        let mut items: Vec<_> = jobs.iter().map(report).collect();
        items[second] = extension(&jobs[first]);
        let request = ExtendLeases::new(items, at(30), LEASE);
        let rule = InvalidRequest::DuplicateJob(jobs[first].job.id.clone());
        assert_eq!(invalid(t.driver.extend_leases(request).await), rule);
        assert_eq!(t.snapshot(T0).await, stored);
    }
}

async fn a_job_managed_twice_in_a_call_fails_the_call(t: DriverUnderTest) {
    t.put_all(["a", "b", "c", "d"].map(job), T0).await;
    let stored = t.snapshot(T0).await;
    for (first, second) in PAIRS {
        for action in [Action::Cancel, Action::SetPriority(3), Action::CancelFlow] {
            let mut wished = ids(&["a", "b", "c", "d"]);
            wished[second] = wished[first].clone();
            let rule = InvalidRequest::DuplicateJob(wished[first].clone());
            let request = Manage::new(wished, action, T0);
            assert_eq!(invalid(t.driver.manage(request).await), rule);
            assert_eq!(t.snapshot(T0).await, stored);
        }
    }
}

async fn an_unknown_job_named_twice_fails_the_call(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    let stored = t.snapshot(T0).await;
    let unknown = || Settlement::new(id("unknown"), STRANGER, release(None));
    let items = vec![settlement(&leased, ack()), unknown(), unknown()];
    let rule = InvalidRequest::DuplicateJob(id("unknown"));
    assert_eq!(invalid(t.driver.settle(Settle::new(items, T0)).await), rule);
    let unknown = || Extension::new(id("unknown"), STRANGER);
    let items = vec![extension(&leased), unknown(), unknown()];
    let request = ExtendLeases::new(items, at(30), LEASE);
    assert_eq!(invalid(t.driver.extend_leases(request).await), rule);
    assert_eq!(t.snapshot(T0).await, stored);
}

async fn ids_that_look_alike_are_not_one_job(t: DriverUnderTest) {
    let texts = ["a", "A", "a ", "á", "a\u{301}"];
    t.put_all(texts.map(job), T0).await;
    let jobs = t.take_many(5, T0).await;
    let answers = t.extend_all(jobs.iter().map(extension).collect(), at(1), LEASE).await;
    let jobs: Vec<_> = jobs
        .into_iter()
        .zip(answers)
        .map(|(it, answer)| Leased::new(it.job, answer.expect("not refused").lease))
        .collect();
    let items = jobs.iter().map(|it| settlement(it, ack())).collect();
    assert_eq!(t.settle_all(items, at(1)).await, [const { Ok(Settled::Applied) }; 5]);
}
