//! Wake-ups for workers that wait for a place.

use taskharbor_core::{
    admin::{Change, LimitsDeclaration, LimitsRecord, QueueLimits},
    driver::Leased,
};

use super::{schedule_owner::owner, watch::wakes};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, at, expand, fail, job, job_in, queue, release, retry},
    limits_under_test::{in_lane, jobs_of},
};

group! {
    limit_wake {
        a_place_freed_by_an_ack_wakes ["WAK-3"]
        a_place_freed_by_a_failure_wakes ["WAK-3"]
        a_place_freed_by_a_retry_or_release_for_later_wakes ["WAK-3"]
        a_place_freed_in_a_lane_wakes ["WAK-3"]
        a_place_freed_after_other_jobs_were_granted_wakes ["WAK-3"]
        every_place_that_is_freed_wakes_again ["WAK-3"]
        changed_limits_wake ["WAK-3"]
        an_ended_hold_wakes ["WAK-3"]
    }
    flows {
        a_place_freed_by_an_expansion_wakes ["WAK-3"]
    }
}

/// A job has the only place of `q`, and another waits for it in vain.
async fn starved(t: &DriverUnderTest) -> Leased {
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put_all(jobs_of("", 2), T0).await;
    let leased = t.take_the("1", T0).await;
    assert_eq!(t.take(T0).await, None);
    leased
}

async fn a_place_freed_by_an_ack_wakes(t: DriverUnderTest) {
    let leased = starved(&t).await;
    wakes(&t, t.apply(&leased, ack(), T0)).await;
}

async fn a_place_freed_by_a_failure_wakes(t: DriverUnderTest) {
    let leased = starved(&t).await;
    wakes(&t, t.apply(&leased, fail(T0), T0)).await;
}

async fn a_place_freed_by_a_retry_or_release_for_later_wakes(t: DriverUnderTest) {
    let leased = starved(&t).await;
    wakes(&t, t.apply(&leased, retry(Some(at(900)), T0), T0)).await;
    let leased = t.take_the("2", T0).await;
    t.put(job("3"), T0).await;
    assert_eq!(t.take(T0).await, None);
    wakes(&t, t.apply(&leased, release(Some(at(900))), T0)).await;
}

async fn a_place_freed_by_an_expansion_wakes(t: DriverUnderTest) {
    let leased = starved(&t).await;
    wakes(&t, t.apply(&leased, expand([job_in("elsewhere", "x")]), T0)).await;
}

async fn a_place_freed_in_a_lane_wakes(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put_all(jobs_of("a", 2), T0).await;
    let leased = t.take_the("a1", T0).await;
    assert_eq!(t.take(T0).await, None);
    wakes(&t, t.apply(&leased, ack(), T0)).await;
}

async fn a_place_freed_after_other_jobs_were_granted_wakes(t: DriverUnderTest) {
    t.limit(QueueLimits::new().per_lane(1)).await;
    t.put_all(jobs_of("a", 2), T0).await;
    let leased = t.take_the("a1", T0).await;
    assert_eq!(t.take(T0).await, None);
    // Another worker gets all that it asks for, and a2 still waits.
    t.put(in_lane("b", "b1"), T0).await;
    t.take_the("b1", T0).await;
    wakes(&t, t.apply(&leased, ack(), T0)).await;
}

async fn every_place_that_is_freed_wakes_again(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(2)).await;
    t.put_all(jobs_of("", 8), T0).await;
    let mut jobs = t.take_many(9, T0).await;
    for _ in 0..6 {
        assert_eq!(t.take(T0).await, None);
        let leased = jobs.remove(0);
        wakes(&t, t.apply(&leased, ack(), T0)).await;
        jobs.extend(t.take_many(1, T0).await);
    }
}

async fn changed_limits_wake(t: DriverUnderTest) {
    starved(&t).await;
    wakes(&t, t.limit(QueueLimits::new().inflight(2))).await;
    wakes(&t, t.remove_limits()).await;
    let declare = |limits| {
        let declaration = LimitsDeclaration::new(owner("billing"), None, limits);
        t.change(Change::DeclareLimits(declaration), T0)
    };
    wakes(&t, declare(vec![(queue("q"), QueueLimits::new().inflight(3))])).await;
    wakes(&t, declare(Vec::new())).await;
    let record = LimitsRecord::new(queue("q"), None, QueueLimits::new().inflight(4));
    wakes(&t, t.change(Change::ImportLimits(Box::new(record)), T0)).await;
}

async fn an_ended_hold_wakes(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 2), T0).await;
    for of in [None, Some("a")] {
        t.hold(of, Some(at(900))).await;
        assert_eq!(t.take(T0).await, None);
        wakes(&t, t.hold(of, None)).await;
        t.take(T0).await.expect("a grant");
    }
}
