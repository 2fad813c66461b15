//! Granting jobs under a lease.

use std::{collections::HashSet, time::Duration};

use taskharbor_core::{
    Driver, DriverError, State, Timestamp,
    driver::{Demand, Leased, Limits, Reserve},
    error::InvalidRequest,
    job::Held,
    name::Holder,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        LEASE, T0, TICK, ack, after, at, before, holder, invalid, job, job_in, queue, release,
    },
};

group! {
    reserve {
        a_queue_is_meant_byte_for_byte ["RES-1"]
        nothing_to_grant_is_an_empty_answer ["RES-2"]
        a_granted_job_is_inflight_until_its_lease_ends ["RES-3"]
        a_lease_may_be_as_short_as_a_microsecond ["RES-3" "TIM-3"]
        no_job_is_granted_while_its_lease_is_valid ["RES-4"]
        a_job_enqueued_again_is_granted_once ["RES-4" "ENQ-4"]
        demands_are_answered_queue_by_queue_in_their_order ["RES-5"]
        what_one_queue_lacks_is_not_taken_from_another ["RES-5"]
        a_limit_of_zero_is_a_validation_error ["RES-6"]
        too_many_jobs_in_all_are_a_validation_error ["RES-6"]
        a_queue_named_twice_is_a_validation_error ["RES-6"]
        the_greatest_demands_are_answered ["RES-5" "RES-6"]
        an_invalid_lease_duration_is_refused_and_changes_nothing ["TIM-3"]
        a_lease_may_end_with_the_last_instant ["TIM-3"]
        no_two_grants_have_the_same_token ["RES-8"]
        racing_workers_get_every_job_once ["RES-9"]
        racing_workers_on_several_queues_get_every_job_once ["RES-9"]
        racing_workers_reclaim_every_expired_job_once ["RES-9" "RES-8" "LEA-2"]
    }
    flows {}
}

fn granted(jobs: &[Leased]) -> Vec<&str> {
    jobs.iter().map(|it| it.job.id.as_str()).collect()
}

async fn a_queue_is_meant_byte_for_byte(t: DriverUnderTest) {
    let names = [
        "q",
        "Q",
        "q ",
        " q",
        "q\u{a0}",
        "q\u{200b}",
        "é",
        "e\u{301}",
        "ﬁ",
        "fi",
        "%",
        "_",
        "q%",
        "*",
        "ß",
        "ss",
        "ı",
        "i",
        "I",
        "İ",
    ];
    t.put_all(names.iter().map(|name| job_in(name, name)), T0).await;
    for name in names {
        let jobs = t.reserve(&[(name, 100)], T0, LEASE).await.expect("reserve").jobs;
        assert_eq!(granted(&jobs), [name]);
    }
}

async fn nothing_to_grant_is_an_empty_answer(t: DriverUnderTest) {
    for state in t.job_states().into_iter().filter(|it| *it != State::Ready) {
        t.bring(job_in(state.as_str(), state.as_str()), state).await;
        let demands = [(state.as_str(), 10)];
        let reserved = t.reserve(&demands, at(1), LEASE).await.expect("reserve");
        assert_eq!(reserved.jobs, [], "{state}");
    }
    let reserved = t.reserve(&[("unknown", 10)], T0, LEASE).await;
    assert_eq!(reserved.expect("reserve").jobs, []);
    let reserved = t.reserve(&[], T0, LEASE).await.expect("reserve");
    assert_eq!((reserved.jobs, reserved.next_due), (Vec::new(), None));
}

async fn a_granted_job_is_inflight_until_its_lease_ends(t: DriverUnderTest) {
    t.put(job("a").run_at(T0), T0).await;
    let mut expected = t.record("a", T0).await;
    let name = Holder::new("host-7/pid 12").expect("a valid holder");
    let demands = vec![Demand::new(queue("q"), 1)];
    let lease_for = Duration::from_micros(1_234_567);
    let request = Reserve::new(demands, name.clone(), at(3), lease_for);
    let leased = t.driver.reserve(request).await.expect("reserve").jobs.remove(0);
    let end = at(3).saturating_add(lease_for);
    assert_eq!(leased.lease.expires_at, end);
    expected.state = State::Inflight;
    expected.due_at = None;
    expected.held = Some(Held::new(name, end));
    expected.started_at = Some(at(3));
    expected.job.deliveries = 1;
    assert_eq!(t.record("a", at(3)).await, expected);
    assert_eq!(leased.job, expected.job);
}

async fn a_lease_may_be_as_short_as_a_microsecond(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let reserved = t.reserve(&[("q", 1)], T0, TICK).await.expect("reserve");
    assert_eq!(reserved.jobs[0].lease.expires_at, after(T0));
    assert_eq!(t.take(T0).await, None);
    t.take_the("a", after(T0)).await;
}

async fn no_job_is_granted_while_its_lease_is_valid(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let end = t.take_the("a", T0).await.lease.expires_at;
    for now in [T0, at(1), before(end)] {
        assert_eq!(t.take_many(10, now).await, [], "at {now}");
    }
    t.take_the("a", end).await;
}

async fn a_job_enqueued_again_is_granted_once(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    // As after a lost reply: the caller enqueues it again while it runs, and when it is done.
    t.put(job("a"), at(1)).await;
    assert_eq!(t.take(at(1)).await, None);
    t.apply(&leased, ack(), at(2)).await;
    t.put(job("a"), at(3)).await;
    assert_eq!(t.take(at(3)).await, None);
}

async fn demands_are_answered_queue_by_queue_in_their_order(t: DriverUnderTest) {
    for name in ["a", "b", "c"] {
        let jobs = (1..=3).map(|n| job_in(name, &format!("{name}{n}")).priority(n));
        t.put_all(jobs, T0).await;
    }
    let reserved = t.reserve(&[("c", 2), ("a", 9), ("none", 4), ("b", 1)], T0, LEASE).await;
    let jobs = reserved.expect("reserve").jobs;
    assert_eq!(granted(&jobs), ["c3", "c2", "a3", "a2", "a1", "b3"]);
}

async fn what_one_queue_lacks_is_not_taken_from_another(t: DriverUnderTest) {
    t.put_all((0..5).map(|n| job_in("full", &n.to_string())), T0).await;
    let reserved = t.reserve(&[("empty", 3), ("full", 2)], T0, LEASE).await;
    assert_eq!(granted(&reserved.expect("reserve").jobs), ["0", "1"]);
}

/// A store with a job that is ready and one whose lease has ended at `at(60)`, and nothing of it
/// changed after a call with these demands failed at that time.
async fn broken_rule(t: &DriverUnderTest, demands: &[(&str, usize)]) -> InvalidRequest {
    if t.find("expired", T0).await.is_none() {
        t.bring(job("expired"), State::Inflight).await;
        t.put(job("ready"), T0).await;
    }
    let stored = t.snapshot(at(60)).await;
    let rule = invalid(t.reserve(demands, at(60), LEASE).await);
    assert_eq!(t.snapshot(at(60)).await, stored);
    rule
}

async fn a_limit_of_zero_is_a_validation_error(t: DriverUnderTest) {
    for demands in [&[("q", 0)][..], &[("q", 1), ("r", 0)], &[("r", 0), ("q", 1)]] {
        let rule = broken_rule(&t, demands).await;
        let is_right = matches!(rule, InvalidRequest::OutOfRange { value: 0, min: 1, .. });
        assert!(is_right, "{rule:?}");
    }
}

async fn too_many_jobs_in_all_are_a_validation_error(t: DriverUnderTest) {
    for demands in [
        &[("q", 100_001)][..],
        &[("q", 50_000), ("r", 50_001)],
        &[("q", 1), ("r", usize::MAX)],
        &[("q", usize::MAX), ("r", usize::MAX)],
    ] {
        let rule = broken_rule(&t, demands).await;
        let is_right = matches!(rule, InvalidRequest::OutOfRange { max: 100_000, .. });
        assert!(is_right, "{rule:?}");
    }
}

async fn a_queue_named_twice_is_a_validation_error(t: DriverUnderTest) {
    for demands in [&[("q", 1), ("q", 1)][..], &[("q", 1), ("r", 1), ("q", 2)]] {
        let rule = broken_rule(&t, demands).await;
        assert_eq!(rule, InvalidRequest::DuplicateQueue(queue("q")));
    }
}

async fn the_greatest_demands_are_answered(t: DriverUnderTest) {
    t.put_all([job("a"), job_in("Q", "b")], T0).await;
    let reserved = t.reserve(&[("Q", 50_000), ("q", 50_000)], T0, LEASE).await;
    assert_eq!(granted(&reserved.expect("reserve").jobs), ["b", "a"]);
    let reserved = t.reserve(&[("q", Limits::MAX_CALL_JOBS)], at(60), LEASE).await;
    assert_eq!(granted(&reserved.expect("reserve").jobs), ["a"]);
}

async fn an_invalid_lease_duration_is_refused_and_changes_nothing(t: DriverUnderTest) {
    t.bring(job("expired"), State::Inflight).await;
    t.put_all([job("ready"), job("late").run_at(before(Timestamp::MAX))], T0).await;
    let past_the_end = Timestamp::MAX.since(at(60)) + TICK;
    for (now, lease_for) in [
        (at(60), Duration::ZERO),
        (at(60), Duration::from_nanos(999)),
        (at(60), Duration::MAX),
        (at(60), Duration::from_micros(u64::MAX)),
        (at(60), past_the_end),
        (before(Timestamp::MAX), TICK * 2),
        (Timestamp::MAX, TICK),
        (Timestamp::MAX, LEASE),
    ] {
        let stored = t.snapshot(now).await;
        let answer = t.reserve(&[("q", 10)], now, lease_for).await;
        let is_right = matches!(answer, Err(DriverError::InvalidLeaseDuration));
        assert!(is_right, "{lease_for:?} at {now}: {answer:?}");
        assert_eq!(t.snapshot(now).await, stored);
    }
}

async fn a_lease_may_end_with_the_last_instant(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let lease_for = Timestamp::MAX.since(T0);
    let reserved = t.reserve(&[("q", 1)], T0, lease_for).await.expect("reserve");
    assert_eq!(reserved.jobs[0].lease.expires_at, Timestamp::MAX);
    let held = t.record("a", T0).await.held.expect("held");
    assert_eq!(held.expires_at, Timestamp::MAX);
}

async fn no_two_grants_have_the_same_token(t: DriverUnderTest) {
    t.put_all((0..100).map(|n| job(&n.to_string())), T0).await;
    let mut tokens = HashSet::new();
    for round in 0..10 {
        let jobs = t.take_many(100, at(round)).await;
        assert_eq!(jobs.len(), 100);
        tokens.extend(jobs.iter().map(|it| it.lease.token));
        t.apply_all(&jobs, release(None), at(round)).await;
    }
    assert_eq!(tokens.len(), 1_000);
}

/// What this many workers get who all reserve at `now` until there is nothing left.
async fn drain(
    t: &DriverUnderTest,
    workers: usize,
    demands: &[(&str, usize)],
    now: Timestamp,
) -> Vec<Leased> {
    let demands: Vec<_> =
        demands.iter().map(|(name, limit)| Demand::new(queue(name), *limit)).collect();
    let answers = at_once((0..workers).map(|nth| {
        let (t, mut demands) = (t.clone(), demands.clone());
        if nth % 2 == 1 {
            demands.reverse();
        }
        let request = Reserve::new(demands, holder(), now, LEASE);
        async move {
            let mut jobs = Vec::new();
            loop {
                let more = t.driver.reserve(request.clone()).await.expect("reserve").jobs;
                if more.is_empty() {
                    return jobs;
                }
                jobs.extend(more);
            }
        }
    }))
    .await;
    answers.into_iter().flatten().collect()
}

fn assert_each_once(jobs: &[Leased], count: usize) {
    let ids: HashSet<_> = jobs.iter().map(|it| &it.job.id).collect();
    let tokens: HashSet<_> = jobs.iter().map(|it| it.lease.token).collect();
    assert_eq!((jobs.len(), ids.len(), tokens.len()), (count, count, count));
}

async fn racing_workers_get_every_job_once(t: DriverUnderTest) {
    t.put_all((0..300).map(|n| job(&n.to_string())), T0).await;
    let jobs = drain(&t, 8, &[("q", 7)], T0).await;
    assert_each_once(&jobs, 300);
    assert!(jobs.iter().all(|it| it.job.deliveries == 1));
}

async fn racing_workers_on_several_queues_get_every_job_once(t: DriverUnderTest) {
    let names = ["a", "b", "c"];
    let jobs = (0..300).map(|n| job_in(names[n % 3], &n.to_string()));
    t.put_all(jobs, T0).await;
    let jobs = drain(&t, 8, &[("a", 4), ("b", 2), ("c", 1)], T0).await;
    assert_each_once(&jobs, 300);
}

async fn racing_workers_reclaim_every_expired_job_once(t: DriverUnderTest) {
    t.put_all((0..200).map(|n| job(&n.to_string())), T0).await;
    let first = t.take_many(200, T0).await;
    let second = drain(&t, 8, &[("q", 7)], at(60)).await;
    assert_each_once(&second, 200);
    assert!(second.iter().all(|it| (it.job.deliveries, it.job.expirations) == (2, 1)));
    let all: HashSet<_> = first.iter().chain(&second).map(|it| it.lease.token).collect();
    assert_eq!(all.len(), 400);
    t.apply_all(&second, ack(), at(61)).await;
}
