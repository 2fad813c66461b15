//! Jobs that run because a flow failed.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Context, Failure, FailurePolicy, Flow, FlowState, Handlers, Job, JobResult, State, WaitError,
    testing::Harbor,
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
    assert!(matches!(handle.wait().await, Err(WaitError::Cancelled { .. })));
    harbor.run_until_idle().await;
    assert_eq!(*told.lock().unwrap(), ["dead-lettered: negative"]);
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FlowState::Cancelled);
    assert_eq!(status.members.dlq, 1);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_fails_anywhere_runs_it_once() {
    let (harbor, told) = harbor();
    let group = Flow::chord(gives([1, -2, -3]), Write);
    let handle = harbor.client().start(group.on_failure(Undo)).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(*told.lock().unwrap(), ["undone"]);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Cancelled);
    // Fail-fast does not stop it.
    let fast = Flow::chord(gives([1, -2]), Write).policy(FailurePolicy::FailFast);
    harbor.client().start(fast.on_failure(Undo)).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(told.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_a_person_cancels_runs_none() {
    let (harbor, told) = harbor();
    let late = taskharbor::Options::new().delay(std::time::Duration::from_secs(60));
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
        (Block, 0, FlowState::Held),
        (Cancel, 1, FlowState::Cancelled),
        (FailFast, 1, FlowState::Cancelled),
        (Continue, 1, FlowState::Cancelled),
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
    assert_eq!((told.len(), state), (2, FlowState::Cancelled));
}
