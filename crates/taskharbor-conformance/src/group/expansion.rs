//! Expansion: jobs that take the place of the job that expanded into them.

use taskharbor_core::{
    State, Text,
    admin::{Action, Filter},
    driver::{Enqueued, OutputEntry, Settled},
    flow::FlowState,
    job::{FailurePolicy, KeyHold},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, id, ids, job, job_in, join, key,
        list, requeue,
    },
};

use OutputEntry::{Done, Pending};

group! {
    expansion {}
    flows {
        a_plain_job_that_expands_becomes_a_flow_under_its_own_id ["EXP-1"]
        an_expanded_job_is_done_in_the_step_that_stores_its_expansion ["EXP-1"]
        a_job_of_an_expansion_waits_for_its_time_and_in_its_queue ["EXP-1" "RES-1"]
        dependants_of_an_expanded_job_wait_for_the_tail_of_the_expansion ["EXP-2"]
        the_tails_output_is_read_in_place_of_the_expanded_jobs ["EXP-2"]
        an_expansion_that_ends_in_a_join_is_read_as_a_list ["EXP-2" "OUT-2"]
        an_expansion_whose_tail_failed_is_read_as_failed ["EXP-2"]
        the_tail_of_an_expansion_takes_over_the_failure_policy ["EXP-2" "POL-1"]
        all_dependants_of_an_expanded_job_wait_for_the_tail ["EXP-2"]
        a_member_that_expands_within_a_group_holds_its_finalizer ["EXP-2" "FLO-1"]
        an_expansion_that_is_done_at_once_unblocks_in_the_same_step ["EXP-4"]
        an_expansion_of_joins_alone_unblocks_in_the_same_step ["EXP-4" "FLO-6"]
        a_plain_job_that_expands_into_an_empty_join_is_a_flow_that_is_done ["EXP-4" "EXP-1"]
        jobs_of_an_expansion_may_expand ["EXP-5" "EXP-2"]
        expansions_may_be_a_thousand_deep ["EXP-5" "EXP-2"]
        when_the_tail_expands_the_flow_ends_with_the_expansion ["EXP-5"]
        a_flow_whose_expanded_tail_fails_has_failed ["EXP-5" "FLO-7"]
        an_expansion_whose_member_fails_is_blocked ["EXP-1" "FLO-7"]
        a_dependant_cancelled_before_the_expansion_waits_for_its_tail_later ["EXP-2" "REQ-3"]
        an_expansion_repeated_stores_nothing_again ["EXP-6"]
        the_key_of_an_expanded_job_is_held_until_its_expansion_is_done ["KEY-4" "EXP-5"]
        the_key_of_an_expanded_job_is_free_at_once_if_its_expansion_is_done_at_once ["KEY-4" "EXP-4"]
        a_flows_key_is_held_until_the_expansion_of_its_tail_is_done ["KEY-4" "KEY-5" "EXP-5"]
        an_expansion_racing_the_ack_of_another_parent_keeps_the_dependant ["EXP-2" "FLO-8"]
    }
}

async fn a_plain_job_that_expands_becomes_a_flow_under_its_own_id(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), at(5)).await;
    let flow = t.flow("g", at(5)).await;
    assert_eq!(flow.state, FlowState::Running);
    assert_eq!(flow.tail, id("y"));
    assert_eq!(flow.name, None);
    let members = flow.members;
    assert_eq!((members.done, members.ready, members.blocked), (1, 1, 1));
    assert_eq!(members.total(), 3);
    let listed = t.list(Filter::all().flow(id("g")), 10, at(5)).await;
    let listed: Vec<&str> = listed.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(listed, ["g", "x", "y"]);
}

async fn an_expanded_job_is_done_in_the_step_that_stores_its_expansion(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.run("g", expand([job("x").priority(3), child("y", &["x"])]), at(5)).await;
    let expanded = t.record("g", at(5)).await;
    assert_eq!(expanded.state, State::Done);
    assert_eq!(expanded.finished_at, Some(at(5)));
    assert_eq!(expanded.expanded_into, Some(id("y")));
    assert_eq!(expanded.output, None);
    let expansion = t.record("x", at(5)).await;
    assert_eq!(expansion.state, State::Ready);
    assert_eq!(expansion.due_at, Some(at(5)));
    assert_eq!(expansion.job.created_at, at(5));
    assert_eq!(expansion.job.priority, 3);
    let waiting = t.record("y", at(5)).await;
    assert_eq!(waiting.state, State::Blocked);
    assert_eq!(waiting.parents, ids(&["x"]));
    assert_eq!(waiting.pending, 1);
}

async fn a_job_of_an_expansion_waits_for_its_time_and_in_its_queue(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    let later = job_in("other", "x").run_at(at(9));
    t.run("g", expand([later]), T0).await;
    assert_eq!(t.take_from("other", at(8)).await, None);
    let leased = t.take_from("other", at(9)).await.expect("due");
    assert_eq!(leased.job.id, id("x"));
}

async fn dependants_of_an_expanded_job_wait_for_the_tail_of_the_expansion(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), T0).await;
    let waiting = t.record("end", T0).await;
    assert_eq!(waiting.state, State::Blocked);
    assert_eq!(waiting.pending, 1);
    assert_eq!(waiting.parents, ids(&["y"]));
    t.run("x", ack(), at(1)).await;
    assert_eq!(t.state("end", at(1)).await, State::Blocked);
    t.run("y", ack(), at(2)).await;
    assert_eq!(t.record("end", at(2)).await.due_at, Some(at(2)));
}

async fn the_tails_output_is_read_in_place_of_the_expanded_jobs(t: DriverUnderTest) {
    let jobs = [job("a"), job("g"), job("b"), child("end", &["a", "g", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack_with("a"), T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), at(1)).await;
    t.run("b", ack_with("b"), at(1)).await;
    let read = |of_g| [list(3), done_with("a"), of_g, done_with("b")];
    assert_eq!(t.inputs("end").await, read(Pending));
    assert_eq!(t.output("g").await, [Pending]);
    t.run("x", ack_with("x"), at(1)).await;
    t.run("y", ack_with("y"), at(1)).await;
    assert_eq!(t.inputs("end").await, read(done_with("y")));
    assert_eq!(t.output("g").await, [done_with("y")]);
}

async fn an_expansion_that_ends_in_a_join_is_read_as_a_list(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    t.run("g", expand([job("x"), job("y"), join("j", &["y", "x"])]), T0).await;
    t.run("x", ack_with("x"), T0).await;
    t.run("y", ack_with("y"), T0).await;
    let list = [list(2), done_with("y"), done_with("x")];
    assert_eq!(t.output("g").await, list);
    assert_eq!(t.inputs("end").await[1..], list);
}

async fn an_expansion_whose_tail_failed_is_read_as_failed(t: DriverUnderTest) {
    let g = job("g").on_failure(FailurePolicy::Continue);
    t.put_flow([g, child("end", &["g"])], T0).await;
    t.run("g", expand([job("x")]), T0).await;
    t.run("x", fail(T0), T0).await;
    t.take_the("end", T0).await;
    let failed = OutputEntry::Failed { state: State::Dlq, reason: Some(Text::new("gave up")) };
    assert_eq!(t.inputs("end").await, [list(1), failed.clone()]);
    assert_eq!(t.output("g").await, [failed]);
}

async fn the_tail_of_an_expansion_takes_over_the_failure_policy(t: DriverUnderTest) {
    let g = job("g").on_failure(FailurePolicy::Continue);
    t.put_flow([g, child("end", &["g"])], T0).await;
    let x = job("x").on_failure(FailurePolicy::Cancel);
    t.run("g", expand([x]), T0).await;
    assert_eq!(t.record("x", T0).await.job.on_failure, FailurePolicy::Continue);
    t.run("x", fail(T0), T0).await;
    assert_eq!(t.state("end", T0).await, State::Ready);
}

async fn all_dependants_of_an_expanded_job_wait_for_the_tail(t: DriverUnderTest) {
    let jobs = [job("g"), child("b", &["g"]), child("c", &["g"]), join("end", &["b", "c", "g"])];
    t.put_flow(jobs, T0).await;
    t.run("g", expand([job("x")]), T0).await;
    assert_eq!(t.take_order(T0).await, ["x"]);
    let end = t.record("end", T0).await;
    assert_eq!(end.parents, ids(&["b", "c", "x"]));
    assert_eq!(end.pending, 3);
    t.run("x", ack(), at(60)).await;
    assert_eq!(t.take_order(at(60)).await, ["b", "c"]);
    assert_eq!(t.record("end", at(60)).await.pending, 2);
}

async fn a_member_that_expands_within_a_group_holds_its_finalizer(t: DriverUnderTest) {
    t.put_flow([job("g"), job("b"), child("end", &["g", "b"])], T0).await;
    t.run("g", expand([job("x"), job("y"), join("j", &["x", "y"])]), T0).await;
    for text in ["b", "x", "y"] {
        assert_eq!(t.state("end", T0).await, State::Blocked, "before {text}");
        t.run(text, ack(), T0).await;
    }
    t.run("end", ack(), T0).await;
    assert_eq!(t.flow_state("end", T0).await, FlowState::Done);
}

async fn an_expansion_that_is_done_at_once_unblocks_in_the_same_step(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    t.run("g", expand([join("j", &[])]), at(3)).await;
    let end = t.record("end", at(3)).await;
    assert_eq!(end.state, State::Ready);
    assert_eq!(end.due_at, Some(at(3)));
    assert_eq!(end.pending, 0);
    assert_eq!(t.inputs("end").await, [list(1), list(0)]);
}

async fn an_expansion_of_joins_alone_unblocks_in_the_same_step(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    let joins = [join("j", &["k", "l"]), join("k", &[]), join("l", &["k"])];
    t.run("g", expand(joins), T0).await;
    t.take_the("end", T0).await;
    let expected = [list(1), list(2), list(0), list(1), list(0)];
    assert_eq!(t.inputs("end").await, expected);
}

async fn a_plain_job_that_expands_into_an_empty_join_is_a_flow_that_is_done(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.run("g", expand([join("j", &[])]), at(3)).await;
    let flow = t.flow("g", at(3)).await;
    assert_eq!(flow.state, FlowState::Done);
    assert_eq!(flow.finished_at, Some(at(3)));
    assert_eq!(flow.members.done, 2);
    assert_eq!(t.output("g").await, [list(0)]);
}

async fn jobs_of_an_expansion_may_expand(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    t.run("g", expand([job("x")]), T0).await;
    t.run("x", expand([job("y")]), T0).await;
    t.run("y", expand([job("z")]), T0).await;
    assert_eq!(t.record("end", T0).await.parents, ids(&["z"]));
    assert_eq!(t.state("end", T0).await, State::Blocked);
    t.run("z", ack_with("z"), T0).await;
    for text in ["g", "x", "y", "z"] {
        assert_eq!(t.output(text).await, [done_with("z")], "{text}");
    }
    assert_eq!(t.inputs("end").await, [list(1), done_with("z")]);
    t.run("end", ack(), T0).await;
    assert_eq!(t.flow("end", T0).await.members.done, 5);
}

async fn expansions_may_be_a_thousand_deep(t: DriverUnderTest) {
    let step = |n: usize| format!("{n:04}");
    t.put_flow([job("0000"), child("end", &["0000"])], T0).await;
    for n in 0..999 {
        t.run(&step(n), expand([job(&step(n + 1))]), T0).await;
    }
    t.run("0999", ack_with("at last"), T0).await;
    assert_eq!(t.output("0000").await, [done_with("at last")]);
    t.take_the("end", T0).await;
    assert_eq!(t.inputs("end").await, [list(1), done_with("at last")]);
}

async fn when_the_tail_expands_the_flow_ends_with_the_expansion(t: DriverUnderTest) {
    t.put_flow([job("a"), child("end", &["a"])], T0).await;
    t.run("a", ack(), T0).await;
    t.run("end", expand([job("x"), child("y", &["x"])]), at(1)).await;
    let flow = t.flow("end", at(1)).await;
    assert_eq!(flow.tail, id("y"));
    assert_eq!(flow.state, FlowState::Running);
    t.run("x", ack(), at(1)).await;
    t.run("y", ack_with("y"), at(2)).await;
    let flow = t.flow("end", at(2)).await;
    assert_eq!(flow.state, FlowState::Done);
    assert_eq!(flow.finished_at, Some(at(2)));
    assert_eq!(t.output("end").await, [done_with("y")]);
}

async fn a_flow_whose_expanded_tail_fails_has_failed(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.run("g", expand([job("x")]), T0).await;
    t.run("x", fail(T0), T0).await;
    assert_eq!(t.flow_state("g", T0).await, FlowState::Failed);
    t.act("x", requeue(), T0).await;
    assert_eq!(t.flow_state("g", T0).await, FlowState::Running);
    t.run("x", ack(), T0).await;
    assert_eq!(t.flow_state("g", T0).await, FlowState::Done);
}

async fn an_expansion_whose_member_fails_is_blocked(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), T0).await;
    t.run("x", fail(T0), T0).await;
    let flow = t.flow("end", T0).await;
    assert_eq!(flow.state, FlowState::Blocked);
    assert_eq!(flow.members.blocked, 2);
}

async fn a_dependant_cancelled_before_the_expansion_waits_for_its_tail_later(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    let leased = t.take_the("g", T0).await;
    t.act("end", Action::Cancel, T0).await;
    t.apply(&leased, expand([job("x")]), T0).await;
    assert_eq!(t.state("end", T0).await, State::Cancelled);
    assert_eq!(t.act("end", requeue(), T0).await, State::Blocked);
    t.run("x", ack_with("x"), T0).await;
    t.take_the("end", T0).await;
    assert_eq!(t.inputs("end").await, [list(1), done_with("x")]);
}

async fn an_expansion_repeated_stores_nothing_again(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    let expansion = || expand([job("x"), child("y", &["x"])]);
    let leased = t.run("g", expansion(), T0).await;
    let before = t.snapshot(T0).await;
    for again in [expansion(), expand([job("z")])] {
        let answer = t.settle(&leased, again, T0).await;
        assert_eq!(answer, Ok(Settled::AlreadyTerminal));
    }
    assert_eq!(t.snapshot(T0).await, before);
    t.run("x", ack(), T0).await;
    let answer = t.settle(&leased, expansion(), T0).await;
    assert_eq!(answer, Ok(Settled::AlreadyTerminal));
    assert_eq!(t.state("y", T0).await, State::Ready);
}

async fn the_key_of_an_expanded_job_is_held_until_its_expansion_is_done(t: DriverUnderTest) {
    let keyed = |text| {
        let keyed = job(text).idempotency_key(key("k"));
        keyed.key_hold(KeyHold::UntilDone)
    };
    t.put(keyed("g"), T0).await;
    t.run("g", expand([job("x")]), T0).await;
    assert_eq!(t.put(keyed("h"), T0).await, Enqueued::Existing(id("g")));
    t.run("x", expand([job("y"), child("z", &["y"])]), T0).await;
    t.run("y", ack(), T0).await;
    assert_eq!(t.put(keyed("h"), T0).await, Enqueued::Existing(id("g")));
    t.run("z", ack(), T0).await;
    assert_eq!(t.put(keyed("h"), T0).await, Enqueued::Inserted(id("h")));
}

async fn the_key_of_an_expanded_job_is_free_at_once_if_its_expansion_is_done_at_once(
    t: DriverUnderTest,
) {
    let keyed = |text| {
        let keyed = job(text).idempotency_key(key("k"));
        keyed.key_hold(KeyHold::UntilDone)
    };
    t.put(keyed("g"), T0).await;
    t.run("g", expand([join("j", &[])]), T0).await;
    assert_eq!(t.put(keyed("h"), T0).await, Enqueued::Inserted(id("h")));
}

async fn a_flows_key_is_held_until_the_expansion_of_its_tail_is_done(t: DriverUnderTest) {
    let end = child("end", &["a"]).idempotency_key(key("k"));
    t.put_flow([job("a"), end.key_hold(KeyHold::UntilDone)], T0).await;
    t.run("a", ack(), T0).await;
    t.run("end", expand([job("x")]), T0).await;
    t.run("x", fail(T0), T0).await;
    let next = || job("next").idempotency_key(key("k"));
    assert_eq!(t.put(next(), T0).await, Enqueued::Existing(id("end")));
    t.act("x", requeue(), T0).await;
    t.run("x", ack(), T0).await;
    assert_eq!(t.put(next(), T0).await, Enqueued::Inserted(id("next")));
}

async fn an_expansion_racing_the_ack_of_another_parent_keeps_the_dependant(t: DriverUnderTest) {
    for round in 0..12 {
        let name = |text: &str| format!("{text}{round}");
        let end = job(&name("end")).after([id(&name("g")), id(&name("a"))]);
        t.put_flow([job(&name("g")), job(&name("a")), end], T0).await;
        let leased = t.take_many(2, T0).await;
        let transitions = [expand([job(&name("x"))]), ack()];
        let settled = leased.into_iter().zip(transitions).map(|(leased, step)| {
            let t = t.clone();
            async move { t.apply(&leased, step, T0).await }
        });
        at_once(settled).await;
        let end = t.record(&name("end"), T0).await;
        assert_eq!((end.state, end.pending), (State::Blocked, 1));
        t.run(&name("x"), ack(), T0).await;
        t.run(&name("end"), ack(), T0).await;
        assert_eq!(t.output(&name("g")).await, [Done(None)]);
    }
}
