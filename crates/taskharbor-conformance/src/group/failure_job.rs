//! Failure jobs: members that run only if their parents fail.

use taskharbor_core::{
    Admin, NewJob, State, Text,
    admin::{Action, Prune, Requeue},
    driver::{OutputEntry, Settled},
    error::{Denied, InvalidTransition, Refusal, Rejected},
    flow::FlowState,
    job::{Condition, FailurePolicy, JobSet},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, failure_job, id, ids, job, job_in,
        join, key, list, release, requeue,
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
        a_failure_job_reads_the_failure_whatever_becomes_of_its_parent ["FAI-1" "OUT-1"]
        a_failure_job_is_not_needed_when_its_parent_is_done ["FAI-2" "FLO-7"]
        a_failure_job_of_a_join_is_not_needed_when_the_join_is_done ["FAI-2" "FLO-6"]
        a_failure_job_of_a_step_in_the_middle_leaves_the_flow_to_go_on ["FAI-2" "FLO-1"]
        a_flow_runs_until_its_failure_job_is_terminal ["FLO-7" "FAI-1"]
        all_parents_of_a_failure_job_must_fail ["FAI-1"]
        one_parent_that_is_done_is_enough_to_be_not_needed ["FAI-2"]
        fail_fast_leaves_failure_jobs_alone ["FAI-3" "POL-3"]
        a_failure_job_is_not_cancelled_because_its_parents_parent_failed ["FAI-3" "POL-2"]
        a_failure_job_that_fails_has_a_policy_like_any_member ["POL-3" "FAI-3"]
        a_failure_job_may_expand ["EXP-1" "FAI-1"]
        sets_with_impossible_failure_jobs_are_rejected ["FAI-4" "FLO-3"]
        expansions_with_impossible_failure_jobs_are_refused ["FAI-4" "EXP-3"]
        a_failure_job_is_never_the_tail ["FAI-4" "FLO-4"]
        a_failure_job_waits_for_the_tail_of_its_parents_expansion ["FAI-5" "EXP-2"]
        an_expansion_that_is_done_at_once_makes_a_failure_job_not_needed ["FAI-5" "EXP-4"]
        an_expansion_may_have_failure_jobs_of_its_own ["FAI-1" "FAI-2" "EXP-1"]
        cancelling_a_flow_cancels_its_failure_jobs ["FAI-6" "CAN-7"]
        a_failure_job_that_was_not_needed_is_requeued_only_when_detached ["FAI-7" "REQ-5"]
        a_detached_failure_job_may_expand ["FAI-7" "REQ-5" "EXP-1"]
        a_failure_job_that_failed_is_requeued_whatever_became_of_the_tail ["REQ-1" "REQ-4" "FAI-8"]
        a_cancelled_failure_job_learns_what_became_of_its_parents ["FAI-1" "FAI-7" "REQ-3"]
        a_flow_is_pruned_with_its_failure_jobs ["PRU-4" "FAI-1"]
        racing_ends_of_its_parents_unblock_a_failure_job_once ["FAI-1" "FLO-8"]
        a_racing_ack_and_failure_leave_a_failure_job_not_needed ["FAI-2"]
    }
}

fn on(policy: FailurePolicy, text: &str) -> NewJob {
    job(text).on_failure(policy)
}

/// The failure job is not run, because this parent is done.
async fn assert_not_needed(t: &DriverUnderTest, text: &str, parent: &str) {
    let record = t.record(text, at(1_000)).await;
    assert_eq!(record.state, Cancelled, "{text}");
    let reason = record.reason.expect("a reason");
    assert!(reason.as_str().contains("not needed"), "{reason}");
    assert!(reason.as_str().contains(&format!("job {parent} ")), "{reason}");
}

/// The entry for a job that was dead-lettered as [`fail`] does.
fn gave_up() -> OutputEntry {
    OutputEntry::Failed { state: Dlq, reason: Some(Text::new("gave up")) }
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

async fn a_failure_job_reads_the_failure_whatever_becomes_of_its_parent(t: DriverUnderTest) {
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

async fn a_failure_job_may_expand(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("f", expand([job("x"), child("y", &["x"])]), T0).await;
    let flow = t.flow("a", T0).await;
    assert_eq!((flow.state, flow.tail), (FlowState::Running, id("a")));
    t.run("x", ack(), T0).await;
    t.run("y", ack_with("cleaned up"), T0).await;
    assert_eq!(t.output("f").await, [done_with("cleaned up")]);
    assert_eq!(t.flow_state("a", T0).await, FlowState::Failed);
}

/// Sets of jobs that FAI-4 rejects, and why.
fn impossible() -> Vec<(Vec<NewJob>, Rejected)> {
    let mut waiting_join = join("j", &["a"]);
    waiting_join.condition = Condition::ParentsFailed;
    vec![
        (vec![job("a"), waiting_join], Rejected::JoinOnFailure { job: id("j") }),
        (vec![job("a"), failure_job("f", &[])], Rejected::FailureOfNothing { job: id("f") }),
        (vec![failure_job("f", &[])], Rejected::FailureOfNothing { job: id("f") }),
        (
            vec![job("a"), failure_job("f", &["a"]), child("b", &["a", "f"])],
            Rejected::AfterFailureJob { job: id("b"), parent: id("f") },
        ),
        (
            vec![job("a"), failure_job("f", &["a"]), failure_job("g", &["f"])],
            Rejected::AfterFailureJob { job: id("g"), parent: id("f") },
        ),
    ]
}

async fn sets_with_impossible_failure_jobs_are_rejected(t: DriverUnderTest) {
    let mut sets = impossible();
    let (a, f) = (|| job("a"), || failure_job("f", &["a"]));
    sets.push((
        vec![a(), job("b"), f()],
        Rejected::SeveralTails { first: id("a"), second: id("b") },
    ));
    sets.push((vec![a(), f().idempotency_key(key("k"))], Rejected::KeyInsideFlow { job: id("f") }));
    for (jobs, expected) in sets {
        let what = format!("{jobs:?}");
        assert_eq!(t.enqueue_set(JobSet::flow(jobs), T0).await, Err(expected), "{what}");
    }
    let plain = t.enqueue_set(JobSet::plain(vec![a(), f()]), T0).await;
    assert_eq!(plain, Err(Rejected::EdgeOutsideFlow { job: id("f") }));
    let alone = t.enqueue_set(JobSet::plain(vec![failure_job("f", &[])]), T0).await;
    assert_eq!(alone, Err(Rejected::EdgeOutsideFlow { job: id("f") }));
    assert_eq!(t.snapshot(T0).await.records, []);
}

async fn expansions_with_impossible_failure_jobs_are_refused(t: DriverUnderTest) {
    t.put(job("g0"), T0).await;
    let leased = t.take_the("g0", T0).await;
    let stored = t.snapshot(T0).await;
    for (jobs, expected) in impossible() {
        let answer = t.settle(&leased, expand(jobs), T0).await;
        assert_eq!(answer, Err(Refusal::Invalid(InvalidTransition::Expansion(expected))));
    }
    assert_eq!(t.snapshot(T0).await, stored);
}

async fn a_failure_job_is_never_the_tail(t: DriverUnderTest) {
    let end = child("end", &["a"]).idempotency_key(key("k"));
    let jobs = [failure_job("f", &["end"]), job("a"), end, failure_job("g", &["a"])];
    t.put_flow(jobs, T0).await;
    let flow = t.flow("end", T0).await;
    assert_eq!((flow.tail, flow.members.blocked), (id("end"), 3));
    for text in ["f", "g"] {
        assert_eq!(t.driver.flow(id(text), T0).await.expect("flow"), None);
        assert_eq!(t.record(text, T0).await.job.flow, Some(id("end")));
    }
}

async fn a_failure_job_waits_for_the_tail_of_its_parents_expansion(t: DriverUnderTest) {
    for (queue, ends) in [("done", ack()), ("dlq", fail(T0))] {
        let [a, f, x, y] = ["a", "f", "x", "y"].map(|text| format!("{queue} {text}"));
        let handler = job_in("handlers", &f).after_failure_of(ids(&[&a]));
        t.put_flow([job_in(queue, &a), handler], T0).await;
        let leased = t.take_from(queue, T0).await.expect("a grant");
        let jobs = [job_in(queue, &x), job_in(queue, &y).after(ids(&[&x]))];
        t.apply(&leased, expand(jobs), T0).await;
        let record = t.record(&f, T0).await;
        assert_eq!((record.state, record.parents), (Blocked, ids(&[&y])));
        let leased = t.take_from(queue, T0).await.expect("a grant");
        t.apply(&leased, ack(), T0).await;
        assert_eq!(t.state(&f, T0).await, Blocked);
        let leased = t.take_from(queue, T0).await.expect("a grant");
        t.apply(&leased, ends, T0).await;
        match queue {
            "done" => assert_not_needed(&t, &f, &y).await,
            _ => {
                let handler = t.take_from("handlers", T0).await.expect("a grant");
                assert_eq!(handler.job.id, id(&f));
                assert_eq!(t.inputs(&f).await, [list(1), gave_up()]);
            }
        }
    }
}

async fn an_expansion_that_is_done_at_once_makes_a_failure_job_not_needed(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    t.run("a", expand([join("x", &[])]), T0).await;
    assert_not_needed(&t, "f", "x").await;
    assert_eq!(t.flow_state("a", T0).await, FlowState::Done);
}

async fn an_expansion_may_have_failure_jobs_of_its_own(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"])], T0).await;
    let inner =
        [job("x"), child("y", &["x"]), failure_job("fx", &["x"]), failure_job("fy", &["y"])];
    t.run("a", expand(inner), T0).await;
    t.run("x", ack(), T0).await;
    assert_not_needed(&t, "fx", "x").await;
    t.run("y", fail(T0), T0).await;
    assert_eq!(t.take_order(T0).await, ["f", "fy"]);
}

async fn cancelling_a_flow_cancels_its_failure_jobs(t: DriverUnderTest) {
    let jobs = [
        on(Continue, "a"),
        job("b").run_at(at(9)),
        failure_job("ready", &["a"]),
        failure_job("scheduled", &["a"]).run_at(at(9)),
        failure_job("inflight", &["a"]).priority(1),
        failure_job("blocked", &["b"]),
        child("end", &["a", "b"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    let leased = t.take_the("inflight", T0).await;
    t.act("end", Action::CancelFlow, at(1)).await;
    let names = ["ready", "scheduled", "blocked", "b", "end"];
    assert_eq!(t.states(&names, at(1)).await, [Cancelled; 5]);
    assert!(t.record("inflight", at(1)).await.cancel_requested);
    t.apply(&leased, ack(), at(1)).await;
    assert_eq!(t.take(at(100)).await, None);
    assert_eq!(t.flow_state("end", at(100)).await, FlowState::Cancelled);
}

async fn a_failure_job_that_was_not_needed_is_requeued_only_when_detached(t: DriverUnderTest) {
    let jobs = [job("a"), failure_job("f", &["a"]), child("end", &["a"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack_with("x"), T0).await;
    let stored = t.snapshot(T0).await;
    assert_eq!(t.manage("f", requeue(), T0).await, Err(Denied::FlowOver));
    assert_eq!(t.snapshot(T0).await, stored);
    let detach = Action::Requeue(Requeue::new().detach());
    assert_eq!(t.act("f", detach, at(1)).await, Ready);
    let record = t.record("f", at(1)).await;
    assert_eq!((record.job.flow, record.pending, record.reason), (None, 0, None));
    assert_eq!(t.take_order(at(1)).await, ["end", "f"]);
    assert_eq!(t.inputs("f").await, [list(1), done_with("x")]);
    assert_eq!(t.flow("end", at(1)).await.members.total(), 2);
}

async fn a_detached_failure_job_may_expand(t: DriverUnderTest) {
    let jobs = [job("a"), failure_job("f", &["a"]), child("end", &["a"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack(), T0).await;
    t.run("end", ack(), T0).await;
    t.act("f", Action::Requeue(Requeue::new().detach()), T0).await;
    t.run("f", expand([job("x"), child("y", &["x"])]), T0).await;
    assert_eq!(t.flow("f", T0).await.members.total(), 3, "it is a flow of its own");
    t.run("x", ack(), T0).await;
    t.run("y", ack(), T0).await;
    assert_eq!(t.flow_state("f", T0).await, FlowState::Done);
}

async fn a_failure_job_that_failed_is_requeued_whatever_became_of_the_tail(t: DriverUnderTest) {
    let jobs = [job("a"), failure_job("f", &["a"]), child("end", &["a"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("f", fail(T0), T0).await;
    assert_eq!(t.act("f", requeue(), at(1)).await, Ready);
    t.run("f", ack(), at(1)).await;
    t.put_flow([on(Cancel, "b"), failure_job("g", &["b"]), child("last", &["b"])], T0).await;
    t.run("b", fail(T0), T0).await;
    t.run("g", fail(T0), T0).await;
    assert_eq!(t.state("last", T0).await, Cancelled);
    assert_eq!(t.act("g", requeue(), at(1)).await, Ready, "it does not need the tail");
    t.run("g", ack(), at(1)).await;
}

async fn a_cancelled_failure_job_learns_what_became_of_its_parents(t: DriverUnderTest) {
    for (text, ends) in [("a", ack()), ("b", fail(T0))] {
        let (f, end) = (format!("f{text}"), format!("end{text}"));
        let jobs = [job(text), failure_job(&f, &[text]), child(&end, &[text])];
        t.put_flow(jobs, T0).await;
        t.act(&f, Action::Cancel, T0).await;
        t.act(&f, requeue(), T0).await;
        assert_eq!(t.state(&f, T0).await, Blocked, "its parent is not terminal");
        t.act(&f, Action::Cancel, T0).await;
        t.run(text, ends, T0).await;
        assert_eq!(t.state(&f, T0).await, Cancelled);
        let expected = if text == "a" { Err(Denied::FlowOver) } else { Ok(Ready) };
        assert_eq!(t.manage(&f, requeue(), T0).await, expected);
        t.take_order(T0).await;
    }
}

async fn a_flow_is_pruned_with_its_failure_jobs(t: DriverUnderTest) {
    t.put_flow([job("a"), failure_job("f", &["a"]).priority(-1)], T0).await;
    t.put_flow([job("b"), failure_job("g", &["b"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("b", ack(), T0).await;
    let all = |now| Prune::new(10, now).done_before(now).dlq_before(now).cancelled_before(now);
    assert_eq!(t.driver.prune(all(at(1_000))).await.expect("prune"), 2, "the one that is done");
    t.run("f", ack(), at(1_000)).await;
    let only_done = Prune::new(10, at(2_000)).done_before(at(2_000));
    assert_eq!(t.driver.prune(only_done).await.expect("prune"), 0, "its tail is dead-lettered");
    assert_eq!(t.driver.prune(all(at(2_000))).await.expect("prune"), 2);
    assert_eq!(t.snapshot(at(2_000)).await.records, []);
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
