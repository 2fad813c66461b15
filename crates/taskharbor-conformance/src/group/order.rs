//! The order of grants: one for all jobs, in which no job starves and none gains by failing.

use taskharbor_core::{
    State, Timestamp,
    admin::{Action, Requeue},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, after, at, before, job, release, requeue, retry},
};

group! {
    order {
        higher_priorities_go_first ["ORD-1"]
        earlier_due_times_go_before_later_ones ["ORD-1"]
        jobs_due_at_one_instant_go_by_insertion ["ORD-1"]
        priority_goes_before_due_time_and_due_time_before_insertion ["ORD-1"]
        taking_one_by_one_gives_the_same_order ["ORD-1"]
        a_limit_takes_the_best ["ORD-1" "RES-5"]
        a_scheduled_job_stands_where_its_time_puts_it ["ORD-2"]
        a_scheduled_job_due_at_the_same_instant_goes_by_insertion ["ORD-1" "ORD-2"]
        a_retried_job_stands_where_its_time_puts_it ["ORD-2" "SET-2"]
        a_retried_job_keeps_its_rank_of_insertion ["ORD-1" "ORD-2"]
        a_released_job_goes_to_its_old_position ["SET-4"]
        a_job_released_until_later_stands_where_its_time_puts_it ["ORD-2" "SET-4"]
        a_reclaimed_job_goes_before_those_that_fell_due_after_its_lease ["ORD-1" "LEA-2"]
        a_reclaimed_job_keeps_its_priority ["ORD-1" "LEA-2"]
        a_requeued_job_stands_where_its_time_puts_it ["ORD-2" "REQ-1"]
        nothing_gains_by_a_time_in_the_past ["ORD-3"]
        jobs_that_fail_again_and_again_take_turns ["ORD-2"]
        jobs_that_hang_do_not_keep_others_out_for_ever ["ORD-1" "LEA-2"]
        a_retried_job_is_not_starved_by_new_ones ["ORD-2"]
        a_crowd_of_scheduled_jobs_does_not_hide_a_ready_one ["RES-1" "ORD-1"]
        a_crowd_of_leased_jobs_does_not_hide_an_expired_one ["LEA-2" "RES-4"]
    }
    flows {}
}

async fn higher_priorities_go_first(t: DriverUnderTest) {
    for (text, priority) in [
        ("least", i16::MIN),
        ("minus two", -2),
        ("greatest", i16::MAX),
        ("zero", 0),
        ("almost least", i16::MIN + 1),
        ("ten", 10),
        ("nine", 9),
        ("almost greatest", i16::MAX - 1),
        ("minus ten", -10),
    ] {
        t.put(job(text).priority(priority), T0).await;
    }
    let expected = [
        "greatest",
        "almost greatest",
        "ten",
        "nine",
        "zero",
        "minus two",
        "minus ten",
        "almost least",
        "least",
    ];
    assert_eq!(t.take_order(T0).await, expected);
}

async fn earlier_due_times_go_before_later_ones(t: DriverUnderTest) {
    for (text, due) in [("c", at(30)), ("a", at(10)), ("d", after(at(30))), ("b", at(20))] {
        t.put(job(text), due).await;
    }
    assert_eq!(t.take_order(at(40)).await, ["a", "b", "c", "d"]);
}

async fn jobs_due_at_one_instant_go_by_insertion(t: DriverUnderTest) {
    for text in ["c", "a", "d", "b"] {
        t.put(job(text), T0).await;
    }
    assert_eq!(t.take_order(T0).await, ["c", "a", "d", "b"]);
}

async fn priority_goes_before_due_time_and_due_time_before_insertion(t: DriverUnderTest) {
    t.put(job("low, late, first"), at(2)).await;
    t.put(job("high, late"), at(2)).await;
    t.act("high, late", Action::SetPriority(1), at(2)).await;
    t.put(job("high, early").priority(1), at(1)).await;
    t.put(job("low, early"), at(1)).await;
    let expected = ["high, early", "high, late", "low, early", "low, late, first"];
    assert_eq!(t.take_order(at(3)).await, expected);
}

async fn taking_one_by_one_gives_the_same_order(t: DriverUnderTest) {
    for n in 0..12_u64 {
        let priority = i16::try_from(n * 5 % 3).expect("small");
        t.put(job(&n.to_string()).priority(priority), at(n * 7 % 4)).await;
    }
    let mut one_by_one = Vec::new();
    while let Some(leased) = t.take(at(10)).await {
        one_by_one.push(leased.job.id.to_string());
    }
    let mut expected: Vec<u64> = (0..12).collect();
    expected.sort_by_key(|n| (std::cmp::Reverse(n * 5 % 3), n * 7 % 4, *n));
    let expected: Vec<_> = expected.iter().map(u64::to_string).collect();
    assert_eq!(one_by_one, expected);
}

async fn a_limit_takes_the_best(t: DriverUnderTest) {
    t.put_all([job("c"), job("b").priority(1), job("d"), job("a").priority(2)], T0).await;
    for expected in [["a", "b"], ["c", "d"]] {
        let jobs = t.take_many(2, T0).await;
        let granted: Vec<_> = jobs.iter().map(|it| it.job.id.as_str()).collect();
        assert_eq!(granted, expected);
    }
}

async fn a_scheduled_job_stands_where_its_time_puts_it(t: DriverUnderTest) {
    t.put(job("at 10").run_at(at(10)), T0).await;
    t.put(job("at 5"), at(5)).await;
    t.put(job("at 15"), at(15)).await;
    assert_eq!(t.take_order(at(20)).await, ["at 5", "at 10", "at 15"]);
}

async fn a_scheduled_job_due_at_the_same_instant_goes_by_insertion(t: DriverUnderTest) {
    t.put(job("scheduled first").run_at(at(10)), T0).await;
    t.put(job("immediate"), at(10)).await;
    t.put(job("scheduled last").run_at(at(10)), at(5)).await;
    let expected = ["scheduled first", "immediate", "scheduled last"];
    assert_eq!(t.take_order(at(10)).await, expected);
}

async fn a_retried_job_stands_where_its_time_puts_it(t: DriverUnderTest) {
    t.put(job("with a time"), T0).await;
    t.run("with a time", retry(Some(at(10)), T0), T0).await;
    t.put(job("without"), T0).await;
    t.run("without", retry(None, at(7)), at(7)).await;
    for seconds in [5, 8, 15] {
        t.put(job(&seconds.to_string()), at(seconds)).await;
    }
    let expected = ["5", "without", "8", "with a time", "15"];
    assert_eq!(t.take_order(at(20)).await, expected);
}

async fn a_retried_job_keeps_its_rank_of_insertion(t: DriverUnderTest) {
    t.put(job("retried"), T0).await;
    t.put(job("other"), at(10)).await;
    t.run("retried", retry(None, at(10)), at(10)).await;
    assert_eq!(t.take_order(at(10)).await, ["retried", "other"]);
}

async fn a_released_job_goes_to_its_old_position(t: DriverUnderTest) {
    t.put(job("released"), T0).await;
    let leased = t.take_the("released", T0).await;
    t.put(job("other"), at(1)).await;
    t.apply(&leased, release(None), at(10)).await;
    assert_eq!(t.record("released", at(10)).await.due_at, Some(T0));
    assert_eq!(t.take_order(at(10)).await, ["released", "other"]);
}

async fn a_job_released_until_later_stands_where_its_time_puts_it(t: DriverUnderTest) {
    t.put(job("released"), T0).await;
    t.run("released", release(Some(at(10))), T0).await;
    t.put(job("5"), at(5)).await;
    t.put(job("15"), at(15)).await;
    assert_eq!(t.take_order(at(20)).await, ["5", "released", "15"]);
}

async fn a_reclaimed_job_goes_before_those_that_fell_due_after_its_lease(t: DriverUnderTest) {
    t.put(job("hung"), T0).await;
    t.take_the("hung", T0).await;
    t.put(job("at its end"), at(60)).await;
    t.put(job("after its end"), after(at(60))).await;
    // At the latest it stands where its lease ended, and it was inserted first.
    assert_eq!(t.take_order(at(70)).await, ["hung", "at its end", "after its end"]);
}

async fn a_reclaimed_job_keeps_its_priority(t: DriverUnderTest) {
    t.put(job("hung").priority(1), T0).await;
    t.take_the("hung", T0).await;
    t.put_all([job("low"), job("high").priority(2)], T0).await;
    assert_eq!(t.take_order(at(60)).await, ["high", "hung", "low"]);
}

async fn a_requeued_job_stands_where_its_time_puts_it(t: DriverUnderTest) {
    t.bring(job("now"), State::Dlq).await;
    t.bring(job("later"), State::Dlq).await;
    t.act("now", requeue(), at(7)).await;
    let later = Action::Requeue(Requeue::new().run_at(at(12)));
    t.act("later", later, at(7)).await;
    for seconds in [5, 10, 15] {
        t.put(job(&seconds.to_string()), at(seconds)).await;
    }
    assert_eq!(t.take_order(at(20)).await, ["5", "now", "10", "later", "15"]);
}

async fn nothing_gains_by_a_time_in_the_past(t: DriverUnderTest) {
    let past = Timestamp::EPOCH;
    for text in ["retried", "released"] {
        t.put(job(text), T0).await;
    }
    t.bring(job("requeued").priority(1), State::Dlq).await;
    let retried = t.take_the("retried", T0).await;
    let released = t.take_the("released", T0).await;
    t.put(job("waited"), at(9)).await;
    t.put(job("enqueued").run_at(past), at(10)).await;
    t.apply(&retried, retry(Some(past), at(11)), at(11)).await;
    t.apply(&released, release(Some(past)), at(12)).await;
    let again = Action::Requeue(Requeue::new().run_at(past));
    t.act("requeued", again, at(13)).await;
    t.act("requeued", Action::SetPriority(0), at(13)).await;
    for (text, due) in [("enqueued", 10), ("retried", 11), ("released", 12), ("requeued", 13)] {
        assert_eq!(t.record(text, at(13)).await.due_at, Some(at(due)), "{text}");
    }
    let expected = ["waited", "enqueued", "retried", "released", "requeued"];
    assert_eq!(t.take_order(at(13)).await, expected);
}

async fn jobs_that_fail_again_and_again_take_turns(t: DriverUnderTest) {
    t.put_all(["a", "b", "c"].map(job), T0).await;
    let mut granted = Vec::new();
    for second in 1..=9 {
        let leased = t.take(at(second)).await.expect("a grant");
        granted.push(leased.job.id.to_string());
        t.apply(&leased, retry(None, at(second)), at(second)).await;
    }
    assert_eq!(granted, ["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
}

async fn jobs_that_hang_do_not_keep_others_out_for_ever(t: DriverUnderTest) {
    // More slots than jobs that hang: the others are served, wherever those stand.
    t.put_all((0..2).map(|n| job(&format!("hung {n}"))), T0).await;
    assert_eq!(t.take_many(2, T0).await.len(), 2);
    t.put_all(["x", "y"].map(job), at(1)).await;
    let mut served = Vec::new();
    for round in 1..=2_u64 {
        let now = T0.saturating_add(LEASE * u32::try_from(round).expect("small"));
        for leased in t.take_many(3, now).await {
            if leased.job.id.as_str().len() == 1 {
                served.push(leased.job.id.to_string());
                t.apply(&leased, ack(), now).await;
            }
        }
    }
    assert_eq!(served, ["x", "y"]);
}

async fn a_retried_job_is_not_starved_by_new_ones(t: DriverUnderTest) {
    t.put(job("retried"), T0).await;
    t.run("retried", retry(Some(at(5)), T0), T0).await;
    let mut granted = Vec::new();
    for second in 1..=9 {
        // Two new jobs for each that is taken: the queue gets longer and longer.
        let new = ["a", "b"].map(|it| job(&format!("{second}{it}")));
        t.put_all(new, at(second)).await;
        let leased = t.take(at(second)).await.expect("a grant");
        granted.push(leased.job.id.to_string());
        t.apply(&leased, ack(), at(second)).await;
    }
    let expected = ["1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b", "retried"];
    assert_eq!(granted, expected);
}

async fn a_crowd_of_scheduled_jobs_does_not_hide_a_ready_one(t: DriverUnderTest) {
    let crowd = (0..1_000).map(|n| job(&n.to_string()).priority(9).run_at(after(at(1))));
    t.put_all(crowd, T0).await;
    t.put(job("ready").priority(-9), T0).await;
    t.take_the("ready", at(1)).await;
    assert_eq!(t.take(at(1)).await, None);
}

async fn a_crowd_of_leased_jobs_does_not_hide_an_expired_one(t: DriverUnderTest) {
    t.put(job("expired").priority(-9), T0).await;
    t.take_the("expired", T0).await;
    t.put_all((0..1_000).map(|n| job(&n.to_string())), at(1)).await;
    assert_eq!(t.take_many(1_000, at(1)).await.len(), 1_000);
    assert_eq!(t.take(before(at(60))).await, None);
    t.take_the("expired", at(60)).await;
}
