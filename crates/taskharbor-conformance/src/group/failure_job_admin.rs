//! Failure jobs that are cancelled, requeued and pruned.

use taskharbor_core::{
    Admin, State,
    admin::{Action, Prune, Requeue},
    error::Denied,
    flow::FlowState,
    job::FailurePolicy,
};

use super::failure_job::on;
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, failure_job, job, list, requeue,
    },
};

use FailurePolicy::{Cancel, Continue};
use State::{Blocked, Cancelled, Ready};

group! {
    failure_job_admin {}
    flows {
        cancelling_a_flow_cancels_its_failure_jobs ["FAI-6" "CAN-7"]
        a_failure_job_that_was_not_needed_is_requeued_only_when_detached ["FAI-7" "REQ-5"]
        a_detached_failure_job_may_expand ["FAI-7" "REQ-5" "EXP-1"]
        a_failed_failure_job_is_requeued_in_every_state_of_the_tail ["REQ-1" "REQ-4" "FAI-8"]
        a_cancelled_failure_job_learns_what_became_of_its_parents ["FAI-1" "FAI-7" "REQ-3"]
        a_flow_is_pruned_with_its_failure_jobs ["PRU-4" "FAI-1"]
    }
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

async fn a_failed_failure_job_is_requeued_in_every_state_of_the_tail(t: DriverUnderTest) {
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
