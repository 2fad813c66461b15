//! Failure jobs in sets and expansions.

use taskharbor_core::{
    Admin, NewJob, State,
    error::{InvalidTransition, Refusal, Rejected},
    flow::FlowState,
    job::{Condition, JobSet},
};

use super::failure_job::assert_not_needed;
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, ack_with, child, done_with, expand, fail, failure_job, gave_up, id, ids, job,
        job_in, join, key, list,
    },
};

use State::Blocked;

group! {
    failure_job_set {}
    flows {
        a_failure_job_may_expand ["EXP-1" "FAI-1"]
        sets_with_impossible_failure_jobs_are_rejected ["FAI-4" "FLO-3"]
        expansions_with_impossible_failure_jobs_are_refused ["FAI-4" "EXP-3"]
        a_failure_job_is_never_the_tail ["FAI-4" "FLO-4"]
        a_failure_job_waits_for_the_tail_of_its_parents_expansion ["FAI-5" "EXP-2"]
        an_expansion_that_is_done_at_once_makes_a_failure_job_not_needed ["FAI-5" "EXP-4"]
        an_expansion_may_have_failure_jobs_of_its_own ["FAI-1" "FAI-2" "EXP-1"]
    }
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
