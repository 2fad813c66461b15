//! Edges: jobs that wait for other jobs of their flow.

use std::collections::HashSet;

use taskharbor_core::{NewJob, State, driver::Settled, error::Refusal};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, T0, ack, at, child, fail, id, ids, job, job_in, join, release, requeue, retry,
        settlement,
    },
};

group! {
    edge {}
    flows {
        a_chain_runs_one_step_after_the_other ["FLO-1"]
        the_last_ack_makes_the_dependant_ready_in_the_same_step ["FLO-1"]
        one_ack_unblocks_all_dependants_in_the_order_given ["FLO-1" "ORD-4"]
        a_dependant_waits_for_every_one_of_its_parents ["FLO-1"]
        a_diamond_meets_again_after_both_sides ["FLO-1"]
        children_may_be_given_before_their_parents ["FLO-1"]
        parents_acked_in_one_call_unblock_their_dependant ["FLO-1"]
        a_dependant_unblocked_keeps_its_queue_and_priority ["FLO-1" "JOB-1"]
        a_flow_may_cross_queues ["FLO-1"]
        a_dependant_unblocked_before_its_time_is_scheduled ["FLO-1"]
        a_dependant_unblocked_after_its_time_is_due_at_the_ack ["FLO-1"]
        the_position_of_a_dependant_is_the_time_of_the_ack_that_unblocked_it ["FLO-1" "ORD-2"]
        a_blocked_job_is_not_granted_at_any_time ["FLO-1"]
        only_an_ack_unblocks_a_dependant ["FLO-1" "POL-1"]
        a_member_that_failed_and_then_succeeded_counts_once ["FLO-1" "FLO-2" "POL-1"]
        an_ack_repeated_lowers_nothing_a_second_time ["FLO-2" "SET-6"]
        a_member_that_ran_twice_counts_once ["FLO-2" "LEA-10"]
        an_ack_at_the_end_of_the_lease_unblocks_no_dependant ["FLO-2" "LEA-1"]
        a_chain_of_a_thousand_steps_runs_to_its_end ["FLO-1"]
        a_thousand_members_unblock_their_dependant_after_the_last ["FLO-1"]
        chords_within_chords_run_every_member_once_after_its_parents ["FLO-1" "FLO-2"]
    }
}

async fn a_chain_runs_one_step_after_the_other(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"]), child("c", &["b"])], T0).await;
    for (text, now) in [("a", at(1)), ("b", at(2)), ("c", at(3))] {
        let leased = t.take_the(text, now).await;
        assert_eq!(t.take(now).await, None, "beside {text}");
        t.apply(&leased, ack(), now).await;
    }
    assert_eq!(t.take(at(4)).await, None);
    assert_eq!(t.states(&["a", "b", "c"], at(4)).await, [State::Done; 3]);
}

async fn the_last_ack_makes_the_dependant_ready_in_the_same_step(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    let waiting = t.record("b", T0).await;
    assert_eq!(waiting.state, State::Blocked);
    assert_eq!(waiting.due_at, None);
    assert_eq!(waiting.parents, ids(&["a"]));
    assert_eq!(waiting.pending, 1);
    t.run("a", ack(), at(7)).await;
    let unblocked = t.record("b", at(7)).await;
    assert_eq!(unblocked.state, State::Ready);
    assert_eq!(unblocked.due_at, Some(at(7)));
    assert_eq!(unblocked.parents, ids(&["a"]));
    assert_eq!(unblocked.pending, 0);
}

async fn one_ack_unblocks_all_dependants_in_the_order_given(t: DriverUnderTest) {
    let group = ["d", "b", "c"];
    let members = group.iter().map(|text| child(text, &["a"]));
    let jobs = [job("a")].into_iter().chain(members);
    t.put_flow(jobs.chain([join("end", &group)]), T0).await;
    t.run("a", ack(), at(1)).await;
    assert_eq!(t.take_order(at(1)).await, group);
}

async fn a_dependant_waits_for_every_one_of_its_parents(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), job("c"), child("d", &["c", "a", "b"])], T0).await;
    for (text, left) in [("a", 2), ("b", 1), ("c", 0)] {
        assert_eq!(t.state("d", T0).await, State::Blocked, "before {text}");
        t.run(text, ack(), T0).await;
        assert_eq!(t.record("d", T0).await.pending, left, "after {text}");
    }
    t.take_the("d", T0).await;
}

async fn a_diamond_meets_again_after_both_sides(t: DriverUnderTest) {
    let sides = [child("b", &["a"]), child("c", &["a"])];
    let [b, c] = sides;
    t.put_flow([job("a"), b, c, child("d", &["b", "c"])], T0).await;
    t.run("a", ack(), at(1)).await;
    t.run("b", ack(), at(2)).await;
    let last = t.take_the("c", at(2)).await;
    assert_eq!(t.take(at(2)).await, None);
    t.apply(&last, ack(), at(3)).await;
    t.run("d", ack(), at(3)).await;
    let states = t.states(&["a", "b", "c", "d"], at(3)).await;
    assert_eq!(states, [State::Done; 4]);
}

async fn children_may_be_given_before_their_parents(t: DriverUnderTest) {
    t.put_flow([child("c", &["b"]), child("b", &["a"]), job("a")], T0).await;
    for text in ["a", "b", "c"] {
        t.run(text, ack(), T0).await;
    }
    assert_eq!(t.take(T0).await, None);
}

async fn parents_acked_in_one_call_unblock_their_dependant(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), child("c", &["a", "b"])], T0).await;
    let items = t.take_many(2, T0).await;
    let items = items.iter().map(|leased| settlement(leased, ack()));
    let answers = t.settle_all(items.collect(), at(1)).await;
    assert_eq!(answers, [Ok(Settled::Applied), Ok(Settled::Applied)]);
    assert_eq!(t.record("c", at(1)).await.due_at, Some(at(1)));
    t.take_the("c", at(1)).await;
}

async fn a_dependant_unblocked_keeps_its_queue_and_priority(t: DriverUnderTest) {
    let low = job_in("other", "low").priority(1).after([id("a")]);
    let high = job_in("other", "high").priority(9).after([id("a")]);
    t.put_flow([job("a"), low, high, join("end", &["low", "high"])], T0).await;
    t.run("a", ack(), at(1)).await;
    assert_eq!(t.take(at(1)).await, None, "not in its parent's queue");
    for (text, priority) in [("high", 9), ("low", 1)] {
        let leased = t.take_from("other", at(1)).await.expect(text);
        assert_eq!(leased.job.id, id(text));
        assert_eq!(leased.job.priority, priority);
        assert_eq!(leased.job.parent_count, 1);
        assert_eq!(leased.job.flow, Some(id("end")));
    }
}

async fn a_flow_may_cross_queues(t: DriverUnderTest) {
    let b = job_in("q2", "b").after([id("a")]);
    let c = job_in("q3", "c").after([id("b")]);
    t.put_flow([job_in("q1", "a"), b, c], T0).await;
    for (name, text) in [("q1", "a"), ("q2", "b"), ("q3", "c")] {
        let leased = t.take_from(name, T0).await.expect(text);
        assert_eq!(leased.job.id, id(text));
        t.apply(&leased, ack(), T0).await;
    }
    assert_eq!(t.states(&["a", "b", "c"], T0).await, [State::Done; 3]);
}

async fn a_dependant_unblocked_before_its_time_is_scheduled(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"]).run_at(at(100))], T0).await;
    t.run("a", ack(), at(1)).await;
    let record = t.record("b", at(1)).await;
    assert_eq!(record.state, State::Scheduled);
    assert_eq!(record.due_at, Some(at(100)));
    assert_eq!(t.take(at(99)).await, None);
    t.take_the("b", at(100)).await;
}

async fn a_dependant_unblocked_after_its_time_is_due_at_the_ack(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"]).run_at(at(1))], T0).await;
    t.run("a", ack(), at(50)).await;
    let record = t.record("b", at(50)).await;
    assert_eq!(record.state, State::Ready);
    assert_eq!(record.due_at, Some(at(50)));
    assert_eq!(record.job.run_at, Some(at(1)));
}

async fn the_position_of_a_dependant_is_the_time_of_the_ack_that_unblocked_it(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    let first = t.take_the("a", T0).await;
    t.put(job("earlier"), at(1)).await;
    t.apply(&first, ack(), at(2)).await;
    t.put(job("later"), at(3)).await;
    assert_eq!(t.take_order(at(4)).await, ["earlier", "b", "later"]);
}

async fn a_blocked_job_is_not_granted_at_any_time(t: DriverUnderTest) {
    let b = job_in("other", "b").after([id("a")]).priority(i16::MAX);
    t.put_flow([job("a"), b], T0).await;
    t.take_the("a", T0).await;
    for now in [T0, at(60), at(4_000_000_000)] {
        let reserved = t.reserve(&[("other", 10)], now, LEASE).await;
        let reserved = reserved.expect("reserve");
        assert!(reserved.jobs.is_empty(), "at {now}");
        assert_eq!(reserved.next_due, None, "at {now}");
    }
    assert_eq!(t.state("b", at(60)).await, State::Blocked);
}

async fn only_an_ack_unblocks_a_dependant(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    let waiting = t.record("b", T0).await;
    t.run("a", retry(None, at(1)), at(1)).await;
    t.run("a", release(None), at(2)).await;
    t.take_the("a", at(3)).await;
    t.run("a", fail(at(63)), at(63)).await;
    t.act("a", requeue(), at(64)).await;
    assert_eq!(t.record("b", at(64)).await, waiting);
    t.run("a", ack(), at(65)).await;
    t.take_the("b", at(65)).await;
}

async fn a_member_that_failed_and_then_succeeded_counts_once(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), child("c", &["a", "b"])], T0).await;
    t.run("a", retry(Some(at(1)), T0), T0).await;
    t.run("b", fail(T0), T0).await;
    t.act("b", requeue(), at(1)).await;
    t.run("a", ack(), at(1)).await;
    assert_eq!(t.record("c", at(1)).await.pending, 1);
    t.run("b", ack(), at(1)).await;
    t.run("c", ack(), at(1)).await;
    assert_eq!(t.take(at(1)).await, None);
}

async fn an_ack_repeated_lowers_nothing_a_second_time(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), child("c", &["a", "b"])], T0).await;
    let leased = t.run("a", ack(), T0).await;
    let before = t.snapshot(T0).await;
    for _ in 0..3 {
        let again = t.settle(&leased, ack(), T0).await;
        assert_eq!(again, Ok(Settled::AlreadyTerminal));
    }
    assert_eq!(t.snapshot(T0).await, before);
    assert_eq!(t.record("c", T0).await.pending, 1);
}

async fn a_member_that_ran_twice_counts_once(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), child("c", &["a", "b"])], T0).await;
    let stale = t.take_many(2, T0).await;
    let current = t.take_many(2, at(60)).await;
    for leased in &current {
        t.apply(leased, ack(), at(61)).await;
    }
    for leased in &stale {
        let late = t.settle(leased, ack(), at(61)).await;
        assert_eq!(late, Err(Refusal::JobNotInflight));
    }
    assert_eq!(t.record("c", at(61)).await.pending, 0);
    t.run("c", ack(), at(61)).await;
    assert_eq!(t.take(at(200)).await, None);
}

async fn an_ack_at_the_end_of_the_lease_unblocks_no_dependant(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    let leased = t.take_the("a", T0).await;
    let waiting = t.record("b", T0).await;
    let late = t.settle(&leased, ack(), at(60)).await;
    assert_eq!(late, Err(Refusal::LeaseExpired));
    assert_eq!(t.record("b", at(60)).await, waiting);
}

async fn a_chain_of_a_thousand_steps_runs_to_its_end(t: DriverUnderTest) {
    let step = |n: usize| format!("{n:04}");
    let jobs = (0..1_000).map(|n| match n {
        0 => job(&step(0)),
        n => child(&step(n), &[&step(n - 1)]),
    });
    t.put_flow(jobs, T0).await;
    for n in 0..1_000 {
        t.run(&step(n), ack(), T0).await;
    }
    assert_eq!(t.take(T0).await, None);
    assert_eq!(t.flow("0999", T0).await.members.done, 1_000);
}

async fn a_thousand_members_unblock_their_dependant_after_the_last(t: DriverUnderTest) {
    let names: Vec<String> = (0..1_000).map(|n| format!("{n:04}")).collect();
    let members = names.iter().map(|name| job(name));
    let end = job("end").after(names.iter().map(|name| id(name)));
    t.put_flow(members.chain([end]), T0).await;
    let leased = t.take_many(1_000, T0).await;
    assert_eq!(leased.len(), 1_000);
    let (last, others) = leased.split_last().expect("a thousand");
    let items = others.iter().map(|leased| settlement(leased, ack()));
    t.settle_all(items.collect(), at(1)).await;
    assert_eq!(t.record("end", at(1)).await.pending, 1);
    assert_eq!(t.take(at(1)).await, None);
    t.apply(last, ack(), at(2)).await;
    t.run("end", ack(), at(2)).await;
    assert_eq!(t.take(at(2)).await, None);
}

async fn chords_within_chords_run_every_member_once_after_its_parents(t: DriverUnderTest) {
    fn tree(name: &str, depth: usize, jobs: &mut Vec<NewJob>) {
        let members: Vec<String> = (0..3).map(|n| format!("{name}{n}")).collect();
        if depth == 0 {
            jobs.push(job(name));
            return;
        }
        for member in &members {
            tree(member, depth - 1, jobs);
        }
        jobs.push(job(name).after(members.iter().map(|member| id(member))));
    }
    let mut jobs = Vec::new();
    tree("x", 3, &mut jobs);
    t.put_flow(jobs.clone(), T0).await;
    let mut ran = HashSet::new();
    while let Some(leased) = t.take(T0).await {
        let job = jobs.iter().find(|job| job.id == leased.job.id);
        let job = job.expect("a member");
        assert!(job.parents.iter().all(|parent| ran.contains(parent)));
        t.apply(&leased, ack(), T0).await;
        assert!(ran.insert(job.id.clone()), "{} ran twice", job.id);
    }
    assert_eq!(ran.len(), 40);
}
