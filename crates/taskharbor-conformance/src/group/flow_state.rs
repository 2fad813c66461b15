//! Flows as people see them: where each stands, and lists of them.

use taskharbor_core::{
    Admin, NewJob, State,
    admin::{Action, Cursor, StateCounts},
    driver::Enqueued,
    error::{Denied, InvalidRequest},
    flow::{FlowRecord, FlowState, ListFlows},
    job::{FailurePolicy, JobSet},
    name::FlowName,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, at, child, fail, id, invalid, job, join, key, requeue, retry},
};

group! {
    flow_state {
        a_page_of_flows_has_one_to_a_thousand ["ADM-9"]
    }
    flows {
        a_flow_is_known_by_its_tail ["ADM-9" "FLO-7"]
        nothing_else_is_a_flow ["ADM-9"]
        members_know_their_flow ["ADM-9" "ADM-1"]
        a_flow_is_running_while_a_member_is_ready_scheduled_or_inflight ["FLO-7"]
        a_flow_whose_tail_is_done_is_done ["FLO-7"]
        a_flow_whose_tail_is_dead_lettered_has_failed ["FLO-7"]
        a_flow_whose_tail_is_cancelled_is_cancelled ["FLO-7"]
        a_flow_with_no_job_to_run_and_a_blocked_member_is_blocked ["FLO-7"]
        a_flow_with_a_blocked_member_is_blocked_even_if_its_tail_is_terminal ["FLO-7"]
        a_flow_is_not_blocked_while_another_member_can_run ["FLO-7"]
        a_blocked_flow_whose_member_is_requeued_runs_again ["FLO-7" "POL-1"]
        a_failed_flow_whose_tail_is_requeued_is_not_over_any_more ["FLO-7"]
        a_flow_is_done_though_a_member_failed_if_its_tail_is ["FLO-7"]
        a_flow_ends_with_its_last_member_even_after_its_tail ["FLO-7"]
        a_flow_whose_tail_is_cancelled_runs_while_a_member_is_inflight ["FLO-7"]
        flows_are_listed_in_the_order_in_which_they_began ["ADM-9"]
        the_flow_that_began_last_can_be_listed_first ["ADM-9" "ADM-13"]
        flows_are_listed_by_state ["ADM-9" "FLO-7"]
        flows_are_listed_by_name_and_by_name_and_state ["ADM-9"]
        a_cursor_that_is_none_lists_no_flows ["ADM-9"]
        a_purged_flow_is_gone_with_all_its_members ["ADM-8"]
        a_purged_flow_leaves_its_ids_and_its_key_free ["ADM-8" "KEY-3"]
        a_flow_that_is_not_over_is_not_purged ["ADM-8"]
        what_is_no_flow_is_not_purged_as_one ["ADM-8"]
    }
}

/// How many members are in each of these states, and none in the others.
fn counts(of: &[(State, usize)]) -> StateCounts {
    let mut counts = StateCounts::default();
    for (state, count) in of {
        *counts.get_mut(*state) = *count;
    }
    counts
}

fn name(text: &str) -> FlowName {
    FlowName::new(text).expect("a valid name")
}

fn pair(texts: [&str; 2], policy: FailurePolicy) -> [NewJob; 2] {
    let first = job(texts[0]).on_failure(policy);
    [first, child(texts[1], &[texts[0]])]
}

/// All flows that match, page by page.
async fn list(t: &DriverUnderTest, mut request: ListFlows) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let page = t.driver.list_flows(request.clone()).await;
        let page = page.expect("list_flows");
        assert!(page.items.len() <= request.limit, "more than a page");
        all.extend(page.items.iter().map(|flow| flow.id.to_string()));
        assert!(all.len() <= 1_000, "the list does not end");
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => return all,
        }
    }
}

async fn a_flow_is_known_by_its_tail(t: DriverUnderTest) {
    let jobs = vec![child("b", &["a"]), job("a")];
    let flow = JobSet::named_flow(name("nightly"), jobs);
    t.enqueue_set(flow, T0).await.expect("not rejected");
    let members = counts(&[(State::Ready, 1), (State::Blocked, 1)]);
    let tail = State::Blocked;
    let named = Some(name("nightly"));
    let expected = FlowRecord::new(id("b"), T0, (id("b"), tail), members, None).named(named);
    assert_eq!(t.flow("b", at(9)).await, expected);
    assert_eq!(expected.state, FlowState::Running);
}

async fn nothing_else_is_a_flow(t: DriverUnderTest) {
    t.put(job("plain"), T0).await;
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    for text in ["plain", "a", "unknown"] {
        let flow = t.driver.flow(id(text), T0).await.expect("flow");
        assert_eq!(flow, None, "{text}");
    }
}

async fn members_know_their_flow(t: DriverUnderTest) {
    t.put_flow([job("a"), join("j", &["a"]), child("b", &["j"])], T0).await;
    for text in ["a", "j", "b"] {
        assert_eq!(t.record(text, T0).await.job.flow, Some(id("b")), "{text}");
    }
}

async fn a_flow_is_running_while_a_member_is_ready_scheduled_or_inflight(t: DriverUnderTest) {
    let later = job("a").run_at(at(10));
    t.put_flow([later, child("b", &["a"])], T0).await;
    let blocked = (State::Blocked, 1);
    let flow = t.flow("b", at(9)).await;
    assert_eq!(flow.members, counts(&[(State::Scheduled, 1), blocked]));
    assert_eq!(flow.state, FlowState::Running);
    let flow = t.flow("b", at(10)).await;
    assert_eq!(flow.members, counts(&[(State::Ready, 1), blocked]));
    assert_eq!(flow.state, FlowState::Running);
    t.take_the("a", at(10)).await;
    let flow = t.flow("b", at(1_000)).await;
    assert_eq!(flow.members, counts(&[(State::Inflight, 1), blocked]));
    assert_eq!(flow.state, FlowState::Running);
}

async fn a_flow_whose_tail_is_done_is_done(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Block), T0).await;
    t.run("a", ack(), at(1)).await;
    assert_eq!(t.flow("b", at(1)).await.finished_at, None);
    t.run("b", ack(), at(2)).await;
    let flow = t.flow("b", at(3)).await;
    assert_eq!(flow.state, FlowState::Done);
    assert_eq!(flow.finished_at, Some(at(2)));
    assert_eq!(flow.members, counts(&[(State::Done, 2)]));
}

async fn a_flow_whose_tail_is_dead_lettered_has_failed(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Block), T0).await;
    t.run("a", ack(), at(1)).await;
    t.run("b", fail(at(2)), at(2)).await;
    let flow = t.flow("b", at(3)).await;
    assert_eq!(flow.state, FlowState::Failed);
    assert_eq!(flow.finished_at, Some(at(2)));
    assert_eq!(flow.members, counts(&[(State::Done, 1), (State::Dlq, 1)]));
}

async fn a_flow_whose_tail_is_cancelled_is_cancelled(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Cancel), T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    let flow = t.flow("b", at(3)).await;
    assert_eq!(flow.state, FlowState::Cancelled);
    assert_eq!(flow.finished_at, Some(at(1)));
    let members = counts(&[(State::Dlq, 1), (State::Cancelled, 1)]);
    assert_eq!(flow.members, members);
}

async fn a_flow_with_no_job_to_run_and_a_blocked_member_is_blocked(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Block), T0).await;
    t.put_flow(pair(["c", "d"], FailurePolicy::Block), T0).await;
    t.run("a", fail(at(1)), at(1)).await;
    t.act("c", Action::Cancel, at(1)).await;
    for (text, state) in [("b", State::Dlq), ("d", State::Cancelled)] {
        let flow = t.flow(text, at(1)).await;
        assert_eq!(flow.state, FlowState::Blocked);
        assert_eq!(flow.finished_at, None);
        assert_eq!(flow.members, counts(&[(state, 1), (State::Blocked, 1)]));
    }
}

async fn a_flow_with_a_blocked_member_is_blocked_even_if_its_tail_is_terminal(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"]), child("c", &["b"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("c", Action::Cancel, T0).await;
    let flow = t.flow("c", T0).await;
    assert_eq!(flow.state, FlowState::Blocked);
    assert_eq!(flow.finished_at, None);
}

async fn a_flow_is_not_blocked_while_another_member_can_run(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), child("c", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.flow_state("c", T0).await, FlowState::Running);
    t.run("b", retry(Some(at(9)), T0), T0).await;
    assert_eq!(t.flow_state("c", T0).await, FlowState::Running);
    t.run("b", ack(), at(9)).await;
    assert_eq!(t.flow_state("c", at(9)).await, FlowState::Blocked);
}

async fn a_blocked_flow_whose_member_is_requeued_runs_again(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Block), T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", requeue(), at(1)).await;
    assert_eq!(t.flow_state("b", at(1)).await, FlowState::Running);
    t.run("a", ack(), at(1)).await;
    t.run("b", ack(), at(1)).await;
    assert_eq!(t.flow_state("b", at(1)).await, FlowState::Done);
}

async fn a_failed_flow_whose_tail_is_requeued_is_not_over_any_more(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Block), T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", fail(T0), T0).await;
    t.act("b", requeue(), at(1)).await;
    let flow = t.flow("b", at(1)).await;
    assert_eq!(flow.state, FlowState::Running);
    assert_eq!(flow.finished_at, None);
}

async fn a_flow_is_done_though_a_member_failed_if_its_tail_is(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Continue), T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("b", ack(), at(1)).await;
    let flow = t.flow("b", at(1)).await;
    assert_eq!(flow.state, FlowState::Done);
    assert_eq!(flow.members, counts(&[(State::Done, 1), (State::Dlq, 1)]));
}

async fn a_flow_ends_with_its_last_member_even_after_its_tail(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Continue), T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", requeue(), at(1)).await;
    t.run("b", ack(), at(1)).await;
    let flow = t.flow("b", at(1)).await;
    assert_eq!(flow.state, FlowState::Running);
    assert_eq!(flow.finished_at, None);
    t.run("a", ack(), at(5)).await;
    let flow = t.flow("b", at(6)).await;
    assert_eq!(flow.state, FlowState::Done);
    assert_eq!(flow.finished_at, Some(at(5)));
}

async fn a_flow_whose_tail_is_cancelled_runs_while_a_member_is_inflight(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::FailFast);
    t.put_flow([a, job("b"), child("c", &["a", "b"])], T0).await;
    let leased = t.take_many(2, T0).await;
    t.apply(&leased[0], fail(T0), T0).await;
    assert_eq!(t.state("c", T0).await, State::Cancelled);
    assert_eq!(t.flow_state("c", T0).await, FlowState::Running);
    t.apply(&leased[1], ack(), at(4)).await;
    let flow = t.flow("c", at(4)).await;
    assert_eq!(flow.state, FlowState::Cancelled);
    assert_eq!(flow.finished_at, Some(at(4)));
}

async fn flows_are_listed_in_the_order_in_which_they_began(t: DriverUnderTest) {
    let names = ["e", "a", "d", "b", "c"];
    for (n, text) in (0..).zip(names) {
        t.put(job(&format!("plain {n}")), at(n)).await;
        let first = format!("first of {text}");
        t.put_flow([job(&first), child(text, &[&first])], at(n)).await;
    }
    for limit in [1, 2, 3, 4, 5, 6, 1_000] {
        let all = list(&t, ListFlows::new(limit, at(9))).await;
        assert_eq!(all, names, "{limit} at a time");
    }
}

async fn flows_are_listed_by_state(t: DriverUnderTest) {
    use FailurePolicy::{Block, Cancel};
    t.put_flow(pair(["done-1", "done"], Block), T0).await;
    t.run("done-1", ack(), T0).await;
    t.run("done", ack(), T0).await;
    t.put_flow(pair(["failed-1", "failed"], Block), T0).await;
    t.run("failed-1", ack(), T0).await;
    t.run("failed", fail(T0), T0).await;
    t.put_flow(pair(["held-1", "held"], Block), T0).await;
    t.run("held-1", fail(T0), T0).await;
    t.put_flow(pair(["over-1", "over"], Cancel), T0).await;
    t.run("over-1", fail(T0), T0).await;
    t.put_flow(pair(["busy-1", "busy"], Block), T0).await;
    for (state, expected) in [
        (FlowState::Running, "busy"),
        (FlowState::Blocked, "held"),
        (FlowState::Done, "done"),
        (FlowState::Failed, "failed"),
        (FlowState::Cancelled, "over"),
    ] {
        let request = ListFlows::new(1, T0).state(state);
        assert_eq!(list(&t, request).await, [expected]);
    }
}

async fn flows_are_listed_by_name_and_by_name_and_state(t: DriverUnderTest) {
    for (text, named) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "X"), ("e", "x")] {
        let flow = JobSet::named_flow(name(named), vec![job(text)]);
        t.enqueue_set(flow, T0).await.expect("not rejected");
    }
    t.put_flow([job("nameless")], T0).await;
    t.run("a", ack(), T0).await;
    for limit in [1, 2, 3, 1_000] {
        let request = ListFlows::new(limit, T0).name(name("x"));
        assert_eq!(list(&t, request.clone()).await, ["a", "c", "e"]);
        let running = request.state(FlowState::Running);
        assert_eq!(list(&t, running).await, ["c", "e"]);
    }
}

async fn a_page_of_flows_has_one_to_a_thousand(t: DriverUnderTest) {
    for limit in [0, 1_001] {
        let page = t.driver.list_flows(ListFlows::new(limit, T0)).await;
        let refused = invalid(page);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == limit));
    }
}

async fn a_cursor_that_is_none_lists_no_flows(t: DriverUnderTest) {
    t.put_flow([job("a")], T0).await;
    for text in ["", "nonsense", "\u{1F980}"] {
        let request = ListFlows::new(1, T0).after(Cursor::new(text));
        let page = t.driver.list_flows(request).await;
        assert_eq!(invalid(page), InvalidRequest::Cursor, "{text:?}");
    }
}

async fn a_purged_flow_is_gone_with_all_its_members(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Block), T0).await;
    t.put(job("plain"), T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", fail(T0), T0).await;
    t.run("plain", ack(), T0).await;
    assert_eq!(t.act("b", Action::PurgeFlow, T0).await, State::Dlq);
    let left = t.snapshot(T0).await;
    assert_eq!(left.flows, []);
    let ids: Vec<&str> = left.records.iter().map(|it| it.job.id.as_str()).collect();
    assert_eq!(ids, ["plain"]);
    assert_eq!(left.counts[0].states, counts(&[(State::Done, 1)]));
}

async fn a_purged_flow_leaves_its_ids_and_its_key_free(t: DriverUnderTest) {
    let flow = || [job("a"), child("b", &["a"]).idempotency_key(key("k"))];
    t.put_flow(flow(), T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", ack(), T0).await;
    t.act("b", Action::PurgeFlow, T0).await;
    let answers = t.put_flow(flow(), at(1)).await;
    assert!(answers.iter().all(Enqueued::is_new), "{answers:?}");
    assert_eq!(t.flow("b", at(1)).await.created_at, at(1));
}

async fn a_flow_that_is_not_over_is_not_purged(t: DriverUnderTest) {
    t.put_flow(pair(["a", "b"], FailurePolicy::Continue), T0).await;
    let held = State::Blocked;
    let answer = t.manage("b", Action::PurgeFlow, T0).await;
    assert_eq!(answer, Err(Denied::WrongState(held)));
    t.run("a", fail(T0), T0).await;
    t.act("a", requeue(), at(1)).await;
    t.run("b", ack(), at(1)).await;
    let before = t.snapshot(at(1)).await;
    let answer = t.manage("b", Action::PurgeFlow, at(1)).await;
    assert_eq!(answer, Err(Denied::WrongState(State::Done)));
    assert_eq!(t.snapshot(at(1)).await, before);
}

async fn what_is_no_flow_is_not_purged_as_one(t: DriverUnderTest) {
    t.put(job("plain"), T0).await;
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.run("plain", ack(), T0).await;
    t.run("a", ack(), T0).await;
    let before = t.snapshot(T0).await;
    for text in ["a", "plain", "unknown"] {
        let answer = t.manage(text, Action::PurgeFlow, T0).await;
        assert_eq!(answer, Err(Denied::JobNotFound), "{text}");
    }
    assert_eq!(t.snapshot(T0).await, before);
}

async fn the_flow_that_began_last_can_be_listed_first(t: DriverUnderTest) {
    for text in ["a", "b", "c", "d", "e"] {
        t.put_flow([job(text)], T0).await;
    }
    t.run("a", ack(), T0).await;
    for limit in 1..=6 {
        let request = ListFlows::new(limit, T0).newest_first();
        assert_eq!(list(&t, request.clone()).await, ["e", "d", "c", "b", "a"]);
        let running = request.state(FlowState::Running);
        assert_eq!(list(&t, running).await, ["e", "d", "c", "b"]);
    }
    let request = ListFlows::new(1, T0);
    let page = t.driver.list_flows(request.clone()).await.expect("list_flows");
    let other = request.newest_first().after(page.next.expect("a cursor"));
    assert_eq!(invalid(t.driver.list_flows(other).await), InvalidRequest::Cursor);
}
