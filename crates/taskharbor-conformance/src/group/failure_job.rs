//! Failure jobs: members that run only if their parents fail.

use taskharbor_core::{
    NewJob, State,
    admin::Action,
    driver::{OutputEntry, Settled},
    flow::FlowState,
    job::{Condition, FailurePolicy},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        T0, ack, ack_with, at, child, done_with, fail, failure_job, gave_up, id, ids, job, job_in,
        join, list, release, requeue,
    },
};

use FailurePolicy::{Block, Cancel, Continue, FailFast};
use State::{Blocked, Cancelled, Dlq, Done, Inflight, Ready, Scheduled};

group! {
    failure_job {}
    flows {
        a_failure_job_runs_when_its_parent_fails_under_every_policy ["FAI-1" "OUT-1"]
        a_failure_job_runs_when_a_person_cancels_its_parent ["FAI-1"]
        a_failure_job_runs_when_its_parent_is_cancelled_because_another_failed ["FAI-1" "POL-6"]
        a_failure_job_runs_when_the_lease_of_its_marked_parent_ends ["FAI-1" "LEA-5"]
        a_failure_job_runs_when_its_marked_parent_is_released ["FAI-1" "CAN-4"]
        a_failure_job_waits_for_its_own_time_too ["FAI-1" "FLO-1"]
        a_failure_job_reads_the_failure_even_after_a_requeue_of_its_parent ["FAI-1" "OUT-1"]
        a_failure_job_is_not_needed_when_its_parent_is_done ["FAI-2" "FLO-7"]
        a_failure_job_of_a_join_is_not_needed_when_the_join_is_done ["FAI-2" "FLO-6"]
        a_failure_job_of_a_step_in_the_middle_leaves_the_flow_to_go_on ["FAI-2" "FLO-1"]
        a_flow_runs_until_its_failure_job_is_terminal ["FLO-7" "FAI-1"]
        all_parents_of_a_failure_job_must_fail ["FAI-1"]
        one_parent_that_is_done_is_enough_to_be_not_needed ["FAI-2"]
        fail_fast_leaves_failure_jobs_alone ["FAI-3" "POL-3"]
        a_failure_job_is_not_cancelled_because_its_parents_parent_failed ["FAI-3" "POL-2"]
        a_failure_job_that_fails_has_a_policy_like_any_member ["POL-3" "FAI-3"]
        racing_ends_of_its_parents_unblock_a_failure_job_once ["FAI-1" "FLO-8"]
        a_racing_ack_and_failure_leave_a_failure_job_not_needed ["FAI-2"]
    }
}

pub(super) fn on(policy: FailurePolicy, text: &str) -> NewJob {
    job(text).on_failure(policy)
}

/// The failure job is not run, because this parent is done.
pub(super) async fn assert_not_needed(t: &DriverUnderTest, text: &str, parent: &str) {
    let record = t.record(text, at(1_000)).await;
    assert_eq!(record.state, Cancelled, "{text}");
    let reason = record.reason.expect("a reason");
    assert!(reason.as_str().contains("not needed"), "{reason}");
    assert!(reason.as_str().contains(&format!("job {parent} ")), "{reason}");
}

async fn a_failure_job_runs_when_its_parent_fails_under_every_policy(t: DriverUnderTest) {
    for policy in FailurePolicy::ALL {
        let name = policy.as_str();
        let [a, f, end] = ["a", "f", "end"].map(|text| format!("{name} {text}"));
        let parent = job_in(name, &a).on_failure(*policy);
        let handler = job_in("handlers", &f).after_failure_of(ids(&[&a]));
        t.put_flow([parent, handler, job_in(name, &end).after(ids(&[&a]))], T0).await;
        let record = t.record(&f, T0).await;
        assert_eq!((record.state, record.pending), (Blocked, 1));
        assert_eq!(record.job.condition, Condition::ParentsFailed);
        assert_eq!(t.take_from("handlers", T0).await, None);
        let leased = t.take_from(name, T0).await.expect("a grant");
        t.apply(&leased, fail(at(1)), at(1)).await;
        let record = t.record(&f, at(1)).await;
        assert_eq!((record.state, record.due_at), (Ready, Some(at(1))), "{name}");
        assert_eq!((record.pending, record.parents), (0, ids(&[&a])));
        let handler = t.take_from("handlers", at(1)).await.expect("a grant");
        assert_eq!(handler.job.id, id(&f));
        assert_eq!(
            (handler.job.condition, handler.job.parent_count),
            (Condition::ParentsFailed, 1)
        );
        assert_eq!(t.inputs(&f).await, [list(1), gave_up()]);
        t.apply(&handler, ack(), at(2)).await;
        let expected = match policy {
            Block => Blocked,
            Cancel | FailFast => Cancelled,
            Continue => Ready,
        };
        assert_eq!(t.state(&end, at(2)).await, expected, "{name}");
    }
}

async fn a_failure_job_runs_when_a_person_cancels_its_parent(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    t.act("a", Action::Cancel, at(1)).await;
    t.take_the("f", at(1)).await;
    let read = OutputEntry::Failed { state: Cancelled, reason: None };
    assert_eq!(t.inputs("f").await, [list(1), read]);
}

async fn a_failure_job_runs_when_its_parent_is_cancelled_because_another_failed(
    t: DriverUnderTest,
) {
    let jobs = [on(Cancel, "a"), child("b", &["a"]), child("end", &["b"])];
    let handlers = [failure_job("f", &["b"]), failure_job("g", &["end"])];
    t.put_flow(jobs.into_iter().chain(handlers), T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    assert_eq!(
        t.states(&["b", "end", "f", "g"], at(1)).await,
        [Cancelled, Cancelled, Ready, Ready]
    );
    assert_eq!(t.take_order(at(1)).await, ["f", "g"]);
    let reason = t.record("b", at(1)).await.reason;
    assert!(reason.is_some());
    let read = OutputEntry::Failed { state: Cancelled, reason };
    assert_eq!(t.inputs("f").await, [list(1), read]);
}

async fn a_failure_job_runs_when_the_lease_of_its_marked_parent_ends(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    t.take_the("a", T0).await;
    t.act("a", Action::Cancel, T0).await;
    assert_eq!(t.state("f", at(1)).await, Blocked);
    t.take_the("f", at(60)).await;
}

async fn a_failure_job_runs_when_its_marked_parent_is_released(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    let leased = t.take_the("a", T0).await;
    t.act("a", Action::Cancel, T0).await;
    t.apply(&leased, release(None), at(1)).await;
    t.take_the("f", at(1)).await;
}

async fn a_failure_job_waits_for_its_own_time_too(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"]).run_at(at(9))], T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    let record = t.record("f", at(1)).await;
    assert_eq!((record.state, record.due_at), (Scheduled, Some(at(9))));
    t.take_the("f", at(9)).await;
}

async fn a_failure_job_reads_the_failure_even_after_a_requeue_of_its_parent(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", requeue(), T0).await;
    t.run("a", ack_with("after all"), T0).await;
    t.take_the("f", T0).await;
    assert_eq!(t.inputs("f").await, [list(1), gave_up()]);
    assert_eq!(t.flow_state("a", T0).await, FlowState::Running);
}

async fn a_failure_job_is_not_needed_when_its_parent_is_done(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    t.run("a", ack_with("x"), at(1)).await;
    assert_not_needed(&t, "f", "a").await;
    assert_eq!(t.record("f", at(1)).await.finished_at, Some(at(1)));
    let flow = t.flow("a", at(1)).await;
    assert_eq!((flow.state, flow.finished_at), (FlowState::Done, Some(at(1))));
    assert_eq!(t.take(at(1)).await, None);
    assert_eq!(t.inputs("f").await, [list(1), done_with("x")]);
}

async fn a_failure_job_of_a_join_is_not_needed_when_the_join_is_done(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), join("end", &["a", "b"]), failure_job("f", &["end"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack(), T0).await;
    assert_eq!(t.state("f", T0).await, Blocked);
    t.run("b", ack(), T0).await;
    assert_not_needed(&t, "f", "end").await;
    assert_eq!(t.flow_state("end", T0).await, FlowState::Done);
    t.put_flow([join("empty", &[]), failure_job("g", &["empty"])], T0).await;
    assert_not_needed(&t, "g", "empty").await;
}

async fn a_failure_job_of_a_step_in_the_middle_leaves_the_flow_to_go_on(t: DriverUnderTest) {
    let jobs = [job("a"), child("b", &["a"]), failure_job("f", &["b"]), child("end", &["b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack(), T0).await;
    assert_eq!(t.state("f", T0).await, Blocked);
    t.run("b", ack(), T0).await;
    assert_not_needed(&t, "f", "b").await;
    t.run("end", ack(), T0).await;
    assert_eq!(t.flow_state("end", T0).await, FlowState::Done);
}

async fn a_flow_runs_until_its_failure_job_is_terminal(t: DriverUnderTest) {
    let jobs = [job("a"), failure_job("f", &["a"]), child("end", &["a"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.flow_state("end", T0).await, FlowState::Running);
    t.run("f", ack(), T0).await;
    assert_eq!(t.flow_state("end", T0).await, FlowState::Blocked);
    t.put_flow([job("b"), failure_job("g", &["b"])], T0).await;
    t.run("b", fail(at(1)), at(1)).await;
    assert_eq!(t.flow_state("b", at(1)).await, FlowState::Running);
    t.run("g", ack(), at(2)).await;
    let flow = t.flow("b", at(2)).await;
    assert_eq!((flow.state, flow.finished_at), (FlowState::Failed, Some(at(2))));
    assert_eq!((flow.members.dlq, flow.members.done), (1, 1));
}

async fn all_parents_of_a_failure_job_must_fail(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), child("end", &["a", "b"]), failure_job("f", &["b", "a"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    let record = t.record("f", T0).await;
    assert_eq!((record.state, record.pending), (Blocked, 1));
    t.act("b", Action::Cancel, at(1)).await;
    let record = t.record("f", at(1)).await;
    assert_eq!((record.state, record.due_at), (Ready, Some(at(1))));
    let cancelled = OutputEntry::Failed { state: Cancelled, reason: None };
    assert_eq!(t.inputs("f").await, [list(2), cancelled, gave_up()]);
}

async fn one_parent_that_is_done_is_enough_to_be_not_needed(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), child("end", &["a", "b"]), failure_job("f", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack(), T0).await;
    assert_not_needed(&t, "f", "a").await;
    let stored = t.record("f", T0).await;
    t.run("b", fail(at(1)), at(1)).await;
    let record = t.record("f", at(1)).await;
    assert_eq!((record.state, record.finished_at), (stored.state, stored.finished_at));
    assert_eq!(record.reason, stored.reason);
    let jobs = [job("c"), job("d"), child("last", &["c", "d"]), failure_job("g", &["c", "d"])];
    t.put_flow(jobs, T0).await;
    t.run("c", fail(T0), T0).await;
    t.run("d", ack(), T0).await;
    assert_not_needed(&t, "g", "d").await;
    assert_eq!(t.take(at(1)).await, None);
}

async fn fail_fast_leaves_failure_jobs_alone(t: DriverUnderTest) {
    let jobs = [
        job("failed before"),
        job("inflight"),
        on(FailFast, "stops"),
        job("not started").run_at(at(99)),
        failure_job("is ready", &["failed before"]).run_at(at(9)),
        failure_job("waits", &["inflight"]),
        failure_job("of the stopped", &["not started"]),
        child("end", &["failed before", "inflight", "stops", "not started"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("failed before", fail(T0), T0).await;
    let inflight = t.take_the("inflight", T0).await;
    t.run("stops", fail(at(1)), at(1)).await;
    assert_eq!(t.states(&["not started", "end"], at(1)).await, [Cancelled; 2]);
    assert_eq!(
        t.states(&["is ready", "waits", "of the stopped"], at(1)).await,
        [Scheduled, Blocked, Ready]
    );
    t.apply(&inflight, ack(), at(2)).await;
    assert_not_needed(&t, "waits", "inflight").await;
    assert_eq!(t.take_order(at(9)).await, ["of the stopped", "is ready"]);
}

async fn a_failure_job_is_not_cancelled_because_its_parents_parent_failed(t: DriverUnderTest) {
    // The parent is inflight when its own parent is cancelled, and so is left alone.
    let jobs = [on(Cancel, "a"), child("b", &["a"]), failure_job("f", &["b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack(), T0).await;
    let leased = t.take_the("b", T0).await;
    assert_eq!(t.state("f", T0).await, Blocked);
    t.apply(&leased, fail(T0), T0).await;
    assert_eq!(t.state("f", T0).await, Ready);
}

async fn a_failure_job_that_fails_has_a_policy_like_any_member(t: DriverUnderTest) {
    let stops = failure_job("f", &["a"]).on_failure(FailFast);
    let jobs = [job("a"), stops, job("b").run_at(at(9)), child("end", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("f", fail(T0), T0).await;
    assert_eq!(t.states(&["a", "f", "b", "end"], T0).await, [Dlq, Dlq, Cancelled, Cancelled]);
    assert_eq!(t.flow_state("end", T0).await, FlowState::Cancelled);
}

async fn racing_ends_of_its_parents_unblock_a_failure_job_once(t: DriverUnderTest) {
    for round in 0..12 {
        let [a, b, f, end] = ["a", "b", "f", "end"].map(|text| format!("{text}{round}"));
        let handler = job_in("handlers", &f).after_failure_of(ids(&[&a, &b]));
        t.put_flow([job(&a), job(&b), handler, job(&end).after(ids(&[&a, &b]))], T0).await;
        let leased = t.take_many(2, T0).await;
        let answers = at_once(leased.into_iter().map(|leased| {
            let t = t.clone();
            async move { t.settle(&leased, fail(T0), T0).await }
        }));
        assert_eq!(answers.await, [Ok(Settled::Applied), Ok(Settled::Applied)]);
        let handler = t.take_from("handlers", T0).await.expect("a grant");
        assert_eq!((handler.job.id, handler.job.deliveries), (id(&f), 1));
        assert_eq!(t.take_from("handlers", T0).await, None);
    }
}

async fn a_racing_ack_and_failure_leave_a_failure_job_not_needed(t: DriverUnderTest) {
    for round in 0..12 {
        let [a, b, f, end] = ["a", "b", "f", "end"].map(|text| format!("{text}{round}"));
        let handler = job_in("handlers", &f).after_failure_of(ids(&[&a, &b]));
        t.put_flow([job(&a), job(&b), handler, job(&end).after(ids(&[&a, &b]))], T0).await;
        let leased = t.take_many(2, T0).await;
        let answers = at_once(leased.into_iter().zip([ack(), fail(T0)]).map(|(leased, ends)| {
            let t = t.clone();
            async move { t.settle(&leased, ends, T0).await }
        }));
        assert_eq!(answers.await, [Ok(Settled::Applied), Ok(Settled::Applied)]);
        assert_not_needed(&t, &f, &a).await;
        assert_eq!(t.take_from("handlers", T0).await, None);
    }
    assert_eq!(t.state("a0", T0).await, Done);
    assert_ne!(t.state("b0", T0).await, Inflight);
}
