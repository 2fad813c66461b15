//! Flows on a PostgreSQL server.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{
    AnyDriver, Client, Context, Each, Failure, Flow, FlowState, Handle, Handlers, Job, JobError,
    JobResult, Requeue, Running, State, WaitError, Worker,
};
use tokio::time::{sleep, timeout};

use crate::harness::store::{self, Store};

#[allow(clippy::allow_attributes_without_reason, reason = "it is as people write it")]
#[path = "../sketch/flows.rs"]
mod sketch;

/// Produces this number; a negative one is a permanent failure.
#[derive(Clone, Serialize, Deserialize, Job)]
#[job(type = "give", output = i64)]
struct Give(i64);

/// Becomes this many jobs.
#[derive(Clone, Serialize, Deserialize, Job)]
#[job(type = "count", output = Vec<i64>)]
struct Count(i64);

/// Adds up the outcomes one by one; a failure counts as a thousand.
#[derive(Clone, Serialize, Deserialize, Job)]
#[job(type = "sum", input = Each<Result<i64, Failure>>, output = i64)]
struct Sum;

/// Runs because a flow failed.
#[derive(Clone, Serialize, Deserialize, Job)]
#[job(type = "undo", input = Failure)]
struct Undo;

async fn give(job: Give, _: Context) -> JobResult<i64> {
    if job.0 < 0 { Err(JobError::unrecoverable("negative")) } else { Ok(job.0) }
}

async fn count(job: Count, _: Context) -> JobResult<Flow<Vec<i64>>> {
    Ok(Flow::group((0..job.0).map(Give)))
}

async fn sum(job: Sum, cx: Context) -> JobResult<i64> {
    let (mut sum, mut outcomes) = (0, cx.inputs(&job)?);
    while let Some(outcome) = outcomes.next().await {
        sum += outcome?.unwrap_or(1_000);
    }
    Ok(sum)
}

async fn undo(job: Undo, cx: Context) -> JobResult {
    cx.progress(cx.input(&job)?.to_string());
    Ok(())
}

async fn start() -> (Store, Client, Running) {
    let store = store::named().await;
    let driver = AnyDriver::new(store.driver().clone());
    let handlers = Handlers::new().on(give).on(count).on(sum).on(undo);
    let worker = Worker::builder(&driver).handlers(handlers).queue("default", 8).build().unwrap();
    (store, Client::new(&driver), worker.start())
}

async fn settled<O>(handle: &Handle<O>) -> FlowState {
    let settled = async {
        loop {
            match handle.status().await.unwrap().state {
                FlowState::Running => sleep(Duration::from_millis(5)).await,
                state => return state,
            }
        }
    };
    timeout(Duration::from_secs(20), settled).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_that_people_see_runs() {
    let store = store::named().await;
    let driver = AnyDriver::new(store.driver().clone());
    timeout(Duration::from_secs(60), sketch::run::all(&driver)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_nest_expand_and_are_read_page_by_page() {
    let (_store, client, running) = start().await;
    let members = (0..1_500).map(|n| Give(if n == 700 { -1 } else { 1 }));
    let gathered = client.start(Flow::gather(members).then(Sum)).await.unwrap();
    let grown = client.start(Flow::group([Count(2), Count(0), Count(1)])).await.unwrap();
    let pair = Flow::join(Flow::first(Count(3)), Flow::group([Flow::first(Give(7)).discard()]));
    let pair = client.start(pair).await.unwrap();
    assert_eq!(gathered.wait().await.unwrap(), 1_499 + 1_000);
    assert_eq!(grown.wait().await.unwrap(), [vec![0, 1], vec![], vec![0]]);
    assert_eq!(pair.wait().await.unwrap(), (vec![0, 1, 2], vec![()]));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_blocks_a_flow_or_runs_its_failure_job() {
    let (_store, client, running) = start().await;
    let held = client.start(Flow::group([Give(1), Give(-1)])).name("held").await.unwrap();
    assert_eq!(settled(&held).await, FlowState::Blocked);
    assert_eq!(held.requeue_failed(Requeue::new()).await.unwrap(), 1);
    assert_eq!(settled(&held).await, FlowState::Blocked);
    assert_eq!(held.cancel().await.unwrap(), State::Cancelled);
    assert!(matches!(held.wait().await, Err(WaitError::Cancelled { .. })));

    let good = client.start(Flow::first(Give(1)).on_failure(Undo)).await.unwrap();
    assert_eq!(good.wait().await.unwrap(), 1);
    let bad = client.start(Flow::first(Give(-1)).on_failure(Undo)).await.unwrap();
    assert_eq!(settled(&bad).await, FlowState::Failed);
    let tree = bad.tree(10).await.unwrap();
    let text = tree.to_string();
    assert!(tree.is_complete && text.contains("give  dlq"), "{text}");
    let undo = tree.members.iter().find(|member| member.job_type.as_str() == "undo").unwrap();
    assert_eq!(undo.state, State::Done);
    running.shutdown().await.unwrap();
}
