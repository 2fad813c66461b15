//! Policies meeting each other, requeueing, and counts that must not drift.

use taskharbor_core::{
    NewJob, State, admin::Action, error::Denied, flow::FlowState, job::FailurePolicy,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        T0, ack, ack_with, at, child, done_with, fail, id, job, job_in, join, list, requeue,
    },
};

use FailurePolicy::{Block, Cancel, Continue, FailFast};
use State::{Blocked, Cancelled, Done, Ready};

group! {
    policy_mix {}
    flows {
        an_edge_is_not_spent_twice ["POL-4"]
        a_member_that_fails_again_and_again_unblocks_once ["POL-4"]
        an_unblocked_dependant_runs_once_though_the_member_succeeds_later ["POL-4"]
        a_join_behind_a_failure_is_done_once_though_the_member_succeeds_later ["POL-4"]
        an_unblocked_dependant_that_failed_needs_no_parent_when_requeued ["POL-4" "REQ-3"]
        a_dependant_both_unblocked_and_cancelled_is_cancelled ["POL-2" "POL-6"]
        a_member_cancelled_for_another_fails_fast_if_that_is_its_policy ["POL-1" "POL-3"]
        a_join_that_continues_stops_a_cancellation ["POL-2" "POL-6"]
        a_join_behind_a_member_that_continues_is_done_and_beside_a_cancellation_is_not ["POL-6" "FLO-6"]
        fail_fast_cancels_a_join_before_continue_could_complete_it ["POL-6" "POL-3"]
        a_fail_fast_met_late_in_a_cancellation_still_comes_before_continue ["POL-6" "POL-3"]
        a_member_that_continues_among_those_fail_fast_cancels_spends_its_edges ["POL-6" "POL-4"]
        the_order_of_the_members_does_not_matter_to_a_cancellation ["POL-6"]
        two_failing_parents_cancel_their_dependant_once ["POL-2"]
        the_failing_middle_of_a_chain_in_a_group_decides_its_finalizer
            ["POL-1" "POL-2" "POL-3" "POL-4"]
        a_cancelled_chain_can_be_brought_back_from_its_tail ["POL-2" "REQ-3" "REQ-7"]
        a_flow_that_failed_fast_can_be_brought_back_from_its_tail ["POL-3" "REQ-3"]
        acks_count_for_a_dependant_that_is_cancelled ["REQ-3" "FLO-2"]
        a_requeued_join_whose_parents_are_done_is_done_at_once ["REQ-3" "FLO-6"]
        a_policy_that_cancels_leaves_spent_edges_alone ["POL-2" "POL-4"]
        racing_failures_of_parents_unblock_their_dependant_once ["POL-4" "FLO-8"]
        a_cancellation_racing_an_ack_leaves_no_mixture_behind ["POL-2" "FLO-8"]
        fail_fast_racing_an_ack_leaves_nothing_to_run ["POL-3" "FLO-8"]
        a_member_that_is_terminal_already_passes_no_cancellation_on ["POL-2"]
    }
}

fn on(policy: FailurePolicy, text: &str) -> NewJob {
    job(text).on_failure(policy)
}

/// The state of a job and how many parents it waits for.
async fn waits(t: &DriverUnderTest, text: &str) -> (State, usize) {
    let record = t.record(text, at(1_000)).await;
    (record.state, record.pending)
}

async fn an_edge_is_not_spent_twice(t: DriverUnderTest) {
    let jobs = [on(Continue, "a"), job("b"), child("c", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(waits(&t, "c").await, (Blocked, 1));
    t.act("a", requeue(), T0).await;
    assert_eq!(waits(&t, "c").await, (Blocked, 1));
    t.run("a", ack(), T0).await;
    assert_eq!(waits(&t, "c").await, (Blocked, 1));
    t.run("b", ack(), T0).await;
    assert_eq!(waits(&t, "c").await, (Ready, 0));
    t.run("c", ack(), T0).await;
    assert_eq!(t.take(T0).await, None);
}

async fn a_member_that_fails_again_and_again_unblocks_once(t: DriverUnderTest) {
    let jobs = [on(Continue, "a"), job("b"), child("c", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    for _ in 0..3 {
        t.run("a", fail(T0), T0).await;
        assert_eq!(waits(&t, "c").await, (Blocked, 1));
        t.act("a", requeue(), T0).await;
    }
    t.act("a", Action::Cancel, T0).await;
    assert_eq!(waits(&t, "c").await, (Blocked, 1));
}

async fn an_unblocked_dependant_runs_once_though_the_member_succeeds_later(t: DriverUnderTest) {
    t.put_flow([on(Continue, "a"), child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    let leased = t.take_the("b", T0).await;
    t.act("a", requeue(), T0).await;
    t.run("a", ack_with("late"), T0).await;
    assert_eq!(waits(&t, "b").await, (State::Inflight, 0));
    t.apply(&leased, ack(), T0).await;
    assert_eq!(t.take(T0).await, None);
    assert_eq!(t.record("b", T0).await.job.deliveries, 1);
}

async fn a_join_behind_a_failure_is_done_once_though_the_member_succeeds_later(t: DriverUnderTest) {
    let jobs = [on(Continue, "a"), join("j", &["a"]), child("b", &["j"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", requeue(), at(1)).await;
    let before = t.record("j", at(1)).await;
    t.run("b", ack(), at(1)).await;
    t.run("a", ack(), at(2)).await;
    assert_eq!(t.record("j", at(2)).await, before);
    assert_eq!(t.take(at(2)).await, None);
}

async fn an_unblocked_dependant_that_failed_needs_no_parent_when_requeued(t: DriverUnderTest) {
    t.put_flow([on(Continue, "a"), child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.act("b", requeue(), T0).await, Ready);
    assert_eq!(waits(&t, "b").await, (Ready, 0));
}

async fn a_dependant_both_unblocked_and_cancelled_is_cancelled(t: DriverUnderTest) {
    let jobs = [
        on(Cancel, "a"),
        on(Continue, "b").after([id("a")]),
        on(Block, "c").after([id("a")]),
        child("end", &["b", "c"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.states(&["b", "c", "end"], T0).await, [Cancelled; 3]);
    assert_eq!(t.take(T0).await, None);
}

async fn a_member_cancelled_for_another_fails_fast_if_that_is_its_policy(t: DriverUnderTest) {
    let jobs = [
        on(Cancel, "a"),
        on(FailFast, "b").after([id("a")]),
        job("elsewhere"),
        child("end", &["b", "elsewhere"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.states(&["b", "elsewhere", "end"], T0).await, [Cancelled; 3]);
}

async fn a_join_that_continues_stops_a_cancellation(t: DriverUnderTest) {
    let jobs = [on(Cancel, "a"), join("j", &["a"]).on_failure(Continue), child("b", &["j"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.states(&["j", "b"], T0).await, [Cancelled, Ready]);
}

async fn a_join_behind_a_member_that_continues_is_done_and_beside_a_cancellation_is_not(
    t: DriverUnderTest,
) {
    let jobs = [
        on(Cancel, "a"),
        on(Continue, "b").after([id("a")]),
        join("behind", &["b"]),
        join("beside", &["b", "a"]),
        child("end", &["behind", "beside"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    let states = t.states(&["b", "behind", "beside", "end"], T0).await;
    assert_eq!(states, [Cancelled, Done, Cancelled, Cancelled]);
}

async fn fail_fast_cancels_a_join_before_continue_could_complete_it(t: DriverUnderTest) {
    let jobs = [
        on(FailFast, "a"),
        on(Continue, "b").after([id("a")]),
        join("j", &["b"]),
        child("end", &["j"]),
    ];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.states(&["b", "j", "end"], T0).await, [Cancelled; 3]);
}

async fn a_fail_fast_met_late_in_a_cancellation_still_comes_before_continue(t: DriverUnderTest) {
    for n in 0..2 {
        let name = |text: &str| format!("{text}{n}");
        let mut middle = [
            on(Continue, &name("b")).after([id(&name("a"))]),
            on(FailFast, &name("c")).after([id(&name("a"))]),
        ];
        middle.rotate_left(n);
        let (b, c, j) = (name("b"), name("c"), name("j"));
        let ends = [join(&j, &[&b]), child(&name("end"), &[&j, &c])];
        let first = on(Cancel, &name("a"));
        t.put_flow([first].into_iter().chain(middle).chain(ends), T0).await;
        t.run(&name("a"), fail(T0), T0).await;
        let states = t.states(&[&b, &c, &j, &name("end")], T0).await;
        assert_eq!(states, [Cancelled; 4]);
    }
}

async fn a_member_that_continues_among_those_fail_fast_cancels_spends_its_edges(
    t: DriverUnderTest,
) {
    let jobs = [on(FailFast, "a"), on(Continue, "b"), child("end", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(waits(&t, "end").await, (Cancelled, 1));
    t.act("end", requeue(), T0).await;
    t.act("a", requeue(), T0).await;
    t.run("a", ack(), T0).await;
    assert_eq!(waits(&t, "end").await, (Ready, 0));
}

async fn the_order_of_the_members_does_not_matter_to_a_cancellation(t: DriverUnderTest) {
    for n in 0..6 {
        let name = |text: &str| format!("{text}{n}");
        let after = |text: &str, parents: &[&str]| {
            job(&name(text)).after(parents.iter().map(|parent| id(&name(parent))))
        };
        let mut jobs = vec![
            after("released", &["a"]).on_failure(Continue),
            after("held", &["a"]),
            after("met", &["released", "held"]),
            after("free", &["released"]),
            after("end", &["met", "free"]),
            on(Cancel, &name("a")),
        ];
        jobs.rotate_left(n);
        t.put_flow(jobs, T0).await;
        t.run(&name("a"), fail(T0), T0).await;
        let mut states = Vec::new();
        for text in ["released", "held", "met", "free", "end"] {
            states.push(t.state(&name(text), T0).await);
        }
        assert_eq!(states, [Cancelled, Cancelled, Cancelled, Ready, Cancelled]);
        t.run(&name("free"), ack(), T0).await;
    }
}

async fn two_failing_parents_cancel_their_dependant_once(t: DriverUnderTest) {
    let jobs = [on(Cancel, "a"), on(Cancel, "b"), child("c", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    let cancelled = t.record("c", at(2)).await;
    t.run("b", fail(at(2)), at(2)).await;
    assert_eq!(t.record("c", at(2)).await, cancelled);
}

async fn the_failing_middle_of_a_chain_in_a_group_decides_its_finalizer(t: DriverUnderTest) {
    for (policy, expected) in
        [(Block, Blocked), (Cancel, Cancelled), (FailFast, Cancelled), (Continue, Ready)]
    {
        let name = |text: &str| format!("{policy:?} {text}");
        let after = |text: &str, parent: &str| job(&name(text)).after([id(&name(parent))]);
        // All that comes after the middle says what the middle says.
        let jobs = [
            job(&name("first")),
            after("middle", "first").on_failure(policy),
            after("last", "middle").on_failure(policy),
            job(&name("beside")),
            job_in("other", &name("end")).after([id(&name("last")), id(&name("beside"))]),
        ];
        t.put_flow(jobs, T0).await;
        t.run(&name("first"), ack(), T0).await;
        t.run(&name("middle"), fail(T0), T0).await;
        if policy == Continue {
            t.run(&name("last"), ack(), T0).await;
        }
        if policy != FailFast {
            t.run(&name("beside"), ack(), T0).await;
        }
        assert_eq!(t.state(&name("end"), T0).await, expected, "{policy:?}");
    }
}

async fn a_cancelled_chain_can_be_brought_back_from_its_tail(t: DriverUnderTest) {
    let jobs = [on(Cancel, "a"), child("b", &["a"]), child("c", &["b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.manage("a", requeue(), T0).await, Err(Denied::FlowOver));
    assert_eq!(t.act("c", requeue(), T0).await, Blocked);
    assert_eq!(t.act("b", requeue(), T0).await, Blocked);
    assert_eq!(t.act("a", requeue(), T0).await, Ready);
    for text in ["a", "b", "c"] {
        t.run(text, ack_with(text), T0).await;
    }
    assert_eq!(t.flow_state("c", T0).await, FlowState::Done);
    let read = [list(1), done_with("b")];
    assert_eq!(t.inputs("c").await, read);
}

async fn a_flow_that_failed_fast_can_be_brought_back_from_its_tail(t: DriverUnderTest) {
    let jobs = [on(FailFast, "a"), job("b"), child("end", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    for (text, state) in [("end", Blocked), ("a", Ready), ("b", Ready)] {
        assert_eq!(t.act(text, requeue(), T0).await, state, "{text}");
    }
    for text in ["a", "b", "end"] {
        t.run(text, ack(), T0).await;
    }
    assert_eq!(t.flow_state("end", T0).await, FlowState::Done);
}

async fn acks_count_for_a_dependant_that_is_cancelled(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), child("c", &["a", "b"])], T0).await;
    t.act("c", Action::Cancel, T0).await;
    t.run("a", ack(), T0).await;
    assert_eq!(t.state("c", T0).await, Cancelled);
    assert_eq!(t.act("c", requeue(), T0).await, Blocked);
    assert_eq!(waits(&t, "c").await, (Blocked, 1));
    t.act("c", Action::Cancel, T0).await;
    t.run("b", ack(), T0).await;
    assert_eq!(t.act("c", requeue(), T0).await, Ready);
    t.run("c", ack(), T0).await;
}

async fn a_requeued_join_whose_parents_are_done_is_done_at_once(t: DriverUnderTest) {
    t.put_flow([job("a"), join("j", &["a"]), child("b", &["j"])], T0).await;
    t.act("j", Action::Cancel, T0).await;
    t.run("a", ack(), T0).await;
    assert_eq!(t.states(&["j", "b"], T0).await, [Cancelled, Blocked]);
    assert_eq!(t.act("j", requeue(), at(1)).await, Done);
    let record = t.record("b", at(1)).await;
    assert_eq!((record.state, record.due_at), (Ready, Some(at(1))));
}

async fn a_policy_that_cancels_leaves_spent_edges_alone(t: DriverUnderTest) {
    let jobs = [on(Continue, "a"), on(Cancel, "b"), child("c", &["a"]), child("end", &["b", "c"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.states(&["c", "end"], T0).await, [Ready, Cancelled]);
}

async fn racing_failures_of_parents_unblock_their_dependant_once(t: DriverUnderTest) {
    for round in 0..12 {
        let name = |n: usize| format!("{round}-{n}");
        let members = (0..8).map(|n| on(Continue, &name(n)));
        let end = job(&name(8)).after((0..8).map(|n| id(&name(n))));
        t.put_flow(members.chain([end]), T0).await;
        let leased = t.take_many(8, T0).await;
        let settled = (0..).zip(leased).map(|(n, leased)| {
            let t = t.clone();
            let step = if n % 2 == 0 { fail(T0) } else { ack() };
            async move { t.apply(&leased, step, T0).await }
        });
        at_once(settled).await;
        assert_eq!(waits(&t, &name(8)).await, (Ready, 0));
        t.run(&name(8), ack(), T0).await;
        assert_eq!(t.take(T0).await, None);
    }
}

async fn a_cancellation_racing_an_ack_leaves_no_mixture_behind(t: DriverUnderTest) {
    for round in 0..12 {
        let (a, b, end) = (format!("a{round}"), format!("b{round}"), format!("end{round}"));
        let tail = job(&end).after([id(&a), id(&b)]);
        t.put_flow([on(Cancel, &a), job(&b), tail], T0).await;
        let leased = t.take_many(2, T0).await;
        let steps = [fail(T0), ack()];
        let settled = leased.into_iter().zip(steps).map(|(leased, step)| {
            let t = t.clone();
            async move { t.apply(&leased, step, T0).await }
        });
        at_once(settled).await;
        let states = t.states(&[&b, &end], T0).await;
        assert_eq!(states, [Done, Cancelled]);
        assert_eq!(t.flow_state(&end, T0).await, FlowState::Cancelled);
        assert_eq!(t.take(T0).await, None);
    }
}

async fn fail_fast_racing_an_ack_leaves_nothing_to_run(t: DriverUnderTest) {
    for round in 0..12 {
        let name = |text: &str| format!("{text}{round}");
        let after = |text: &str, parents: &[&str]| {
            job(&name(text)).after(parents.iter().map(|parent| id(&name(parent))))
        };
        let jobs = [
            on(FailFast, &name("a")),
            job(&name("b")),
            after("c", &["b"]),
            after("end", &["a", "c"]),
        ];
        t.put_flow(jobs, T0).await;
        let leased = t.take_many(2, T0).await;
        let steps = [fail(T0), ack()];
        let settled = leased.into_iter().zip(steps).map(|(leased, step)| {
            let t = t.clone();
            async move { t.apply(&leased, step, T0).await }
        });
        at_once(settled).await;
        let states = t.states(&[&name("b"), &name("c"), &name("end")], T0).await;
        assert_eq!(states, [Done, Cancelled, Cancelled]);
        assert_eq!(t.take(T0).await, None);
    }
}

async fn a_member_that_is_terminal_already_passes_no_cancellation_on(t: DriverUnderTest) {
    let jobs = [on(Cancel, "a"), child("b", &["a"]), child("c", &["b"])];
    t.put_flow(jobs, T0).await;
    t.act("b", Action::Cancel, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.states(&["b", "c"], T0).await, [Cancelled, Blocked]);
}
