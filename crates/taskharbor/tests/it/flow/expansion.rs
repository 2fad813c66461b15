//! Handlers that return a flow in place of their output.

use serde::{Deserialize, Serialize};
use taskharbor::{
    Context, FailurePolicy, Flow, FlowState, Handlers, Job, JobResult, Options, Outcome, State,
    WaitError, testing::Harbor,
};

use super::{Add, Give, Judge, Rest, Write, add, give, gives, judge, rest, write};

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

/// Expands into a chord of its rows, which produces how many there are; deeper, into what does so.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "import", output = i64)]
struct Import {
    rows: Vec<i64>,
    depth: u32,
    is_hasty: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "rows", input = Vec<i64>, output = i64)]
struct Rows;

async fn import(job: Import, _: Context) -> JobResult<Flow<i64>> {
    if job.depth > 0 {
        return Ok(Flow::first(Import { depth: job.depth - 1, ..job }));
    }
    let flow = Flow::chord(gives(job.rows), Rows);
    Ok(if job.is_hasty { flow.policy(FailurePolicy::FailFast) } else { flow })
}

async fn rows(job: Rows, cx: Context) -> JobResult<i64> {
    Ok(cx.input(&job)?.len() as i64)
}

fn imports(rows: impl Into<Vec<i64>>, depth: u32) -> Import {
    Import { rows: rows.into(), depth, is_hasty: false }
}

fn harbor() -> Harbor {
    let handlers = Handlers::new().on(count).on(deeper).on(give).on(add).on(write);
    Harbor::new(handlers.on(import).on(rows).on(judge).on(rest))
}

/// How often the failure job ran of a flow that ran as far as it can, and how the flow ended.
async fn undone<O>(flow: Flow<O>) -> (u32, FlowState) {
    let harbor = harbor();
    let handle = harbor.client().start(flow.on_failure(Rest)).await.unwrap();
    harbor.run_until_idle().await;
    let records = harbor.records().await;
    let undo = records.iter().filter(|it| it.job.job_type.as_str() == "rest");
    let ran = undo.filter(|it| it.state == State::Done).count() as u32;
    (ran, handle.status().await.unwrap().state)
}

#[tokio::test(start_paused = true)]
async fn a_plain_job_expands_into_a_group_and_a_waiting_caller_gets_the_list() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(Count(3)).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), [1, 2, 3]);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Done);
    let none = harbor.client().enqueue(Count(0)).await.unwrap();
    assert_eq!(none.wait().await.unwrap(), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_outputs_of_an_expanded_member_are_read_in_its_place() {
    let harbor = harbor();
    let flow = Flow::first(Count(2)).then(Write);
    assert_eq!(harbor.client().start(flow).await.unwrap().wait().await.unwrap(), "[1, 2]");
    let group = Flow::group([Count(1), Count(2), Count(0)]);
    let lists = harbor.client().start(group).await.unwrap().wait().await.unwrap();
    assert_eq!(lists, [vec![1], vec![1, 2], vec![]]);
}

#[tokio::test(start_paused = true)]
async fn members_of_an_expansion_expand_again() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(Deeper { left: 5 }).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 12);
    let chord = Flow::chord([Deeper { left: 2 }, Deeper { left: 0 }], Write);
    assert_eq!(harbor.client().start(chord).await.unwrap().wait().await.unwrap(), "[9, 7]");
}

#[tokio::test(start_paused = true)]
async fn an_expansion_over_the_limit_is_dead_lettered_and_stores_nothing() {
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

#[tokio::test(start_paused = true)]
async fn a_gathered_job_that_grew_and_failed_is_one_failure() {
    for depth in [0, 2] {
        let harbor = harbor();
        let flow = Flow::gather([imports([1, 2], depth), imports([3, -4], depth)]).then(Judge);
        let outcomes = harbor.client().start(flow).await.unwrap().wait().await.unwrap();
        assert!(outcomes.starts_with("2; cancelled: "), "{outcomes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_job_runs_for_an_expanded_flow() {
    for depth in [0, 2] {
        let flow = || Flow::first(imports([3, -4], depth));
        assert_eq!(undone(flow()).await, (1, FlowState::Cancelled));
        assert_eq!(undone(flow().then(Add(1))).await, (1, FlowState::Cancelled));
        let hasty = Import { is_hasty: true, ..imports([3, -4], depth) };
        assert_eq!(undone(Flow::first(hasty).then(Add(1))).await, (1, FlowState::Cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn an_expansion_inherits_the_policy_fail_fast() {
    let harbor = harbor();
    let late = Options::new().delay(std::time::Duration::from_secs(3_600));
    let members = [Flow::first(imports([3, -4], 1)), Flow::first(Give(1).with(late))];
    let flow = Flow::chord(members, Write).policy(FailurePolicy::FailFast);
    let handle = harbor.client().start(flow).await.unwrap();
    assert!(handle.wait().await.is_err());
    assert_eq!(handle.status().await.unwrap().state, FlowState::Cancelled);
    assert!(harbor.records().await.iter().all(|it| it.state != State::Scheduled));
}

#[tokio::test(start_paused = true)]
async fn an_expansion_without_a_policy_stays_blocked() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(imports([3, -4], 0)).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(handle.status().await.unwrap().state, FlowState::Blocked);
}
