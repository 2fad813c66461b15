//! Failure policies one by one: what happens to the dependants of a member that fails.

use taskharbor_core::{
    NewJob, State,
    admin::Action,
    driver::OutputEntry,
    flow::FlowState,
    job::{FailurePolicy, JobRecord},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, T0, ack, ack_with, at, child, done_with, fail, gave_up, id, job, job_in, join, list,
        requeue, retry, with_token,
    },
};

use FailurePolicy::{Block, Cancel, Continue, FailFast};
use State::{Blocked, Cancelled, Dlq, Done, Inflight, Ready, Scheduled};

group! {
    policy {}
    flows {
        dependants_stay_blocked_unless_a_policy_says_otherwise ["POL-1"]
        a_blocked_flow_goes_on_when_the_member_is_requeued_and_done ["POL-1"]
        cancel_stops_all_that_wait_directly_or_not ["POL-2"]
        cancel_leaves_alone_what_does_not_wait_for_it ["POL-2"]
        a_diamond_with_one_failing_side_is_cancelled_from_there_on ["POL-2"]
        cancel_passes_through_members_that_block ["POL-2"]
        cancel_stops_at_a_member_that_continues ["POL-2" "POL-4"]
        cancel_runs_down_a_thousand_steps ["POL-2"]
        fail_fast_cancels_every_job_that_has_not_started ["POL-3" "POL-5"]
        fail_fast_leaves_alone_what_is_inflight ["POL-3"]
        fail_fast_does_not_leave_its_flow ["POL-3"]
        fail_fast_does_not_stop_at_a_member_that_continues ["POL-3" "POL-6"]
        continue_unblocks_dependants_which_read_the_failure ["POL-4" "OUT-1"]
        continue_leaves_a_dependant_waiting_for_its_other_parents ["POL-4"]
        continue_does_not_hurry_a_dependant ["POL-4" "FLO-1"]
        continue_completes_a_join_without_other_parents ["POL-4" "FLO-6"]
        the_policy_counts_when_a_person_cancels_the_member_too ["POL-1" "POL-2" "POL-3" "POL-4"]
        the_policy_counts_when_a_marked_member_fails_too ["POL-1" "POL-2" "POL-3" "POL-4" "CAN-4"]
        the_policy_counts_when_a_marked_members_lease_ends_too
            ["POL-1" "POL-2" "POL-3" "POL-4" "CAN-4"]
        a_job_cancelled_for_another_says_so ["POL-5"]
    }
}

fn on(policy: FailurePolicy, text: &str) -> NewJob {
    job(text).on_failure(policy)
}

/// What each policy makes of a single dependant without other parents.
const OUTCOMES: [(FailurePolicy, State); 4] =
    [(Block, Blocked), (Cancel, Cancelled), (FailFast, Cancelled), (Continue, Ready)];

fn says_so(record: &JobRecord, culprit: &str) -> bool {
    let reason = record.reason.as_ref();
    reason.is_some_and(|reason| reason.as_str().contains(culprit))
}

async fn dependants_stay_blocked_unless_a_policy_says_otherwise(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"]), child("c", &["b"])], T0).await;
    let waiting = (t.record("b", T0).await, t.record("c", T0).await);
    t.run("a", fail(at(1)), at(1)).await;
    assert_eq!(t.record("b", at(1)).await, waiting.0);
    assert_eq!(t.record("c", at(1)).await, waiting.1);
    assert_eq!(t.record("a", at(1)).await.job.on_failure, Block);
    assert_eq!(t.take(at(1)).await, None);
}

async fn a_blocked_flow_goes_on_when_the_member_is_requeued_and_done(t: DriverUnderTest) {
    for (text, end) in [("a", "after-a"), ("b", "after-b")] {
        t.put_flow([on(Block, text), child(end, &[text])], T0).await;
    }
    t.run("a", fail(T0), T0).await;
    t.act("b", Action::Cancel, T0).await;
    for (text, end) in [("a", "after-a"), ("b", "after-b")] {
        t.act(text, requeue(), at(1)).await;
        assert_eq!(t.state(end, at(1)).await, Blocked);
        t.run(text, ack_with(text), at(1)).await;
        t.run(end, ack(), at(1)).await;
        assert_eq!(t.flow_state(end, at(1)).await, FlowState::Done);
        let read = [list(1), done_with(text)];
        assert_eq!(t.inputs(end).await, read);
    }
}

async fn cancel_stops_all_that_wait_directly_or_not(t: DriverUnderTest) {
    let jobs = [
        on(Cancel, "culprit"),
        child("b", &["culprit"]),
        child("c", &["b"]),
        join("j", &["c", "b"]),
        child("end", &["j"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("culprit", fail(at(1)), at(1)).await;
    for text in ["b", "c", "j", "end"] {
        let record = t.record(text, at(2)).await;
        assert_eq!(record.state, Cancelled, "{text}");
        assert_eq!(record.finished_at, Some(at(1)), "{text}");
        assert_eq!(record.due_at, None, "{text}");
    }
    assert_eq!(t.state("culprit", at(2)).await, Dlq);
}

async fn cancel_leaves_alone_what_does_not_wait_for_it(t: DriverUnderTest) {
    let jobs = [
        job("done"),
        on(Cancel, "culprit").after([id("done")]),
        child("beside", &["done"]),
        child("end", &["culprit", "beside"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("done", ack(), T0).await;
    t.run("culprit", fail(T0), T0).await;
    let states = t.states(&["done", "beside", "end"], T0).await;
    assert_eq!(states, [Done, Ready, Cancelled]);
    t.run("beside", ack(), T0).await;
    assert_eq!(t.state("end", T0).await, Cancelled);
    assert_eq!(t.take(T0).await, None);
}

async fn a_diamond_with_one_failing_side_is_cancelled_from_there_on(t: DriverUnderTest) {
    let jobs = [
        job("a"),
        on(Cancel, "left").after([id("a")]),
        child("right", &["a"]),
        child("end", &["left", "right"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", ack(), T0).await;
    let sides = t.take_many(2, T0).await;
    t.apply(&sides[0], fail(T0), T0).await;
    assert_eq!(t.states(&["right", "end"], T0).await, [Inflight, Cancelled]);
    t.apply(&sides[1], ack(), T0).await;
    assert_eq!(t.states(&["right", "end"], T0).await, [Done, Cancelled]);
    assert_eq!(t.flow_state("end", T0).await, FlowState::Cancelled);
}

async fn cancel_passes_through_members_that_block(t: DriverUnderTest) {
    let jobs = [
        on(Cancel, "a"),
        on(Block, "b").after([id("a")]),
        on(Block, "c").after([id("b")]),
        child("end", &["c"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.states(&["b", "c", "end"], T0).await, [Cancelled; 3]);
}

async fn cancel_stops_at_a_member_that_continues(t: DriverUnderTest) {
    let jobs = [
        on(Cancel, "culprit"),
        on(Continue, "b").after([id("culprit")]),
        child("c", &["b"]),
        child("end", &["c"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("culprit", fail(at(1)), at(1)).await;
    let states = t.states(&["b", "c", "end"], at(1)).await;
    assert_eq!(states, [Cancelled, Ready, Blocked]);
    assert_eq!(t.record("c", at(1)).await.due_at, Some(at(1)));
    let failed =
        OutputEntry::Failed { state: Cancelled, reason: t.record("b", at(1)).await.reason };
    assert_eq!(t.inputs("c").await, [list(1), failed]);
    t.run("c", ack(), at(1)).await;
    t.run("end", ack(), at(1)).await;
    assert_eq!(t.flow_state("end", at(1)).await, FlowState::Done);
}

async fn cancel_runs_down_a_thousand_steps(t: DriverUnderTest) {
    let step = |n: usize| format!("{n:04}");
    let rest = (1..1_000).map(|n| child(&step(n), &[&step(n - 1)]));
    let jobs = [on(Cancel, "0000")].into_iter().chain(rest);
    t.put_flow(jobs, T0).await;
    t.run("0000", fail(T0), T0).await;
    let members = t.flow("0999", T0).await.members;
    assert_eq!((members.dlq, members.cancelled), (1, 999));
}

async fn fail_fast_cancels_every_job_that_has_not_started(t: DriverUnderTest) {
    let jobs = [
        on(FailFast, "culprit"),
        job("done"),
        job("inflight"),
        job("ready"),
        job("scheduled").run_at(at(99)),
        child("blocked", &["ready"]),
        child("after", &["culprit"]),
        join("j", &["done", "inflight"]),
        join("end", &["scheduled", "blocked", "after", "j"]),
    ];
    t.put_flow(jobs, T0).await;
    let leased = t.take_many(3, T0).await;
    t.apply(&leased[1], ack(), T0).await;
    t.apply(&leased[0], fail(at(1)), at(1)).await;
    for text in ["ready", "scheduled", "blocked", "after", "j", "end"] {
        let record = t.record(text, at(1)).await;
        assert_eq!(record.state, Cancelled, "{text}");
        assert_eq!(record.finished_at, Some(at(1)), "{text}");
        assert!(says_so(&record, "culprit"), "{text}: {:?}", record.reason);
    }
    assert_eq!(t.states(&["done", "inflight"], at(1)).await, [Done, Inflight]);
    assert_eq!(t.take(at(100)).await.map(|it| it.job.id), Some(id("inflight")));
}

async fn fail_fast_leaves_alone_what_is_inflight(t: DriverUnderTest) {
    let jobs = [on(FailFast, "a"), job("b"), child("end", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    let leased = t.take_many(2, T0).await;
    let before = t.record("b", T0).await;
    t.apply(&leased[0], fail(T0), T0).await;
    assert_eq!(t.record("b", T0).await, before);
    let extended = t.extend(&leased[1], T0, LEASE).await.expect("still held");
    assert!(!extended.cancel_requested);
    let kept = with_token(&leased[1], extended.lease.token);
    t.apply(&kept, retry(None, T0), T0).await;
    t.run("b", ack_with("b"), T0).await;
    assert_eq!(t.states(&["b", "end"], T0).await, [Done, Cancelled]);
}

async fn fail_fast_does_not_leave_its_flow(t: DriverUnderTest) {
    t.put_flow([on(FailFast, "a"), child("end", &["a"])], T0).await;
    t.put_flow([job("b"), child("other", &["b"])], T0).await;
    t.put(job("plain"), T0).await;
    t.run("a", fail(T0), T0).await;
    let states = t.states(&["end", "b", "other", "plain"], T0).await;
    assert_eq!(states, [Cancelled, Ready, Blocked, Ready]);
}

async fn fail_fast_does_not_stop_at_a_member_that_continues(t: DriverUnderTest) {
    let jobs = [
        on(FailFast, "a"),
        on(Continue, "b").after([id("a")]),
        child("c", &["b"]),
        on(Continue, "d"),
        child("end", &["c", "d"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    let states = t.states(&["b", "c", "d", "end"], T0).await;
    assert_eq!(states, [Cancelled; 4]);
    assert_eq!(t.take(T0).await, None);
}

async fn continue_unblocks_dependants_which_read_the_failure(t: DriverUnderTest) {
    t.put_flow([on(Continue, "a"), child("b", &["a"])], T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    let record = t.record("b", at(1)).await;
    assert_eq!(record.state, Ready);
    assert_eq!(record.due_at, Some(at(1)));
    assert_eq!(record.pending, 0);
    t.take_the("b", at(1)).await;
    assert_eq!(t.inputs("b").await, [list(1), gave_up()]);
}

async fn continue_leaves_a_dependant_waiting_for_its_other_parents(t: DriverUnderTest) {
    let jobs = [on(Continue, "a"), job("b"), child("c", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    let record = t.record("c", T0).await;
    assert_eq!((record.state, record.pending), (Blocked, 1));
    t.run("b", ack_with("b"), T0).await;
    t.take_the("c", T0).await;
    let read = [list(2), gave_up(), done_with("b")];
    assert_eq!(t.inputs("c").await, read);
}

async fn continue_does_not_hurry_a_dependant(t: DriverUnderTest) {
    let later = child("b", &["a"]).run_at(at(9));
    t.put_flow([on(Continue, "a"), later], T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    let record = t.record("b", at(1)).await;
    assert_eq!((record.state, record.due_at), (Scheduled, Some(at(9))));
}

async fn continue_completes_a_join_without_other_parents(t: DriverUnderTest) {
    let jobs = [on(Continue, "a"), join("j", &["a"]), child("b", &["j"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    assert_eq!(t.states(&["j", "b"], at(1)).await, [Done, Ready]);
    let read = [list(1), list(1), gave_up()];
    assert_eq!(t.inputs("b").await, read);
}

async fn the_policy_counts_when_a_person_cancels_the_member_too(t: DriverUnderTest) {
    for (policy, expected) in OUTCOMES {
        let (a, b) = (format!("{policy:?}"), format!("after {policy:?}"));
        t.put_flow([on(policy, &a), child(&b, &[&a])], T0).await;
        assert_eq!(t.act(&a, Action::Cancel, T0).await, Cancelled);
        assert_eq!(t.state(&b, T0).await, expected, "{policy:?}");
    }
}

async fn the_policy_counts_when_a_marked_member_fails_too(t: DriverUnderTest) {
    for (policy, expected) in OUTCOMES {
        let (a, b) = (format!("{policy:?}"), format!("after {policy:?}"));
        let waiting = job_in("other", &b).after([id(&a)]);
        t.put_flow([on(policy, &a), waiting], T0).await;
        let leased = t.take_the(&a, T0).await;
        t.act(&a, Action::Cancel, T0).await;
        t.apply(&leased, fail(T0), T0).await;
        assert_eq!(t.state(&a, T0).await, Cancelled);
        assert_eq!(t.state(&b, T0).await, expected, "{policy:?}");
    }
}

async fn the_policy_counts_when_a_marked_members_lease_ends_too(t: DriverUnderTest) {
    for (policy, expected) in OUTCOMES {
        let (a, b) = (format!("{policy:?}"), format!("after {policy:?}"));
        let waiting = job_in("other", &b).after([id(&a)]);
        t.put_flow([on(policy, &a), waiting], T0).await;
        t.take_the(&a, T0).await;
        t.act(&a, Action::Cancel, T0).await;
        assert_eq!(t.take(at(60)).await, None);
        assert_eq!(t.state(&a, at(60)).await, Cancelled);
        assert_eq!(t.state(&b, at(60)).await, expected, "{policy:?}");
    }
}

async fn a_job_cancelled_for_another_says_so(t: DriverUnderTest) {
    let jobs = [on(Cancel, "culprit"), child("b", &["culprit"]), child("end", &["b"])];
    t.put_flow(jobs, T0).await;
    t.act("culprit", Action::Cancel, T0).await;
    let record = t.record("b", T0).await;
    assert!(says_so(&record, "culprit"), "{:?}", record.reason);
    let record = t.record("end", T0).await;
    assert!(says_so(&record, "failed"), "{:?}", record.reason);
}
