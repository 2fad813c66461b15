//! Another life for jobs that were dead-lettered or cancelled.

use taskharbor_core::{
    Admin, NewJob, State,
    admin::{Action, Filter, Prune, Requeue},
    driver::OutputEntry,
    error::{Denied, Refusal},
    flow::FlowState,
    job::FailurePolicy,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, failure, gave_up, id, ids, job,
        join, list, requeue, retry,
    },
};

use State::{Blocked, Cancelled, Dlq, Done, Inflight, Ready, Scheduled};

group! {
    requeue {
        a_dead_lettered_job_is_requeued_into_a_new_epoch ["REQ-1" "LEA-6"]
        a_cancelled_job_is_requeued_into_a_new_epoch ["REQ-1"]
        a_requeued_job_waits_for_the_given_time ["REQ-1"]
        a_requeued_job_gains_nothing_by_a_time_in_the_past ["REQ-1" "ORD-3"]
        a_job_requeued_as_it_is_has_one_more_execution ["REQ-2" "REQ-1"]
        a_cancelled_job_has_the_attempts_it_had_when_requeued ["REQ-2"]
        with_attempts_reset_it_has_all_of_them_again ["REQ-2" "REQ-1"]
        attempts_can_be_reset_after_a_requeue_that_kept_them ["REQ-2"]
        tokens_of_an_earlier_epoch_are_worthless ["REQ-8"]
        racing_requeues_of_one_job_give_it_one_new_life ["REQ-1"]
    }
    flows {
        only_what_failed_or_was_cancelled_can_be_requeued ["REQ-1"]
        a_requeued_job_whose_parents_are_not_done_is_blocked ["REQ-3"]
        a_requeued_job_that_is_blocked_keeps_the_time_it_was_given ["REQ-3" "REQ-1"]
        a_requeued_job_whose_parents_are_done_is_ready ["REQ-3"]
        a_member_of_a_flow_whose_tail_is_done_is_denied ["REQ-4"]
        a_member_of_a_flow_whose_tail_is_cancelled_is_denied ["REQ-4"]
        a_member_of_a_flow_whose_tail_is_dead_lettered_is_not_denied ["REQ-4"]
        a_tail_can_be_requeued_however_it_ended ["REQ-7" "FLO-7"]
        a_requeued_join_that_is_the_tail_ends_its_flow_as_done ["FLO-6" "FLO-7" "REQ-1" "ADM-10"]
        a_detached_job_leaves_its_flow_and_runs_alone ["REQ-5" "REQ-6" "OUT-1"]
        a_detached_job_waits_for_no_parent ["REQ-6"]
        a_detached_job_that_fails_affects_no_other_job ["REQ-5"]
        a_detached_job_is_a_job_like_any_other ["REQ-5"]
        detaching_changes_nothing_while_the_flow_is_not_over ["REQ-7"]
        a_tail_is_not_detached ["REQ-7"]
        a_requeue_lets_a_blocked_flow_go_on ["POL-1" "FLO-7"]
        dependants_of_a_detached_job_wait_for_it_no_longer ["REQ-5"]
        the_failure_of_a_detached_job_does_not_reach_its_former_flow ["REQ-5"]
        a_detached_job_that_expands_begins_a_flow_of_its_own ["REQ-5" "EXP-1"]
        a_detached_job_can_be_purged_alone ["REQ-5" "REQ-6" "ADM-7" "OUT-1"]
    }
}

fn detach() -> Action {
    Action::Requeue(Requeue::new().detach())
}

fn reset() -> Action {
    Action::Requeue(Requeue::new().reset_attempts())
}

/// A chain of three, whose middle failed and let the tail `c` go, which is done.
async fn over(t: &DriverUnderTest) {
    let b = child("b", &["a"]).on_failure(FailurePolicy::Continue);
    t.put_flow([job("a"), b, child("c", &["b"])], T0).await;
    t.run("a", ack_with("a"), T0).await;
    t.run("b", fail(T0), T0).await;
    t.run("c", ack_with("c"), T0).await;
}

/// A chain of two whose tail `b` was cancelled because `a` failed.
fn cancelling_pair() -> [NewJob; 2] {
    [job("a").on_failure(FailurePolicy::Cancel), child("b", &["a"])]
}

async fn a_dead_lettered_job_is_requeued_into_a_new_epoch(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.take_the("a", T0).await;
    t.run("a", fail(at(60)), at(60)).await;
    assert_eq!(t.record("a", at(60)).await.job.expirations, 1);
    assert_eq!(t.act("a", requeue(), at(70)).await, Ready);
    let record = t.record("a", at(70)).await;
    assert_eq!(record.state, Ready);
    assert_eq!(record.due_at, Some(at(70)));
    assert_eq!(record.epoch, 1);
    assert_eq!(record.job.expirations, 0);
    assert_eq!(record.job.deliveries, 2);
    assert_eq!(record.reason, None);
    assert_eq!(record.finished_at, None);
    assert_eq!(record.errors, [failure(1, at(60))]);
    assert_eq!(record.job.failed_at, Some(at(60)));
    t.run("a", ack(), at(70)).await;
}

async fn a_cancelled_job_is_requeued_into_a_new_epoch(t: DriverUnderTest) {
    t.put(job("a").run_at(at(9)), T0).await;
    t.act("a", Action::Cancel, T0).await;
    assert_eq!(t.act("a", requeue(), at(1)).await, Ready);
    let record = t.record("a", at(1)).await;
    assert_eq!(record.due_at, Some(at(1)), "its old time is forgotten");
    assert_eq!(record.job.run_at, None);
    assert_eq!(record.epoch, 1);
    assert_eq!(record.finished_at, None);
    t.run("a", ack(), at(1)).await;
}

async fn a_requeued_job_waits_for_the_given_time(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", fail(T0), T0).await;
    let later = Action::Requeue(Requeue::new().run_at(at(9)));
    assert_eq!(t.act("a", later, at(1)).await, Scheduled);
    let record = t.record("a", at(1)).await;
    assert_eq!(record.due_at, Some(at(9)));
    assert_eq!(record.job.run_at, Some(at(9)));
    assert_eq!(t.take(at(8)).await, None);
    t.take_the("a", at(9)).await;
}

async fn a_requeued_job_gains_nothing_by_a_time_in_the_past(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", fail(T0), T0).await;
    t.put(job("b"), at(5)).await;
    let earlier = Action::Requeue(Requeue::new().run_at(T0));
    assert_eq!(t.act("a", earlier, at(6)).await, Ready);
    assert_eq!(t.record("a", at(6)).await.due_at, Some(at(6)));
    assert_eq!(t.take_order(at(6)).await, ["b", "a"]);
}

async fn only_what_failed_or_was_cancelled_can_be_requeued(t: DriverUnderTest) {
    t.put_all([job("inflight"), job("done")], T0).await;
    let jobs =
        [job("ready"), job("scheduled").run_at(at(9)), child("blocked", &["ready", "scheduled"])];
    t.put_flow(jobs, T0).await;
    let leased = t.take_many(2, T0).await;
    t.apply(&leased[1], ack(), T0).await;
    let before = t.snapshot(T0).await;
    for (text, state) in [
        ("ready", Ready),
        ("scheduled", Scheduled),
        ("blocked", Blocked),
        ("inflight", Inflight),
        ("done", Done),
    ] {
        for action in [requeue(), reset(), detach()] {
            let answer = t.manage(text, action, T0).await;
            assert_eq!(answer, Err(Denied::WrongState(state)));
        }
    }
    let answer = t.manage("ghost", requeue(), T0).await;
    assert_eq!(answer, Err(Denied::JobNotFound));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_job_requeued_as_it_is_has_one_more_execution(t: DriverUnderTest) {
    let jobs = [job("five").max_attempts(5), job("none")];
    t.put_all(jobs, T0).await;
    for text in ["five", "none"] {
        t.run(text, retry(Some(at(5)), T0), T0).await;
    }
    for (text, attempts) in [("five", 2), ("none", 7)] {
        let leased = t.take_the(text, at(5)).await;
        let failure = failure(attempts, at(5));
        let reason = "gave up".into();
        let step = taskharbor_core::driver::Transition::Fail { failure, reason };
        t.apply(&leased, step, at(5)).await;
    }
    for (text, attempts) in [("five", 2), ("none", 7)] {
        t.act(text, requeue(), at(6)).await;
        let leased = t.take_the(text, at(6)).await;
        assert_eq!(leased.job.attempts, attempts);
        assert_eq!(leased.job.max_attempts, Some(attempts + 1));
        let errors = t.record(text, at(6)).await.errors;
        assert_eq!(errors, [failure(1, T0), failure(attempts, at(5))]);
    }
}

async fn a_cancelled_job_has_the_attempts_it_had_when_requeued(t: DriverUnderTest) {
    t.put(job("a").max_attempts(5), T0).await;
    t.run("a", retry(None, T0), T0).await;
    t.act("a", Action::Cancel, T0).await;
    t.act("a", requeue(), T0).await;
    let leased = t.take_the("a", T0).await;
    assert_eq!((leased.job.attempts, leased.job.max_attempts), (1, Some(5)));
}

async fn with_attempts_reset_it_has_all_of_them_again(t: DriverUnderTest) {
    t.put_all([job("a").max_attempts(5), job("b")], T0).await;
    for (text, max_attempts) in [("a", Some(5)), ("b", None)] {
        t.run(text, fail(T0), T0).await;
        t.act(text, reset(), T0).await;
        let leased = t.take_the(text, T0).await;
        assert_eq!(leased.job.attempts, 0);
        assert_eq!(leased.job.max_attempts, max_attempts);
        let errors = t.record(text, T0).await.errors;
        assert_eq!(errors, [failure(1, T0)], "failures are kept");
    }
}

async fn attempts_can_be_reset_after_a_requeue_that_kept_them(t: DriverUnderTest) {
    t.put(job("a").max_attempts(5), T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", requeue(), T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", reset(), T0).await;
    let record = t.record("a", T0).await;
    assert_eq!(record.epoch, 2);
    assert_eq!(record.job.attempts, 0);
    assert_eq!(record.job.max_attempts, Some(5));
}

async fn a_requeued_job_whose_parents_are_not_done_is_blocked(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.act("b", Action::Cancel, T0).await;
    assert_eq!(t.act("b", requeue(), at(1)).await, Blocked);
    let record = t.record("b", at(1)).await;
    assert_eq!((record.state, record.pending), (Blocked, 1));
    assert_eq!(record.due_at, None);
    t.run("a", ack(), at(2)).await;
    assert_eq!(t.record("b", at(2)).await.due_at, Some(at(2)));
    t.take_the("b", at(2)).await;
}

async fn a_requeued_job_that_is_blocked_keeps_the_time_it_was_given(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.act("b", Action::Cancel, T0).await;
    let later = Action::Requeue(Requeue::new().run_at(at(50)));
    assert_eq!(t.act("b", later, T0).await, Blocked);
    t.run("a", ack(), at(1)).await;
    let record = t.record("b", at(1)).await;
    assert_eq!((record.state, record.due_at), (Scheduled, Some(at(50))));
}

async fn a_requeued_job_whose_parents_are_done_is_ready(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.run("a", ack_with("a"), T0).await;
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.act("b", requeue(), T0).await, Ready);
    t.take_the("b", T0).await;
    let read = [list(1), done_with("a")];
    assert_eq!(t.inputs("b").await, read);
}

async fn a_member_of_a_flow_whose_tail_is_done_is_denied(t: DriverUnderTest) {
    over(&t).await;
    let before = t.snapshot(at(1)).await;
    for action in [requeue(), reset()] {
        let answer = t.manage("b", action, at(1)).await;
        assert_eq!(answer, Err(Denied::FlowOver));
    }
    assert_eq!(t.snapshot(at(1)).await, before);
}

async fn a_member_of_a_flow_whose_tail_is_cancelled_is_denied(t: DriverUnderTest) {
    t.put_flow(cancelling_pair(), T0).await;
    t.run("a", fail(T0), T0).await;
    let answer = t.manage("a", requeue(), T0).await;
    assert_eq!(answer, Err(Denied::FlowOver));
    assert_eq!(t.state("a", T0).await, Dlq);
}

async fn a_member_of_a_flow_whose_tail_is_dead_lettered_is_not_denied(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Continue);
    t.put_flow([a, child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.act("a", requeue(), T0).await, Ready);
    assert_eq!(t.flow_state("b", T0).await, FlowState::Running);
}

async fn a_tail_can_be_requeued_however_it_ended(t: DriverUnderTest) {
    t.put_flow(cancelling_pair(), T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.act("b", requeue(), T0).await, Blocked);
    assert_eq!(t.act("a", requeue(), T0).await, Ready);
    t.run("a", ack(), T0).await;
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.flow_state("b", T0).await, FlowState::Failed);
    assert_eq!(t.act("b", requeue(), T0).await, Ready);
    t.run("b", ack(), T0).await;
    assert_eq!(t.flow_state("b", T0).await, FlowState::Done);
}

async fn a_detached_job_leaves_its_flow_and_runs_alone(t: DriverUnderTest) {
    over(&t).await;
    assert_eq!(t.act("b", detach(), at(1)).await, Ready);
    let record = t.record("b", at(1)).await;
    assert_eq!(record.job.flow, None);
    assert_eq!(record.parents, ids(&["a"]));
    assert_eq!(record.epoch, 1);
    let flow = t.flow("c", at(1)).await;
    assert_eq!(flow.members.total(), 2);
    let members = t.list(Filter::all().flow(id("c")), 10, at(1)).await;
    let members: Vec<&str> = members.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(members, ["a", "c"]);
    let tail = t.record("c", at(1)).await;
    let leased = t.take_the("b", at(1)).await;
    assert_eq!(leased.job.flow, None);
    assert_eq!(leased.job.parent_count, 1);
    let read = [list(1), done_with("a")];
    assert_eq!(t.inputs("b").await, read);
    t.apply(&leased, ack_with("late"), at(1)).await;
    assert_eq!(t.output("b").await, [done_with("late")]);
    assert_eq!(t.flow("c", at(1)).await, flow);
    assert_eq!(t.record("c", at(1)).await, tail);
}

async fn a_detached_job_waits_for_no_parent(t: DriverUnderTest) {
    let jobs = [job("a"), child("b", &["a"]), child("c", &["b"])];
    t.put_flow(jobs, T0).await;
    t.act("c", Action::CancelFlow, T0).await;
    assert_eq!(t.act("b", detach(), T0).await, Ready);
    assert_eq!(t.record("b", T0).await.pending, 0);
    t.take_the("b", T0).await;
    let cancelled = OutputEntry::Failed { state: Cancelled, reason: None };
    let read = [list(1), cancelled];
    assert_eq!(t.inputs("b").await, read);
}

async fn a_detached_job_that_fails_affects_no_other_job(t: DriverUnderTest) {
    t.put_flow(cancelling_pair(), T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", detach(), at(1)).await;
    let before = (t.flow("b", at(1)).await, t.record("b", at(1)).await);
    t.run("a", fail(at(1)), at(1)).await;
    assert_eq!(t.flow("b", at(1)).await, before.0);
    assert_eq!(t.record("b", at(1)).await, before.1);
}

async fn a_detached_job_is_a_job_like_any_other(t: DriverUnderTest) {
    over(&t).await;
    t.act("b", detach(), T0).await;
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.act("b", requeue(), T0).await, Ready);
    t.run("b", expand([job("x")]), T0).await;
    assert_eq!(t.flow("b", T0).await.members.total(), 2);
    t.run("x", ack(), T0).await;
    t.act("b", Action::PurgeFlow, T0).await;
    assert_eq!(t.find("b", T0).await, None);
    assert_eq!(t.flow_state("c", T0).await, FlowState::Done);
}

async fn detaching_changes_nothing_while_the_flow_is_not_over(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", detach(), T0).await;
    assert_eq!(t.record("a", T0).await.job.flow, Some(id("b")));
    assert_eq!(t.flow("b", T0).await.members.total(), 2);
    t.run("a", ack(), T0).await;
    t.take_the("b", T0).await;
}

async fn a_tail_is_not_detached(t: DriverUnderTest) {
    t.put_flow(cancelling_pair(), T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.act("b", detach(), T0).await, Blocked);
    assert_eq!(t.record("b", T0).await.job.flow, Some(id("b")));
    assert_eq!(t.flow_state("b", T0).await, FlowState::Blocked);
}

async fn a_requeue_lets_a_blocked_flow_go_on(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.flow_state("b", T0).await, FlowState::Blocked);
    t.act("a", requeue(), T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", ack(), T0).await;
    assert_eq!(t.flow_state("b", T0).await, FlowState::Done);
}

async fn tokens_of_an_earlier_epoch_are_worthless(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let lost = t.take_the("a", T0).await;
    let failed = t.run("a", fail(at(60)), at(60)).await;
    t.act("a", requeue(), at(60)).await;
    for old in [&lost, &failed] {
        for step in [ack(), fail(at(60))] {
            let answer = t.settle(old, step, at(60)).await;
            assert_eq!(answer, Err(Refusal::JobNotInflight), "while it waits");
        }
    }
    let current = t.take_the("a", at(60)).await;
    for old in [&lost, &failed] {
        let answer = t.settle(old, ack(), at(60)).await;
        assert_eq!(answer, Err(Refusal::LeaseMismatch), "while it runs");
    }
    t.apply(&current, ack(), at(60)).await;
    for old in [&lost, &failed] {
        let answer = t.settle(old, ack(), at(60)).await;
        assert_eq!(answer, Err(Refusal::JobNotInflight), "when it is over");
    }
}

async fn racing_requeues_of_one_job_give_it_one_new_life(t: DriverUnderTest) {
    for round in 0..12 {
        let a = format!("a{round}");
        t.put(job(&a), T0).await;
        t.run(&a, fail(T0), T0).await;
        let raced = at_once((0..6).map(|_| {
            let (t, a) = (t.clone(), a.clone());
            async move { t.manage(&a, requeue(), T0).await }
        }));
        let mut answers = raced.await;
        answers.sort_by_key(Result::is_err);
        assert_eq!(answers[0], Ok(Ready));
        assert!(answers[1..].iter().all(|it| *it == Err(Denied::WrongState(Ready))));
        assert_eq!(t.record(&a, T0).await.epoch, 1);
        t.run(&a, ack(), T0).await;
    }
}

/// A flow whose first step failed and took the second with it; the first is detached and runs.
async fn detached(t: &DriverUnderTest) {
    let first = job("a").on_failure(FailurePolicy::Cancel);
    t.put_flow([first, child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", detach(), T0).await;
}

async fn dependants_of_a_detached_job_wait_for_it_no_longer(t: DriverUnderTest) {
    detached(&t).await;
    assert_eq!(t.record("b", T0).await.pending, 0);
    assert_eq!(t.act("b", requeue(), T0).await, State::Ready);
    assert_eq!(t.inputs("b").await, [list(1), gave_up()]);
}

async fn the_failure_of_a_detached_job_does_not_reach_its_former_flow(t: DriverUnderTest) {
    detached(&t).await;
    t.act("b", requeue(), at(1)).await;
    let before = t.record("b", at(1)).await;
    t.run("a", fail(at(1)), at(1)).await;
    assert_eq!(t.record("b", at(1)).await, before);
}

async fn a_detached_job_that_expands_begins_a_flow_of_its_own(t: DriverUnderTest) {
    detached(&t).await;
    t.run("a", expand([job("c")]), T0).await;
    assert_eq!(t.record("b", T0).await.parents, ids(&["a"]));
    assert_eq!(t.record("c", T0).await.job.flow, Some(id("a")));
    assert_eq!(t.flow("b", T0).await.members.total(), 1);
}

async fn a_detached_job_can_be_purged_alone(t: DriverUnderTest) {
    detached(&t).await;
    t.run("a", ack(), T0).await;
    assert_eq!(t.act("a", Action::Purge, T0).await, State::Done);
    assert_eq!(t.inputs("b").await, [list(1), gave_up()]);
    assert_eq!(t.act("b", requeue(), T0).await, State::Ready);
}

async fn a_requeued_join_that_is_the_tail_ends_its_flow_as_done(t: DriverUnderTest) {
    t.put_flow([job("a"), join("j", &["a"])], T0).await;
    t.act("j", Action::Cancel, T0).await;
    t.run("a", ack(), T0).await;
    assert_eq!(t.flow_state("j", T0).await, FlowState::Cancelled);
    assert_eq!(t.act("j", requeue(), at(5)).await, Done);
    assert_eq!(t.flow_state("j", at(5)).await, FlowState::Done);
    let request = Prune::new(10, at(5)).cancelled_before(at(5));
    assert_eq!(t.driver.prune(request).await.expect("prune"), 0, "it is not cancelled any more");
}
