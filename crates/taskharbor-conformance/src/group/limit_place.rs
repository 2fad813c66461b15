//! Places: how a job takes one, and everything that frees it.

use taskharbor_core::{
    Driver, State,
    admin::{Action, QueueLimits},
    driver::{Fire, LeaseMark},
    error::Refusal,
    export::Imported,
    job::FailurePolicy,
};

use super::schedule::{firing, put, slot};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, T0, ack, at, before, child, expand, extension, fail, id, job, release,
        release_started, requeue, retry,
    },
    limits_under_test::{full, in_lane, jobs_of, texts},
};

group! {
    limit_place {
        every_settlement_frees_the_place ["LIM-5"]
        settlements_of_one_call_free_their_places ["LIM-5"]
        a_lease_that_has_ended_has_no_place ["LIM-5" "LIM-1" "RES-4"]
        an_extended_lease_keeps_its_place ["LIM-1" "LEA-7"]
        a_holder_that_lost_its_lease_frees_no_place ["LIM-5" "LEA-10"]
        a_repeated_ack_frees_no_second_place ["LIM-5" "SET-6"]
        a_marked_job_has_its_place_until_it_is_settled ["LIM-5" "CAN-2"]
        a_job_cancelled_after_its_lease_has_no_place ["LIM-5" "CAN-6"]
        a_purged_job_has_no_place ["LIM-5" "ADM-7"]
        failures_in_many_lanes_leave_no_place_behind ["LIM-5" "LIM-3"]
        crashes_leave_no_place_behind ["LIM-5" "LIM-1"]
        a_limit_holds_for_jobs_enqueued_and_scheduled ["LIM-7"]
        a_limit_holds_for_jobs_retried_and_released ["LIM-7"]
        a_limit_holds_for_jobs_requeued ["LIM-7"]
        a_limit_holds_for_jobs_made_to_run_now ["LIM-7"]
        a_limit_holds_for_jobs_fired ["LIM-7"]
        a_limit_holds_for_jobs_imported ["LIM-7" "MOV-7"]
        a_limit_holds_for_jobs_reclaimed ["LIM-7" "LEA-2"]
    }
    flows {
        an_expansion_frees_the_place ["LIM-5"]
        a_limit_holds_for_jobs_unblocked ["LIM-7"]
        a_limit_holds_for_jobs_of_an_expansion ["LIM-7"]
        a_cancelled_flow_leaves_no_place_behind ["LIM-5" "CAN-7"]
    }
}

/// The queue `q` has one place.
async fn one_place(t: &DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1)).await;
}

/// A job takes the only place, and `text`, which is ready, does not get it.
async fn is_held(t: &DriverUnderTest, text: &str) {
    assert_eq!(t.state(text, at(50)).await, State::Ready);
    assert_eq!(t.held_back(text, at(50)).await, full(false, 1, 1), "{text}");
    assert_eq!(t.take_texts(9, at(50)).await, [""; 0]);
}

async fn every_settlement_frees_the_place(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1).per_lane(1)).await;
    let later = Some(at(900));
    for (n, transition) in [
        ack(),
        fail(T0),
        retry(later, T0),
        retry(None, T0),
        release(later),
        release_started(None),
        release(None),
    ]
    .into_iter()
    .enumerate()
    {
        let (first, second) = (format!("{n} first"), format!("{n} second"));
        t.put_all([in_lane("a", &first).priority(1), in_lane("a", &second)], T0).await;
        let leased = t.take_the(&first, T0).await;
        assert_eq!(t.take(T0).await, None);
        let what = format!("{transition:?}");
        t.apply(&leased, transition, T0).await;
        let next = t.take_many(9, T0).await;
        assert_eq!(next.len(), 1, "after {what}");
        t.apply(&next[0], ack(), T0).await;
        while let Some(leased) = t.take(T0).await {
            t.apply(&leased, ack(), T0).await;
        }
    }
}

async fn settlements_of_one_call_free_their_places(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(4).per_lane(2)).await;
    t.put_all(["a", "b", "c"].iter().flat_map(|name| jobs_of(name, 4)), T0).await;
    let mut done = 0;
    while let jobs = t.take_many(9, T0).await
        && !jobs.is_empty()
    {
        done += jobs.len();
        assert!(jobs.len() <= 4, "{jobs:?}");
        t.apply_all(&jobs, ack(), T0).await;
    }
    assert_eq!(done, 12);
}

async fn an_expansion_frees_the_place(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_all(jobs_of("", 2), T0).await;
    t.run("1", expand([job("3")]), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["2"]);
}

async fn a_lease_that_has_ended_has_no_place(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(2).per_lane(1)).await;
    t.put_all(jobs_of("a", 1).into_iter().chain(jobs_of("b", 2)), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["a1", "b1"]);
    t.put_all([in_lane("c", "c").priority(1), in_lane("d", "d").priority(1)], T0).await;
    assert_eq!(t.take_texts(9, before(at(60))).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(60)).await, ["c", "d"]);
    // Those that were reclaimed wait for a place like any other.
    assert_eq!(t.take_texts(9, at(61)).await, [""; 0]);
}

async fn an_extended_lease_keeps_its_place(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_all(jobs_of("", 2), T0).await;
    let leased = t.take_the("1", T0).await;
    let leased = t.keep(&leased, at(50), LEASE).await;
    let mut item = extension(&leased);
    item.mark = Some(LeaseMark::Started);
    t.extend_all(vec![item], at(55), LEASE).await[0].as_ref().expect("not refused");
    assert_eq!(t.take(at(60)).await, None, "the first end of the lease is past");
    assert_eq!(t.take(before(at(115))).await, None);
    assert_eq!(t.take_many(9, at(115)).await.len(), 1);
}

async fn a_holder_that_lost_its_lease_frees_no_place(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_all([job("1"), job("2").priority(1)], T0).await;
    let second = t.take_the("2", T0).await;
    assert_eq!(t.take(at(59)).await, None);
    t.put(job("3").priority(9), at(60)).await;
    t.take_the("3", at(60)).await;
    for transition in [ack(), fail(at(61)), release(None), retry(None, at(61))] {
        assert_eq!(t.settle(&second, transition, at(61)).await, Err(Refusal::LeaseExpired));
        assert_eq!(t.take(at(61)).await, None, "the place is that of 3");
    }
    assert_eq!(t.extend(&second, at(61), LEASE).await, Err(Refusal::LeaseExpired));
    assert_eq!(t.take_many(9, at(119)).await.len(), 0);
    assert_eq!(t.take_many(9, at(120)).await.len(), 1);
}

async fn a_repeated_ack_frees_no_second_place(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_all(jobs_of("", 4), T0).await;
    let first = t.run("1", ack(), T0).await;
    t.take_the("2", T0).await;
    for _ in 0..3 {
        t.settle(&first, ack(), T0).await.expect("a repetition");
    }
    assert_eq!(t.take(T0).await, None);
}

async fn a_marked_job_has_its_place_until_it_is_settled(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_all(jobs_of("", 2), T0).await;
    let leased = t.take_the("1", T0).await;
    assert_eq!(t.act("1", Action::Cancel, T0).await, State::Inflight);
    assert_eq!(t.take(T0).await, None);
    t.apply(&leased, retry(None, T0), T0).await;
    assert_eq!(t.state("1", T0).await, State::Cancelled);
    assert_eq!(t.take_texts(9, T0).await, ["2"]);
}

async fn a_job_cancelled_after_its_lease_has_no_place(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_all(jobs_of("", 2), T0).await;
    t.take_the("1", T0).await;
    assert_eq!(t.act("1", Action::Cancel, at(60)).await, State::Cancelled);
    // Not even on a clock that is behind.
    assert_eq!(t.take_texts(9, at(1)).await, ["2"]);
}

async fn a_purged_job_has_no_place(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_all(jobs_of("", 2), T0).await;
    t.run("1", ack(), T0).await;
    t.act("1", Action::Purge, T0).await;
    t.run("2", ack(), T0).await;
    t.act("2", Action::Purge, T0).await;
    t.put_all(jobs_of("", 2), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["1"]);
}

async fn failures_in_many_lanes_leave_no_place_behind(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1).inflight(25)).await;
    t.put_all((0..40).flat_map(|n| jobs_of(&format!("lane {n}, job "), 5)), T0).await;
    let (mut done, mut calls) = (0, 0);
    while done < 200 {
        let jobs = t.take_many(25, T0).await;
        assert!(!jobs.is_empty(), "{done} of 200 jobs were granted");
        for (n, leased) in jobs.iter().enumerate() {
            let transition = if (done + n) % 3 == 0 { fail(T0) } else { ack() };
            t.apply(leased, transition, T0).await;
        }
        (done, calls) = (done + jobs.len(), calls + 1);
    }
    assert_eq!(calls, 8, "every call was granted all the places there are");
}

async fn crashes_leave_no_place_behind(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(3).per_lane(2)).await;
    t.put_all(["a", "b", "c"].iter().flat_map(|name| jobs_of(name, 4)), T0).await;
    for round in 0..5 {
        assert_eq!(t.take_many(9, at(60 * round)).await.len(), 3, "in round {round}");
        assert_eq!(t.take_many(9, at(60 * round + 59)).await.len(), 0, "in round {round}");
    }
    let mut done = 0;
    while let jobs = t.take_many(9, at(300)).await
        && !jobs.is_empty()
    {
        done += jobs.len();
        t.apply_all(&jobs, ack(), at(300)).await;
    }
    assert_eq!(done, 12);
}

async fn a_limit_holds_for_jobs_enqueued_and_scheduled(t: DriverUnderTest) {
    t.put(job("first"), T0).await;
    t.take_the("first", T0).await;
    one_place(&t).await;
    t.put_all([job("enqueued"), job("scheduled").run_at(at(9))], T0).await;
    is_held(&t, "enqueued").await;
    is_held(&t, "scheduled").await;
}

async fn a_limit_holds_for_jobs_retried_and_released(t: DriverUnderTest) {
    t.put_all(["1", "2", "3", "4", "5"].map(job), T0).await;
    let jobs = t.take_many(9, T0).await;
    one_place(&t).await;
    let transitions =
        [retry(None, T0), retry(Some(at(9)), T0), release(None), release_started(Some(at(9)))];
    for (leased, transition) in jobs.iter().zip(transitions) {
        t.apply(leased, transition, T0).await;
    }
    for text in ["1", "2", "3", "4"] {
        is_held(&t, text).await;
    }
}

async fn a_limit_holds_for_jobs_requeued(t: DriverUnderTest) {
    t.put_all(["1", "2", "3"].map(job), T0).await;
    t.run("1", fail(T0), T0).await;
    t.act("2", Action::Cancel, T0).await;
    t.take_the("3", T0).await;
    one_place(&t).await;
    for text in ["1", "2"] {
        t.act(text, requeue(), T0).await;
        is_held(&t, text).await;
    }
}

async fn a_limit_holds_for_jobs_made_to_run_now(t: DriverUnderTest) {
    t.put_all([job("1"), job("2").run_at(at(900))], T0).await;
    t.take_the("1", T0).await;
    one_place(&t).await;
    t.act("2", Action::RunNow, T0).await;
    t.act("2", Action::SetPriority(9), T0).await;
    is_held(&t, "2").await;
}

async fn a_limit_holds_for_jobs_fired(t: DriverUnderTest) {
    t.put(job("1"), T0).await;
    t.take_the("1", T0).await;
    one_place(&t).await;
    put(&t, "s", "daily", Some(T0)).await;
    let item = firing(&t, "s", None).await.slots([slot(T0, job("fired"))]);
    t.driver.fire(Fire::new(vec![item], T0)).await.expect("fire")[0].as_ref().expect("fired");
    is_held(&t, "fired").await;
}

async fn a_limit_holds_for_jobs_imported(t: DriverUnderTest) {
    // The lease of an imported job counts, and an imported job that is ready waits.
    let other = t.another().await;
    other.put_all(["1", "2", "3"].map(job), T0).await;
    other.take_the("1", T0).await;
    let units = other.export(10).await;
    other.driver.close().await.expect("close");
    one_place(&t).await;
    assert_eq!(t.import(units).await, vec![Ok(Imported::Stored); 3]);
    is_held(&t, "2").await;
    is_held(&t, "3").await;
}

async fn a_limit_holds_for_jobs_reclaimed(t: DriverUnderTest) {
    t.put_all(["1", "2", "3"].map(job), T0).await;
    assert_eq!(t.take_many(2, T0).await.len(), 2);
    one_place(&t).await;
    assert_eq!(t.take_many(9, at(60)).await.len(), 1);
    assert_eq!(t.take_many(9, at(61)).await.len(), 0);
}

async fn a_limit_holds_for_jobs_unblocked(t: DriverUnderTest) {
    let first = job("1").on_failure(FailurePolicy::Continue);
    t.put_flow([first, child("2", &["1"]), child("3", &["2"])], T0).await;
    t.put(job("4"), T0).await;
    let jobs = t.take_many(2, T0).await;
    assert_eq!(texts(&jobs), ["1", "4"]);
    one_place(&t).await;
    t.apply(&jobs[0], fail(T0), T0).await;
    is_held(&t, "2").await;
    t.apply(&jobs[1], ack(), T0).await;
    t.run("2", ack(), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["3"]);
}

async fn a_limit_holds_for_jobs_of_an_expansion(t: DriverUnderTest) {
    t.put_all([job("1"), job("2")], T0).await;
    let jobs = t.take_many(2, T0).await;
    one_place(&t).await;
    t.apply(&jobs[0], expand([job("3"), child("4", &["3"])]), T0).await;
    is_held(&t, "3").await;
    assert_eq!(t.record("3", T0).await.job.flow, Some(id("1")));
}

async fn a_cancelled_flow_leaves_no_place_behind(t: DriverUnderTest) {
    one_place(&t).await;
    t.put_flow([job("1"), child("2", &["1"])], T0).await;
    let leased = t.take_the("1", T0).await;
    t.act("2", Action::CancelFlow, T0).await;
    t.put(job("3"), T0).await;
    is_held(&t, "3").await;
    t.apply(&leased, release(None), T0).await;
    t.act("2", Action::PurgeFlow, T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["3"]);
}
