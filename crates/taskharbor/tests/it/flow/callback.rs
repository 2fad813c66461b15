//! Jobs that run because a flow failed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Action, Admin, Context, Denied, Failure, FailurePolicy, Flow, FlowState, Handlers, Job,
    JobKind, JobResult, Manage, Options, Requeue, State, WaitError, testing::Harbor,
};

use super::{Add, Give, Judge, Write, gives};

/// Told what went wrong.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "regret", queue = "regrets", input = Failure)]
struct Regret;

/// Told only that something did.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "undo")]
struct Undo;

type Told = Arc<Mutex<Vec<String>>>;

async fn regret(job: Regret, cx: Context<Told>) -> JobResult {
    let failure = cx.input(&job)?;
    cx.state().lock().unwrap().push(failure.to_string());
    Ok(())
}

async fn undo(_: Undo, cx: Context<Told>) -> JobResult {
    cx.state().lock().unwrap().push("undone".to_owned());
    Ok(())
}

fn harbor() -> (Harbor, Told) {
    async fn give(job: Give, _: Context<Told>) -> JobResult<i64> {
        if job.0 < 0 { Err(taskharbor::JobError::unrecoverable("negative")) } else { Ok(job.0) }
    }
    async fn add(job: Add, cx: Context<Told>) -> JobResult<i64> {
        Ok(cx.input(&job)? + job.0)
    }
    async fn write(job: Write, cx: Context<Told>) -> JobResult<String> {
        Ok(format!("{:?}", cx.input(&job)?))
    }
    async fn judge(job: Judge, cx: Context<Told>) -> JobResult<String> {
        Ok(format!("{:?}", cx.input(&job)?.iter().map(Result::is_ok).collect::<Vec<_>>()))
    }
    let told = Told::default();
    let handlers = Handlers::new().on(give).on(add).on(write).on(judge).on(regret).on(undo);
    let handlers = handlers.on(unwind);
    (Harbor::new(handlers.with_state(Arc::clone(&told))), told)
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_done_runs_no_failure_job() {
    let (harbor, told) = harbor();
    let flow = Flow::first(Give(1)).then(Add(2)).on_failure(Regret);
    let handle = harbor.client().start(flow).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 3);
    assert_eq!(*told.lock().unwrap(), [""; 0]);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Done);
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_last_step_fails_runs_it_with_the_failure() {
    let (harbor, told) = harbor();
    let handle = harbor.client().start(Flow::first(Give(-1)).on_failure(Regret)).await.unwrap();
    assert!(matches!(handle.wait().await, Err(WaitError::DeadLettered { .. })));
    harbor.run_until_idle().await;
    assert_eq!(*told.lock().unwrap(), ["dead-lettered: negative"]);
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FlowState::Failed);
    assert_eq!((status.members.dlq, status.members.done), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_fails_anywhere_runs_it_once() {
    let (harbor, told) = harbor();
    let group = Flow::chord(gives([1, -2, -3]), Write);
    let handle = harbor.client().start(group.on_failure(Undo)).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(*told.lock().unwrap(), ["undone"]);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn fail_fast_cancels_the_other_members_and_not_the_failure_job() {
    let (harbor, told) = harbor();
    let late = || Options::new().delay(Duration::from_secs(60));
    let members = [Give(-2).with(Options::new()), Give(1).with(late())];
    let flow = Flow::chord(members, Write).policy(FailurePolicy::FailFast).on_failure(Regret);
    let handle = harbor.client().start(flow).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(told.lock().unwrap().len(), 1);
    assert!(told.lock().unwrap()[0].starts_with("cancelled: "), "{told:?}");
    let status = handle.status().await.unwrap();
    // The late member, the join and the finalizer were cancelled; the failure job is done.
    assert_eq!((status.state, status.members.cancelled), (FlowState::Cancelled, 3));
    assert_eq!((status.members.dlq, status.members.done), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_succeeds_is_terminal_at_once_though_no_worker_serves_its_failure_job() {
    let (harbor, told) = harbor();
    let unserved = Undo.with(Options::new().queue("unserved"));
    let flow = Flow::first(Give(1)).then(Add(2)).on_failure(unserved);
    let handle = harbor.client().start(flow).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 3);
    let status = handle.status().await.unwrap();
    assert_eq!((status.state, status.members.cancelled), (FlowState::Done, 1));
    assert!(status.finished_at.is_some());
    assert!(told.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn steps_behind_a_part_with_a_failure_job_wait_for_the_part() {
    let flow = |first, second| {
        Flow::first(Give(first)).then(Add(1)).on_failure(Undo).then(Add(second)).on_failure(Regret)
    };
    let (harbor, told) = harbor();
    let good = harbor.client().start(flow(1, 2)).await.unwrap();
    assert_eq!(good.wait().await.unwrap(), 4);
    assert!(told.lock().unwrap().is_empty());
    // The steps, and two failure jobs that were not needed.
    assert_eq!(harbor.records().await.len(), 5);
    let bad = harbor.client().start(flow(-1, 2)).await.unwrap();
    harbor.run_until_idle().await;
    // The inner part has failed, and so has the whole.
    let mut told = told.lock().unwrap().clone();
    told.sort();
    assert_eq!(told.len(), 2);
    assert!(told[0].starts_with("cancelled: ") && told[1] == "undone", "{told:?}");
    assert_eq!(bad.status().await.unwrap().state, FlowState::Cancelled);
    // Every job waits for the step before it and no join stands between.
    let records = harbor.records().await;
    assert!(records.iter().all(|record| record.parents.len() <= 1));
    assert!(records.iter().all(|record| record.kind == JobKind::Work));
}

/// Undoes in two steps.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "unwind", input = Failure)]
struct Unwind {
    number: i64,
}

async fn unwind(job: Unwind, cx: Context<Told>) -> JobResult<Flow<()>> {
    assert!(cx.failure().is_some() && cx.input(&job).is_ok());
    Ok(Flow::first(Give(job.number)).then(Add(1)).discard())
}

#[tokio::test(start_paused = true)]
async fn the_handler_of_a_failure_job_can_return_a_flow() {
    for (number, done, cancelled) in [(5, 4, 0), (-5, 1, 2)] {
        let (harbor, _) = harbor();
        let flow = Flow::first(Give(-1)).on_failure(Unwind { number });
        let handle = harbor.client().start(flow).await.unwrap();
        harbor.run_until_idle().await;
        let status = handle.status().await.unwrap();
        // If the second flow fails, its steps are cancelled and do not stay blocked.
        assert_eq!(status.state, FlowState::Failed, "{status:?}");
        assert_eq!((status.members.done, status.members.cancelled), (done, cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_job_that_runs_without_a_failure_says_so() {
    let (harbor, told) = harbor();
    let handle = harbor.client().start(Flow::first(Give(1)).on_failure(Regret)).await.unwrap();
    handle.wait().await.unwrap();
    let records = harbor.records().await;
    let regret = records.iter().find(|it| it.job.job_type.as_str() == "regret").unwrap();
    let id = regret.job.id.clone();
    // It was not needed. Detached from its flow it can be requeued, and has nothing to read.
    let request =
        |requeue| Manage::new(vec![id.clone()], Action::Requeue(requeue), regret.job.created_at);
    let denied = harbor.driver().manage(request(Requeue::new())).await.unwrap();
    assert_eq!(denied, [Err(Denied::FlowOver)]);
    harbor.driver().manage(request(Requeue::new().detach())).await.unwrap()[0].clone().unwrap();
    harbor.run_until_idle().await;
    let reason = harbor.record(&id).await.reason.unwrap();
    assert!(reason.as_str().contains("has not failed"), "{reason}");
    assert!(told.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_a_person_cancels_runs_none() {
    let (harbor, told) = harbor();
    let late = Options::new().delay(Duration::from_secs(60));
    let flow = Flow::first(Give(1).with(late)).then(Add(1)).on_failure(Undo);
    let handle = harbor.client().start(flow).await.unwrap();
    handle.cancel().await.unwrap();
    harbor.run_until_idle().await;
    assert!(told.lock().unwrap().is_empty());
    assert!(harbor.records().await.iter().all(|it| it.state == State::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_flow_have_failure_jobs_of_their_own() {
    let (harbor, told) = harbor();
    let part = |n| Flow::first(Give(n)).then(Add(1)).on_failure(Undo);
    let handle =
        harbor.client().start(Flow::gather([part(1), part(-1)]).then(Judge)).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), "[true, false]");
    harbor.run_until_idle().await;
    assert_eq!(*told.lock().unwrap(), ["undone"]);
}

/// The flow ran as far as it can; what its failure jobs were told, and how it ended.
async fn told_of<O>(flow: Flow<O>) -> (Vec<String>, FlowState) {
    let (harbor, told) = harbor();
    let handle = harbor.client().start(flow).await.unwrap();
    harbor.run_until_idle().await;
    let told = told.lock().unwrap().clone();
    (told, handle.status().await.unwrap().state)
}

#[tokio::test(start_paused = true)]
async fn a_policy_means_the_same_before_and_after_a_failure_job() {
    use FailurePolicy::{Block, Cancel, Continue, FailFast};
    for (policy, runs, state) in [
        (Block, 0, FlowState::Blocked),
        (Cancel, 1, FlowState::Cancelled),
        (FailFast, 1, FlowState::Cancelled),
        // The last step runs without the output it needs, and fails itself.
        (Continue, 1, FlowState::Failed),
    ] {
        let flow = || Flow::first(Give(-1)).then(Add(1)).then(Add(1));
        for flow in [flow().policy(policy).on_failure(Undo), flow().on_failure(Undo).policy(policy)]
        {
            let (told, ended) = told_of(flow).await;
            assert_eq!((told.len(), ended), (runs, state), "{policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fail_fast_around_parts_with_failure_jobs_loses_none_of_these() {
    let part = |n| Flow::first(Give(n)).then(Add(1)).on_failure(Undo);
    let flow = Flow::group([part(1), part(-1), part(-2)]).policy(FailurePolicy::FailFast);
    let (told, state) = told_of(flow.then(Write)).await;
    // The part that would have succeeded was cancelled before its last step.
    assert_eq!((told.len(), state), (3, FlowState::Cancelled));
}
