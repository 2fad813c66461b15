//! Eviction of workers that run members of flows.

use taskharbor_core::{State, admin::Action, error::Refusal, flow::FlowState, job::FailurePolicy};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, ack_with, at, child, done_with, expand, fail, failure_job, id, job, list},
};

group! {
    evict_flow {}
    flows {
        an_evicted_member_runs_again_and_unblocks_its_dependants_once ["EVI-1" "FLO-1" "FLO-2"]
        an_evicted_member_cannot_expand ["EVI-1" "EXP-1" "REF-2"]
        a_marked_member_is_cancelled_with_all_consequences ["EVI-1" "LEA-5" "POL-2" "FAI-1"]
        an_evicted_member_of_a_cancelled_flow_is_cancelled ["EVI-1" "CAN-7" "LEA-5"]
        members_that_other_workers_run_go_on ["EVI-2" "FLO-1"]
    }
}

async fn an_evicted_member_runs_again_and_unblocks_its_dependants_once(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"]), failure_job("f", &["a"])], T0).await;
    let first = t.take_the_as("w", "a", T0).await;
    assert_eq!(t.evict("w", at(1)).await, 1);
    // The end of a lease is neither success nor failure.
    assert_eq!(t.states(&["b", "f"], at(1)).await, [State::Blocked, State::Blocked]);
    assert_eq!(t.flow_state("b", at(1)).await, FlowState::Running);
    t.refuses(&first, Refusal::LeaseExpired, at(1)).await;
    let again = t.take_the_as("v", "a", at(1)).await;
    t.refuses(&first, Refusal::LeaseMismatch, at(1)).await;
    t.apply(&again, ack_with("output"), at(1)).await;
    assert_eq!(t.states(&["b", "f"], at(1)).await, [State::Ready, State::Cancelled]);
    assert_eq!(t.inputs("b").await, [list(1), done_with("output")]);
    t.take_the_as("v", "b", at(1)).await;
    assert_eq!(t.take(at(1)).await, None);
}

async fn an_evicted_member_cannot_expand(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    let leased = t.take_the_as("w", "a", T0).await;
    t.evict("w", at(1)).await;
    let answer = t.settle(&leased, expand([job("x")]), at(1)).await;
    assert_eq!(answer, Err(Refusal::LeaseExpired));
    assert_eq!(t.find("x", at(1)).await, None);
    let again = t.take_the_as("v", "a", at(1)).await;
    t.apply(&again, expand([job("x")]), at(1)).await;
    t.take_the_as("v", "x", at(1)).await;
}

async fn a_marked_member_is_cancelled_with_all_consequences(t: DriverUnderTest) {
    let first = job("a").on_failure(FailurePolicy::Cancel);
    t.put_flow([first, child("b", &["a"]), failure_job("f", &["a"])], T0).await;
    t.take_the_as("w", "a", T0).await;
    t.act("a", Action::Cancel, T0).await;
    t.evict("w", at(1)).await;
    assert_eq!(t.states(&["a", "b"], at(1)).await, [State::Inflight, State::Blocked]);
    let granted = t.take(at(1)).await;
    let states = t.states(&["a", "b"], at(1)).await;
    assert_eq!(states, [State::Cancelled, State::Cancelled]);
    // A driver may grant in the same call what it has unblocked there.
    if granted.is_none() {
        t.take_the("f", at(1)).await;
    } else {
        assert_eq!(granted.map(|it| it.job.id), Some(id("f")));
    }
}

async fn an_evicted_member_of_a_cancelled_flow_is_cancelled(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.take_the_as("w", "a", T0).await;
    t.act("b", Action::CancelFlow, T0).await;
    t.evict("w", at(1)).await;
    assert_eq!(t.take(at(1)).await, None);
    assert_eq!(t.flow_state("b", at(1)).await, FlowState::Cancelled);
    assert_eq!(t.state("a", at(1)).await, State::Cancelled);
}

async fn members_that_other_workers_run_go_on(t: DriverUnderTest) {
    let first = job("a").on_failure(FailurePolicy::FailFast);
    t.put_flow([first, job("b"), child("c", &["a", "b"])], T0).await;
    t.take_the_as("w", "a", T0).await;
    let b = t.take_the_as("v", "b", T0).await;
    assert_eq!(t.evict("w", at(1)).await, 1);
    t.apply(&b, ack(), at(1)).await;
    let a = t.take_the_as("u", "a", at(1)).await;
    assert_eq!(t.state("c", at(1)).await, State::Blocked);
    t.apply(&a, fail(at(1)), at(1)).await;
    assert_eq!(t.state("c", at(1)).await, State::Cancelled);
}
