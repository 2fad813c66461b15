//! Waiting for what a job produces.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, Context, Driver, DriverError, Flow, Handle, Handlers, Job, JobError, JobId, JobResult,
    Outcome, State, WaitError, testing::Harbor,
};
use taskharbor_core::admin::{Action, Manage};

use super::{Carry, Sum, add_up, carry, put_down, store, sum};

fn harbor() -> Harbor {
    Harbor::new(Handlers::new().on(add_up).on(put_down))
}

/// What an operator does to one job.
async fn manage(harbor: &Harbor, id: &JobId, action: Action) -> Option<State> {
    let request = Manage::new(vec![id.clone()], action, harbor.now().await);
    harbor.driver().manage(request).await.ok()?.pop()?.ok()
}

#[tokio::test(start_paused = true)]
async fn the_output_of_a_job_that_is_done_is_answered() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(sum([40, 2])).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(handle.wait().await.unwrap(), 42);
    assert_eq!(handle.clone().wait().await.unwrap(), 42, "waiting again is fine");
    assert_eq!(&handle.wait_raw().await.unwrap().unwrap()[..], b"42");
}

#[tokio::test(start_paused = true)]
async fn one_may_wait_before_the_job_has_begun() {
    let harbor = harbor();
    let day = Duration::from_secs(86_400);
    let handle = harbor.client().enqueue(sum([40, 2])).delay(day).await.unwrap();
    let before = harbor.now().await;
    assert_eq!(handle.wait().await.unwrap(), 42);
    assert!(harbor.now().await.since(before) >= day);
}

/// How long after the end of this job, and of what it expanded into, a caller that waited goes on.
async fn lateness<O: taskharbor::Data>(harbor: &Harbor, handle: &Handle<O>) -> Duration {
    handle.wait().await.unwrap();
    let now = harbor.now().await;
    let record = harbor.record(handle.id()).await;
    let end = match &record.expanded_into {
        Some(tail) => harbor.record(tail).await.finished_at,
        None => record.finished_at,
    };
    now.since(end.unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_wakes_callers_that_wait_for_it() {
    let (harbor, hour) = (growing(), Duration::from_secs(3_600));
    let job = harbor.client().enqueue(sum([40, 2])).delay(hour).await.unwrap();
    assert_eq!(lateness(&harbor, &job).await, Duration::ZERO);
    let grown = harbor.client().enqueue(Report { terms: vec![3] }).delay(hour).await.unwrap();
    let late = lateness(&harbor, &grown).await;
    assert!(late < Duration::from_millis(10), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_produces_nothing_answers_the_unit() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(carry(1)).await.unwrap();
    handle.wait().await.unwrap();
    assert_eq!(handle.wait_raw().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_dead_lettered_answers_its_reason() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(sum([u64::MAX, 1])).await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert_eq!(error.to_string(), "the job was dead-lettered: the sum is too large");
    let WaitError::DeadLettered { reason: Some(reason) } = error else { panic!("{error}") };
    assert_eq!(reason.as_str(), "the sum is too large");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_cancelled_answers_that() {
    let harbor = store();
    let handle = harbor.client().enqueue(sum([1])).await.unwrap();
    assert_eq!(manage(&harbor, handle.id(), Action::Cancel).await, Some(State::Cancelled));
    let error = handle.wait().await.unwrap_err();
    assert!(matches!(error, WaitError::Cancelled { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_removed_is_gone() {
    let harbor = harbor();
    let handle = harbor.client().enqueue(sum([1])).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(manage(&harbor, handle.id(), Action::Purge).await, Some(State::Done));
    let error = handle.wait().await.unwrap_err();
    assert!(matches!(error, WaitError::Gone), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_removed_while_one_waits_is_gone() {
    let harbor = store();
    let handle = harbor.client().enqueue(sum([1])).await.unwrap();
    let waiting = tokio::spawn(async move { handle.wait().await.map_err(|it| it.to_string()) });
    harbor.advance(Duration::from_secs(60)).await;
    let id = harbor.records().await[0].job.id.clone();
    assert_eq!(manage(&harbor, &id, Action::Cancel).await, Some(State::Cancelled));
    assert_eq!(manage(&harbor, &id, Action::Purge).await, Some(State::Cancelled));
    assert_eq!(waiting.await.unwrap(), Err(WaitError::Gone.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_never_enqueued_is_gone() {
    let harbor = harbor();
    let handle = harbor.client().handle::<Sum>(JobId::new("unknown").unwrap());
    let error = handle.wait().await.unwrap_err();
    assert!(matches!(error, WaitError::Gone), "{error}");
    let error = harbor.client().handle::<Carry>(JobId::new("unknown").unwrap()).wait().await;
    assert!(matches!(error, Err(WaitError::Gone)));
}

#[tokio::test(start_paused = true)]
async fn a_handle_made_from_an_id_is_as_good() {
    let harbor = harbor();
    let id = harbor.client().enqueue(sum([40, 2])).await.unwrap().id().clone();
    let handle = harbor.client().handle::<Sum>(id.clone());
    assert_eq!((handle.id(), handle.is_new()), (&id, false));
    assert_eq!(handle.wait().await.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn an_output_of_another_type_is_not_taken_for_it() {
    let harbor = harbor();
    let sum = harbor.client().enqueue(sum([1])).await.unwrap();
    harbor.run_until_idle().await;
    let error = harbor.client().handle::<Report>(sum.id().clone()).wait().await.unwrap_err();
    assert!(matches!(error, WaitError::Decode(_)), "{error}");
    let nothing = harbor.client().enqueue(carry(1)).await.unwrap();
    harbor.run_until_idle().await;
    let error = harbor.client().handle::<Sum>(nothing.id().clone()).wait().await.unwrap_err();
    assert!(matches!(error, WaitError::Decode(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_asked_is_said_to_be_so() {
    let harbor = store();
    let handle = harbor.client().enqueue(sum([1])).await.unwrap();
    harbor.driver().close().await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert!(matches!(error, WaitError::Store(DriverError::Closed)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_changes_nothing() {
    let harbor = harbor();
    let hour = Duration::from_secs(3_600);
    let handle = harbor.client().enqueue(sum([40, 2])).delay(hour).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), handle.wait()).await.unwrap_err();
    assert_eq!(handle.wait().await.unwrap(), 42);
}

/// Adds up in two steps: expands into a flow whose output stands for its own.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "report", output = String)]
struct Report {
    terms: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "write", input = u64, output = String)]
struct Write {
    unit: String,
}

async fn report(job: Report, _: Context) -> JobResult<Flow<String>> {
    Ok(Flow::first(sum(job.terms)).then(Write { unit: "eggs".into() }))
}

async fn write(job: Write, cx: Context) -> JobResult<String> {
    let total = cx.input(&job)?;
    Ok(format!("{total} {}", job.unit))
}

fn growing() -> Harbor {
    Harbor::new(Handlers::new().on(add_up).on(report).on(write))
}

#[tokio::test(start_paused = true)]
async fn a_job_that_expands_into_a_flow_has_the_output_of_the_flow() {
    let harbor = growing();
    let handle = harbor.client().enqueue(Report { terms: vec![5, 7] }).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), "12 eggs");
    let record = harbor.record(handle.id()).await;
    assert_eq!(record.state, State::Done);
    assert!(record.expanded_into.is_some());
    let by_id = harbor.client().handle::<Report>(handle.id().clone());
    assert_eq!(by_id.wait().await.unwrap(), "12 eggs");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_flow_fails_at_its_end_answers_that_failure() {
    let harbor = Harbor::new(Handlers::new().on(add_up).on(report).on(refuse_to_write));
    let handle = harbor.client().enqueue(Report { terms: vec![5, 7] }).await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert_eq!(error.to_string(), "the job was dead-lettered: out of ink");
}

async fn refuse_to_write(_: Write, _: Context) -> JobResult<String> {
    Err(JobError::unrecoverable("out of ink"))
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_decide_whether_to_expand() {
    async fn perhaps(job: Report, _: Context) -> JobResult<Outcome<String>> {
        Ok(match &job.terms[..] {
            [] => Outcome::Done("nothing".to_owned()),
            _ => Outcome::Continue(Flow::first(sum(job.terms)).then(Write { unit: "hens".into() })),
        })
    }
    let harbor = Harbor::new(Handlers::new().on(add_up).on(perhaps).on(write));
    let done = harbor.client().enqueue(Report { terms: vec![] }).await.unwrap();
    assert_eq!(done.wait().await.unwrap(), "nothing");
    let grown = harbor.client().enqueue(Report { terms: vec![3] }).await.unwrap();
    assert_eq!(grown.wait().await.unwrap(), "3 hens");
}

#[test]
fn waiting_outside_a_runtime_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.block_on(async {
        let driver = taskharbor::connect("memory:").await.unwrap();
        let client = taskharbor::Client::new(&driver);
        client.enqueue_raw("never", b"{}").await.unwrap()
    });
    let mut wait = std::pin::pin!(handle.wait_raw());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(answer) = wait.as_mut().poll(&mut context) else {
        panic!("it waits");
    };
    assert!(matches!(answer, Err(taskharbor::WaitError::NoRuntime)), "{answer:?}");
}
