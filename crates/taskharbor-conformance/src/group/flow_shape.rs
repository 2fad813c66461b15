//! Sets that are not flows: rejected for their shape, with nothing stored.

use taskharbor_core::{NewJob, driver::Enqueued, error::Rejected, job::JobSet};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, child, id, job, join, key},
};

group! {
    flow_shape {
        a_fault_in_one_member_rejects_the_whole_flow ["ENQ-2" "JOB-5"]
        a_parent_outside_a_flow_is_rejected ["FLO-3"]
        a_parent_in_the_same_plain_set_is_rejected_too ["FLO-3"]
        a_join_outside_a_flow_is_rejected ["FLO-3"]
    }
    flows {
        a_flow_without_jobs_is_rejected ["FLO-3"]
        a_flow_with_two_jobs_of_one_id_is_rejected ["FLO-3"]
        an_unknown_parent_is_rejected ["FLO-3"]
        a_parent_that_is_stored_but_not_in_the_set_is_rejected ["FLO-3"]
        a_parent_in_another_set_of_the_call_is_rejected ["FLO-3"]
        a_parent_named_twice_is_rejected ["FLO-3"]
        a_job_that_waits_for_itself_is_rejected ["FLO-3"]
        two_jobs_that_wait_for_each_other_are_rejected ["FLO-3"]
        a_cycle_with_a_way_in_and_a_way_out_is_rejected ["FLO-3"]
        a_cycle_beside_a_sound_flow_is_rejected ["FLO-3"]
        a_cycle_of_a_thousand_jobs_is_rejected ["FLO-3"]
        a_flow_with_two_tails_is_rejected ["FLO-3"]
        a_flow_of_two_jobs_without_an_edge_is_rejected ["FLO-3"]
        a_key_on_any_job_but_the_tail_is_rejected ["FLO-4"]
        a_rejected_flow_does_not_disturb_the_other_sets ["FLO-3" "ENQ-2"]
        a_rejected_flow_can_be_stored_once_it_is_mended ["FLO-3" "ENQ-2"]
    }
}

/// The set is rejected for this reason, and the store is as it was.
async fn rejects(t: &DriverUnderTest, set: JobSet, expected: Rejected) {
    let before = t.snapshot(T0).await;
    assert_eq!(t.enqueue_set(set, T0).await, Err(expected));
    assert_eq!(t.snapshot(T0).await, before);
}

/// The flow is rejected as a cycle that goes through one of these, and the store is as it was.
async fn rejects_cycle(t: &DriverUnderTest, jobs: Vec<NewJob>, cycle: &[&str]) {
    let before = t.snapshot(T0).await;
    match t.enqueue_set(JobSet::flow(jobs), T0).await {
        Err(Rejected::Cycle { job }) => assert!(cycle.contains(&job.as_str()), "{job}"),
        other => panic!("a cycle is rejected as one: {other:?}"),
    }
    assert_eq!(t.snapshot(T0).await, before);
}

fn flow(jobs: impl IntoIterator<Item = NewJob>) -> JobSet {
    JobSet::flow(jobs.into_iter().collect())
}

async fn a_flow_without_jobs_is_rejected(t: DriverUnderTest) {
    rejects(&t, flow([]), Rejected::EmptyFlow).await;
}

async fn a_flow_with_two_jobs_of_one_id_is_rejected(t: DriverUnderTest) {
    let jobs = [job("a"), child("b", &["a"]), child("a", &["b"])];
    rejects(&t, flow(jobs), Rejected::DuplicateId { job: id("a") }).await;
}

async fn an_unknown_parent_is_rejected(t: DriverUnderTest) {
    let (job, parent) = (id("b"), id("ghost"));
    let jobs = [child("b", &["ghost"])];
    rejects(&t, flow(jobs), Rejected::UnknownParent { job, parent }).await;
}

async fn a_parent_that_is_stored_but_not_in_the_set_is_rejected(t: DriverUnderTest) {
    t.put(job("plain"), T0).await;
    t.put_flow([job("member"), child("tail", &["member"])], T0).await;
    for outside in ["plain", "member", "tail"] {
        let (job, parent) = (id("b"), id(outside));
        let jobs = [child("b", &[outside])];
        rejects(&t, flow(jobs), Rejected::UnknownParent { job, parent }).await;
    }
}

async fn a_parent_in_another_set_of_the_call_is_rejected(t: DriverUnderTest) {
    let sets = vec![flow([job("a")]), flow([child("b", &["a"])])];
    let answers = t.enqueue_sets(sets, T0).await;
    let (job, parent) = (id("b"), id("a"));
    assert_eq!(answers[0], Ok(vec![Enqueued::Inserted(id("a"))]));
    assert_eq!(answers[1], Err(Rejected::UnknownParent { job, parent }));
    assert_eq!(t.find("b", T0).await, None);
}

async fn a_parent_named_twice_is_rejected(t: DriverUnderTest) {
    let (twice, parent) = (id("c"), id("a"));
    let jobs = [job("a"), job("b"), child("c", &["a", "b", "a"])];
    let expected = Rejected::DuplicateParent { job: twice, parent };
    rejects(&t, flow(jobs), expected).await;
}

async fn a_job_that_waits_for_itself_is_rejected(t: DriverUnderTest) {
    let jobs = [job("a"), child("b", &["a", "b"])];
    rejects(&t, flow(jobs), Rejected::OwnParent { job: id("b") }).await;
}

async fn two_jobs_that_wait_for_each_other_are_rejected(t: DriverUnderTest) {
    let jobs = vec![child("a", &["b"]), child("b", &["a"])];
    rejects_cycle(&t, jobs, &["a", "b"]).await;
}

async fn a_cycle_with_a_way_in_and_a_way_out_is_rejected(t: DriverUnderTest) {
    let jobs = vec![
        job("in"),
        child("a", &["in", "c"]),
        child("b", &["a"]),
        join("c", &["b"]),
        child("out", &["c"]),
    ];
    // A dependant of the cycle can never run either, and may be named for it.
    rejects_cycle(&t, jobs, &["a", "b", "c", "out"]).await;
}

async fn a_cycle_beside_a_sound_flow_is_rejected(t: DriverUnderTest) {
    let jobs = vec![job("a"), child("b", &["a"]), child("x", &["y"]), child("y", &["x"])];
    rejects_cycle(&t, jobs, &["x", "y"]).await;
}

async fn a_cycle_of_a_thousand_jobs_is_rejected(t: DriverUnderTest) {
    let step = |n: usize| format!("{:04}", n % 1_000);
    let names: Vec<String> = (0..1_000).map(step).collect();
    let jobs = (0..1_000).map(|n| child(&step(n), &[&step(n + 999)]));
    let cycle: Vec<&str> = names.iter().map(String::as_str).collect();
    rejects_cycle(&t, jobs.collect(), &cycle).await;
}

async fn a_flow_with_two_tails_is_rejected(t: DriverUnderTest) {
    let (first, second) = (id("b"), id("c"));
    let jobs = [job("a"), child("b", &["a"]), child("c", &["a"])];
    rejects(&t, flow(jobs), Rejected::SeveralTails { first, second }).await;
}

async fn a_flow_of_two_jobs_without_an_edge_is_rejected(t: DriverUnderTest) {
    let (first, second) = (id("a"), id("b"));
    let jobs = [job("a"), job("b")];
    rejects(&t, flow(jobs), Rejected::SeveralTails { first, second }).await;
}

async fn a_key_on_any_job_but_the_tail_is_rejected(t: DriverUnderTest) {
    let keyed = job("a").idempotency_key(key("k"));
    let jobs = [keyed, child("b", &["a"])];
    rejects(&t, flow(jobs), Rejected::KeyInsideFlow { job: id("a") }).await;
    let free = t.put(job("c").idempotency_key(key("k")), T0).await;
    assert_eq!(free, Enqueued::Inserted(id("c")), "the key is not held");
}

async fn a_fault_in_one_member_rejects_the_whole_flow(t: DriverUnderTest) {
    let jobs = [job("a"), child("b", &["a"]).max_attempts(0)];
    let expected = Rejected::MaxAttemptsOutOfRange { job: id("b") };
    rejects(&t, flow(jobs), expected).await;
}

async fn a_parent_outside_a_flow_is_rejected(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let set = JobSet::plain(vec![job("b"), child("c", &["a"])]);
    rejects(&t, set, Rejected::EdgeOutsideFlow { job: id("c") }).await;
}

async fn a_parent_in_the_same_plain_set_is_rejected_too(t: DriverUnderTest) {
    let set = JobSet::plain(vec![job("a"), child("b", &["a"])]);
    rejects(&t, set, Rejected::EdgeOutsideFlow { job: id("b") }).await;
}

async fn a_join_outside_a_flow_is_rejected(t: DriverUnderTest) {
    let set = JobSet::plain(vec![job("a"), join("j", &[])]);
    rejects(&t, set, Rejected::JoinOutsideFlow { job: id("j") }).await;
}

async fn a_rejected_flow_does_not_disturb_the_other_sets(t: DriverUnderTest) {
    let sets = vec![
        flow([job("a"), child("b", &["a"])]),
        flow([job("c"), child("d", &["c", "c"])]),
        JobSet::from(job("e")),
    ];
    let answers = t.enqueue_sets(sets, T0).await;
    let stored = |texts: &[&str]| Ok(texts.iter().map(|it| Enqueued::Inserted(id(it))).collect());
    let (job, parent) = (id("d"), id("c"));
    assert_eq!(answers[0], stored(&["a", "b"]));
    assert_eq!(answers[1], Err(Rejected::DuplicateParent { job, parent }));
    assert_eq!(answers[2], stored(&["e"]));
    assert_eq!(t.snapshot(T0).await.records.len(), 3);
}

async fn a_rejected_flow_can_be_stored_once_it_is_mended(t: DriverUnderTest) {
    let broken = [job("a"), child("b", &["a"]), job("c")];
    let answer = t.enqueue_set(flow(broken), T0).await;
    let (first, second) = (id("b"), id("c"));
    assert_eq!(answer, Err(Rejected::SeveralTails { first, second }));
    let mended = [job("a"), child("b", &["a"]), child("c", &["b"])];
    let answers = t.put_flow(mended, T0).await;
    assert!(answers.iter().all(Enqueued::is_new), "{answers:?}");
}
