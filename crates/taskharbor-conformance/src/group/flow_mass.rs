//! Flows of many members, and what their joins and finalizers come to under many hands.

use taskharbor_core::{
    Driver, NewJob, State,
    driver::{Enqueue, Enqueued, Leased, Limits, OutputEntry, Settled, Transition},
    error::InvalidRequest,
    flow::FlowState,
    job::{FailurePolicy, JobSet},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, id, invalid, job, join, list,
        settlement,
    },
};

group! {
    flow_mass {
        a_chord_of_ten_thousand_members_ends_once ["FLO-1" "FLO-6" "FLO-8"]
        a_flow_of_more_members_than_a_call_has_jobs_is_stored_whole ["ENQ-6" "ENQ-2"]
        a_call_with_too_many_members_fails_as_a_whole ["ENQ-6"]
        racing_batches_of_the_last_members_unblock_the_finalizer_once ["FLO-8" "FLO-2" "SET-10"]
        a_batch_of_acks_and_failures_of_one_flow_is_dealt_with_in_order ["SET-9" "POL-4" "FLO-1"]
        a_batch_of_acks_with_refused_ones_among_them_counts_the_others ["REF-3" "FLO-2"]
        a_batch_of_acks_of_many_flows_unblocks_each_finalizer ["FLO-1" "SET-1"]
        an_expansion_racing_the_acks_of_all_others_keeps_the_finalizer ["EXP-2" "FLO-8"]
        a_gate_that_continues_unblocks_its_dependants_when_it_fails ["POL-2" "POL-6"]
        a_gate_that_is_done_unblocks_its_dependants_too ["FLO-6" "FLO-1"]
    }
    flows {}
}

const MANY: usize = 10_000;

/// This many jobs, a join of all of them, and one behind it.
fn chord(prefix: &str, count: usize) -> Vec<NewJob> {
    let names: Vec<String> = (0..count).map(|n| format!("{prefix}{n:06}")).collect();
    let mut jobs: Vec<NewJob> = names.iter().map(|name| job(name)).collect();
    let all = format!("{prefix}all");
    jobs.push(join(&all, &[]).after(names.iter().map(|name| id(name))));
    jobs.push(child(&format!("{prefix}end"), &[&all]));
    jobs
}

async fn ack_some(t: DriverUnderTest, members: Vec<Leased>) -> Vec<Settled> {
    let items = members.iter().map(|leased| settlement(leased, ack()));
    let answers = t.settle_all(items.collect(), at(1)).await;
    answers.into_iter().map(|answer| answer.expect("not refused")).collect()
}

async fn a_chord_of_ten_thousand_members_ends_once(t: DriverUnderTest) {
    t.put_flow(chord("", MANY), T0).await;
    let mut left = MANY;
    while left > 0 {
        let members = t.take_many(1_000, T0).await;
        assert_eq!(members.len(), 1_000, "with {left} left");
        left -= members.len();
        let pending = t.record("all", T0).await.pending;
        assert_eq!(pending, left + members.len());
        ack_some(t.clone(), members).await;
        let members = t.flow("end", at(1)).await.members;
        assert_eq!(members.ready, if left == 0 { 1 } else { left });
    }
    let inputs = t.inputs("end").await;
    assert!(inputs[..2] == [list(1), list(MANY)] && inputs.len() == MANY + 2);
    t.run("end", ack(), at(1)).await;
    assert_eq!(t.take(at(1)).await, None);
    let flow = t.flow("end", at(1)).await;
    assert_eq!((flow.state, flow.members.done), (FlowState::Done, MANY + 2));
}

async fn a_flow_of_more_members_than_a_call_has_jobs_is_stored_whole(t: DriverUnderTest) {
    let jobs = chord("", Limits::MAX_CALL_JOBS);
    let answers = t.put_flow(jobs, T0).await;
    assert_eq!(answers.len(), Limits::MAX_CALL_JOBS + 2);
    assert_eq!(answers.last(), Some(&Enqueued::Inserted(id("end"))));
    let members = t.flow("end", T0).await.members;
    assert_eq!((members.ready, members.blocked), (Limits::MAX_CALL_JOBS, 2));
}

async fn a_call_with_too_many_members_fails_as_a_whole(t: DriverUnderTest) {
    let jobs = chord("", Limits::MAX_FLOW_JOBS - 1);
    let sets = vec![JobSet::flow(jobs)];
    let rule = invalid(t.driver.enqueue(Enqueue::new(sets, T0)).await);
    let is_right = matches!(rule, InvalidRequest::OutOfRange { value: 200_001, max: 200_000, .. });
    assert!(is_right, "{rule:?}");
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn racing_batches_of_the_last_members_unblock_the_finalizer_once(t: DriverUnderTest) {
    for round in 0..6 {
        let prefix = format!("{round}-");
        t.put_flow(chord(&prefix, 60), T0).await;
        let members = t.take_many(60, T0).await;
        // Each member is acknowledged by two, in different company.
        let mut batches: Vec<Vec<Leased>> = members.chunks(10).map(<[_]>::to_vec).collect();
        batches.extend((0..6).map(|n| members.iter().skip(n).step_by(6).cloned().collect()));
        let answers = at_once(batches.into_iter().map(|it| ack_some(t.clone(), it))).await;
        let applied = answers.iter().flatten().filter(|it| **it == Settled::Applied);
        assert_eq!(applied.count(), 60);
        let end = format!("{prefix}end");
        let record = t.record(&end, at(1)).await;
        assert_eq!((record.state, record.pending), (State::Ready, 0));
        t.run(&end, ack(), at(1)).await;
        assert_eq!(t.take(at(1)).await, None);
    }
}

async fn a_batch_of_acks_and_failures_of_one_flow_is_dealt_with_in_order(t: DriverUnderTest) {
    let mut jobs = chord("", 9);
    jobs[4].on_failure = FailurePolicy::Continue;
    t.put_flow(jobs, T0).await;
    let members = t.take_many(9, T0).await;
    let items = members.iter().enumerate().map(|(n, leased)| match n {
        4 => settlement(leased, fail(at(1))),
        7 => settlement(leased, Transition::Release { run_at: None, started: false, note: None }),
        n => settlement(leased, ack_with(&n.to_string())),
    });
    let answers = t.settle_all(items.collect(), at(1)).await;
    assert_eq!(answers, vec![Ok(Settled::Applied); 9]);
    assert_eq!(t.record("all", at(1)).await.pending, 1);
    t.run("000007", ack_with("7"), at(2)).await;
    let inputs = t.inputs("all").await;
    assert_eq!(inputs[4], done_with("3"));
    assert!(matches!(inputs[5], OutputEntry::Failed { state: State::Dlq, .. }));
    assert_eq!(inputs[9], done_with("8"));
    t.run("end", ack(), at(2)).await;
}

async fn a_batch_of_acks_with_refused_ones_among_them_counts_the_others(t: DriverUnderTest) {
    t.put_flow(chord("", 6), T0).await;
    let stale = t.take_many(6, T0).await;
    // Two of them are taken over when their leases have ended, and one of those is done by then.
    let over = at(60);
    let current = t.take_many(2, over).await;
    t.apply(&current[0], ack(), over).await;
    let items = stale.iter().map(|leased| settlement(leased, ack()));
    let answers = t.settle_all(items.collect(), at(1)).await;
    assert_eq!(answers.iter().filter(|it| it.is_ok()).count(), 4, "{answers:?}");
    assert_eq!(t.record("all", at(1)).await.pending, 1);
    let again = stale.iter().map(|leased| settlement(leased, ack()));
    let again = t.settle_all(again.collect(), at(1)).await;
    assert_eq!(again.iter().filter(|it| **it == Ok(Settled::AlreadyTerminal)).count(), 4);
    assert_eq!(t.record("all", at(1)).await.pending, 1);
    t.apply(&current[1], ack(), over).await;
    t.run("end", ack(), over).await;
}

async fn a_batch_of_acks_of_many_flows_unblocks_each_finalizer(t: DriverUnderTest) {
    let sets = (0..20).map(|n| JobSet::flow(chord(&format!("{n:02}-"), 5)));
    for answer in t.enqueue_sets(sets.collect(), T0).await {
        answer.expect("stored");
    }
    let mut members = t.take_many(100, T0).await;
    // Turned about, so that no flow's members stand together.
    members.sort_by_key(|leased| leased.job.id.as_str().chars().rev().collect::<String>());
    let settled = ack_some(t.clone(), members).await;
    assert_eq!(settled, [Settled::Applied; 100]);
    let ends = t.take_many(100, at(1)).await;
    assert_eq!(ends.len(), 20);
    let settled = ack_some(t.clone(), ends).await;
    assert_eq!(settled, [Settled::Applied; 20]);
    assert_eq!(t.flow_state("07-end", at(1)).await, FlowState::Done);
}

async fn an_expansion_racing_the_acks_of_all_others_keeps_the_finalizer(t: DriverUnderTest) {
    for round in 0..6 {
        let prefix = format!("{round}-");
        t.put_flow(chord(&prefix, 12), T0).await;
        let mut members = t.take_many(12, T0).await;
        let expanded = members.pop().expect("members");
        let expansion = format!("{prefix}expansion");
        let (other, transition) = (t.clone(), expand([job(&expansion)]));
        let expanding =
            tokio::spawn(async move { other.apply(&expanded, transition, at(1)).await });
        at_once(members.into_iter().map(|it| ack_some(t.clone(), vec![it]))).await;
        expanding.await.expect("not refused");
        let all = format!("{prefix}all");
        let record = t.record(&all, at(1)).await;
        assert_eq!((record.state, record.pending), (State::Blocked, 1));
        t.run(&expansion, ack(), at(1)).await;
        t.run(&format!("{prefix}end"), ack(), at(1)).await;
    }
}

/// A job, a gate behind it that releases, a second job behind that, and a join of both jobs.
fn watched() -> Vec<NewJob> {
    let gate = join("gate", &["work"]).on_failure(FailurePolicy::Continue);
    vec![
        job("work").on_failure(FailurePolicy::Cancel),
        gate,
        child("undo", &["gate"]),
        join("end", &["work", "undo"]),
    ]
}

async fn a_gate_that_continues_unblocks_its_dependants_when_it_fails(t: DriverUnderTest) {
    t.put_flow(watched(), T0).await;
    t.run("work", fail(T0), T0).await;
    let states = t.states(&["work", "gate", "undo", "end"], T0).await;
    assert_eq!(states, [State::Dlq, State::Cancelled, State::Ready, State::Cancelled]);
    assert_eq!(t.flow_state("end", T0).await, FlowState::Running);
    let gate = t.inputs("undo").await;
    assert!(
        matches!(gate[..], [_, OutputEntry::Failed { state: State::Cancelled, .. }]),
        "{gate:?}"
    );
    let work = t.inputs("gate").await;
    assert!(matches!(work[..], [_, OutputEntry::Failed { state: State::Dlq, .. }]), "{work:?}");
    t.run("undo", ack(), at(1)).await;
    assert_eq!(t.flow_state("end", at(1)).await, FlowState::Cancelled);
}

async fn a_gate_that_is_done_unblocks_its_dependants_too(t: DriverUnderTest) {
    t.put_flow(watched(), T0).await;
    t.run("work", ack_with("1"), T0).await;
    assert_eq!(t.state("end", T0).await, State::Blocked);
    assert_eq!(t.inputs("undo").await, [list(1), list(1), done_with("1")]);
    t.run("undo", ack(), at(1)).await;
    assert_eq!(t.flow_state("end", at(1)).await, FlowState::Done);
}
