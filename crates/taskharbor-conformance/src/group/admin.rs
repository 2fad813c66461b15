//! Actions of operators on jobs, one or many at a time.

use taskharbor_core::{
    Admin, DriverError, JobId, State,
    admin::{Action, Manage},
    error::{Denied, InvalidRequest},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        T0, ack, at, child, expand, fail, id, ids, invalid, job, join, release, requeue, retry,
    },
};

use State::{Blocked, Cancelled, Dlq, Done, Inflight, Ready, Scheduled};

group! {
    admin {
        run_now_makes_a_scheduled_job_due_now ["ADM-5"]
        run_now_ends_the_wait_for_a_retry ["ADM-5"]
        run_now_leaves_a_ready_job_in_its_position ["ADM-5"]
        a_job_told_to_run_now_stands_behind_those_due_before ["ADM-5"]
        a_job_that_does_not_wait_cannot_be_told_to_run_now ["ADM-5"]
        a_new_priority_counts_from_the_next_reserve_on ["ADM-6" "ORD-1"]
        the_priority_of_a_terminal_job_cannot_be_changed ["ADM-6"]
        a_purged_job_is_gone ["ADM-7"]
        a_job_that_is_not_over_is_not_purged ["ADM-7"]
        every_job_of_a_call_has_its_own_answer_in_order ["REF-3" "REQ-1"]
        a_call_about_no_job_has_no_answers ["REF-3"]
        a_call_may_name_a_hundred_thousand_jobs_and_no_more ["ADM-7" "CAN-1"]
        preparing_a_store_in_use_changes_nothing ["ADM-11"]
        a_store_may_be_prepared_by_many_at_once ["ADM-11"]
    }
    flows {
        a_blocked_job_told_to_run_now_waits_for_its_parents_alone ["ADM-5"]
        the_priority_of_any_job_that_is_not_over_can_be_changed ["ADM-6"]
        a_member_of_a_flow_is_not_purged_by_itself ["ADM-7"]
        a_plain_job_that_expanded_is_not_purged_by_itself ["ADM-7" "EXP-1"]
        a_job_named_twice_fails_the_whole_call ["REF-4"]
        a_store_in_use_finds_no_contradiction_in_itself ["ADM-10"]
    }
}

/// Does something to many jobs; the answers as they are.
async fn manage(
    t: &DriverUnderTest,
    ids: Vec<JobId>,
    action: Action,
) -> Result<Vec<Result<State, Denied>>, DriverError> {
    t.driver.manage(Manage::new(ids, action, T0)).await
}

/// Jobs named after the states `inflight`, `done`, `dlq` and `cancelled`.
async fn past_waiting(t: &DriverUnderTest) {
    t.put_all(["inflight", "done", "dlq", "cancelled"].map(job), T0).await;
    let leased = t.take_many(3, T0).await;
    t.apply(&leased[1], ack(), T0).await;
    t.apply(&leased[2], fail(T0), T0).await;
    t.act("cancelled", Action::Cancel, T0).await;
}

async fn run_now_makes_a_scheduled_job_due_now(t: DriverUnderTest) {
    t.put(job("a").run_at(at(99)), T0).await;
    assert_eq!(t.act("a", Action::RunNow, at(5)).await, Ready);
    let record = t.record("a", at(5)).await;
    assert_eq!((record.state, record.due_at), (Ready, Some(at(5))));
    assert_eq!(record.job.run_at, None);
    t.take_the("a", at(5)).await;
}

async fn run_now_ends_the_wait_for_a_retry(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", retry(Some(at(99)), T0), T0).await;
    assert_eq!(t.act("a", Action::RunNow, at(5)).await, Ready);
    let leased = t.take_the("a", at(5)).await;
    assert_eq!(leased.job.attempts, 1);
}

async fn run_now_leaves_a_ready_job_in_its_position(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.put(job("b"), at(1)).await;
    assert_eq!(t.act("a", Action::RunNow, at(5)).await, Ready);
    assert_eq!(t.record("a", at(5)).await.due_at, Some(T0));
    assert_eq!(t.take_order(at(5)).await, ["a", "b"]);
}

async fn a_job_told_to_run_now_stands_behind_those_due_before(t: DriverUnderTest) {
    t.put(job("a").run_at(at(99)), T0).await;
    t.put(job("b"), at(5)).await;
    t.act("a", Action::RunNow, at(6)).await;
    assert_eq!(t.take_order(at(6)).await, ["b", "a"]);
}

async fn a_blocked_job_told_to_run_now_waits_for_its_parents_alone(t: DriverUnderTest) {
    let later = child("b", &["a"]).run_at(at(99));
    t.put_flow([job("a"), later], T0).await;
    assert_eq!(t.act("b", Action::RunNow, T0).await, Blocked);
    assert_eq!(t.record("b", T0).await.pending, 1);
    t.run("a", ack(), at(5)).await;
    let record = t.record("b", at(5)).await;
    assert_eq!((record.state, record.due_at), (Ready, Some(at(5))));
}

async fn a_job_that_does_not_wait_cannot_be_told_to_run_now(t: DriverUnderTest) {
    past_waiting(&t).await;
    let before = t.snapshot(at(1)).await;
    for (text, state) in
        [("inflight", Inflight), ("done", Done), ("dlq", Dlq), ("cancelled", Cancelled)]
    {
        let answer = t.manage(text, Action::RunNow, at(1)).await;
        assert_eq!(answer, Err(Denied::WrongState(state)));
    }
    let answer = t.manage("ghost", Action::RunNow, at(1)).await;
    assert_eq!(answer, Err(Denied::JobNotFound));
    assert_eq!(t.snapshot(at(1)).await, before);
}

async fn a_new_priority_counts_from_the_next_reserve_on(t: DriverUnderTest) {
    t.put_all([job("a"), job("b"), job("c").priority(5)], T0).await;
    assert_eq!(t.act("b", Action::SetPriority(9), T0).await, Ready);
    assert_eq!(t.act("c", Action::SetPriority(-1), T0).await, Ready);
    assert_eq!(t.record("b", T0).await.job.priority, 9);
    assert_eq!(t.take_order(T0).await, ["b", "a", "c"]);
}

async fn the_priority_of_any_job_that_is_not_over_can_be_changed(t: DriverUnderTest) {
    let jobs = [
        job("inflight"),
        job("ready"),
        job("scheduled").run_at(at(9)),
        child("blocked", &["inflight", "ready", "scheduled"]),
    ];
    t.put_flow(jobs, T0).await;
    let leased = t.take_the("inflight", T0).await;
    for (text, state) in
        [("inflight", Inflight), ("ready", Ready), ("scheduled", Scheduled), ("blocked", Blocked)]
    {
        let set = Action::SetPriority(i16::MIN);
        assert_eq!(t.act(text, set, T0).await, state);
        assert_eq!(t.record(text, T0).await.job.priority, i16::MIN);
    }
    t.put(job("other").priority(-5), T0).await;
    t.apply(&leased, release(None), T0).await;
    assert_eq!(t.take_order(T0).await, ["other", "inflight", "ready"]);
}

async fn the_priority_of_a_terminal_job_cannot_be_changed(t: DriverUnderTest) {
    past_waiting(&t).await;
    let before = t.snapshot(T0).await;
    for (text, state) in [("done", Done), ("dlq", Dlq), ("cancelled", Cancelled)] {
        let answer = t.manage(text, Action::SetPriority(1), T0).await;
        assert_eq!(answer, Err(Denied::WrongState(state)));
    }
    let answer = t.manage("ghost", Action::SetPriority(1), T0).await;
    assert_eq!(answer, Err(Denied::JobNotFound));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_purged_job_is_gone(t: DriverUnderTest) {
    past_waiting(&t).await;
    for (text, state) in [("done", Done), ("dlq", Dlq), ("cancelled", Cancelled)] {
        assert_eq!(t.act(text, Action::Purge, T0).await, state);
        assert_eq!(t.find(text, T0).await, None);
        let again = t.manage(text, Action::Purge, T0).await;
        assert_eq!(again, Err(Denied::JobNotFound));
    }
    assert_eq!(t.snapshot(T0).await.records.len(), 1);
}

async fn a_job_that_is_not_over_is_not_purged(t: DriverUnderTest) {
    t.put(job("inflight"), T0).await;
    t.take_the("inflight", T0).await;
    t.put_all([job("ready"), job("scheduled").run_at(at(9))], T0).await;
    let before = t.snapshot(T0).await;
    for (text, state) in [("inflight", Inflight), ("ready", Ready), ("scheduled", Scheduled)] {
        let answer = t.manage(text, Action::Purge, T0).await;
        assert_eq!(answer, Err(Denied::WrongState(state)));
    }
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_member_of_a_flow_is_not_purged_by_itself(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), join("j", &["a"]), child("c", &["j", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", fail(T0), T0).await;
    let before = t.snapshot(T0).await;
    for text in ["a", "b", "j"] {
        let answer = t.manage(text, Action::Purge, T0).await;
        assert_eq!(answer, Err(Denied::InFlow(id("c"))), "{text}");
    }
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_plain_job_that_expanded_is_not_purged_by_itself(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.run("g", expand([job("x")]), T0).await;
    let answer = t.manage("g", Action::Purge, T0).await;
    assert_eq!(answer, Err(Denied::InFlow(id("g"))));
}

async fn every_job_of_a_call_has_its_own_answer_in_order(t: DriverUnderTest) {
    past_waiting(&t).await;
    let many = ids(&["dlq", "ghost", "done", "inflight", "cancelled"]);
    let answers = manage(&t, many, requeue()).await.expect("manage");
    let expected = [
        Ok(Ready),
        Err(Denied::JobNotFound),
        Err(Denied::WrongState(Done)),
        Err(Denied::WrongState(Inflight)),
        Ok(Ready),
    ];
    assert_eq!(answers, expected);
    assert_eq!(t.take_order(T0).await, ["dlq", "cancelled"]);
}

async fn a_call_about_no_job_has_no_answers(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let answers = manage(&t, Vec::new(), Action::Cancel).await;
    assert_eq!(answers.expect("manage"), []);
    assert_eq!(t.state("a", T0).await, Ready);
}

async fn a_job_named_twice_fails_the_whole_call(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    t.put_flow([job("c"), child("d", &["c"])], T0).await;
    let before = t.snapshot(T0).await;
    for action in [Action::Cancel, Action::SetPriority(5), Action::CancelFlow] {
        let answers = manage(&t, ids(&["a", "d", "b", "d"]), action).await;
        assert_eq!(invalid(answers), InvalidRequest::DuplicateJob(id("d")));
    }
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_call_may_name_a_hundred_thousand_jobs_and_no_more(t: DriverUnderTest) {
    t.put(job("0"), T0).await;
    let many = |count: usize| (0..count).map(|n| id(&n.to_string())).collect();
    let answers = manage(&t, many(100_001), Action::Cancel).await;
    let refused = invalid(answers);
    assert!(matches!(refused, InvalidRequest::OutOfRange { value: 100_001, .. }));
    assert_eq!(t.state("0", T0).await, Ready);
    let answers = manage(&t, many(100_000), Action::Cancel).await;
    let answers = answers.expect("manage");
    assert_eq!(answers.len(), 100_000);
    assert_eq!(answers[0], Ok(Cancelled));
    let unknown = answers[1..].iter();
    assert!(unknown.eq(vec![Err(Denied::JobNotFound); 99_999].iter()));
}

async fn a_store_in_use_finds_no_contradiction_in_itself(t: DriverUnderTest) {
    let sound = async || assert_eq!(t.driver.check().await.expect("check"), []);
    sound().await;
    past_waiting(&t).await;
    sound().await;
    let jobs = [job("a"), job("b"), join("j", &["a", "b"]), child("c", &["j"])];
    t.put_flow(jobs, T0).await;
    let leased = t.take_many(2, T0).await;
    sound().await;
    t.apply(&leased[0], expand([job("x"), child("y", &["x"])]), T0).await;
    sound().await;
    t.apply(&leased[1], fail(T0), T0).await;
    t.act("b", requeue(), T0).await;
    t.act("c", Action::SetPriority(3), T0).await;
    sound().await;
    t.act("c", Action::CancelFlow, T0).await;
    sound().await;
    t.act("c", Action::PurgeFlow, T0).await;
    t.act("done", Action::Purge, T0).await;
    sound().await;
    assert_eq!(t.snapshot(T0).await.records.len(), 3);
}

async fn preparing_a_store_in_use_changes_nothing(t: DriverUnderTest) {
    past_waiting(&t).await;
    let records = async || {
        let mut records = Vec::new();
        for name in ["inflight", "done", "dlq", "cancelled"] {
            records.push(t.record(name, T0).await);
        }
        records
    };
    let before = records().await;
    for _ in 0..2 {
        t.driver.migrate().await.expect("migrate");
    }
    assert_eq!(records().await, before);
}

async fn a_store_may_be_prepared_by_many_at_once(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let answers =
        at_once(vec![t.driver.clone(); 10].into_iter().map(async |it| it.migrate().await));
    assert!(answers.await.iter().all(Result::is_ok));
    t.take_the("a", T0).await;
}
