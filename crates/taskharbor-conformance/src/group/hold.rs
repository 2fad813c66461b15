//! Holds: until their end, nothing of a queue or lane is granted.

use taskharbor_core::{
    Driver, Timestamp,
    admin::{Change, QueueLimits},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, at, before, job, job_in, queue},
    limits_under_test::{in_lane, jobs_of, lane, on_hold},
};

group! {
    hold {
        nothing_of_a_queue_is_granted_until_the_hold_ends ["RAT-4"]
        nothing_of_a_lane_is_granted_until_the_hold_ends ["RAT-4" "LIM-3"]
        a_second_hold_does_not_shorten_the_first ["RAT-4"]
        a_hold_can_be_ended ["RAT-4"]
        ending_a_hold_ends_that_one_alone ["RAT-4"]
        a_hold_stays_when_limits_are_set_and_removed ["RAT-4" "LIM-8"]
        a_hold_that_has_passed_holds_nothing ["RAT-4"]
        the_end_of_a_hold_is_waited_for ["RAT-3" "RES-7"]
        the_latest_of_what_holds_a_job_is_waited_for_at_most ["RAT-3"]
        a_hold_leaves_leases_as_they_are ["RAT-4" "LIM-6"]
        a_hold_of_one_queue_concerns_no_other ["RAT-4" "LAN-1"]
        a_queue_can_be_held_before_it_has_jobs ["RAT-4"]
        a_hold_until_the_end_of_time_is_ended_by_hand ["RAT-4" "TIM-2"]
    }
    flows {}
}

async fn nothing_of_a_queue_is_granted_until_the_hold_ends(t: DriverUnderTest) {
    t.put_all(jobs_of("", 1).into_iter().chain(jobs_of("a", 1)), T0).await;
    t.hold(None, Some(at(10))).await;
    for now in [T0, before(at(10))] {
        assert_eq!(t.take_texts(9, now).await, [""; 0]);
        for text in ["1", "a1"] {
            assert_eq!(t.held_back(text, now).await, on_hold(false, at(10)));
        }
    }
    assert_eq!(t.held_back("1", at(10)).await, None);
    assert_eq!(t.take_texts(9, at(10)).await, ["1", "a1"]);
}

async fn nothing_of_a_lane_is_granted_until_the_hold_ends(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 2).into_iter().map(|job| job.priority(5)), T0).await;
    t.put_all(jobs_of("b", 1).into_iter().chain(jobs_of("", 1)), T0).await;
    t.hold(Some("a"), Some(at(10))).await;
    assert_eq!(t.held_back("a1", T0).await, on_hold(true, at(10)));
    assert_eq!(t.take_texts(9, T0).await, ["b1", "1"]);
    assert_eq!(t.take_texts(9, before(at(10))).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(10)).await, ["a1", "a2"]);
}

async fn a_second_hold_does_not_shorten_the_first(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 1), T0).await;
    for of in [None, Some("a")] {
        t.hold(of, Some(at(10))).await;
        t.hold(of, Some(at(5))).await;
        t.hold(of, Some(T0)).await;
        assert_eq!(t.held_back("a1", at(9)).await, on_hold(of.is_some(), at(10)));
        t.hold(of, Some(at(20))).await;
        assert_eq!(t.held_back("a1", at(19)).await, on_hold(of.is_some(), at(20)));
        assert_eq!(t.take(before(at(20))).await, None);
        t.hold(of, None).await;
    }
    assert_eq!(t.take_texts(9, T0).await, ["a1"]);
}

async fn a_hold_can_be_ended(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 2), T0).await;
    for (of, text) in [(None, "a1"), (Some("a"), "a2")] {
        t.hold(of, Some(at(10))).await;
        assert_eq!(t.take(T0).await, None);
        for _ in 0..2 {
            t.hold(of, None).await;
        }
        t.take_the(text, T0).await;
        // It begins anew, and may be shorter than the one that was ended.
        t.hold(of, Some(at(5))).await;
        t.hold(of, None).await;
    }
}

async fn ending_a_hold_ends_that_one_alone(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 1).into_iter().chain(jobs_of("b", 1)).chain(jobs_of("", 1)), T0).await;
    t.hold(None, Some(at(10))).await;
    t.hold(Some("a"), Some(at(20))).await;
    t.hold(Some("b"), Some(at(30))).await;
    t.hold(Some("b"), None).await;
    assert_eq!(t.take_texts(9, at(1)).await, [""; 0]);
    t.hold(None, None).await;
    assert_eq!(t.take_texts(9, at(1)).await, ["b1", "1"]);
    assert_eq!(t.held_back("a1", at(1)).await, on_hold(true, at(20)));
    assert_eq!(t.take_texts(9, at(20)).await, ["a1"]);
}

async fn a_hold_stays_when_limits_are_set_and_removed(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 1).into_iter().chain(jobs_of("", 1)), T0).await;
    t.hold(Some("a"), Some(at(10))).await;
    t.hold(None, Some(at(5))).await;
    t.limit(QueueLimits::new().inflight(9).per_lane(9)).await;
    assert_eq!(t.take_texts(9, at(4)).await, [""; 0]);
    t.remove_limits().await;
    assert_eq!(t.take_texts(9, at(4)).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(9)).await, ["1"]);
    assert_eq!(t.take_texts(9, at(10)).await, ["a1"]);
}

async fn a_hold_that_has_passed_holds_nothing(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 2), T0).await;
    t.hold(None, Some(T0)).await;
    t.hold(Some("a"), Some(Timestamp::EPOCH)).await;
    assert_eq!(t.take_texts(1, T0).await, ["a1"]);
    t.hold(None, Some(at(5))).await;
    t.hold(None, Some(at(3))).await;
    assert_eq!(t.take_texts(1, at(5)).await, ["a2"]);
}

/// When the driver asks to come again; something has to be waited for.
async fn next_due(t: &DriverUnderTest, now: Timestamp) -> Timestamp {
    let reserved = t.reserve(&[("q", 9)], now, LEASE).await.expect("reserve");
    let next = reserved.next_due.expect("there is something to wait for");
    assert!(now < next, "{next} is not after {now}");
    next
}

async fn the_end_of_a_hold_is_waited_for(t: DriverUnderTest) {
    t.hold(None, Some(at(10))).await;
    let nothing = t.reserve(&[("q", 9)], T0, LEASE).await.expect("reserve");
    assert_eq!(nothing.next_due, None, "no job is held back");
    t.put_all([job("1"), job("later").run_at(at(500))], T0).await;
    assert!(next_due(&t, T0).await <= at(10));
    t.hold(None, None).await;
    t.take_the("1", T0).await;
    t.put_all(jobs_of("a", 1).into_iter().chain(jobs_of("b", 1)), T0).await;
    t.hold(Some("a"), Some(at(8))).await;
    t.hold(Some("b"), Some(at(5))).await;
    assert!(next_due(&t, T0).await <= at(5));
    assert_eq!(t.take_texts(1, at(5)).await, ["b1"]);
    assert!(next_due(&t, at(6)).await <= at(8));
}

async fn the_latest_of_what_holds_a_job_is_waited_for_at_most(t: DriverUnderTest) {
    t.put(in_lane("a", "a1"), T0).await;
    t.hold(None, Some(at(10))).await;
    t.hold(Some("a"), Some(at(20))).await;
    for now in [T0, at(9), at(10), before(at(20))] {
        assert!(next_due(&t, now).await <= at(20));
    }
    assert_eq!(t.take_texts(9, at(20)).await, ["a1"]);
}

async fn a_hold_leaves_leases_as_they_are(t: DriverUnderTest) {
    t.put_all(jobs_of("", 2), T0).await;
    let jobs = t.take_many(2, T0).await;
    t.hold(None, Some(at(500))).await;
    let kept = t.keep(&jobs[0], at(1), LEASE).await;
    t.apply(&kept, ack(), at(2)).await;
    // A lease that ends in a hold is not reclaimed by a grant.
    assert_eq!(t.take(at(60)).await, None);
    assert_eq!(t.take_texts(9, at(500)).await, ["2"]);
}

async fn a_hold_of_one_queue_concerns_no_other(t: DriverUnderTest) {
    t.put_all([in_lane("a", "1"), job_in("r", "2").lane(lane("a")), job_in("r", "3")], T0).await;
    t.hold(None, Some(at(10))).await;
    t.hold(Some("a"), Some(at(10))).await;
    let jobs = t.reserve(&[("q", 9), ("r", 9)], T0, LEASE).await.expect("reserve").jobs;
    assert_eq!(jobs.len(), 2);
}

async fn a_queue_can_be_held_before_it_has_jobs(t: DriverUnderTest) {
    t.hold(None, Some(at(10))).await;
    t.hold(Some("a"), Some(at(20))).await;
    t.put_all(jobs_of("a", 1).into_iter().chain(jobs_of("", 1)), T0).await;
    assert_eq!(t.take_texts(9, T0).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(10)).await, ["1"]);
    assert_eq!(t.take_texts(9, at(20)).await, ["a1"]);
}

async fn a_hold_until_the_end_of_time_is_ended_by_hand(t: DriverUnderTest) {
    t.put(job("1"), T0).await;
    t.hold(None, Some(Timestamp::MAX)).await;
    let late = at(1_000_000_000);
    assert_eq!(t.take(late).await, None);
    assert_eq!(t.held_back("1", late).await, on_hold(false, Timestamp::MAX));
    let ended = Change::Hold { queue: queue("q"), lane: None, until: None };
    t.change(ended, late).await.expect("not denied");
    t.take_the("1", late).await;
    t.driver.close().await.expect("close");
}
