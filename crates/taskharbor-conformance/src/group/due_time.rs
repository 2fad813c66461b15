//! Times: nothing early, every operation by the `now` it is given, and the ends of the range.

use taskharbor_core::{
    Admin, State, Timestamp,
    admin::{Action, Filter, Prune, Requeue},
    driver::{Leased, Settled, Transition},
    error::Refusal,
    job::FailedAttempt,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, T0, TICK, ack, after, at, before, child, fail, failure, job, queue, release,
        requeue, retry,
    },
};

group! {
    due_time {
        a_job_is_granted_at_its_time_and_not_a_microsecond_before ["RES-1" "TIM-2"]
        a_job_is_granted_after_its_time_too ["RES-1"]
        a_job_whose_time_is_past_is_granted_at_once ["RES-1" "ORD-3" "TIM-1"]
        a_retried_job_waits_for_its_time ["RES-1" "SET-2"]
        a_released_job_waits_for_its_time ["RES-1" "SET-4"]
        a_requeued_job_waits_for_its_time ["RES-1" "REQ-1"]
        times_that_a_float_cannot_tell_apart_are_told_apart ["TIM-2"]
        what_is_read_goes_by_the_time_of_asking ["TIM-1"]
        reserve_goes_by_its_now_after_later_ones ["TIM-1"]
        a_lease_goes_by_the_now_of_each_call ["TIM-1" "LEA-1" "LEA-7"]
        a_job_put_back_at_an_earlier_now_is_due_by_that_now ["TIM-1"]
        a_reclaimed_job_stays_reclaimed_for_an_earlier_now ["TIM-1" "LEA-10"]
        the_first_instant_is_a_time_like_any_other ["TIM-2"]
        a_job_may_wait_for_the_last_instant ["TIM-2"]
        a_job_may_be_settled_in_the_last_instants ["TIM-2"]
        people_may_act_in_the_last_instant ["TIM-2"]
        times_outside_the_range_are_typed_errors ["TIM-2"]
    }
    flows {
        a_job_unblocked_by_its_parent_waits_for_its_time ["RES-1" "FLO-1"]
        a_flow_may_live_in_the_first_and_the_last_instant ["TIM-2"]
    }
}

fn micros(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).expect("within the range")
}

/// The job `a` is not granted a microsecond before this instant, and is at it.
async fn assert_due_exactly_at(t: &DriverUnderTest, instant: Timestamp) {
    assert_eq!(t.state("a", before(instant)).await, State::Scheduled);
    assert_eq!(t.take(before(instant)).await, None);
    assert_eq!(t.state("a", instant).await, State::Ready);
    t.take_the("a", instant).await;
}

async fn a_job_is_granted_at_its_time_and_not_a_microsecond_before(t: DriverUnderTest) {
    let odd = after(at(10));
    t.put(job("a").run_at(odd), T0).await;
    assert_due_exactly_at(&t, odd).await;
}

async fn a_job_is_granted_after_its_time_too(t: DriverUnderTest) {
    t.put_all([job("a").run_at(at(1)), job("b").run_at(at(1))], T0).await;
    t.run("a", ack(), after(at(1))).await;
    t.take_the("b", at(1_000_000)).await;
}

async fn a_job_whose_time_is_past_is_granted_at_once(t: DriverUnderTest) {
    t.put(job("a").run_at(Timestamp::EPOCH), at(10)).await;
    t.put(job("b").run_at(before(at(10))), at(10)).await;
    assert_eq!(t.take(before(at(10))).await, None);
    assert_eq!(t.take_order(at(10)).await, ["a", "b"]);
}

async fn a_retried_job_waits_for_its_time(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", retry(Some(at(7)), T0), T0).await;
    assert_due_exactly_at(&t, at(7)).await;
}

async fn a_released_job_waits_for_its_time(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", release(Some(at(7))), T0).await;
    assert_due_exactly_at(&t, at(7)).await;
}

async fn a_requeued_job_waits_for_its_time(t: DriverUnderTest) {
    t.bring(job("a"), State::Dlq).await;
    let later = Action::Requeue(Requeue::new().run_at(at(7)));
    assert_eq!(t.act("a", later, T0).await, State::Scheduled);
    assert_due_exactly_at(&t, at(7)).await;
}

async fn a_job_unblocked_by_its_parent_waits_for_its_time(t: DriverUnderTest) {
    t.put_flow([job("parent"), child("a", &["parent"]).run_at(at(7))], T0).await;
    t.run("parent", ack(), T0).await;
    assert_due_exactly_at(&t, at(7)).await;
}

async fn times_that_a_float_cannot_tell_apart_are_told_apart(t: DriverUnderTest) {
    // From 2^53 microseconds on, in the year 2255, a 64-bit float skips instants.
    for instant in [(1 << 53) + 1, 10_000_000_000_000_001, 253_402_300_799_999_997] {
        let instant = micros(instant);
        t.put(job("a").run_at(instant), T0).await;
        assert_eq!(t.record("a", T0).await.due_at, Some(instant));
        let reserve = async |now| t.reserve(&[("q", 1)], now, TICK * 2).await.expect("reserve");
        assert_eq!(reserve(before(instant)).await.jobs, []);
        let leased = reserve(instant).await.jobs.remove(0);
        assert_eq!(leased.lease.expires_at, after(after(instant)));
        t.apply(&leased, ack(), after(instant)).await;
        assert_eq!(t.record("a", T0).await.finished_at, Some(after(instant)));
        t.act("a", Action::Purge, after(instant)).await;
    }
}

async fn what_is_read_goes_by_the_time_of_asking(t: DriverUnderTest) {
    t.put(job("a").run_at(at(10)), T0).await;
    for (now, state) in [
        (at(10), State::Ready),
        (T0, State::Scheduled),
        (at(99), State::Ready),
        (before(at(10)), State::Scheduled),
    ] {
        assert_eq!(t.state("a", now).await, state, "inspect at {now}");
        let listed = t.list(Filter::all().state(state), 10, now).await;
        assert_eq!(listed.len(), 1, "list at {now}");
        assert_eq!(listed[0].state, state);
        let counts = t.counts(now).await;
        assert_eq!(counts[0].states.get(state), 1, "counts at {now}");
        assert_eq!(counts[0].states.total(), 1);
    }
}

async fn reserve_goes_by_its_now_after_later_ones(t: DriverUnderTest) {
    t.put(job("late"), at(100)).await;
    t.put(job("early"), at(50)).await;
    assert_eq!(t.take(at(49)).await, None);
    let leased = t.take_the("early", at(50)).await;
    assert_eq!(leased.lease.expires_at, at(50).saturating_add(LEASE));
    assert_eq!(t.take(before(at(100))).await, None);
    let leased = t.take_the("late", at(100)).await;
    assert_eq!(leased.lease.expires_at, at(100).saturating_add(LEASE));
}

async fn a_lease_goes_by_the_now_of_each_call(t: DriverUnderTest) {
    t.put(job("a"), at(100)).await;
    let leased = t.take_the("a", at(100)).await;
    let leased = t.keep(&leased, at(10), LEASE).await;
    assert_eq!(leased.lease.expires_at, at(160));
    t.refuses(&leased, Refusal::LeaseExpired, at(160)).await;
    assert_eq!(t.settle(&leased, ack(), at(20)).await, Ok(Settled::Applied));
    assert_eq!(t.record("a", at(20)).await.finished_at, Some(at(20)));
}

async fn a_job_put_back_at_an_earlier_now_is_due_by_that_now(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], at(100)).await;
    let (a, b) = (t.take_the("a", at(100)).await, t.take_the("b", at(100)).await);
    t.apply(&a, retry(None, at(30)), at(30)).await;
    t.apply(&b, fail(at(40)), at(40)).await;
    t.act("b", requeue(), at(35)).await;
    assert_eq!(t.record("a", at(30)).await.due_at, Some(at(30)));
    assert_eq!(t.record("b", at(35)).await.due_at, Some(at(35)));
    assert_eq!(t.take_order(at(35)).await, ["a", "b"]);
}

async fn a_reclaimed_job_stays_reclaimed_for_an_earlier_now(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let first = t.take_the("a", T0).await;
    let second = t.take_the("a", at(60)).await;
    assert_eq!(second.job.expirations, 1);
    t.refuses(&first, Refusal::LeaseMismatch, at(1)).await;
    t.apply(&second, ack(), at(1)).await;
}

async fn the_first_instant_is_a_time_like_any_other(t: DriverUnderTest) {
    let now = Timestamp::EPOCH;
    t.put_all([job("a").run_at(now), job("b"), job("c")], now).await;
    let record = t.record("a", now).await;
    assert_eq!((record.state, record.job.run_at), (State::Ready, Some(now)));
    assert_eq!((record.due_at, record.job.created_at), (Some(now), now));
    let leased = t.take_the("a", now).await;
    assert_eq!(leased.lease.expires_at, now.saturating_add(LEASE));
    let leased = t.keep(&leased, now, LEASE).await;
    t.apply(&leased, retry(Some(now), now), now).await;
    let retried = t.record("a", now).await;
    assert_eq!((retried.due_at, retried.job.failed_at), (Some(now), Some(now)));
    t.run("a", release(Some(now)), now).await;
    t.run("a", fail(now), now).await;
    assert_eq!(t.record("a", now).await.finished_at, Some(now));
    assert_eq!(t.act("a", requeue(), now).await, State::Ready);
    assert_eq!(t.act("b", Action::RunNow, now).await, State::Ready);
    assert_eq!(t.act("c", Action::Cancel, now).await, State::Cancelled);
    t.driver.pause(queue("q"), now).await.expect("pause");
    let counts = &t.counts(now).await[0];
    assert_eq!((counts.oldest_ready, counts.paused_since), (Some(now), Some(now)));
    let prune = Prune::new(10, now).cancelled_before(now);
    assert_eq!(t.driver.prune(prune).await.expect("prune"), 1);
}

/// A job whose lease of one microsecond ends with the range.
async fn take_last(t: &DriverUnderTest, text: &str) -> Leased {
    let reserved = t.reserve(&[("q", 1)], before(Timestamp::MAX), TICK).await;
    let leased = reserved.expect("reserve").jobs.remove(0);
    assert_eq!(leased.job.id.as_str(), text);
    assert_eq!(leased.lease.expires_at, Timestamp::MAX);
    leased
}

async fn a_job_may_wait_for_the_last_instant(t: DriverUnderTest) {
    let (now, last) = (before(Timestamp::MAX), Timestamp::MAX);
    t.put(job("a").run_at(last), T0).await;
    assert_eq!(t.record("a", T0).await.due_at, Some(last));
    let reserved = t.reserve(&[("q", 1)], now, TICK).await.expect("reserve");
    assert_eq!((reserved.jobs, reserved.next_due), (Vec::new(), Some(last)));
    assert_eq!(t.state("a", last).await, State::Ready);
    assert_eq!(t.act("a", Action::RunNow, now).await, State::Ready);
    take_last(&t, "a").await;
}

async fn a_job_may_be_settled_in_the_last_instants(t: DriverUnderTest) {
    let (now, last) = (before(Timestamp::MAX), Timestamp::MAX);
    t.put(job("a").run_at(now), now).await;
    let leased = take_last(&t, "a").await;
    let leased = t.keep(&leased, now, TICK).await;
    assert_eq!(leased.lease.expires_at, last);
    let transition =
        Transition::Retry { failure: FailedAttempt::new(1, "late", last), run_at: Some(last) };
    t.apply(&leased, transition, now).await;
    let record = t.record("a", now).await;
    assert_eq!((record.job.run_at, record.due_at), (Some(last), Some(last)));
    assert_eq!(record.job.failed_at, Some(last));
    t.act("a", Action::RunNow, now).await;
    let leased = take_last(&t, "a").await;
    t.apply(&leased, release(Some(last)), now).await;
    t.act("a", Action::RunNow, now).await;
    let leased = take_last(&t, "a").await;
    t.apply(&leased, Transition::Fail { failure: failure(2, last), reason: "end".into() }, now)
        .await;
    assert_eq!(t.record("a", last).await.finished_at, Some(now));
}

async fn people_may_act_in_the_last_instant(t: DriverUnderTest) {
    let last = Timestamp::MAX;
    t.put_all([job("a"), job("b")], last).await;
    assert_eq!(t.record("a", last).await.job.created_at, last);
    assert_eq!(t.act("a", Action::Cancel, last).await, State::Cancelled);
    assert_eq!(t.record("a", last).await.finished_at, Some(last));
    let again = Action::Requeue(Requeue::new().run_at(last));
    assert_eq!(t.act("a", again, last).await, State::Ready);
    assert_eq!(t.act("b", Action::RunNow, last).await, State::Ready);
    t.driver.pause(queue("q"), last).await.expect("pause");
    let counts = &t.counts(last).await[0];
    assert_eq!((counts.oldest_ready, counts.paused_since), (Some(last), Some(last)));
    assert_eq!((counts.states.ready, counts.states.total()), (2, 2));
    t.act("a", Action::Cancel, last).await;
    let prune = Prune::new(10, last).cancelled_before(last);
    assert_eq!(t.driver.prune(prune).await.expect("prune"), 1);
}

async fn a_flow_may_live_in_the_first_and_the_last_instant(t: DriverUnderTest) {
    for (parent, tail, now) in
        [("first parent", "first", Timestamp::EPOCH), ("last parent", "last", Timestamp::MAX)]
    {
        t.put_flow([job(parent), child(tail, &[parent]).run_at(now)], now).await;
        assert_eq!(t.flow(tail, now).await.created_at, now);
        assert_eq!(t.snapshot(now).await.flows.last(), Some(&t.flow(tail, now).await));
        t.act(tail, Action::CancelFlow, now).await;
        assert_eq!(t.flow(tail, now).await.finished_at, Some(now));
    }
    assert_eq!(t.snapshot(Timestamp::EPOCH).await.records.len(), 4);
    assert_eq!(t.snapshot(Timestamp::MAX).await.flows.len(), 2);
}

async fn times_outside_the_range_are_typed_errors(t: DriverUnderTest) {
    for outside in [-1, i64::MIN, Timestamp::MAX.as_micros() + 1, i64::MAX] {
        assert!(Timestamp::from_micros(outside).is_err(), "{outside}");
    }
    assert_eq!(micros(0), Timestamp::EPOCH);
    assert_eq!(micros(253_402_300_799_999_999), Timestamp::MAX);
    assert_eq!(t.snapshot(T0).await.counts, []);
}
