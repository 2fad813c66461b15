//! Terminal jobs: never granted, never changed, and the answers to their last tokens.

use taskharbor_core::{
    State, Timestamp,
    admin::Action,
    driver::{Leased, Settled, Transition},
    error::Refusal,
    job::JobRecord,
    life::LifeStep,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, STRANGER, T0, ack, ack_with, at, before, expand, fail, failure, job, job_in,
        release, requeue, retry, transitions, with_token,
    },
};

group! {
    terminal {
        a_terminal_job_is_never_granted ["SET-5"]
        an_acked_job_recognises_its_token ["SET-6" "SET-7"]
        a_failed_job_recognises_its_token ["SET-6" "SET-7"]
        an_abandoned_job_recognises_its_token ["SET-6" "SET-7" "CAN-4"]
        a_job_abandoned_in_any_way_recognises_its_token ["SET-6" "SET-7" "CAN-4" "CAN-5"]
        a_terminal_job_refuses_every_other_token ["SET-7"]
        a_terminal_job_refuses_every_extension ["SET-7"]
        a_job_that_a_person_cancelled_knows_no_token ["SET-7" "CAN-6"]
        a_job_cancelled_at_the_end_of_its_lease_knows_no_token ["SET-7" "CAN-4"]
        a_token_that_retried_its_job_is_worthless ["SET-8"]
        a_token_that_retried_its_job_until_later_is_worthless ["SET-8"]
        a_token_that_released_its_job_is_worthless ["SET-8"]
        a_token_that_released_its_job_until_later_is_worthless ["SET-8"]
        a_token_whose_job_was_reclaimed_is_worthless ["LEA-10"]
        a_token_that_retried_is_not_the_one_that_ends ["SET-6" "SET-8"]
        the_end_of_the_last_lease_does_not_move_a_finished_job ["SET-5"]
        a_job_ends_once_in_each_of_its_lives ["SET-3" "SET-6" "REQ-1"]
    }
    flows {
        an_expanded_job_recognises_its_token ["SET-6" "SET-7" "EXP-6"]
    }
}

/// The job `a`, taken at the beginning, and cancelled by its worker because that was asked for.
async fn abandoned(t: &DriverUnderTest) -> Leased {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    assert_eq!(t.act("a", Action::Cancel, T0).await, State::Inflight);
    t.apply(&leased, release(None), T0).await;
    assert_eq!(t.state("a", T0).await, State::Cancelled);
    leased
}

/// What the token that ended a job repeats by these steps is recognised, every other settlement is
/// refused, and neither changes anything.
async fn assert_only_repeats_are_recognised(
    t: &DriverUnderTest,
    leased: &Leased,
    repeats: &[LifeStep],
) {
    for now in [T0, at(1), leased.lease.expires_at, at(1_000_000)] {
        let stored = t.snapshot(now).await;
        let more = [
            ack(),
            ack_with("another output"),
            retry(Some(at(9)), now),
            release(Some(at(9))),
            Transition::Fail { failure: failure(9, now), reason: "another".into() },
        ];
        let expansion = t.has_flows().then(|| expand([job("expansion")]));
        for transition in transitions(now).into_iter().chain(more).chain(expansion) {
            let what = format!("{transition:?} at {now}");
            let expected = match repeats.contains(&transition.step()) {
                true => Ok(Settled::AlreadyTerminal),
                false => Err(Refusal::JobNotInflight),
            };
            assert_eq!(t.settle(leased, transition, now).await, expected, "{what}");
        }
        assert_eq!(t.snapshot(now).await, stored);
    }
}

async fn a_terminal_job_is_never_granted(t: DriverUnderTest) {
    let last = Timestamp::MAX.saturating_sub(LEASE);
    for state in [State::Done, State::Dlq, State::Cancelled] {
        t.bring(job(state.as_str()), state).await;
    }
    abandoned(&t).await;
    let stored = t.snapshot(T0).await;
    for now in [T0, before(at(60)), at(60), at(1_000_000), last] {
        assert_eq!(t.take_many(10, now).await, [], "at {now}");
    }
    assert_eq!(t.snapshot(T0).await, stored);
}

async fn an_acked_job_recognises_its_token(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Done).await.expect("a lease");
    assert_only_repeats_are_recognised(&t, &leased, &[LifeStep::Ack]).await;
}

async fn a_failed_job_recognises_its_token(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Dlq).await.expect("a lease");
    assert_only_repeats_are_recognised(&t, &leased, &[LifeStep::Fail]).await;
}

async fn an_abandoned_job_recognises_its_token(t: DriverUnderTest) {
    let leased = abandoned(&t).await;
    let repeats = [LifeStep::Retry, LifeStep::Fail, LifeStep::Release, LifeStep::Expand];
    assert_only_repeats_are_recognised(&t, &leased, &repeats).await;
}

async fn an_expanded_job_recognises_its_token(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    t.apply(&leased, expand([job_in("other", "x")]), T0).await;
    assert_only_repeats_are_recognised(&t, &leased, &[LifeStep::Expand]).await;
}

async fn a_job_abandoned_in_any_way_recognises_its_token(t: DriverUnderTest) {
    let repeats = [LifeStep::Retry, LifeStep::Fail, LifeStep::Release, LifeStep::Expand];
    let mut ways = vec![retry(None, T0), fail(T0), release(Some(at(9)))];
    ways.extend(t.has_flows().then(|| expand([job("never stored")])));
    for (n, way) in ways.into_iter().enumerate() {
        let name = n.to_string();
        let leased = t.bring(job_in(&name, &name), State::Inflight).await.expect("a grant");
        t.act(&name, Action::Cancel, T0).await;
        t.apply(&leased, way, T0).await;
        assert_only_repeats_are_recognised(&t, &leased, &repeats).await;
    }
    assert_eq!(t.find("never stored", T0).await, None);
}

async fn a_terminal_job_refuses_every_other_token(t: DriverUnderTest) {
    for (name, transition) in [("done", ack()), ("dlq", fail(T0))] {
        t.put(job_in(name, name), T0).await;
        let earlier = t.take_from(name, T0).await.expect("a grant");
        let last = t.take_from(name, at(60)).await.expect("a grant");
        t.apply(&last, transition, at(60)).await;
        for other in [earlier.clone(), with_token(&earlier, STRANGER)] {
            t.refuses(&other, Refusal::JobNotInflight, at(61)).await;
            t.refuses(&other, Refusal::JobNotInflight, at(1_000)).await;
        }
    }
}

async fn a_terminal_job_refuses_every_extension(t: DriverUnderTest) {
    let done = t.bring(job("done"), State::Done).await.expect("a lease");
    let dlq = t.bring(job("dlq"), State::Dlq).await.expect("a lease");
    let cancelled = abandoned(&t).await;
    let stored = t.snapshot(T0).await;
    for leased in [done, dlq, cancelled] {
        for token in [leased.lease.token, STRANGER] {
            let answer = t.extend(&with_token(&leased, token), at(1), LEASE).await;
            assert_eq!(answer, Err(Refusal::JobNotInflight));
        }
    }
    assert_eq!(t.snapshot(T0).await, stored);
}

async fn a_job_that_a_person_cancelled_knows_no_token(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    t.apply(&leased, release(None), T0).await;
    assert_eq!(t.act("a", Action::Cancel, T0).await, State::Cancelled);
    t.refuses(&leased, Refusal::JobNotInflight, T0).await;
    let leased = t.bring(job("b"), State::Inflight).await.expect("a grant");
    assert_eq!(t.act("b", Action::Cancel, at(60)).await, State::Cancelled);
    t.refuses(&leased, Refusal::JobNotInflight, at(60)).await;
    t.refuses(&leased, Refusal::JobNotInflight, T0).await;
}

async fn a_job_cancelled_at_the_end_of_its_lease_knows_no_token(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    assert_eq!(t.act("a", Action::Cancel, T0).await, State::Inflight);
    assert_eq!(t.take(at(60)).await, None);
    assert_eq!(t.state("a", at(60)).await, State::Cancelled);
    t.refuses(&leased, Refusal::JobNotInflight, at(60)).await;
}

/// The job `a` was put back at the beginning; its token is worth nothing from then on.
async fn assert_worthless_once_put_back(t: &DriverUnderTest, transition: Transition) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    t.apply(&leased, transition, T0).await;
    t.refuses(&leased, Refusal::JobNotInflight, T0).await;
    t.refuses(&leased, Refusal::JobNotInflight, at(9)).await;
    t.refuses(&leased, Refusal::JobNotInflight, at(1_000)).await;
    let second = t.take_the("a", at(9)).await;
    t.refuses(&leased, Refusal::LeaseMismatch, at(9)).await;
    t.refuses(&leased, Refusal::LeaseMismatch, at(1_000)).await;
    t.apply(&second, ack(), at(9)).await;
    t.refuses(&leased, Refusal::JobNotInflight, at(9)).await;
}

async fn a_token_that_retried_its_job_is_worthless(t: DriverUnderTest) {
    assert_worthless_once_put_back(&t, retry(None, T0)).await;
}

async fn a_token_that_retried_its_job_until_later_is_worthless(t: DriverUnderTest) {
    assert_worthless_once_put_back(&t, retry(Some(at(9)), T0)).await;
}

async fn a_token_that_released_its_job_is_worthless(t: DriverUnderTest) {
    assert_worthless_once_put_back(&t, release(None)).await;
}

async fn a_token_that_released_its_job_until_later_is_worthless(t: DriverUnderTest) {
    assert_worthless_once_put_back(&t, release(Some(at(9)))).await;
}

async fn a_token_whose_job_was_reclaimed_is_worthless(t: DriverUnderTest) {
    let leased = t.bring(job("a"), State::Inflight).await.expect("a grant");
    let again = t.take_the("a", at(60)).await;
    t.refuses(&leased, Refusal::LeaseMismatch, at(60)).await;
    t.apply(&again, release(None), at(60)).await;
    t.refuses(&leased, Refusal::JobNotInflight, at(60)).await;
    t.refuses(&leased, Refusal::JobNotInflight, T0).await;
}

async fn a_token_that_retried_is_not_the_one_that_ends(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let first = t.run("a", retry(None, T0), T0).await;
    let last = t.run("a", fail(at(1)), at(1)).await;
    t.refuses(&first, Refusal::JobNotInflight, at(2)).await;
    assert_only_repeats_are_recognised(&t, &last, &[LifeStep::Fail]).await;
}

fn ended(record: &JobRecord) -> (State, Option<Timestamp>) {
    (record.state, record.finished_at)
}

async fn the_end_of_the_last_lease_does_not_move_a_finished_job(t: DriverUnderTest) {
    t.bring(job("a"), State::Done).await;
    t.bring(job("b"), State::Dlq).await;
    let stored = t.snapshot(at(1)).await;
    t.put(job("c"), at(60)).await;
    t.run("c", ack(), at(61)).await;
    t.act("c", Action::Purge, at(61)).await;
    assert_eq!(t.snapshot(at(1)).await, stored);
    assert_eq!(ended(&t.record("a", at(61)).await), (State::Done, Some(T0)));
}

async fn a_job_ends_once_in_each_of_its_lives(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    for life in 0..3 {
        let now = at(life * 10);
        let leased = t.run("a", fail(now), now).await;
        let again = t.settle(&leased, fail(now), now).await;
        assert_eq!(again, Ok(Settled::AlreadyTerminal));
        let other = t.settle(&leased, ack(), now).await;
        assert_eq!(other, Err(Refusal::JobNotInflight));
        let record = t.record("a", now).await;
        assert_eq!(ended(&record), (State::Dlq, Some(now)));
        assert_eq!(u64::from(record.epoch), life);
        assert_eq!(t.act("a", requeue(), now).await, State::Ready);
        assert_eq!(t.record("a", now).await.finished_at, None);
    }
}
