//! Removing records that are old enough.

use taskharbor_core::{
    Admin, State, Timestamp,
    admin::{Action, Prune, Requeue},
    driver::{Enqueued, Transition},
    error::{InvalidRequest, Refusal},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        LEASE, T0, TICK, ack, at, before, fail, id, invalid, job, job_in, key, release, requeue,
    },
};

group! {
    prune {
        each_state_has_a_cutoff_of_its_own ["PRU-1"]
        what_ended_at_the_cutoff_goes_and_what_ended_later_stays ["PRU-1"]
        nothing_that_ended_after_now_goes ["PRU-1"]
        the_oldest_go_first_and_no_more_than_the_limit ["PRU-1"]
        a_limit_of_none_or_too_many_is_refused ["PRU-1"]
        a_record_is_kept_until_its_lease_would_have_run_out ["PRU-2"]
        a_record_is_kept_until_its_extended_lease_would_have_run_out ["PRU-2"]
        a_job_that_no_holder_ended_is_not_kept_for_one ["PRU-2" "PRU-1"]
        a_requeued_job_is_pruned_by_its_last_end ["PRU-1"]
        a_pruned_jobs_id_and_key_are_free ["PRU-3" "KEY-3"]
        a_key_is_held_until_its_job_is_purged ["KEY-3" "ADM-7"]
        a_pruned_jobs_token_is_that_of_no_job ["PRU-3"]
        a_pruned_jobs_token_is_worthless_to_a_new_job_of_its_id ["PRU-3" "LEA-10"]
        a_pruned_job_is_counted_and_listed_no_more ["PRU-1" "ADM-4"]
        a_job_pruned_while_it_is_requeued_is_gone_or_lives_whole ["PRU-1" "REQ-1"]
    }
    flows {
        what_is_not_over_stays ["PRU-1"]
        a_detached_job_is_pruned_by_itself ["PRU-4" "REQ-5"]
    }
}

async fn prune(t: &DriverUnderTest, request: Prune) -> usize {
    t.driver.prune(request).await.expect("prune")
}

/// Prunes all jobs that are terminal by now.
fn all(now: Timestamp) -> Prune {
    let request = Prune::new(100, now).done_before(now);
    request.cancelled_before(now).dlq_before(now)
}

/// Runs the next job of `q`, which must be this one, under a lease that has ended at once.
async fn end(t: &DriverUnderTest, text: &str, step: Transition, now: Timestamp) {
    let reserved = t.reserve(&[("q", 1)], now, TICK).await;
    let leased = reserved.expect("reserve").jobs.remove(0);
    assert_eq!(leased.job.id, id(text));
    t.apply(&leased, step, now).await;
}

/// The ids of all jobs that are left.
async fn left(t: &DriverUnderTest, now: Timestamp) -> Vec<String> {
    let stored = t.snapshot(now).await;
    let ids = stored.records.iter().map(|it| it.job.id.to_string());
    ids.collect()
}

async fn each_state_has_a_cutoff_of_its_own(t: DriverUnderTest) {
    t.put_all(["done", "dlq", "cancelled"].map(job), T0).await;
    end(&t, "done", ack(), T0).await;
    end(&t, "dlq", fail(T0), T0).await;
    t.act("cancelled", Action::Cancel, T0).await;
    let none = Prune::new(10, at(9));
    assert_eq!(prune(&t, none).await, 0);
    assert_eq!(prune(&t, none.dlq_before(at(9))).await, 1);
    assert_eq!(left(&t, at(9)).await, ["done", "cancelled"]);
    assert_eq!(prune(&t, none.cancelled_before(at(9))).await, 1);
    assert_eq!(left(&t, at(9)).await, ["done"]);
    assert_eq!(prune(&t, none.done_before(at(9))).await, 1);
    assert_eq!(left(&t, at(9)).await, [""; 0]);
}

async fn what_ended_at_the_cutoff_goes_and_what_ended_later_stays(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.act("a", Action::Cancel, at(5)).await;
    let request = Prune::new(10, at(9));
    let earlier = request.cancelled_before(before(at(5)));
    assert_eq!(prune(&t, earlier).await, 0);
    assert_eq!(left(&t, at(9)).await, ["a"]);
    assert_eq!(prune(&t, request.cancelled_before(at(5))).await, 1);
    assert_eq!(t.find("a", at(9)).await, None);
}

async fn nothing_that_ended_after_now_goes(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.act("a", Action::Cancel, at(5)).await;
    let request = Prune::new(10, at(4)).cancelled_before(at(99));
    assert_eq!(prune(&t, request).await, 0);
    assert_eq!(left(&t, at(5)).await, ["a"]);
}

async fn what_is_not_over_stays(t: DriverUnderTest) {
    t.put(job("inflight"), T0).await;
    t.take_the("inflight", T0).await;
    t.put_all([job("ready"), job("scheduled").run_at(at(5_000))], T0).await;
    t.put_flow([job("a"), job("blocked").after([id("a")])], T0).await;
    let before = t.snapshot(at(1_000)).await;
    assert_eq!(prune(&t, all(at(1_000))).await, 0);
    assert_eq!(t.snapshot(at(1_000)).await, before);
}

async fn the_oldest_go_first_and_no_more_than_the_limit(t: DriverUnderTest) {
    t.put_all(["c", "a", "d", "b"].map(job), T0).await;
    for (n, text) in (1..).zip(["a", "b", "c", "d"]) {
        t.act(text, Action::Cancel, at(n)).await;
    }
    let request = |limit| Prune::new(limit, at(9)).cancelled_before(at(9));
    assert_eq!(prune(&t, request(1)).await, 1);
    assert_eq!(left(&t, at(9)).await, ["c", "d", "b"]);
    assert_eq!(prune(&t, request(2)).await, 2);
    assert_eq!(left(&t, at(9)).await, ["d"]);
    assert_eq!(prune(&t, request(2)).await, 1);
    assert_eq!(prune(&t, request(2)).await, 0);
}

async fn a_limit_of_none_or_too_many_is_refused(t: DriverUnderTest) {
    for limit in [0, 100_001] {
        let answer = t.driver.prune(Prune::new(limit, T0)).await;
        let refused = invalid(answer);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == limit));
    }
}

async fn a_record_is_kept_until_its_lease_would_have_run_out(t: DriverUnderTest) {
    t.put_all([job("a"), job("b"), job("c")], T0).await;
    let leased = t.take_many(3, T0).await;
    t.act("c", Action::Cancel, T0).await;
    let steps = [ack(), fail(at(1)), release(None)];
    for (leased, step) in leased.iter().zip(steps) {
        t.apply(leased, step, at(1)).await;
    }
    for now in [at(1), at(30), before(at(60))] {
        assert_eq!(prune(&t, all(now)).await, 0, "at {now}");
    }
    for (leased, step) in leased.iter().zip([ack(), fail(at(1)), release(None)]) {
        let repeated = t.settle(leased, step, before(at(60))).await;
        assert!(repeated.is_ok(), "{repeated:?}");
    }
    assert_eq!(prune(&t, all(at(60))).await, 3);
}

async fn a_record_is_kept_until_its_extended_lease_would_have_run_out(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let kept = t.keep(&leased, at(50), LEASE).await;
    t.apply(&kept, ack(), at(51)).await;
    assert_eq!(prune(&t, all(before(at(110)))).await, 0);
    assert_eq!(prune(&t, all(at(110))).await, 1);
}

async fn a_job_that_no_holder_ended_is_not_kept_for_one(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    t.take_many(2, T0).await;
    t.act("a", Action::Cancel, T0).await;
    assert_eq!(t.take(at(60)).await.map(|it| it.job.id), Some(id("b")));
    assert_eq!(t.state("a", at(60)).await, State::Cancelled);
    t.act("b", Action::Cancel, at(120)).await;
    assert_eq!(prune(&t, all(at(60))).await, 1);
    assert_eq!(prune(&t, all(at(120))).await, 1);
}

async fn a_requeued_job_is_pruned_by_its_last_end(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    end(&t, "a", fail(T0), T0).await;
    t.act("a", requeue(), at(100)).await;
    assert_eq!(prune(&t, all(at(100))).await, 0);
    end(&t, "a", ack(), at(200)).await;
    let request = Prune::new(10, at(300));
    assert_eq!(prune(&t, request.dlq_before(at(300))).await, 0);
    assert_eq!(prune(&t, request.done_before(at(100))).await, 0);
    assert_eq!(prune(&t, request.done_before(at(300))).await, 1);
}

async fn a_pruned_jobs_id_and_key_are_free(t: DriverUnderTest) {
    let keyed = |text| job(text).idempotency_key(key("k"));
    t.put(keyed("a"), T0).await;
    end(&t, "a", ack(), T0).await;
    assert_eq!(t.put(keyed("b"), at(1)).await, Enqueued::Existing(id("a")));
    assert_eq!(t.put(job("a"), at(1)).await, Enqueued::Existing(id("a")));
    assert_eq!(prune(&t, all(at(2))).await, 1);
    assert_eq!(t.put(keyed("b"), at(2)).await, Enqueued::Inserted(id("b")));
    assert_eq!(t.put(job("a"), at(2)).await, Enqueued::Inserted(id("a")));
    let fresh = t.record("a", at(2)).await;
    assert_eq!(fresh.job.created_at, at(2));
    assert_eq!(fresh.job.deliveries, 0);
}

async fn a_key_is_held_until_its_job_is_purged(t: DriverUnderTest) {
    let keyed = |text| job(text).idempotency_key(key("k"));
    t.put(keyed("a"), T0).await;
    t.run("a", ack(), T0).await;
    assert_eq!(t.put(keyed("b"), T0).await, Enqueued::Existing(id("a")));
    t.act("a", Action::Purge, T0).await;
    assert_eq!(t.put(keyed("b"), T0).await, Enqueued::Inserted(id("b")));
}

async fn a_pruned_jobs_token_is_that_of_no_job(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.run("a", ack(), T0).await;
    assert_eq!(prune(&t, all(at(60))).await, 1);
    let answer = t.settle(&leased, ack(), at(60)).await;
    assert_eq!(answer, Err(Refusal::JobNotFound));
    let answer = t.extend(&leased, at(60), LEASE).await;
    assert_eq!(answer, Err(Refusal::JobNotFound));
}

async fn a_pruned_jobs_token_is_worthless_to_a_new_job_of_its_id(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let old = t.run("a", ack(), T0).await;
    assert_eq!(prune(&t, all(at(60))).await, 1);
    t.put(job("a"), at(60)).await;
    let answer = t.settle(&old, ack(), at(60)).await;
    assert_eq!(answer, Err(Refusal::JobNotInflight));
    t.take_the("a", at(60)).await;
    let answer = t.settle(&old, ack(), at(60)).await;
    assert_eq!(answer, Err(Refusal::LeaseMismatch));
}

async fn a_pruned_job_is_counted_and_listed_no_more(t: DriverUnderTest) {
    t.put_all([job("a"), job_in("other", "b")], T0).await;
    t.act("a", Action::Cancel, T0).await;
    assert_eq!(prune(&t, all(T0)).await, 1);
    let stored = t.snapshot(T0).await;
    let queues: Vec<&str> = stored.counts.iter().map(|it| it.queue.as_str()).collect();
    assert_eq!(queues, ["other"]);
    assert_eq!(stored.records.len(), 1);
}

async fn a_detached_job_is_pruned_by_itself(t: DriverUnderTest) {
    let b = job("b").after([id("a")]);
    t.put_flow([job("a"), b, job("c").after([id("b")])], T0).await;
    t.act("c", Action::CancelFlow, T0).await;
    let alone = Action::Requeue(Requeue::new().detach());
    t.act("b", alone, at(1)).await;
    end(&t, "b", ack(), at(1)).await;
    let done = Prune::new(10, at(9)).done_before(at(9));
    assert_eq!(prune(&t, done).await, 1);
    assert_eq!(left(&t, at(9)).await, ["a", "c"]);
    let cancelled = Prune::new(10, at(9)).cancelled_before(at(9));
    assert_eq!(prune(&t, cancelled).await, 2);
}

async fn a_job_pruned_while_it_is_requeued_is_gone_or_lives_whole(t: DriverUnderTest) {
    for round in 0..24 {
        let a = format!("a{round}");
        t.put(job(&a), T0).await;
        t.act(&a, Action::Cancel, T0).await;
        let raced = at_once([false, true].map(|requeues| {
            let (t, a) = (t.clone(), a.clone());
            async move {
                if requeues {
                    return t.manage(&a, requeue(), T0).await == Ok(State::Ready);
                }
                prune(&t, all(T0)).await == 1
            }
        }));
        match raced.await[..] {
            [true, false] => assert_eq!(t.find(&a, T0).await, None),
            [false, true] => drop(t.run(&a, ack(), T0).await),
            ref both => panic!("pruned, requeued: {both:?}"),
        }
    }
}
