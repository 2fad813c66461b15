//! Outputs that are taken one by one.

use serde::{Deserialize, Serialize};
use taskharbor::{
    Client, Context, Each, Failure, Flow, Handlers, Job, JobResult, MessagePack, Outcome,
    testing::{Harbor, call},
};

use super::{Give, give, gives};

/// Adds up what it is given, and counts.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "sum each", input = Each<i64>, output = (usize, i64))]
struct SumEach;

async fn sum_each(job: SumEach, cx: Context) -> JobResult<(usize, i64)> {
    let (mut count, mut sum, mut numbers) = (0, 0, cx.inputs(&job)?);
    while let Some(number) = numbers.next().await {
        count += 1;
        sum += number?;
    }
    Ok((count, sum))
}

/// Counts what failed.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "count failures", input = Each<Result<i64, Failure>>, output = usize)]
struct CountFailures;

async fn count_failures(job: CountFailures, cx: Context) -> JobResult<usize> {
    let (mut count, mut outcomes) = (0, cx.inputs(&job)?);
    while let Some(outcome) = outcomes.next().await {
        count += usize::from(outcome?.is_err());
    }
    Ok(count)
}

/// Produces a whole list.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "list", output = Vec<i64>)]
struct Whole(Vec<i64>);

async fn whole(job: Whole, _: Context) -> JobResult<Vec<i64>> {
    Ok(job.0)
}

fn harbor() -> Harbor {
    Harbor::new(Handlers::new().on(give).on(sum_each).on(count_failures).on(whole))
}

#[tokio::test(start_paused = true)]
async fn a_group_of_several_pages_is_read_to_its_end() {
    let harbor = harbor();
    let handle = harbor.client().start(Flow::chord(gives(0..2_500), SumEach)).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), (2_500, 2_500 * 2_499 / 2));
}

#[tokio::test(start_paused = true)]
async fn an_empty_group_and_a_list_that_one_job_produced_are_read_too() {
    let harbor = harbor();
    let handle = harbor.client().start(Flow::chord(gives([]), SumEach)).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), (0, 0));
    let one = Flow::first(Whole(vec![4, 5])).then(SumEach);
    assert_eq!(harbor.client().start(one).await.unwrap().wait().await.unwrap(), (2, 9));
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_read_one_by_one() {
    let harbor = harbor();
    let flow = Flow::gather(gives((0..1_200).map(|n| n - 3))).then(CountFailures);
    assert_eq!(harbor.client().start(flow).await.unwrap().wait().await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn every_shape_is_read_in_every_format() {
    let harbor = harbor();
    let client = Client::builder(harbor.driver()).codec(MessagePack).build().unwrap();
    let flow = Flow::gather(gives([1, -1, 2])).then(CountFailures);
    assert_eq!(client.start(flow).await.unwrap().wait().await.unwrap(), 1);
    let pair = Flow::join(Give(1), Flow::group([Flow::gather(gives([2, -2]))]));
    let handle = client.start(pair).await.unwrap();
    let (one, outcomes) = handle.wait().await.unwrap();
    assert_eq!((one, &outcomes[0][0], outcomes[0][1].is_err()), (1, &Ok(2), true));
    // Another client finds out how it was written.
    let other: taskharbor::Handle<i64> = harbor.client().handle::<Give>(handle.id().clone());
    assert!(other.wait_raw().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_each_is_tested_by_itself() {
    let outcome = call(sum_each, SumEach, ()).inputs([1, 2, 3]).await;
    assert!(matches!(outcome, Ok(Outcome::Done((3, 6)))));
    let error = call(sum_each, SumEach, ()).await.unwrap_err();
    assert_eq!(error.to_string(), "no step before sum each has produced its input");
}
