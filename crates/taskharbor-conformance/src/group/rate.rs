//! Rates: how fast jobs are granted, to the microsecond.

use std::time::Duration;

use taskharbor_core::{
    Admin, Timestamp,
    admin::{LaneLimits, Prune, QueueLimits, Rate},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, TICK, ack, at, before, fail, job, release, retry},
    limits_under_test::{in_lane, jobs_of, on_hold, rate_held, texts},
};

group! {
    rate {
        a_job_is_granted_every_interval_to_the_microsecond ["RAT-1"]
        an_interval_is_rounded_up ["RAT-1"]
        a_burst_is_granted_at_once ["RAT-1"]
        a_pause_saves_no_more_than_a_burst ["RAT-1"]
        single_grants_and_batches_are_charged_alike ["RAT-1" "RAT-2"]
        a_redelivery_is_charged ["RAT-2" "LIM-7"]
        rates_are_not_refunded ["RAT-2"]
        a_grant_is_charged_to_the_queue_and_to_its_lane ["RAT-2"]
        a_rate_holds_for_each_lane_by_itself ["RAT-2" "LIM-3"]
        a_lane_with_a_rate_of_its_own_has_that_one_instead ["RAT-2" "LIM-3"]
        a_lane_that_is_too_fast_keeps_no_other_waiting ["LIM-3" "LAN-4"]
        jobs_that_are_not_granted_are_not_charged ["RAT-1" "RAT-2"]
        a_clock_that_is_behind_gets_no_more_than_the_rate_allows ["RAT-1" "TIM-1"]
        the_next_job_of_a_rate_is_waited_for ["RAT-3" "RES-7"]
        the_earliest_of_several_lanes_is_waited_for ["RAT-3"]
        a_changed_rate_goes_on_from_what_was_charged ["RAT-1" "LIM-8"]
        removed_limits_forget_what_was_charged ["RAT-2" "LIM-8"]
        pruning_forgets_a_charge_and_a_hold_an_hour_after_the_end_of_both ["RAT-5"]
        a_slow_rate_over_years_is_counted_exactly ["RAT-1" "TIM-2"]
    }
    flows {}
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn micros(now: Timestamp, offset: u64) -> Timestamp {
    now.saturating_add(Duration::from_micros(offset))
}

async fn a_job_is_granted_every_interval_to_the_microsecond(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(10)))).await;
    t.put_all(jobs_of("", 4), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["1"]);
    assert_eq!(t.take_texts(9, before(at(10))).await, [""; 0]);
    assert_eq!(t.held_back("2", before(at(10))).await, rate_held(false, at(10)));
    assert_eq!(t.held_back("2", at(10)).await, None);
    assert_eq!(t.take_texts(9, at(10)).await, ["2"]);
    // A job that comes late puts off the next one.
    assert_eq!(t.take_texts(9, at(25)).await, ["3"]);
    assert_eq!(t.take_texts(9, before(at(35))).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(35)).await, ["4"]);
}

async fn an_interval_is_rounded_up(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(3, secs(1)))).await;
    t.put_all(jobs_of("", 4), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["1"]);
    for n in 1..4 {
        let next = micros(T0, n * 333_334);
        assert_eq!(t.take_texts(9, before(next)).await, [""; 0]);
        assert_eq!(t.take_texts(9, next).await, [(n + 1).to_string()]);
    }
}

async fn a_burst_is_granted_at_once(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(90, secs(10)).burst(10))).await;
    t.put_all(jobs_of("", 30), T0).await;
    assert_eq!(t.take_many(30, T0).await.len(), 10);
    assert_eq!(t.take_many(30, micros(T0, 111_111)).await.len(), 0);
    assert_eq!(t.take_many(30, micros(T0, 111_112)).await.len(), 1);
    assert_eq!(t.take_many(30, micros(T0, 4 * 111_112)).await.len(), 3);
    assert_eq!(t.take_many(30, before(micros(T0, 14 * 111_112))).await.len(), 9);
}

async fn a_pause_saves_no_more_than_a_burst(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(1)).burst(3))).await;
    t.put_all(jobs_of("", 10), T0).await;
    assert_eq!(t.take_many(9, T0).await.len(), 3);
    assert_eq!(t.take_many(9, at(50)).await.len(), 3);
    assert_eq!(t.take_many(9, at(50)).await.len(), 0);
    assert_eq!(t.take_many(9, at(52)).await.len(), 2);
}

async fn single_grants_and_batches_are_charged_alike(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(7, secs(1)).burst(4))).await;
    t.put_all(jobs_of("", 40), T0).await;
    for n in 0..6_u64 {
        let now = micros(T0, n * 300_001);
        // What is left of the burst is granted either way.
        let taken = if n % 2 == 0 {
            t.take_many(9, now).await.len()
        } else {
            t.take_each(9, now).await.len()
        };
        let expected = if n == 0 { 4 } else { 2 };
        assert_eq!(taken, expected, "at step {n}");
    }
}

async fn a_redelivery_is_charged(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(40)))).await;
    t.put(job("1"), T0).await;
    t.run("1", release(None), T0).await;
    assert_eq!(t.take(before(at(40))).await, None);
    t.run("1", retry(None, at(40)), at(40)).await;
    assert_eq!(t.take(before(at(80))).await, None);
    t.take_the("1", at(80)).await;
    // Its lease ends, and it is granted again.
    t.take_the("1", at(140)).await;
    t.put(job("2"), at(140)).await;
    assert_eq!(t.take(before(at(180))).await, None);
    t.take_the("2", at(180)).await;
}

async fn rates_are_not_refunded(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(10)).burst(3))).await;
    t.put_all(jobs_of("", 9), T0).await;
    let jobs = t.take_many(9, T0).await;
    assert_eq!(texts(&jobs), ["1", "2", "3"]);
    for (leased, transition) in jobs.iter().zip([ack(), fail(T0), release(None)]) {
        t.apply(leased, transition, T0).await;
    }
    assert_eq!(t.take_texts(9, before(at(10))).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(10)).await, ["3"]);
}

async fn a_grant_is_charged_to_the_queue_and_to_its_lane(t: DriverUnderTest) {
    let limits = QueueLimits::new().rate(Rate::per(1, secs(1)).burst(2));
    t.limit(limits.lane_rate(Rate::per(1, secs(10)))).await;
    t.put_all(["a", "b", "c"].iter().flat_map(|name| jobs_of(name, 2)), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["a1", "b1"]);
    assert_eq!(t.held_back("a2", T0).await, rate_held(false, at(1)));
    assert_eq!(t.held_back("a2", at(1)).await, rate_held(true, at(10)));
    assert_eq!(t.take_texts(9, at(1)).await, ["c1"]);
    assert_eq!(t.take_texts(9, at(9)).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(10)).await, ["a2", "b2"]);
    assert_eq!(t.take_texts(9, at(11)).await, ["c2"]);
}

async fn a_rate_holds_for_each_lane_by_itself(t: DriverUnderTest) {
    t.limit(QueueLimits::new().lane_rate(Rate::per(1, secs(10)).burst(2))).await;
    t.put_all(["a", "b"].iter().flat_map(|name| jobs_of(name, 4)), T0).await;
    t.put_all(jobs_of("", 4), T0).await;
    let taken = t.take_texts(99, T0).await;
    assert_eq!(taken, ["a1", "a2", "b1", "b2", "1", "2", "3", "4"]);
    assert_eq!(t.take_texts(99, at(10)).await, ["a3", "b3"]);
}

async fn a_lane_with_a_rate_of_its_own_has_that_one_instead(t: DriverUnderTest) {
    let own = LaneLimits::new().rate(Rate::per(1, secs(1)));
    t.limit(QueueLimits::new().lane_rate(Rate::per(1, secs(10))).lane("fast", own)).await;
    t.put_all(["fast", "slow"].iter().flat_map(|name| jobs_of(name, 3)), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["fast1", "slow1"]);
    assert_eq!(t.take_texts(9, at(1)).await, ["fast2"]);
    assert_eq!(t.take_texts(9, at(10)).await, ["fast3", "slow2"]);
}

async fn a_lane_that_is_too_fast_keeps_no_other_waiting(t: DriverUnderTest) {
    t.limit(QueueLimits::new().lane_rate(Rate::per(1, secs(100)))).await;
    t.put_all(jobs_of("a", 500).into_iter().map(|job| job.priority(1)), T0).await;
    t.put_all(jobs_of("b", 1).into_iter().chain(jobs_of("", 2)), T0).await;
    assert_eq!(t.take_each(9, T0).await, ["a1", "b1", "1", "2"]);
}

async fn jobs_that_are_not_granted_are_not_charged(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(10)).burst(2)).per_lane(1)).await;
    t.put_all(jobs_of("a", 3), T0).await;
    for _ in 0..5 {
        t.take_many(9, T0).await;
    }
    t.put(in_lane("b", "b1"), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["b1"]);
    assert_eq!(t.held_back("a2", at(60)).await, None);
}

async fn a_clock_that_is_behind_gets_no_more_than_the_rate_allows(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(10)).burst(2))).await;
    t.put_all(jobs_of("", 9), T0).await;
    assert_eq!(t.take_texts(9, at(30)).await, ["1", "2"]);
    // Charged up to the fiftieth second; it allows a job from the fortieth on.
    for now in [T0, at(30), before(at(40))] {
        assert_eq!(t.take_texts(9, now).await, [""; 0], "at {now}");
    }
    assert_eq!(t.held_back("3", T0).await, rate_held(false, at(40)));
    assert_eq!(t.take_texts(9, at(40)).await, ["3"]);
    assert_eq!(t.take_texts(9, at(39)).await, [""; 0]);
}

/// Reserves; the answer must be to ask again after `now` and no later than at `latest`.
async fn asks_again(t: &DriverUnderTest, now: Timestamp, latest: Timestamp) {
    let reserved = t.reserve(&[("q", 9)], now, LEASE).await.expect("reserve");
    let next = reserved.next_due.expect("there is something to wait for");
    assert!(now < next && next <= latest, "at {now} for {latest}: {next}");
}

async fn the_next_job_of_a_rate_is_waited_for(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(7)))).await;
    t.put_all([job("1"), job("2"), job("later").run_at(at(500))], T0).await;
    asks_again(&t, T0, at(7)).await;
    asks_again(&t, at(3), at(7)).await;
    asks_again(&t, before(at(7)), at(7)).await;
    assert_eq!(t.take_texts(9, at(7)).await, ["2"]);
    // Nothing is held back any more.
    let reserved = t.reserve(&[("q", 9)], at(8), LEASE).await.expect("reserve");
    assert!(reserved.next_due.is_some_and(|next| next > at(8) && next <= at(60)));
}

async fn the_earliest_of_several_lanes_is_waited_for(t: DriverUnderTest) {
    let own = |seconds| LaneLimits::new().rate(Rate::per(1, secs(seconds)));
    t.limit(QueueLimits::new().lane("a", own(30)).lane("b", own(10)).lane("c", own(20))).await;
    t.put_all(["a", "b", "c"].iter().flat_map(|name| jobs_of(name, 2)), T0).await;
    asks_again(&t, T0, at(10)).await;
    assert_eq!(t.take_texts(9, at(10)).await, ["b2"]);
    asks_again(&t, at(10), at(20)).await;
    assert_eq!(t.take_texts(9, at(20)).await, ["c2"]);
    asks_again(&t, at(20), at(30)).await;
}

async fn a_changed_rate_goes_on_from_what_was_charged(t: DriverUnderTest) {
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(50)))).await;
    t.put_all(jobs_of("", 5), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["1"]);
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(10)))).await;
    assert_eq!(t.held_back("2", at(9)).await, rate_held(false, at(50)));
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(10)).burst(2))).await;
    assert_eq!(t.held_back("2", at(9)).await, rate_held(false, at(40)));
    t.limit(QueueLimits::new().inflight(9)).await;
    assert_eq!(t.take_texts(1, at(9)).await, ["2"]);
    t.limit(QueueLimits::new().rate(Rate::per(1, secs(10)))).await;
    assert_eq!(t.take_texts(9, before(at(50))).await, [""; 0]);
    assert_eq!(t.take_texts(9, at(50)).await, ["3"]);
}

async fn removed_limits_forget_what_was_charged(t: DriverUnderTest) {
    let hour = Rate::per(1, secs(3_600));
    let limits = QueueLimits::new().rate(hour).lane_rate(hour);
    t.limit(limits.clone()).await;
    t.put_all(jobs_of("a", 3), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["a1"]);
    t.remove_limits().await;
    t.limit(limits).await;
    assert_eq!(t.take_texts(9, T0).await, ["a2"]);
    assert_eq!(t.take_texts(9, T0).await, [""; 0]);
}

async fn pruning_forgets_a_charge_and_a_hold_an_hour_after_the_end_of_both(t: DriverUnderTest) {
    t.limit(QueueLimits::new().lane_rate(Rate::per(1, secs(10)))).await;
    t.put_all(jobs_of("a", 2), T0).await;
    assert_eq!(t.take_texts(9, T0).await, ["a1"]);
    t.hold(Some("a"), Some(at(20))).await;
    for now in [at(3_610), before(at(3_620))] {
        t.driver.prune(Prune::new(1, now)).await.expect("prune");
        assert_eq!(t.held_back("a2", at(5)).await, on_hold(true, at(20)));
    }
    t.driver.prune(Prune::new(1, at(3_620))).await.expect("prune");
    assert_eq!(t.held_back("a2", at(5)).await, None);
}

async fn a_slow_rate_over_years_is_counted_exactly(t: DriverUnderTest) {
    let span = Rate::MAX_SPAN - TICK;
    t.limit(QueueLimits::new().rate(Rate::per(1, span))).await;
    t.put_all(jobs_of("", 2), T0).await;
    let next = T0.saturating_add(span);
    assert_eq!(t.take_texts(9, T0).await, ["1"]);
    assert_eq!(t.held_back("2", before(next)).await, rate_held(false, next));
    assert_eq!(t.held_back("2", next).await, None);
    assert_eq!(t.take_many(2, before(next)).await.len(), 0);
    assert_eq!(t.take_many(2, next).await.len(), 1);
}
