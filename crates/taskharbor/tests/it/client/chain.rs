//! Flows of one step after another.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, EnqueueError, FailurePolicy, Flow, Handlers, IntoFlow, Job,
    JobError, JobResult, KeyHold, Options, Rejected, State, WaitError, testing::Harbor,
};
use taskharbor_core::{driver::Limits, flow::FlowState};
use taskharbor_memory::MemoryDriver;

/// Produces the bytes of a page.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "fetch", queue = "net", output = Vec<u8>)]
struct Fetch {
    address: String,
}

/// Takes bytes and produces their number, times a factor.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "measure", input = Vec<u8>, output = usize)]
struct Measure {
    factor: usize,
}

/// Takes a number, and produces what there is to say about it.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "tell", input = usize, output = Option<String>)]
struct Tell;

async fn fetch(job: Fetch, _: Context) -> JobResult<Vec<u8>> {
    Ok(job.address.into_bytes())
}

async fn measure(job: Measure, cx: Context) -> JobResult<usize> {
    Ok(cx.input(&job)?.len() * job.factor)
}

async fn tell(job: Tell, cx: Context) -> JobResult<Option<String>> {
    let size = cx.input(&job)?;
    Ok((size > 0).then(|| format!("{size} bytes")))
}

fn harbor() -> Harbor {
    Harbor::new(Handlers::new().on(fetch).on(measure).on(tell))
}

fn page() -> Fetch {
    Fetch { address: "a page".to_owned() }
}

fn chain() -> Flow<Option<String>> {
    Flow::first(page()).then(Measure { factor: 2 }).then(Tell)
}

#[tokio::test(start_paused = true)]
async fn each_step_takes_what_the_one_before_it_produced() {
    let harbor = harbor();
    let handle = harbor.client().start(chain()).await.unwrap();
    assert!(handle.is_new());
    assert_eq!(handle.wait().await.unwrap(), Some("12 bytes".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn all_steps_are_stored_at_once_and_wait_for_each_other() {
    let harbor = Harbor::new(Handlers::new());
    let handle = harbor.client().start(chain()).await.unwrap();
    let records = harbor.records().await;
    let states: Vec<_> = records.iter().map(|it| (it.job.job_type.as_str(), it.state)).collect();
    assert_eq!(
        states,
        [("fetch", State::Ready), ("measure", State::Blocked), ("tell", State::Blocked)]
    );
    assert_eq!(&records[2].job.id, handle.id());
    assert_eq!(records[2].parents, [records[1].job.id.clone()]);
    assert_eq!(records[1].parents, [records[0].job.id.clone()]);
    assert!(records.iter().all(|it| it.job.flow.as_ref() == Some(handle.id())));
}

#[tokio::test(start_paused = true)]
async fn a_job_or_a_job_with_options_is_a_flow_of_one_step() {
    let harbor = harbor();
    let job = harbor.client().start(page()).await.unwrap();
    assert_eq!(job.wait().await.unwrap(), b"a page");
    let step = page().with(Options::new().delay(Duration::from_secs(5)));
    let step = harbor.client().start(step).await.unwrap();
    assert_eq!(harbor.state(step.id()).await, State::Scheduled);
    assert_eq!(step.wait().await.unwrap(), b"a page");
}

#[tokio::test(start_paused = true)]
async fn a_flow_may_be_a_step_of_another() {
    let harbor = harbor();
    let rest = Flow::first(Measure { factor: 1 }).then(Tell);
    let handle = harbor.client().start(Flow::first(page()).then(rest)).await.unwrap();
    assert_eq!(handle.wait().await.unwrap().as_deref(), Some("6 bytes"));
    let nested = Flow::first(Flow::first(page().into_flow()).then(Measure { factor: 3 }));
    let handle = harbor.client().start(nested).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 18);
}

#[tokio::test(start_paused = true)]
async fn a_key_keeps_a_second_flow_from_starting() {
    let harbor = harbor();
    let first = harbor.client().start(chain()).idempotency_key("nightly").await.unwrap();
    let second = harbor.client().start(chain()).idempotency_key("nightly").await.unwrap();
    assert!(first.is_new());
    assert!(!second.is_new());
    assert_eq!(first.id(), second.id());
    assert_eq!(harbor.records().await.len(), 3);
    assert_eq!(second.wait().await.unwrap(), Some("12 bytes".to_owned()));
    let third = harbor.client().start(chain()).idempotency_key("nightly").await.unwrap();
    assert!(!third.is_new(), "the key is held although the flow is done");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_until_done_is_free_then() {
    let harbor = harbor();
    let start =
        || harbor.client().start(chain()).idempotency_key("nightly").key_hold(KeyHold::UntilDone);
    let first = start().await.unwrap();
    assert!(!start().await.unwrap().is_new());
    first.wait().await.unwrap();
    let next = start().await.unwrap();
    assert!(next.is_new());
    assert_ne!(first.id(), next.id());
}

#[tokio::test(start_paused = true)]
async fn a_name_is_what_people_see() {
    let harbor = harbor();
    let handle = harbor.client().start(chain()).name("nightly report").await.unwrap();
    let flow = || async {
        let flow = harbor.driver().flow(handle.id().clone(), harbor.now().await).await;
        flow.ok().flatten().map(|flow| (flow.name.map(|it| it.to_string()), flow.state))
    };
    let name = Some("nightly report".to_owned());
    assert_eq!(flow().await, Some((name.clone(), FlowState::Running)));
    handle.wait().await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(flow().await, Some((name, FlowState::Done)));
}

#[tokio::test(start_paused = true)]
async fn an_input_that_no_parent_produced_is_a_permanent_failure() {
    let harbor = harbor();
    let alone = harbor.client().enqueue_raw("tell", b"null").await.unwrap();
    let error = alone.wait_raw().await.unwrap_err();
    let WaitError::DeadLettered { reason: Some(reason) } = error else { panic!("{error}") };
    assert_eq!(reason.as_str(), "no step before tell has produced its input");
    assert_eq!(harbor.record(alone.id()).await.job.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_cancelled_because_a_step_failed_answers_that() {
    async fn fail(_: Fetch, _: Context) -> JobResult<Vec<u8>> {
        Err(JobError::unrecoverable("no such page"))
    }
    let harbor = Harbor::new(Handlers::new().on(fail).on(measure).on(tell));
    let first = page().with(Options::new().failure_policy(FailurePolicy::Cancel));
    let flow = Flow::first(first).then(Measure { factor: 2 }).then(Tell);
    let handle = harbor.client().start(flow).await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert!(matches!(error, WaitError::Cancelled { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_needs_nothing_may_follow_one_that_produces_nothing() {
    #[derive(Debug, Serialize, Deserialize, Job)]
    #[job(type = "ping")]
    struct Ping;
    async fn ping(job: Ping, cx: Context) -> JobResult {
        cx.input(&job)
    }
    let harbor = Harbor::new(Handlers::new().on(ping));
    let handle = harbor.client().start(Flow::first(Ping).then(Ping)).await.unwrap();
    handle.wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_key_of_the_last_step_is_the_flows() {
    let harbor = harbor();
    let keyed = |key: &str| Measure { factor: 2 }.with(Options::new().idempotency_key(key));
    let start = |key: &str| harbor.client().start(Flow::first(page()).then(keyed(key)));
    assert!(start("a").await.unwrap().is_new());
    assert!(!start("a").await.unwrap().is_new());
    assert!(start("a").idempotency_key("b").await.unwrap().is_new());
    let inside = page().with(Options::new().idempotency_key("c"));
    let inside = harbor.client().start(Flow::first(inside).then(Measure { factor: 2 })).await;
    let error = inside.unwrap_err();
    assert!(matches!(error, EnqueueError::Rejected(Rejected::KeyInsideFlow { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_without_flows_refuses_them_and_takes_jobs() {
    let limits = Limits::default().without_flows();
    let client = Client::new(&AnyDriver::new(MemoryDriver::with_limits(limits)));
    let error = client.start(chain()).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Rejected(Rejected::FlowsNotSupported)), "{error:?}");
    assert!(error.to_string().starts_with("this store has no flows"), "{error}");
    assert!(client.enqueue(page()).await.unwrap().is_new());
}
