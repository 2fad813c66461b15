//! Flows of every shape: what they are stored as, how they run, and what their steps read.

mod algebra;
mod callback;
mod each;
mod expansion;
mod gathered_outcome;
mod graph;
mod handle;
mod json;
mod large;
mod simulation;
#[allow(clippy::allow_attributes_without_reason, reason = "it is as people write it")]
#[path = "../sketch/flows.rs"]
mod sketch;

use serde::{Deserialize, Serialize};
use taskharbor::{
    Context, Failure, Flow, Handlers, Job, JobError, JobRecord, JobResult, testing::Harbor,
};

/// Produces this number; a negative one is a permanent failure.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "give", output = i64)]
struct Give(i64);

/// Takes a number and produces it plus this.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "add", input = i64, output = i64)]
struct Add(i64);

/// Takes numbers and produces their text, in order.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "write", input = Vec<i64>, output = String)]
struct Write;

/// Takes any input, as JSON, and produces it as a text.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "echo", input = Vec<Vec<i64>>, output = String)]
struct Echo;

/// Takes a number and a text.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "pair", input = (i64, String), output = String)]
struct Pair;

/// Takes the outcomes of the members.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "judge", input = Vec<Result<i64, Failure>>, output = String)]
struct Judge;

/// Takes nothing and produces nothing.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "rest")]
struct Rest;

async fn give(job: Give, _: Context) -> JobResult<i64> {
    if job.0 < 0 {
        return Err(JobError::unrecoverable(format!("{} is negative", job.0)));
    }
    Ok(job.0)
}

async fn add(job: Add, cx: Context) -> JobResult<i64> {
    Ok(cx.input(&job)? + job.0)
}

async fn write(job: Write, cx: Context) -> JobResult<String> {
    Ok(format!("{:?}", cx.input(&job)?))
}

async fn echo(job: Echo, cx: Context) -> JobResult<String> {
    Ok(format!("{:?}", cx.input(&job)?))
}

async fn pair(job: Pair, cx: Context) -> JobResult<String> {
    let (number, text) = cx.input(&job)?;
    Ok(format!("{number} {text}"))
}

async fn judge(job: Judge, cx: Context) -> JobResult<String> {
    let outcomes = cx.input(&job)?;
    let texts = outcomes.into_iter().map(|outcome| match outcome {
        Ok(number) => number.to_string(),
        Err(failure) => failure.to_string(),
    });
    Ok(texts.collect::<Vec<_>>().join("; "))
}

async fn rest(job: Rest, cx: Context) -> JobResult {
    cx.input(&job)
}

fn handlers() -> Handlers {
    Handlers::new().on(give).on(add).on(write).on(echo).on(pair).on(judge).on(rest)
}

fn harbor() -> Harbor {
    Harbor::new(handlers())
}

fn gives(numbers: impl IntoIterator<Item = i64>) -> Vec<Give> {
    numbers.into_iter().map(Give).collect()
}

/// How many edges these jobs have together.
fn edges(records: &[JobRecord]) -> usize {
    records.iter().map(|record| record.parents.len()).sum()
}

/// What a flow of these handlers produces.
async fn outcome<O: taskharbor::Data>(flow: Flow<O>) -> O {
    harbor().client().start(flow).await.unwrap().wait().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_program_that_people_see_runs() {
    let harbor = Harbor::new(Handlers::new());
    sketch::run::all(harbor.driver()).await;
}
