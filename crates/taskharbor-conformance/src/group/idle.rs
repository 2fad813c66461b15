//! `next_due` of a reserve while jobs wait and none of them may be granted.
//!
//! A worker that is told to ask again at once does so for ever, and looks like one that the store does not serve. A driver
//! may have such an answer for a moment. So each case asks twice, and the second answer counts.

use std::time::Duration;

use taskharbor_core::{
    Timestamp,
    admin::{QueueLimits, Rate},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, at, job},
    limits_under_test::{in_lane, jobs_of},
};

group! {
    idle {
        an_expired_lease_that_a_limit_of_its_lane_holds_back_is_not_asked_for_at_once ["RES-10" "LIM-3"]
        an_expired_lease_that_a_limit_of_the_queue_holds_back_is_not_asked_for_at_once ["RES-10" "LIM-1"]
        an_expired_lease_in_a_hold_is_not_asked_for_at_once ["RES-10" "RAT-3" "RAT-4"]
        an_expired_lease_in_a_lane_on_hold_is_not_asked_for_at_once ["RES-10" "RAT-3" "RAT-4"]
        an_expired_lease_that_a_rate_holds_back_is_not_asked_for_at_once ["RES-10" "RAT-3"]
        an_expired_lease_that_a_rate_of_its_lane_holds_back_is_not_asked_for_at_once ["RES-10" "RAT-3"]
        a_ready_job_that_is_held_back_is_not_asked_for_at_once ["RES-10" "LIM-3"]
        a_lease_that_is_valid_is_waited_for_and_not_asked_for_at_once ["RES-10" "RES-7"]
        a_time_that_is_near_is_named_all_the_same ["RES-10" "RES-7"]
    }
    flows {}
}

/// How soon after `now` a caller may be told to ask again.
const SOONEST: Duration = Duration::from_millis(10);

/// Asks twice, and nothing may be granted. The second answer must be between the soonest time and `latest`.
async fn assert_waits(t: &DriverUnderTest, now: Timestamp, latest: Timestamp) {
    for (again, now) in [now, now.saturating_add(Duration::from_secs(1))].into_iter().enumerate() {
        let reserved = t.reserve(&[("q", 9)], now, LEASE).await.expect("reserve");
        assert_eq!(reserved.jobs, []);
        let next = reserved.next_due.expect("there is something to wait for");
        let earliest = if again == 0 { now } else { now.saturating_add(SOONEST) };
        assert!(now < next && earliest <= next, "asked at {now}: {next} is too soon");
        assert!(next <= latest, "asked at {now}: {next} is later than {latest}");
    }
}

async fn an_expired_lease_that_a_limit_of_its_lane_holds_back_is_not_asked_for_at_once(
    t: DriverUnderTest,
) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put(in_lane("a", "dies"), T0).await;
    // Its worker dies after it has extended the lease once.
    let leased = t.take_the("dies", T0).await;
    t.keep(&leased, at(50), LEASE).await;
    t.put(in_lane("a", "runs").priority(5), at(60)).await;
    t.take_the("runs", at(110)).await;
    assert_waits(&t, at(111), at(170)).await;
    assert_eq!(t.take_texts(9, at(170)).await, ["runs"]);
}

async fn an_expired_lease_that_a_limit_of_the_queue_holds_back_is_not_asked_for_at_once(
    t: DriverUnderTest,
) {
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put(job("dies"), T0).await;
    t.take_the("dies", T0).await;
    t.put(job("runs").priority(5), at(1)).await;
    t.take_the("runs", at(60)).await;
    assert_waits(&t, at(61), at(120)).await;
}

async fn an_expired_lease_in_a_hold_is_not_asked_for_at_once(t: DriverUnderTest) {
    t.put(job("dies"), T0).await;
    t.take_the("dies", T0).await;
    t.hold(None, Some(at(3_600))).await;
    assert_waits(&t, at(61), at(3_600)).await;
    t.take_the("dies", at(3_600)).await;
}

async fn an_expired_lease_in_a_lane_on_hold_is_not_asked_for_at_once(t: DriverUnderTest) {
    t.put(in_lane("a", "dies"), T0).await;
    t.take_the("dies", T0).await;
    t.hold(Some("a"), Some(at(3_600))).await;
    assert_waits(&t, at(61), at(3_600)).await;
    t.take_the("dies", at(3_600)).await;
}

async fn an_expired_lease_that_a_rate_holds_back_is_not_asked_for_at_once(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, Duration::from_secs(600)))).await;
    t.put(job("dies"), T0).await;
    t.take_the("dies", T0).await;
    assert_waits(&t, at(61), at(600)).await;
    t.take_the("dies", at(600)).await;
}

async fn an_expired_lease_that_a_rate_of_its_lane_holds_back_is_not_asked_for_at_once(
    t: DriverUnderTest,
) {
    t.limit(QueueLimits::new().lane_rate(Rate::per(1, Duration::from_secs(600)))).await;
    t.put(in_lane("a", "dies"), T0).await;
    t.take_the("dies", T0).await;
    assert_waits(&t, at(61), at(600)).await;
    t.take_the("dies", at(600)).await;
}

async fn a_ready_job_that_is_held_back_is_not_asked_for_at_once(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(3).per_lane(1)).await;
    t.put_all(jobs_of("a", 2).into_iter().chain(jobs_of("b", 2)), T0).await;
    assert_eq!(t.take_many(9, T0).await.len(), 2);
    assert_waits(&t, at(1), at(60)).await;
    t.put_all(jobs_of("", 2), at(3)).await;
    assert_eq!(t.take_many(9, at(3)).await.len(), 1);
    assert_waits(&t, at(4), at(60)).await;
}

async fn a_lease_that_is_valid_is_waited_for_and_not_asked_for_at_once(t: DriverUnderTest) {
    t.put_all([job("1"), in_lane("a", "2")], T0).await;
    assert_eq!(t.take_many(2, T0).await.len(), 2);
    assert_waits(&t, at(1), at(60)).await;
}

async fn a_time_that_is_near_is_named_all_the_same(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put_all(jobs_of("a", 2), T0).await;
    t.take_many(1, T0).await;
    let near = at(2).saturating_add(Duration::from_millis(1));
    t.put(job("near").run_at(near), T0).await;
    for now in [at(1), at(2)] {
        let next = t.reserve(&[("q", 9)], now, LEASE).await.expect("reserve").next_due;
        assert!(next.is_some_and(|next| now < next && next <= near), "{next:?}");
    }
    t.take_the("near", near).await;
}
