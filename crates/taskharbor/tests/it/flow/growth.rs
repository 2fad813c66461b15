//! Handlers that return a flow in place of their output.

use serde::{Deserialize, Serialize};
use taskharbor::{
    Context, Flow, FlowState, Handlers, Job, JobResult, Outcome, WaitError, testing::Harbor,
};

use super::{Add, Give, Write, add, give, gives, write};

/// Produces numbers from 1 to this, of jobs of their own.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "count", output = Vec<i64>)]
struct Count(i64);

/// Takes a number and produces twice that, or grows once more.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "double", output = i64)]
struct Deeper {
    left: u32,
}

async fn count(job: Count, _: Context) -> JobResult<Flow<Vec<i64>>> {
    Ok(Flow::group((1..=job.0).map(Give)))
}

async fn deeper(job: Deeper, _: Context) -> JobResult<Outcome<i64>> {
    Ok(match job.left {
        0 => Outcome::Done(7),
        left => Outcome::Continue(Flow::first(Deeper { left: left - 1 }).then(Add(1))),
    })
}

fn harbor() -> Harbor {
    let handlers = Handlers::new().on(count).on(deeper).on(give).on(add).on(write);
    Harbor::new(handlers)
}

#[tokio::test(start_paused = true)]
async fn a_plain_job_grows_into_a_group_and_whoever_waits_gets_the_list() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(Count(3)).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), [1, 2, 3]);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Done);
    let none = harbor.client().enqueue(Count(0)).await.unwrap();
    assert_eq!(none.wait().await.unwrap(), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_grows_is_read_in_its_place() {
    let harbor = harbor();
    let flow = Flow::first(Count(2)).then(Write);
    assert_eq!(harbor.client().start(flow).await.unwrap().wait().await.unwrap(), "[1, 2]");
    let group = Flow::group([Count(1), Count(2), Count(0)]);
    let lists = harbor.client().start(group).await.unwrap().wait().await.unwrap();
    assert_eq!(lists, [vec![1], vec![1, 2], vec![]]);
}

#[tokio::test(start_paused = true)]
async fn what_has_grown_grows_again() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(Deeper { left: 5 }).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 12);
    let chord = Flow::chord([Deeper { left: 2 }, Deeper { left: 0 }], Write);
    assert_eq!(harbor.client().start(chord).await.unwrap().wait().await.unwrap(), "[9, 7]");
}

#[tokio::test(start_paused = true)]
async fn a_growth_over_the_limit_is_dead_lettered_and_stores_nothing() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(Count(10_000)).await.unwrap();
    let Err(WaitError::DeadLettered { reason: Some(reason) }) = handle.wait().await else {
        panic!("no failure")
    };
    assert!(reason.as_str().contains("10001"), "{reason}");
    assert_eq!(harbor.records().await.len(), 1);
    let most = harbor.client().start(Flow::first(Count(9_999)).then(Write)).await.unwrap();
    assert!(most.wait().await.is_ok());
    let _ = gives([]);
}
