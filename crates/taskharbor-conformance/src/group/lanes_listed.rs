//! The lanes of a queue as people see them.

use std::time::Duration;

use taskharbor_core::{
    Admin,
    admin::{Action, Cursor, HeldJob, LaneStatus, ListLanes, QueueLimits, Rate},
    error::InvalidRequest,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, at, child, invalid, job_in, queue, release},
    limits_under_test::{full, in_lane, jobs_of, lane, on_hold, rate_held},
};

group! {
    lanes_listed {
        lanes_are_listed_by_name_with_their_jobs ["LAN-6"]
        lanes_come_in_pages ["LAN-6"]
        jobs_without_a_lane_are_listed_first ["LAN-6"]
        lanes_without_ready_or_inflight_jobs_are_not_listed ["LAN-6"]
        lanes_on_hold_are_listed ["LAN-6" "RAT-4"]
        a_lane_says_what_would_hold_back_a_job ["LAN-6" "LIM-4"]
        an_expired_lease_is_shown_as_inflight_and_has_no_place ["LAN-6" "LEA-3" "LIM-5"]
        a_queue_without_jobs_has_no_lanes ["LAN-6"]
        a_page_of_lanes_has_one_to_a_thousand ["LAN-6"]
        a_cursor_of_another_list_is_refused ["LAN-6" "ADM-13"]
    }
    flows {
        blocked_jobs_list_no_lane ["LAN-6"]
    }
}

fn status(name: &str, ready: usize, inflight: usize, held: Option<HeldJob>) -> LaneStatus {
    let name = Some(name).filter(|name| !name.is_empty()).map(lane);
    LaneStatus::new(name, ready, inflight, held)
}

async fn lanes_are_listed_by_name_with_their_jobs(t: DriverUnderTest) {
    t.put_all(jobs_of("b", 3).into_iter().chain(jobs_of("a", 2)).chain(jobs_of("B", 1)), T0).await;
    t.put_all([job_in("r", "other").lane(lane("z"))], T0).await;
    let jobs = t.take_many(2, T0).await;
    let expected = [status("B", 0, 1, None), status("a", 1, 1, None), status("b", 3, 0, None)];
    assert_eq!(t.lanes("q", 100, T0).await, expected);
    t.apply(&jobs[0], ack(), T0).await;
    t.apply(&jobs[1], release(None), T0).await;
    let left = t.lanes("q", 100, T0).await.iter().map(|it| it.ready + it.inflight).sum::<usize>();
    assert_eq!(left, 5);
    assert_eq!(t.lanes("r", 100, T0).await, [status("z", 1, 0, None)]);
}

async fn lanes_come_in_pages(t: DriverUnderTest) {
    let names = ["", "'", "a", "a b", "ab", "é", "🦀"];
    let jobs = names.iter().flat_map(|name| jobs_of(name, 2));
    t.put_all(jobs, T0).await;
    let expected: Vec<_> = names.iter().map(|name| status(name, 2, 0, None)).collect();
    for limit in [1, 2, 3, 6, 7, 8, 1_000] {
        assert_eq!(t.lanes("q", limit, T0).await, expected, "pages of {limit}");
    }
}

async fn jobs_without_a_lane_are_listed_first(t: DriverUnderTest) {
    t.put_all(jobs_of("!", 1).into_iter().chain(jobs_of("", 2)), T0).await;
    let expected = [status("", 2, 0, None), status("!", 1, 0, None)];
    assert_eq!(t.lanes("q", 1, T0).await, expected);
}

async fn lanes_without_ready_or_inflight_jobs_are_not_listed(t: DriverUnderTest) {
    t.put_all([in_lane("later", "1").run_at(at(9)), in_lane("done", "2")], T0).await;
    t.run("2", ack(), T0).await;
    t.put(in_lane("cancelled", "3"), T0).await;
    t.act("3", Action::Cancel, T0).await;
    t.limit(QueueLimits::new().weight("only settings", 2)).await;
    assert_eq!(t.lanes("q", 100, T0).await, []);
    assert_eq!(t.lanes("q", 100, at(9)).await, [status("later", 1, 0, None)]);
}

async fn blocked_jobs_list_no_lane(t: DriverUnderTest) {
    t.put_flow([in_lane("a", "1"), child("2", &["1"]).lane(lane("b"))], T0).await;
    assert_eq!(t.lanes("q", 100, T0).await, [status("a", 1, 0, None)]);
    t.run("1", ack(), T0).await;
    assert_eq!(t.lanes("q", 100, T0).await, [status("b", 1, 0, None)]);
}

async fn lanes_on_hold_are_listed(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 1), T0).await;
    t.hold(Some("held"), Some(at(9))).await;
    let expected = [status("a", 1, 0, None), status("held", 0, 0, on_hold(true, at(9)))];
    assert_eq!(t.lanes("q", 1, T0).await, expected);
    t.hold(None, Some(at(5))).await;
    let held = || on_hold(false, at(5));
    let expected =
        [status("", 0, 0, held()), status("a", 1, 0, held()), status("held", 0, 0, held())];
    for limit in [1, 3, 10] {
        assert_eq!(t.lanes("q", limit, at(4)).await, expected);
    }
    let expected = [status("a", 1, 0, None), status("held", 0, 0, on_hold(true, at(9)))];
    assert_eq!(t.lanes("q", 10, at(5)).await, expected);
    assert_eq!(t.lanes("q", 10, at(9)).await, [status("a", 1, 0, None)]);
    t.hold(Some("held"), None).await;
    assert_eq!(t.lanes("q", 10, at(8)).await, [status("a", 1, 0, None)]);
}

async fn a_lane_says_what_would_hold_back_a_job(t: DriverUnderTest) {
    let rate = Rate::per(1, Duration::from_secs(10));
    t.limit(QueueLimits::new().per_lane(1).inflight(3).lane_rate(rate)).await;
    t.put_all(["a", "b", "c"].iter().flat_map(|name| jobs_of(name, 1)), T0).await;
    t.put_all(jobs_of("", 1), T0).await;
    let jobs = t.take_many(2, T0).await;
    assert_eq!(jobs[0].job.id.as_str(), "a1");
    let expected = [
        status("", 0, 1, None),
        status("a", 0, 1, full(true, 1, 1)),
        status("b", 1, 0, None),
        status("c", 1, 0, None),
    ];
    assert_eq!(t.lanes("q", 100, T0).await, expected);
    t.apply(&jobs[0], release(None), T0).await;
    assert_eq!(t.lanes("q", 100, T0).await[1], status("a", 1, 0, rate_held(true, at(10))));
    t.take_many(9, T0).await;
    let held = t.lanes("q", 100, T0).await.into_iter().map(|it| it.held_back);
    assert_eq!(held.collect::<Vec<_>>(), vec![full(false, 3, 3); 4]);
}

async fn an_expired_lease_is_shown_as_inflight_and_has_no_place(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put_all(jobs_of("a", 2), T0).await;
    t.take(T0).await.expect("a grant");
    assert_eq!(t.lanes("q", 9, at(59)).await, [status("a", 1, 1, full(true, 1, 1))]);
    assert_eq!(t.lanes("q", 9, at(60)).await, [status("a", 1, 1, None)]);
}

async fn a_queue_without_jobs_has_no_lanes(t: DriverUnderTest) {
    assert_eq!(t.lanes("unknown", 9, T0).await, []);
    t.limit(QueueLimits::new().inflight(1)).await;
    assert_eq!(t.lanes("q", 9, T0).await, []);
}

async fn a_page_of_lanes_has_one_to_a_thousand(t: DriverUnderTest) {
    for limit in [0, 1_001] {
        let refused = invalid(t.driver.lanes(ListLanes::new(queue("q"), limit, T0)).await);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == limit));
    }
}

async fn a_cursor_of_another_list_is_refused(t: DriverUnderTest) {
    t.limit_queue("q", QueueLimits::new().inflight(1)).await;
    t.limit_queue("r", QueueLimits::new().inflight(1)).await;
    let settings = taskharbor_core::admin::ListSettings::new(1);
    let page = t.driver.settings(settings).await.expect("settings");
    let other = page.next.expect("there is another page");
    for cursor in [other, Cursor::new("nonsense"), Cursor::new("")] {
        let request = ListLanes::new(queue("q"), 9, T0).after(cursor);
        assert_eq!(invalid(t.driver.lanes(request).await), InvalidRequest::Cursor);
    }
    let reserved = t.reserve(&[("q", 1)], T0, LEASE).await.expect("reserve");
    assert_eq!(reserved.jobs, []);
}
