//! Limits of jobs inflight: what is granted, and what is held back by which limit.

use std::time::Duration;

use taskharbor_core::{
    State, Timestamp,
    admin::{LaneLimits, QueueLimits, Rate},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, after, at, job, job_in, queue, release},
    limits_under_test::{full, in_lane, jobs_of, on_hold, rate_held, texts},
};

group! {
    limit {
        no_more_jobs_are_inflight_than_the_queue_allows ["LIM-1"]
        a_limit_per_lane_holds_for_each_lane ["LIM-1" "LIM-3"]
        a_lane_with_a_limit_of_its_own_has_that_one_instead ["LIM-3"]
        jobs_without_a_lane_are_limited_by_the_queue_alone ["LIM-3"]
        both_limits_hold_at_once ["LIM-1"]
        a_lane_at_its_limit_keeps_no_job_of_another_waiting ["LIM-3" "LAN-4"]
        a_backlog_of_a_lane_at_its_limit_hides_nothing ["LIM-3" "LAN-4"]
        a_priority_held_back_keeps_no_lower_one_waiting ["LIM-3" "ORD-1"]
        a_limit_of_one_queue_concerns_no_other ["LIM-1" "RES-5"]
        a_job_held_back_is_ready_and_keeps_its_position ["LIM-4"]
        inspect_says_which_limit_holds_a_job_back ["LIM-4"]
        only_ready_jobs_are_held_back ["LIM-4"]
        leases_from_before_the_limit_count ["LIM-6"]
        a_lowered_limit_takes_no_lease_away ["LIM-6"]
        a_raised_or_removed_limit_lets_jobs_go ["LIM-6" "LIM-1"]
        a_paused_queue_with_limits_grants_nothing ["PAU-1" "LIM-1"]
        the_end_of_a_lease_is_waited_for_when_every_place_is_taken ["RES-7" "LIM-1"]
        a_clock_that_is_behind_counts_leases_by_its_own_time ["TIM-1" "LIM-1"]
    }
    flows {}
}

async fn no_more_jobs_are_inflight_than_the_queue_allows(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(3)).await;
    t.put_all(jobs_of("", 5), T0).await;
    assert_eq!(t.take_texts(2, T0).await, ["1", "2"]);
    let last = t.take_many(5, T0).await;
    assert_eq!(texts(&last), ["3"]);
    assert_eq!(t.take(T0).await, None);
    t.apply(&last[0], ack(), T0).await;
    assert_eq!(t.take_texts(5, T0).await, ["4"]);
}

async fn a_limit_per_lane_holds_for_each_lane(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(2)).await;
    t.put_all(["a", "b", "c"].iter().flat_map(|name| jobs_of(name, 3)), T0).await;
    let jobs = t.take_many(100, T0).await;
    assert_eq!(texts(&jobs), ["a1", "a2", "b1", "b2", "c1", "c2"]);
    t.apply(&jobs[2], ack(), T0).await;
    assert_eq!(t.take_texts(100, T0).await, ["b3"]);
}

async fn a_lane_with_a_limit_of_its_own_has_that_one_instead(t: DriverUnderTest) {
    let own = |jobs| LaneLimits::new().inflight(jobs);
    let limits = QueueLimits::new().per_lane(2).lane("few", own(1)).lane("many", own(4));
    t.limit(limits.lane("weighty", LaneLimits::new().weight(9))).await;
    let lanes = ["few", "many", "other", "weighty"];
    t.put_all(lanes.iter().flat_map(|name| jobs_of(name, 6)), T0).await;
    let taken = t.take_texts(100, T0).await;
    let of = |name: &str| taken.iter().filter(|text| text.starts_with(name)).count();
    assert_eq!(lanes.map(of), [1, 4, 2, 2], "{taken:?}");
}

async fn jobs_without_a_lane_are_limited_by_the_queue_alone(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1).lane_rate(Rate::per(1, LEASE))).await;
    t.put_all(jobs_of("", 4).into_iter().chain(jobs_of("a", 2)), T0).await;
    assert_eq!(t.take_texts(100, T0).await, ["1", "2", "3", "4", "a1"]);
    t.limit(QueueLimits::new().per_lane(1).inflight(6)).await;
    t.put_all((5..9).map(|n| job(&n.to_string())), T0).await;
    assert_eq!(t.take_texts(100, T0).await, ["5"]);
}

async fn both_limits_hold_at_once(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(5).per_lane(2)).await;
    t.put_all(["a", "b", "c"].iter().flat_map(|name| jobs_of(name, 3)), T0).await;
    let jobs = t.take_many(100, T0).await;
    assert_eq!(texts(&jobs), ["a1", "a2", "b1", "b2", "c1"]);
    t.apply(&jobs[0], ack(), T0).await;
    // The turn is c's, and c has room.
    assert_eq!(t.take_texts(100, T0).await, ["c2"]);
}

async fn a_lane_at_its_limit_keeps_no_job_of_another_waiting(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put_all(jobs_of("a", 3).into_iter().chain(jobs_of("b", 1)).chain(jobs_of("", 2)), T0).await;
    assert_eq!(t.take_each(9, T0).await, ["1", "a1", "b1", "2"]);
}

async fn a_backlog_of_a_lane_at_its_limit_hides_nothing(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put_all(jobs_of("a", 3_000), T0).await;
    assert_eq!(t.take_each(9, T0).await, ["a1"]);
    t.put_all([in_lane("b", "b").priority(-1), job("plain").priority(-2)], at(1)).await;
    assert_eq!(t.take_each(9, at(1)).await, ["b", "plain"]);
}

async fn a_priority_held_back_keeps_no_lower_one_waiting(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put_all(jobs_of("a", 3).into_iter().map(|job| job.priority(9)), T0).await;
    t.put_all(jobs_of("b", 2).into_iter().map(|job| job.priority(1)), T0).await;
    t.put_all(jobs_of("c", 1), T0).await;
    assert_eq!(t.take_each(9, T0).await, ["a1", "b1", "c1"]);
}

async fn a_limit_of_one_queue_concerns_no_other(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1)).await;
    for name in ["q", "r"] {
        t.put_all((0..3).map(|n| job_in(name, &format!("{name}{n}"))), T0).await;
    }
    let jobs = t.reserve(&[("q", 3), ("r", 3)], T0, LEASE).await.expect("reserve").jobs;
    assert_eq!(texts(&jobs), ["q0", "r0", "r1", "r2"]);
}

async fn a_job_held_back_is_ready_and_keeps_its_position(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put_all(jobs_of("", 2), T0).await;
    let first = t.take_the("1", T0).await;
    let before = t.record("2", at(5)).await;
    assert_eq!(t.take(at(5)).await, None);
    assert_eq!(t.record("2", at(5)).await, before);
    assert_eq!((before.state, before.due_at), (State::Ready, Some(T0)));
    t.put(job("3"), at(5)).await;
    t.apply(&first, ack(), at(6)).await;
    assert_eq!(t.take_the("2", at(6)).await.job.available_at, T0);
}

/// What holds `a2` back under these limits, after `a1` was granted at the beginning.
async fn reason(t: &DriverUnderTest, limits: QueueLimits, now: Timestamp) -> String {
    t.limit(limits).await;
    match t.held_back("a2", now).await {
        Some(held) => format!("{} {:?}", if held.by_lane { "lane" } else { "queue" }, held.why),
        None => "nothing".to_owned(),
    }
}

async fn inspect_says_which_limit_holds_a_job_back(t: DriverUnderTest) {
    let hour = Rate::per(1, Duration::from_secs(3_600));
    let of_lane = QueueLimits::new().per_lane(1).lane_rate(hour);
    let all = of_lane.clone().inflight(1).rate(hour);
    t.limit(all.clone()).await;
    t.put_all(jobs_of("a", 2), T0).await;
    assert_eq!(t.held_back("a1", T0).await, None);
    t.take_the("a1", T0).await;
    // Each is the next reason once the one before is gone.
    t.hold(None, Some(at(30))).await;
    t.hold(Some("a"), Some(at(40))).await;
    assert_eq!(t.held_back("a2", T0).await, on_hold(false, at(30)));
    assert_eq!(t.held_back("a2", at(30)).await, full(false, 1, 1));
    assert_eq!(t.held_back("a2", at(60)).await, rate_held(false, at(3_600)));
    assert!(reason(&t, of_lane.clone(), at(30)).await.starts_with("lane OnHold"));
    assert_eq!(t.held_back("a2", at(39)).await, on_hold(true, at(40)));
    assert_eq!(t.held_back("a2", at(40)).await, full(true, 1, 1));
    assert_eq!(t.held_back("a2", at(60)).await, rate_held(true, at(3_600)));
    assert_eq!(reason(&t, QueueLimits::new().per_lane(2), at(40)).await, "nothing");
    t.remove_limits().await;
    assert_eq!(t.held_back("a2", at(40)).await, None);
}

async fn only_ready_jobs_are_held_back(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put_all([job("inflight"), job("ready"), job("scheduled").run_at(at(9))], T0).await;
    t.take_the("inflight", T0).await;
    for (text, held) in [("inflight", None), ("ready", full(false, 1, 1)), ("scheduled", None)] {
        assert_eq!(t.held_back(text, T0).await, held, "{text}");
    }
    assert_eq!(t.held_back("scheduled", at(9)).await, full(false, 1, 1));
}

async fn leases_from_before_the_limit_count(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 4), T0).await;
    let jobs = t.take_many(2, T0).await;
    t.limit(QueueLimits::new().per_lane(3)).await;
    assert_eq!(t.take_texts(9, T0).await, ["a3"]);
    t.apply(&jobs[0], ack(), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["a4"]);
}

async fn a_lowered_limit_takes_no_lease_away(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(3)).await;
    t.put_all(jobs_of("", 6), T0).await;
    let jobs = t.take_many(9, T0).await;
    t.limit(QueueLimits::new().inflight(1)).await;
    let kept = t.keep(&jobs[0], at(1), LEASE).await;
    assert_eq!(t.held_back("4", at(1)).await, full(false, 3, 1));
    t.apply(&kept, ack(), at(2)).await;
    t.apply(&jobs[1], ack(), at(2)).await;
    assert_eq!(t.take(at(2)).await, None);
    t.apply(&jobs[2], ack(), at(2)).await;
    assert_eq!(t.take_texts(9, at(2)).await, ["4"]);
}

async fn a_raised_or_removed_limit_lets_jobs_go(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put_all(jobs_of("", 6), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["1"]);
    t.limit(QueueLimits::new().inflight(3)).await;
    assert_eq!(t.take_texts(9, T0).await, ["2", "3"]);
    t.limit(QueueLimits::new()).await;
    assert_eq!(t.take_texts(1, T0).await, ["4"]);
    t.limit(QueueLimits::new().inflight(4)).await;
    assert_eq!(t.take_texts(9, T0).await, [""; 0]);
    t.remove_limits().await;
    assert_eq!(t.take_texts(9, T0).await, ["5", "6"]);
    assert_eq!(t.all_limits().await, []);
}

async fn a_paused_queue_with_limits_grants_nothing(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(2)).await;
    t.put_all(jobs_of("", 4), T0).await;
    let first = t.take_the("1", T0).await;
    t.driver.pause(queue("q"), T0).await.expect("pause");
    let reserved = t.reserve(&[("q", 5)], T0, LEASE).await.expect("reserve");
    assert_eq!((reserved.jobs.len(), reserved.next_due), (0, None));
    t.apply(&first, release(None), T0).await;
    t.driver.resume(queue("q"), T0).await.expect("resume");
    assert_eq!(t.take_texts(5, T0).await, ["1", "2"]);
}

async fn the_end_of_a_lease_is_waited_for_when_every_place_is_taken(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put_all(jobs_of("", 2), T0).await;
    t.take_the("1", T0).await;
    for now in [T0, at(59)] {
        let reserved = t.reserve(&[("q", 1)], now, LEASE).await.expect("reserve");
        let next = reserved.next_due.expect("a lease will end");
        assert!(now < next && next <= at(60), "{next}");
    }
    assert_eq!(t.take_many(2, at(60)).await.len(), 1);
}

async fn a_clock_that_is_behind_counts_leases_by_its_own_time(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put_all(jobs_of("", 3), T0).await;
    t.take_the("1", T0).await;
    // At the end of the first lease its place is free, on a clock that is behind it is not.
    assert_eq!(t.take(at(59)).await, None);
    let jobs = t.take_many(1, at(60)).await;
    assert_eq!(t.take(at(59)).await, None);
    assert_eq!(t.take(after(at(60))).await, None);
    t.apply(&jobs[0], ack(), at(61)).await;
    assert_eq!(t.take_many(9, at(61)).await.len(), 1);
}
