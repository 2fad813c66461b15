//! `next_due` of a reserve: the time to ask again.
//!
//! A driver may name an earlier time than it has to, but never one that is not after `now`: else
//! a worker would ask again at once, for ever. How soon it may be while jobs wait is in `idle`.

use taskharbor_core::{State, Timestamp};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, after, at, before, child, job, job_in, release, retry},
};

group! {
    next_due {
        there_is_nothing_to_wait_for_in_an_empty_queue ["RES-7"]
        the_next_scheduled_job_is_waited_for ["RES-7"]
        a_low_priority_hides_no_time ["RES-7"]
        the_end_of_the_next_lease_is_waited_for ["RES-7"]
        the_lease_just_granted_is_waited_for ["RES-7"]
        the_earlier_of_the_two_is_waited_for ["RES-7"]
        an_extended_lease_is_waited_for_until_its_new_end ["RES-7"]
        a_retried_or_released_job_is_waited_for ["RES-7"]
        there_is_nothing_to_wait_for_when_every_demand_was_met ["RES-7"]
        only_queues_that_gave_less_are_waited_for ["RES-7"]
        the_earliest_of_several_queues_is_waited_for ["RES-7"]
        a_job_due_in_a_microsecond_is_waited_for_just_so_long ["RES-7"]
        a_time_that_was_waited_for_is_not_named_again ["RES-7"]
    }
    flows {
        jobs_that_are_blocked_or_over_are_not_waited_for ["RES-7"]
    }
}

/// Reserves; the answer must be to ask again after `now` and no later than at `latest`.
async fn assert_due_by(
    t: &DriverUnderTest,
    demands: &[(&str, usize)],
    now: Timestamp,
    latest: Timestamp,
) {
    let reserved = t.reserve(demands, now, LEASE).await.expect("reserve");
    let next = reserved.next_due.expect("there is something to wait for");
    assert!(now < next && next <= latest, "at {now} for {latest}: {next}");
}

/// Reserves; the answer must be that there is nothing to wait for.
async fn assert_never(t: &DriverUnderTest, demands: &[(&str, usize)], now: Timestamp) {
    let reserved = t.reserve(demands, now, LEASE).await.expect("reserve");
    assert_eq!(reserved.next_due, None);
}

async fn there_is_nothing_to_wait_for_in_an_empty_queue(t: DriverUnderTest) {
    t.put(job_in("other", "a").run_at(at(9)), T0).await;
    assert_never(&t, &[("q", 1)], T0).await;
}

async fn the_next_scheduled_job_is_waited_for(t: DriverUnderTest) {
    for (text, seconds) in [("b", 20), ("a", 10), ("c", 30)] {
        t.put(job(text).run_at(at(seconds)), T0).await;
    }
    assert_due_by(&t, &[("q", 1)], T0, at(10)).await;
    assert_due_by(&t, &[("q", 1)], before(at(10)), at(10)).await;
    assert_due_by(&t, &[("q", 2)], at(10), at(20)).await;
}

async fn a_low_priority_hides_no_time(t: DriverUnderTest) {
    t.put(job("a").run_at(at(10)).priority(-5), T0).await;
    t.put(job("b").run_at(at(20)).priority(5), T0).await;
    assert_due_by(&t, &[("q", 1)], T0, at(10)).await;
}

async fn the_end_of_the_next_lease_is_waited_for(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    t.take_the("a", T0).await;
    t.take_the("b", at(10)).await;
    assert_due_by(&t, &[("q", 1)], at(20), at(60)).await;
    assert_due_by(&t, &[("q", 1)], before(at(60)), at(60)).await;
}

async fn the_lease_just_granted_is_waited_for(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    assert_due_by(&t, &[("q", 2)], T0, at(60)).await;
    // It is reclaimed and granted again by the call at the end of its lease.
    assert_due_by(&t, &[("q", 2)], at(60), at(120)).await;
}

async fn the_earlier_of_the_two_is_waited_for(t: DriverUnderTest) {
    t.put_all([job("leased"), job("scheduled").run_at(at(100))], T0).await;
    t.take_the("leased", T0).await;
    assert_due_by(&t, &[("q", 1)], at(1), at(60)).await;
    t.put(job("sooner").run_at(at(30)), T0).await;
    assert_due_by(&t, &[("q", 1)], at(1), at(30)).await;
}

async fn an_extended_lease_is_waited_for_until_its_new_end(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    t.extend(&leased, at(50), LEASE).await.expect("not refused");
    assert_due_by(&t, &[("q", 1)], at(60), at(110)).await;
    assert_due_by(&t, &[("q", 1)], at(80), at(110)).await;
}

async fn a_retried_or_released_job_is_waited_for(t: DriverUnderTest) {
    for (text, transition) in
        [("retried", retry(Some(at(10)), T0)), ("released", release(Some(at(10))))]
    {
        t.put(job_in(text, text), T0).await;
        let leased = t.take_from(text, T0).await.expect("a grant");
        t.apply(&leased, transition, T0).await;
        assert_due_by(&t, &[(text, 1)], at(1), at(10)).await;
    }
}

async fn jobs_that_are_blocked_or_over_are_not_waited_for(t: DriverUnderTest) {
    for state in [State::Done, State::Dlq, State::Cancelled] {
        t.bring(job(state.as_str()), state).await;
    }
    t.put_flow([job_in("other", "parent"), child("blocked", &["parent"])], T0).await;
    assert_never(&t, &[("q", 1)], T0).await;
    assert_never(&t, &[("q", 1)], at(1_000)).await;
}

async fn there_is_nothing_to_wait_for_when_every_demand_was_met(t: DriverUnderTest) {
    t.put_all([job("a"), job("b"), job("c").run_at(at(10))], T0).await;
    assert_never(&t, &[("q", 2)], T0).await;
    t.put_all([job("d"), job_in("r", "e")], T0).await;
    assert_never(&t, &[("q", 1), ("r", 1)], T0).await;
}

async fn only_queues_that_gave_less_are_waited_for(t: DriverUnderTest) {
    t.put_all([job_in("full", "a"), job_in("full", "b").run_at(at(5))], T0).await;
    assert_never(&t, &[("full", 1), ("empty", 1)], T0).await;
    t.put_all([job_in("full", "c"), job_in("late", "d").run_at(at(10))], T0).await;
    assert_due_by(&t, &[("late", 1), ("full", 1)], T0, at(10)).await;
}

async fn the_earliest_of_several_queues_is_waited_for(t: DriverUnderTest) {
    for (name, seconds) in [("a", 30), ("b", 10), ("c", 20)] {
        t.put(job_in(name, name).run_at(at(seconds)), T0).await;
    }
    assert_due_by(&t, &[("a", 1), ("b", 1), ("c", 1)], T0, at(10)).await;
    assert_due_by(&t, &[("a", 1), ("c", 1)], T0, at(20)).await;
}

async fn a_job_due_in_a_microsecond_is_waited_for_just_so_long(t: DriverUnderTest) {
    t.put(job("a").run_at(after(T0)), T0).await;
    assert_due_by(&t, &[("q", 1)], T0, after(T0)).await;
}

async fn a_time_that_was_waited_for_is_not_named_again(t: DriverUnderTest) {
    t.put_all([job("a").run_at(at(10)), job("b").run_at(at(20))], T0).await;
    t.run("a", ack(), at(10)).await;
    assert_due_by(&t, &[("q", 1)], at(10), at(20)).await;
    t.run("b", ack(), at(20)).await;
    assert_never(&t, &[("q", 1)], at(20)).await;
}
