//! Joins: members that the store completes.

use taskharbor_core::{
    NewJob, State,
    flow::FlowState,
    job::{JobKind, JobSet, JoinReading},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, at, child, id, ids, job, join, settlement},
};

group! {
    join {}
    flows {
        a_join_is_done_in_the_step_in_which_its_last_parent_is ["FLO-6"]
        a_join_is_never_granted ["FLO-6"]
        a_join_without_parents_is_done_at_once ["FLO-6" "FLO-7"]
        a_dependant_of_an_empty_join_is_ready_at_once ["FLO-6"]
        a_dependant_of_an_empty_join_and_a_job_waits_for_the_job ["FLO-6" "FLO-1"]
        a_dependant_of_an_empty_join_still_waits_for_its_time ["FLO-6" "FLO-1"]
        a_join_does_not_wait_for_a_time ["FLO-6"]
        joins_of_joins_are_done_in_the_same_step ["FLO-6"]
        a_join_between_two_groups_holds_the_second_until_the_first_is_done ["FLO-6" "FLO-1"]
        a_thousand_joins_in_a_row_are_done_by_one_ack ["FLO-6"]
        a_thousand_joins_in_a_row_without_parents_are_done_at_once ["FLO-6"]
        a_join_of_a_thousand_joins_is_done_by_one_ack ["FLO-6"]
        a_join_keeps_its_parents_in_declared_order ["FLO-6" "ADM-1"]
    }
}

/// A thousand joins one after the other; the first waits for `parents`.
fn joins_in_a_row(parents: &[&str]) -> Vec<NewJob> {
    let step = |n: usize| format!("{n:04}");
    let rest = (1..1_000).map(|n| join(&step(n), &[&step(n - 1)]));
    [join("0000", parents)].into_iter().chain(rest).collect()
}

async fn a_join_is_done_in_the_step_in_which_its_last_parent_is(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), join("j", &["a", "b"])], T0).await;
    t.run("a", ack(), at(1)).await;
    assert_eq!(t.state("j", at(1)).await, State::Blocked);
    t.run("b", ack(), at(2)).await;
    let record = t.record("j", at(2)).await;
    assert_eq!(record.state, State::Done);
    assert_eq!(record.finished_at, Some(at(2)));
    assert_eq!(record.kind, JobKind::Join(JoinReading::List));
    assert_eq!(record.pending, 0);
    assert_eq!(record.output, None);
}

async fn a_join_is_never_granted(t: DriverUnderTest) {
    let jobs = [job("a"), join("j", &["a"]), child("b", &["j"])];
    t.put_flow(jobs, T0).await;
    let leased = t.take_the("a", T0).await;
    assert_eq!(t.take(T0).await, None);
    t.apply(&leased, ack(), T0).await;
    assert_eq!(t.take_order(T0).await, ["b"]);
    let record = t.record("j", T0).await;
    assert_eq!(record.job.deliveries, 0);
    assert_eq!(record.held, None);
}

async fn a_join_without_parents_is_done_at_once(t: DriverUnderTest) {
    t.put_flow([join("j", &[])], T0).await;
    let record = t.record("j", T0).await;
    assert_eq!(record.state, State::Done);
    assert_eq!(record.finished_at, Some(T0));
    let flow = t.flow("j", T0).await;
    assert_eq!(flow.state, FlowState::Done);
    assert_eq!(flow.finished_at, Some(T0));
    assert_eq!(t.take(T0).await, None);
}

async fn a_dependant_of_an_empty_join_is_ready_at_once(t: DriverUnderTest) {
    t.put_flow([join("j", &[]), child("b", &["j"])], T0).await;
    let record = t.record("b", T0).await;
    assert_eq!(record.state, State::Ready);
    assert_eq!(record.due_at, Some(T0));
    assert_eq!(record.pending, 0);
    t.run("b", ack(), T0).await;
    assert_eq!(t.take(T0).await, None);
}

async fn a_dependant_of_an_empty_join_and_a_job_waits_for_the_job(t: DriverUnderTest) {
    let jobs = [child("c", &["j", "a"]), job("a"), join("j", &[])];
    t.put_flow(jobs, T0).await;
    assert_eq!(t.record("c", T0).await.pending, 1);
    t.run("a", ack(), T0).await;
    t.take_the("c", T0).await;
}

async fn a_dependant_of_an_empty_join_still_waits_for_its_time(t: DriverUnderTest) {
    let late = child("b", &["j"]).run_at(at(5));
    t.put_flow([join("j", &[]), late], T0).await;
    let record = t.record("b", T0).await;
    assert_eq!(record.state, State::Scheduled);
    assert_eq!(record.due_at, Some(at(5)));
}

async fn a_join_does_not_wait_for_a_time(t: DriverUnderTest) {
    let late = join("j", &["a"]).run_at(at(100));
    t.put_flow([job("a"), late], T0).await;
    t.run("a", ack(), at(1)).await;
    let record = t.record("j", at(1)).await;
    assert_eq!(record.state, State::Done);
    assert_eq!(record.finished_at, Some(at(1)));
}

async fn joins_of_joins_are_done_in_the_same_step(t: DriverUnderTest) {
    let jobs = [
        job("a"),
        job("b"),
        join("inner", &["a"]),
        join("outer", &["inner", "b"]),
        child("end", &["outer"]),
    ];
    t.put_flow(jobs, T0).await;
    let both = t.take_many(2, T0).await;
    let items = both.iter().map(|leased| settlement(leased, ack()));
    t.settle_all(items.collect(), at(1)).await;
    let states = t.states(&["inner", "outer"], at(1)).await;
    assert_eq!(states, [State::Done; 2]);
    assert_eq!(t.record("end", at(1)).await.due_at, Some(at(1)));
}

async fn a_join_between_two_groups_holds_the_second_until_the_first_is_done(t: DriverUnderTest) {
    let (first, second) = (["a1", "a2", "a3"], ["b1", "b2", "b3"]);
    let mut jobs: Vec<NewJob> = first.iter().map(|text| job(text)).collect();
    jobs.push(join("between", &first));
    jobs.extend(second.iter().map(|text| child(text, &["between"])));
    jobs.push(join("end", &second));
    t.put_flow(jobs, T0).await;
    for text in first {
        t.run(text, ack(), T0).await;
    }
    assert_eq!(t.state("between", T0).await, State::Done);
    for text in second {
        assert_eq!(t.state("end", T0).await, State::Blocked);
        t.run(text, ack(), T0).await;
    }
    assert_eq!(t.state("end", T0).await, State::Done);
    assert_eq!(t.flow_state("end", T0).await, FlowState::Done);
}

async fn a_thousand_joins_in_a_row_are_done_by_one_ack(t: DriverUnderTest) {
    let jobs = [job("a")].into_iter().chain(joins_in_a_row(&["a"]));
    t.put_flow(jobs, T0).await;
    assert_eq!(t.flow("0999", T0).await.members.blocked, 1_000);
    t.run("a", ack(), at(1)).await;
    let flow = t.flow("0999", at(1)).await;
    assert_eq!(flow.members.done, 1_001);
    assert_eq!(flow.finished_at, Some(at(1)));
}

async fn a_thousand_joins_in_a_row_without_parents_are_done_at_once(t: DriverUnderTest) {
    let jobs = joins_in_a_row(&[]);
    let answers = t.enqueue_set(JobSet::flow(jobs), T0).await;
    assert_eq!(answers.expect("not rejected").len(), 1_000);
    assert_eq!(t.flow("0999", T0).await.members.done, 1_000);
}

async fn a_join_of_a_thousand_joins_is_done_by_one_ack(t: DriverUnderTest) {
    let names: Vec<String> = (0..1_000).map(|n| format!("{n:04}")).collect();
    let middle = names.iter().map(|name| join(name, &["a"]));
    let end = join("end", &[]).after(names.iter().map(|name| id(name)));
    let jobs = [job("a")].into_iter().chain(middle).chain([end]);
    t.put_flow(jobs, T0).await;
    assert_eq!(t.record("end", T0).await.pending, 1_000);
    t.run("a", ack(), at(1)).await;
    let record = t.record("end", at(1)).await;
    assert_eq!(record.state, State::Done);
    assert_eq!(record.pending, 0);
    assert_eq!(record.parents.len(), 1_000);
}

async fn a_join_keeps_its_parents_in_declared_order(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), job("c"), join("j", &["c", "a", "b"])];
    t.put_flow(jobs, T0).await;
    assert_eq!(t.record("j", T0).await.parents, ids(&["c", "a", "b"]));
}
