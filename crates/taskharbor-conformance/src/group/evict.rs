//! Eviction: the leases of a worker end now, as if their time had ended.

use std::time::Duration;

use taskharbor_core::{
    Admin, State, Timestamp,
    admin::{Action, Evicted, Prune, QueueLimits},
    driver::{LeaseMark, Leased, Settled},
    error::Refusal,
    export::Imported,
};

use super::{name::hostile, watch::wakes};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, after, at, before, extension, fail, job, job_in, release, retry},
    limits_under_test::{full, in_lane, jobs_of, lane, texts},
    workers_under_test::{VALID, names, start},
};

group! {
    evict {
        an_evicted_holder_is_refused_at_once ["EVI-1" "LEA-1" "REF-2"]
        an_evicted_job_is_shown_with_a_lease_that_ended_now ["EVI-1" "LEA-3" "ADM-1"]
        another_worker_gets_the_job_at_the_same_instant ["EVI-1" "RES-4" "LEA-10"]
        an_evicted_worker_may_reserve_again ["EVI-1" "LEA-10"]
        an_extended_lease_can_be_granted_again_at_once ["EVI-1" "LEA-2" "LEA-7"]
        an_evicted_job_stands_between_its_old_position_and_the_eviction ["EVI-1" "LEA-2" "JOB-8"]
        a_job_whose_lease_ended_and_was_extended_before_is_next ["EVI-1" "LEA-2" "ORD-1"]
        an_eviction_goes_by_the_time_it_is_given ["EVI-1" "TIM-1"]
        leases_of_other_holders_stay ["EVI-2" "JOB-3"]
        leases_that_have_ended_are_not_counted ["EVI-2"]
        leases_in_all_queues_priorities_and_lanes_are_ended_and_counted ["EVI-1" "EVI-2"]
        any_number_of_leases_is_ended ["EVI-1" "EVI-2"]
        a_worker_without_leases_has_none_to_end ["EVI-2"]
        evicting_twice_ends_nothing_more ["EVI-2"]
        marks_decide_whether_an_eviction_counts_as_a_crash ["EVI-1" "LEA-12" "LEA-4"]
        a_marked_job_is_cancelled_by_the_next_reserve ["EVI-1" "LEA-5" "CAN-6"]
        a_settled_job_knows_its_token_still ["EVI-1" "SET-6" "SET-7"]
        a_record_is_kept_until_the_lease_it_ended_under_would_have_run_out ["EVI-2" "PRU-2"]
        places_are_free_at_once ["EVI-1" "LIM-5"]
        a_paused_queue_grants_nothing_after_an_eviction ["EVI-1" "PAU-1"]
        the_end_of_an_evicted_lease_is_waited_for ["EVI-1" "RES-7"]
        an_evicted_lease_is_exported_and_imported_as_ended ["EVI-1" "MOV-2" "MOV-7"]
        the_start_that_is_named_is_forgotten ["EVI-3"]
        without_a_start_all_records_of_the_holder_are_forgotten ["EVI-3"]
        a_start_that_was_replaced_is_not_evicted ["EVI-4"]
        an_overdue_start_protects_no_lease ["EVI-4" "EVI-3" "WRK-2"]
        watches_of_queues_with_evicted_leases_are_woken ["EVI-5"]
    }
    flows {}
}

/// A job of the queue `q`, which the worker `w` holds from the beginning.
async fn held(t: &DriverUnderTest, text: &str) -> Leased {
    t.put(job(text), T0).await;
    t.take_the_as("w", text, T0).await
}

async fn an_evicted_holder_is_refused_at_once(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    assert_eq!(t.evict("w", at(1)).await, 1);
    for now in [at(1), after(at(1)), before(leased.lease.expires_at), at(1_000)] {
        t.refuses(&leased, Refusal::LeaseExpired, now).await;
    }
}

async fn an_evicted_job_is_shown_with_a_lease_that_ended_now(t: DriverUnderTest) {
    held(&t, "a").await;
    let (mut expected, counts) = (t.record("a", at(1)).await, t.counts(at(1)).await);
    t.evict("w", at(1)).await;
    expected.held.as_mut().expect("held").expires_at = at(1);
    // Nothing else happens to it until reserve reaches it.
    assert_eq!(t.record("a", at(1)).await, expected);
    assert_eq!(t.counts(at(1)).await, counts);
}

async fn another_worker_gets_the_job_at_the_same_instant(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    assert_eq!(t.take(at(1)).await, None);
    t.evict("w", at(1)).await;
    let again = t.take_the_as("v", "a", at(1)).await;
    assert_eq!((again.job.deliveries, again.job.expirations), (2, 1));
    assert_eq!(again.lease.expires_at, at(61));
    t.refuses(&leased, Refusal::LeaseMismatch, at(1)).await;
    t.apply(&again, ack(), at(1)).await;
    t.refuses(&leased, Refusal::JobNotInflight, at(1)).await;
}

async fn an_evicted_worker_may_reserve_again(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    t.announce("w", 1, T0).await;
    assert_eq!(t.evict_start("w", 1, at(1)).await, Evicted::Leases(1));
    let again = t.take_the_as("w", "a", at(1)).await;
    t.refuses(&leased, Refusal::LeaseMismatch, at(2)).await;
    t.apply(&again, ack(), before(at(61))).await;
}

async fn an_extended_lease_can_be_granted_again_at_once(t: DriverUnderTest) {
    // Extended once and often, by little and by much.
    for (n, steps) in [vec![30], vec![10, 100, 40_000], vec![86_400 * 365]].iter().enumerate() {
        let text = n.to_string();
        let mut leased = held(&t, &text).await;
        for seconds in steps {
            leased = t.keep(&leased, at(9), Duration::from_secs(*seconds)).await;
        }
        assert_eq!(t.take(at(10)).await, None);
        assert_eq!(t.evict("w", at(10)).await, 1);
        t.refuses(&leased, Refusal::LeaseExpired, at(10)).await;
        let again = t.take_the_as("v", &text, at(10)).await;
        t.apply(&again, ack(), at(10)).await;
    }
}

async fn an_evicted_job_stands_between_its_old_position_and_the_eviction(t: DriverUnderTest) {
    t.put(job("evicted").run_at(at(2)), T0).await;
    let leased = t.take_the_as("w", "evicted", at(5)).await;
    t.keep(&leased, at(6), Duration::from_secs(5_000)).await;
    t.evict("w", at(20)).await;
    t.put(job("before").run_at(before(at(2))), T0).await;
    t.put(job("after"), after(at(20))).await;
    let jobs = t.take_many(10, at(30)).await;
    assert_eq!(texts(&jobs), ["before", "evicted", "after"]);
    let position = jobs[1].job.available_at;
    assert!(at(2) <= position && position <= at(20), "{position}");
}

async fn a_job_whose_lease_ended_and_was_extended_before_is_next(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    t.keep(&leased, at(50), LEASE).await;
    t.put_all([job("b"), job("c")], at(40)).await;
    assert_eq!(texts(&t.take_as("v", "q", 1, at(51)).await), ["b"]);
    t.evict("w", at(52)).await;
    t.put(job("d"), at(53)).await;
    let mut order = t.take_order(at(54)).await;
    assert_eq!(order.pop(), Some("d".to_owned()));
    order.sort();
    assert_eq!(order, ["a", "c"]);
}

async fn an_eviction_goes_by_the_time_it_is_given(t: DriverUnderTest) {
    t.put(job("a"), at(10)).await;
    let leased = t.take_the_as("w", "a", at(20)).await;
    // By the clock of the evicting worker, the job was granted in the future.
    assert_eq!(t.evict("w", at(5)).await, 1);
    t.refuses(&leased, Refusal::LeaseExpired, at(20)).await;
    assert_eq!(t.record("a", at(20)).await.held.expect("held").expires_at, at(5));
    t.take_the_as("v", "a", at(20)).await;
    // The lease of `v` ends at 80, by any clock.
    assert_eq!(t.evict("v", at(80)).await, 0);
}

async fn leases_of_other_holders_stay(t: DriverUnderTest) {
    let mut holders = hostile();
    holders.extend(["w", "W", "w ", " w", "ww", "w%", "w_"].map(str::to_owned));
    holders.sort();
    holders.dedup();
    t.put_all((0..holders.len()).map(|n| job(&n.to_string())), T0).await;
    let mut leases = Vec::new();
    for name in &holders {
        leases.extend(t.take_as(name, "q", 1, T0).await);
    }
    assert_eq!(leases.len(), holders.len());
    for name in ["w", "%", "_", "'", "*"] {
        assert_eq!(t.evict(name, at(1)).await, 1, "of {name:?}");
    }
    for (name, leased) in holders.iter().zip(&leases) {
        let is_evicted = ["w", "%", "_", "'", "*"].contains(&name.as_str());
        let expected = if is_evicted { Err(Refusal::LeaseExpired) } else { Ok(Settled::Applied) };
        assert_eq!(t.settle(leased, ack(), at(1)).await, expected, "of {name:?}");
    }
}

async fn leases_that_have_ended_are_not_counted(t: DriverUnderTest) {
    t.put_all(["over", "over now", "valid", "longer"].map(job), T0).await;
    t.take_the_as("w", "over", T0).await;
    t.take_the_as("w", "over now", at(40)).await;
    t.take_the_as("w", "valid", after(at(40))).await;
    let longer = t.take_the_as("w", "longer", T0).await;
    t.keep(&longer, at(1), Duration::from_secs(1_000)).await;
    assert_eq!(t.evict("w", at(100)).await, 2);
    let mut ends = Vec::new();
    for text in ["over", "over now", "valid", "longer"] {
        ends.push(t.record(text, at(100)).await.held.expect("held").expires_at);
    }
    assert_eq!(ends, [at(60), at(100), at(100), at(100)]);
    assert_eq!(t.take_order(at(100)).await.len(), 4);
}

async fn leases_in_all_queues_priorities_and_lanes_are_ended_and_counted(t: DriverUnderTest) {
    let (mut jobs, mut count) = (Vec::new(), 0);
    for name in ["q", "r", "s"] {
        for priority in [i16::MIN, -1, 0, 7, i16::MAX] {
            for of in ["", "a", "b"] {
                let new = job_in(name, &format!("{name} {priority} {of}")).priority(priority);
                jobs.push(if of.is_empty() { new } else { new.lane(lane(of)) });
                count += 1;
            }
        }
        jobs.push(job_in(name, &format!("{name} scheduled")).run_at(at(900)));
    }
    t.put_all(jobs, T0).await;
    let mut of_other = 0;
    for name in ["q", "r", "s"] {
        // Leases of both are beside each other in every queue.
        of_other += t.take_as("v", name, 4, T0).await.len();
        t.take_as("w", name, 5, T0).await;
        of_other += t.take_as("v", name, 1, T0).await.len();
        t.take_as("w", name, 100, T0).await;
    }
    assert_eq!(of_other, 15);
    assert_eq!(t.evict("w", at(1)).await, count - of_other);
    let mut again = Vec::new();
    for name in ["q", "r", "s"] {
        again.extend(t.take_as("u", name, 100, at(1)).await);
    }
    assert_eq!(again.len(), count - of_other);
    t.apply_all(&again, ack(), at(1)).await;
    assert_eq!(t.evict("v", at(2)).await, of_other);
}

async fn any_number_of_leases_is_ended(t: DriverUnderTest) {
    t.put_all((0..1_200).map(|n| job(&n.to_string())), T0).await;
    let leases = t.take_as("w", "q", 1_000, T0).await;
    t.take_as("v", "q", 100, T0).await;
    let items = leases[..300].iter().map(extension).collect();
    t.extend_all(items, T0, Duration::from_secs(9_000)).await;
    t.apply_all(&leases[990..], ack(), T0).await;
    assert_eq!(t.evict("w", at(1)).await, 990);
    // Those and the jobs that were left.
    assert_eq!(t.take_as("u", "q", 5_000, at(1)).await.len(), 990 + 100);
}

async fn a_worker_without_leases_has_none_to_end(t: DriverUnderTest) {
    assert_eq!(t.evict("unknown", T0).await, 0);
    let leased = held(&t, "a").await;
    t.put_all(["b", "c", "d", "e"].map(job), T0).await;
    // Nothing that `v` has done leaves it with a lease.
    for (text, step) in
        [("b", ack()), ("c", fail(T0)), ("d", retry(Some(at(9)), T0)), ("e", release(Some(at(9))))]
    {
        let leased = t.take_the_as("v", text, T0).await;
        t.apply(&leased, step, T0).await;
    }
    let stored = t.snapshot(at(1)).await;
    assert_eq!(t.evict("v", at(1)).await, 0);
    assert_eq!(t.evict_start("unknown", 1, at(1)).await, Evicted::Leases(0));
    assert_eq!(t.snapshot(at(1)).await, stored);
    t.apply(&leased, ack(), at(1)).await;
}

async fn evicting_twice_ends_nothing_more(t: DriverUnderTest) {
    held(&t, "a").await;
    assert_eq!(t.evict("w", at(1)).await, 1);
    for now in [at(1), at(2), at(90)] {
        assert_eq!(t.evict("w", now).await, 0);
        assert_eq!(t.record("a", now).await.held.expect("held").expires_at, at(1));
    }
    assert_eq!(t.take_the_as("v", "a", at(2)).await.job.expirations, 1);
}

async fn marks_decide_whether_an_eviction_counts_as_a_crash(t: DriverUnderTest) {
    t.put(job("a").run_at(at(1)), T0).await;
    let marks = [
        (None, 1),
        (None, 1),
        (Some(LeaseMark::Started), 2),
        (Some(LeaseMark::Started), 3),
        (None, 3),
        (Some(LeaseMark::Leaving), 0),
        (Some(LeaseMark::Started), 1),
    ];
    for (n, (mark, expirations)) in (1..).zip(marks) {
        let leased = t.take_the_as("w", "a", at(n)).await;
        if let Some(mark) = mark {
            let answers = t.extend_all(vec![extension(&leased).mark(mark)], at(n), LEASE).await;
            assert!(answers[0].is_ok(), "{answers:?}");
        }
        assert_eq!(t.evict("w", at(n)).await, 1);
        let again = t.take_the_as("v", "a", at(n)).await;
        assert_eq!(again.job.expirations, expirations, "{mark:?} in round {n}");
        assert_eq!((again.job.attempts, again.job.run_at), (0, None));
        t.apply(&again, release(None), at(n)).await;
    }
}

async fn a_marked_job_is_cancelled_by_the_next_reserve(t: DriverUnderTest) {
    for text in ["a", "b"] {
        let leased = held(&t, text).await;
        let asked = t.act(text, Action::Cancel, T0).await;
        assert_eq!(asked, State::Inflight);
        assert_eq!(t.evict("w", at(1)).await, 1);
        assert_eq!(t.state(text, at(1)).await, State::Inflight);
        t.refuses(&leased, Refusal::LeaseExpired, at(1)).await;
        if text == "a" {
            assert_eq!(t.take(at(1)).await, None);
        } else {
            t.act(text, Action::Cancel, at(1)).await;
        }
        assert_eq!(t.state(text, at(1)).await, State::Cancelled);
        t.refuses(&leased, Refusal::JobNotInflight, at(1)).await;
    }
}

async fn a_settled_job_knows_its_token_still(t: DriverUnderTest) {
    let done = held(&t, "done").await;
    t.apply(&done, ack(), T0).await;
    let dead = held(&t, "dead").await;
    t.apply(&dead, fail(T0), T0).await;
    let retried = held(&t, "retried").await;
    t.apply(&retried, retry(Some(at(900)), T0), T0).await;
    assert_eq!(t.evict("w", at(1)).await, 0);
    assert_eq!(t.settle(&done, ack(), at(1)).await, Ok(Settled::AlreadyTerminal));
    assert_eq!(t.settle(&dead, fail(T0), at(1)).await, Ok(Settled::AlreadyTerminal));
    assert_eq!(t.settle(&done, fail(T0), at(1)).await, Err(Refusal::JobNotInflight));
    t.refuses(&retried, Refusal::JobNotInflight, at(1)).await;
}

async fn a_record_is_kept_until_the_lease_it_ended_under_would_have_run_out(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    t.apply(&leased, ack(), T0).await;
    t.evict("w", at(1)).await;
    let end = leased.lease.expires_at;
    for (now, removed) in [(at(1), 0), (before(end), 0), (end, 1)] {
        let request = Prune::new(10, now).done_before(now);
        assert_eq!(t.driver.prune(request).await.expect("prune"), removed, "at {now}");
    }
}

async fn places_are_free_at_once(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(2).per_lane(1)).await;
    t.put_all([in_lane("a", "a1").priority(1), in_lane("b", "b1").priority(1)], T0).await;
    assert_eq!(texts(&t.take_as("w", "q", 9, T0).await), ["a1", "b1"]);
    t.put_all([in_lane("c", "c1").priority(2), in_lane("a", "a2").priority(2)], T0).await;
    assert_eq!(t.held_back("c1", at(1)).await, full(false, 2, 2));
    assert_eq!(t.take_texts(9, at(1)).await, [""; 0]);
    assert_eq!(t.evict("w", at(1)).await, 2);
    assert_eq!(t.held_back("c1", at(1)).await, None);
    // No more are granted than there are places.
    let mut granted = t.take_texts(9, at(1)).await;
    granted.sort();
    assert_eq!(granted, ["a2", "c1"]);
    assert_eq!(t.held_back("c1", at(1)).await, None);
    t.put_all(jobs_of("d", 1), at(1)).await;
    assert_eq!(t.held_back("d1", at(1)).await, full(false, 2, 2));
}

async fn a_paused_queue_grants_nothing_after_an_eviction(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    t.driver.pause(crate::fixture::queue("q"), T0).await.expect("pause");
    assert_eq!(t.evict("w", at(1)).await, 1);
    assert_eq!(t.take(at(1)).await, None);
    assert_eq!(t.state("a", at(1)).await, State::Inflight);
    t.refuses(&leased, Refusal::LeaseExpired, at(1)).await;
    t.driver.resume(crate::fixture::queue("q"), at(2)).await.expect("resume");
    assert_eq!(t.take_the_as("v", "a", at(2)).await.job.expirations, 1);
}

async fn the_end_of_an_evicted_lease_is_waited_for(t: DriverUnderTest) {
    let next_due =
        async |now: Timestamp| t.reserve(&[("q", 5)], now, LEASE).await.expect("reserve").next_due;
    let leased = held(&t, "a").await;
    t.keep(&leased, T0, Duration::from_secs(5_000)).await;
    t.evict("w", at(9)).await;
    // By a clock that is slow the lease ends in a moment.
    let due = next_due(before(at(9))).await;
    assert_eq!(due, Some(at(9)));
    let again = t.take_the_as("v", "a", at(9)).await;
    t.put(job("b").run_at(at(30)), at(9)).await;
    let due = next_due(at(10)).await.expect("something to wait for");
    assert!(at(10) < due && due <= at(30), "{due}");
    t.apply(&again, ack(), at(10)).await;
    t.act("b", Action::Cancel, at(10)).await;
    assert_eq!(next_due(at(10)).await, None);
}

async fn an_evicted_lease_is_exported_and_imported_as_ended(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    t.keep(&leased, T0, Duration::from_secs(5_000)).await;
    t.evict("w", at(1)).await;
    let units = t.export(10).await;
    let other = t.another().await;
    assert_eq!(other.import(units.clone()).await, [Ok(Imported::Stored)]);
    assert_eq!(other.export(10).await, units);
    assert_eq!(other.evict("w", at(1)).await, 0);
    assert_eq!(other.take_the_as("v", "a", at(1)).await.job.expirations, 1);
    // A lease that is valid can be ended where it was imported.
    let units = other.export(10).await;
    let third = t.another().await;
    third.import(units).await;
    assert_eq!(third.evict("v", at(2)).await, 1);
    third.take_the_as("w", "a", at(2)).await;
}

async fn the_start_that_is_named_is_forgotten(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    t.announce("w", 2, at(30)).await;
    t.announce("v", 2, at(30)).await;
    let name = |of: &str, number| (of.to_owned(), start(number));
    // Whether it is valid or over.
    assert_eq!(t.evict_start("w", 2, at(31)).await, Evicted::Leases(0));
    assert_eq!(names(&t.stored_workers(at(31)).await), [name("v", 2), name("w", 1)]);
    assert_eq!(t.evict_start("w", 1, at(31)).await, Evicted::Leases(0));
    assert_eq!(names(&t.stored_workers(at(31)).await), [name("v", 2)]);
}

async fn without_a_start_all_records_of_the_holder_are_forgotten(t: DriverUnderTest) {
    held(&t, "a").await;
    for (name, number, now) in [("w", 1, T0), ("w", 2, at(30)), ("w", 3, at(30)), ("W", 1, at(30))]
    {
        t.announce(name, number, now).await;
    }
    assert_eq!(t.evict("w", at(31)).await, 1);
    assert_eq!(names(&t.stored_workers(at(31)).await), [("W".to_owned(), start(1))]);
}

async fn a_start_that_was_replaced_is_not_evicted(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    t.announce("w", 1, T0).await;
    t.announce("w", 2, at(1)).await;
    let (stored, workers) = (t.snapshot(at(2)).await, t.stored_workers(at(2)).await);
    // An unknown start, too, may have left its leases to another.
    for number in [1, 2, 77] {
        assert_eq!(t.evict_start("w", number, at(2)).await, Evicted::Replaced);
        assert_eq!(t.snapshot(at(2)).await, stored);
        assert_eq!(t.stored_workers(at(2)).await, workers);
    }
    t.apply(&leased, ack(), at(2)).await;
}

async fn an_overdue_start_protects_no_lease(t: DriverUnderTest) {
    t.put_all(["a", "b", "c"].map(job), T0).await;
    t.take_the_as("w", "a", T0).await;
    t.announce("w", 2, T0).await;
    t.announce("v", 3, at(100)).await;
    let end = T0.saturating_add(VALID);
    assert_eq!(t.evict_start("w", 1, before(end)).await, Evicted::Replaced);
    assert_eq!(t.evict_start("w", 1, end).await, Evicted::Leases(1));
    // It is another record, and stays. So is that of another holder.
    let left = [("v".to_owned(), start(3)), ("w".to_owned(), start(2))];
    assert_eq!(names(&t.stored_workers(end).await), left);
    // A worker protects itself from nothing, and neither does one that was withdrawn.
    t.announce("w", 2, end).await;
    assert_eq!(texts(&t.take_as("w", "q", 1, end).await).len(), 1);
    assert_eq!(t.evict_start("w", 2, end).await, Evicted::Leases(1));
    t.announce("w", 4, end).await;
    t.withdraw("w", 4, end).await;
    assert_eq!(texts(&t.take_as("w", "q", 1, end).await).len(), 1);
    assert_eq!(t.evict_start("w", 5, end).await, Evicted::Leases(1));
}

async fn watches_of_queues_with_evicted_leases_are_woken(t: DriverUnderTest) {
    let leased = held(&t, "a").await;
    t.put(job_in("elsewhere", "b"), T0).await;
    t.take_as("w", "elsewhere", 1, T0).await;
    wakes(&t, t.evict("w", at(1))).await;
    let again = t.take_the_as("w", "a", at(1)).await;
    assert_eq!(again.job.id, leased.job.id);
    // One that was extended, in a lane, of a queue with limits.
    t.keep(&again, at(1), Duration::from_secs(5_000)).await;
    wakes(&t, t.evict("w", at(2))).await;
    t.limit(QueueLimits::new().inflight(1)).await;
    t.put(in_lane("a", "c").priority(1), at(2)).await;
    t.take_the_as("w", "c", at(2)).await;
    assert_eq!(t.take(at(2)).await, None);
    wakes(&t, t.evict("w", at(3))).await;
}
