//! Invalid jobs are refused with advice, and nothing is stored.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Driver, DriverError, EnqueueError, Flow, HeaderError, InvalidJob, Job, Options, Timestamp,
    testing::Harbor,
};
use taskharbor_core::{driver::Limits, error::Rejected, job::Headers, name::NameProblem};

use super::{carry, store, sum};
use crate::build::with_causes;

/// Asserts that the error says all of this, and that nothing was stored.
async fn assert_refused<T>(harbor: &Harbor, result: Result<T, EnqueueError>, says: &[&str]) {
    let text = match result {
        Ok(_) => "it was enqueued".to_owned(),
        Err(error) => with_causes(&error),
    };
    for says in says {
        assert!(text.contains(says), "{text:?} does not say {says:?}");
    }
    assert!(harbor.records().await.is_empty(), "{text}");
}

fn name_problem(error: &EnqueueError) -> Option<&NameProblem> {
    match error {
        EnqueueError::Invalid(InvalidJob::Name(error)) => Some(error.problem()),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_a_visible_name_is_refused() {
    let harbor = store();
    for (queue, problem, says) in [
        ("", NameProblem::Empty, "queue name is empty: give it at least one visible character"),
        (" \t ", NameProblem::Control { at: 1 }, "queue name has a control character at byte 1"),
        ("  ", NameProblem::Blank, "queue name is blank: give it at least one visible character"),
    ] {
        let error = harbor.client().enqueue(sum([1])).queue(queue).await.unwrap_err();
        assert_eq!(name_problem(&error), Some(&problem), "{queue:?}");
        assert_refused::<()>(&harbor, Err(error), &[says]).await;
    }
    let long = harbor.client().enqueue(sum([1])).queue("q".repeat(256)).await;
    assert_refused(&harbor, long, &["256 bytes long: shorten it to 255 or fewer"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_has_to_be_a_name_too() {
    let harbor = store();
    let blank = harbor.client().enqueue(sum([1])).idempotency_key(" ").await;
    assert_refused(&harbor, blank, &["idempotency key is blank: give it"]).await;
    let long = harbor.client().enqueue(sum([1])).idempotency_key("k".repeat(1_025)).await;
    assert_refused(&harbor, long, &["idempotency key is 1025 bytes long: shorten it"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_raw_job_needs_a_type_and_a_codec_that_can_be_stored() {
    let harbor = store();
    let blank = harbor.client().enqueue_raw("", b"{}").await;
    assert_refused(&harbor, blank, &["job type is empty: give it"]).await;
    let codec = harbor.client().enqueue_raw("t", b"{}").codec("c\0").await;
    assert_refused(&harbor, codec, &["\"th-codec\" has a NUL character: remove it"]).await;
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_reserved_or_too_much_are_refused() {
    let harbor = store();
    let enqueue = || harbor.client().enqueue(sum([1]));
    let reserved = enqueue().header("th-x", "1").await.unwrap_err();
    assert!(matches!(
        &reserved,
        EnqueueError::Invalid(InvalidJob::Header(HeaderError::Reserved(name))) if name == "th-x"
    ));
    let says = ["\"th-x\" is reserved: do not start names with \"th-\""];
    assert_refused::<()>(&harbor, Err(reserved), &says).await;

    let codec = enqueue().header("th-codec", "messagepack").await;
    assert_refused(&harbor, codec, &["reserved"]).await;
    let blank = enqueue().header(" ", "1").await;
    assert_refused(&harbor, blank, &["header name is blank: give it"]).await;
    let nul = enqueue().header("a", "b\0").await;
    assert_refused(&harbor, nul, &["the value of header \"a\" has a NUL character: remove it"])
        .await;
    let large = enqueue().header("a", "x".repeat(Headers::MAX_BYTES)).await;
    assert_refused(&harbor, large, &["put large values into the payload"]).await;
    let many = (0..=Headers::MAX_ENTRIES)
        .fold(Options::new(), |options, n| options.header(format!("h{n}"), ""));
    let many = enqueue().options(many).await;
    assert_refused(&harbor, many, &["more than 32 headers: put the rest into the payload"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_payload_beyond_the_limit_is_refused() {
    let harbor = store();
    let error = harbor.client().enqueue(carry(Limits::DEFAULT_PAYLOAD_BYTES)).await.unwrap_err();
    assert!(matches!(
        error,
        EnqueueError::Rejected(Rejected::PayloadTooLarge {
            max: Limits::DEFAULT_PAYLOAD_BYTES,
            ..
        })
    ));
    let says = ["store it elsewhere and enqueue a reference, or raise the limit of 1048576"];
    assert_refused::<()>(&harbor, Err(error), &says).await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_past_the_last_year_is_refused() {
    let harbor = store();
    for delay in [Timestamp::MAX.since(Timestamp::EPOCH), Duration::MAX] {
        let error = harbor.client().enqueue(sum([1])).delay(delay).await.unwrap_err();
        assert!(matches!(error, EnqueueError::Invalid(InvalidJob::DelayTooLong)), "{error}");
        assert_refused::<()>(&harbor, Err(error), &["choose a shorter one"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_that_could_not_work_are_refused() {
    let harbor = store();
    for attempts in [0, u32::MAX] {
        let error = harbor.client().enqueue(sum([1])).max_attempts(attempts).await.unwrap_err();
        assert!(matches!(error, EnqueueError::Rejected(Rejected::MaxAttemptsOutOfRange { .. })));
        let says = ["leave it out for the worker's default, or choose 1 to 2147483647"];
        assert_refused::<()>(&harbor, Err(error), &says).await;
    }
    for timeout in [Duration::ZERO, Duration::MAX] {
        let error = harbor.client().enqueue(sum([1])).timeout(timeout).await.unwrap_err();
        assert!(matches!(error, EnqueueError::Rejected(Rejected::TimeoutOutOfRange { .. })));
        let says = ["leave it out for none, or choose 1 µs to 292 years"];
        assert_refused::<()>(&harbor, Err(error), &says).await;
    }
}

/// JSON has no keys that are lists.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "unwritable")]
struct Unwritable {
    table: BTreeMap<Vec<u8>, u8>,
}

fn unwritable() -> Unwritable {
    Unwritable { table: BTreeMap::from([(vec![1], 1)]) }
}

#[tokio::test(start_paused = true)]
async fn data_that_the_codec_cannot_write_is_refused_by_the_name_of_its_type() {
    let harbor = store();
    let error = harbor.client().enqueue(unwritable()).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Invalid(InvalidJob::Encode(_))), "{error}");
    let says = ["json cannot write", "Unwritable", "key must be"];
    assert_refused::<()>(&harbor, Err(error), &says).await;
    let many = harbor.client().enqueue_many([unwritable()]).await;
    assert_refused(&harbor, many, &["Unwritable"]).await;
}

/// Only the derive looks at names before they are used.
#[derive(Debug, Serialize, Deserialize)]
struct Nameless;

impl Job for Nameless {
    const TYPE: &'static str = "";
    type Input = ();
    type Output = ();
}

#[tokio::test(start_paused = true)]
async fn a_type_without_a_name_is_refused() {
    let harbor = store();
    let error = harbor.client().enqueue(Nameless).await;
    assert_refused(&harbor, error, &["job type is empty"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_with_one_bad_step_or_name_is_not_started() {
    let harbor = store();
    let client = harbor.client();
    let start = |flow: Flow<()>| client.start(flow);
    let good = || Flow::first(carry(1)).then(carry(2));

    let step = carry(3).with(Options::new().queue(""));
    assert_refused(&harbor, start(good().then(step)).await, &["queue name is empty"]).await;
    let step = carry(3).with(Options::new().max_attempts(0));
    assert_refused(&harbor, start(good().then(step)).await, &["max_attempts of job"]).await;
    let large = good().then(carry(Limits::DEFAULT_PAYLOAD_BYTES));
    assert_refused(&harbor, start(large).await, &["enqueue a reference"]).await;
    assert_refused(&harbor, start(good().then(unwritable())).await, &["Unwritable"]).await;
    assert_refused(&harbor, start(good()).name("").await, &["flow name is empty"]).await;
    assert_refused(&harbor, start(good()).idempotency_key("").await, &["idempotency key is empty"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_driver_is_an_error_of_the_store() {
    let harbor = store();
    harbor.driver().close().await.unwrap();
    let error = harbor.client().enqueue(sum([1])).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Store(DriverError::Closed)), "{error}");
}
