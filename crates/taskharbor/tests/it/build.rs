//! `build()` refuses settings that cannot work, with advice.

use std::{
    error::Error,
    future::Future,
    pin::pin,
    task::{Poll, Waker},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    AnyDriver, Blob, BoxError, BuildError, Client, Codec, ConnectError, Context, Decode, Encode,
    Exponential, Failed, Handlers, ImpossiblePolicy, Job, JobResult, RetryPolicy, Worker,
    WorkerBuilder, WorkerError,
};
use taskharbor_core::name::NameProblem;
use taskharbor_memory::MemoryDriver;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "mail:send", queue = "mail")]
struct Send;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "mail:sort")]
struct Sort;

async fn send(_: Send, _: Context) -> JobResult {
    Ok(())
}

async fn sort(_: Sort, _: Context) -> JobResult {
    Ok(())
}

async fn swallow(_: Blob, _: Context) -> JobResult<Option<Blob>> {
    Ok(None)
}

fn empty() -> WorkerBuilder {
    Worker::builder(&AnyDriver::new(MemoryDriver::new()))
}

/// A builder with which nothing is wrong.
fn good() -> WorkerBuilder {
    empty().handlers(Handlers::new().on(send)).queue("mail", 4)
}

/// The error and its causes, as a log would show them.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn assert_built(builder: WorkerBuilder) {
    let error = builder.build().err().map(|error| with_causes(&error));
    assert_eq!(error, None);
}

/// Why the worker is not built; fails unless the error, with its causes, says all of this.
fn refused(builder: WorkerBuilder, says: &[&str]) -> Option<BuildError> {
    let error = builder.build().err()?;
    let text = with_causes(&error);
    for says in says {
        assert!(text.contains(says), "{text:?} does not say {says:?}");
    }
    Some(error)
}

#[test]
fn a_worker_with_which_nothing_is_wrong_is_built() {
    assert_built(good());
    // Handlers of different states are added one after another.
    let counted = |_: Sort, _: Context<u64>| async { Ok::<(), std::io::Error>(()) };
    let more = Handlers::new().on(counted).with_state(7);
    assert_built(good().handlers(more).queue("default", 1));
}

#[test]
fn two_handlers_for_one_type_are_refused() {
    let says = ["two handlers are registered for job type \"mail:send\": keep one"];
    let twice = refused(good().handlers(Handlers::new().on(send)), &says);
    assert!(matches!(twice, Some(BuildError::DuplicateHandler(name)) if name == "mail:send"));
    let raw = refused(good().handlers(Handlers::new().on_raw("mail:send", swallow)), &says);
    assert!(matches!(raw, Some(BuildError::DuplicateHandler(_))));
}

#[test]
fn a_worker_without_handlers_is_refused() {
    let says = ["no handlers: add some with `WorkerBuilder::handlers`"];
    for builder in [empty().queue("mail", 1), empty().queue("mail", 1).handlers(Handlers::new())] {
        assert!(matches!(refused(builder, &says), Some(BuildError::NoHandlers)));
    }
}

#[test]
fn a_type_whose_queue_is_not_served_is_refused_unless_that_is_meant() {
    let builder = || good().handlers(Handlers::new().on(sort));
    let says = [
        "jobs of type \"mail:sort\" wait in queue \"default\"",
        "add `.queue(\"default\", …)`, or `.allow_unserved_queues()` if another worker does",
    ];
    let Some(BuildError::UnservedQueue { job_type, queue }) = refused(builder(), &says) else {
        panic!("another error");
    };
    assert_eq!((&*job_type, &*queue), ("mail:sort", "default"));
    assert_built(builder().queue("default", 1));
    assert_built(builder().allow_unserved_queues());
}

#[test]
fn a_raw_handler_asks_for_no_queue() {
    assert_built(good().handlers(Handlers::new().on_raw("anything", swallow)));
}

#[test]
fn a_worker_without_queues_is_refused() {
    let builder = empty().handlers(Handlers::new().on(send));
    let says = ["serves no queue: add one with `WorkerBuilder::queue`"];
    assert!(matches!(refused(builder, &says), Some(BuildError::NoQueues)));
    let anywhere = empty().handlers(Handlers::new().on(send)).allow_unserved_queues();
    assert!(matches!(refused(anywhere, &says), Some(BuildError::NoQueues)));
}

#[test]
fn a_queue_that_is_named_twice_is_refused() {
    let error = refused(good().queue("mail", 2), &["queue \"mail\"", "give it one concurrency"]);
    assert!(matches!(error, Some(BuildError::DuplicateQueue(queue)) if queue == "mail"));
}

#[test]
fn a_queue_without_a_visible_name_is_refused() {
    for (name, says) in [
        ("", "queue name is empty: give it at least one visible character"),
        ("  ", "queue name is blank: give it at least one visible character"),
        ("a\nb", "queue name has a control character at byte 1: remove it"),
    ] {
        let error = refused(good().queue(name, 1), &["cannot be served", says]);
        assert!(matches!(error, Some(BuildError::InvalidQueue { queue, .. }) if queue == name));
    }
}

#[test]
fn a_queue_without_slots_or_with_too_many_is_refused() {
    for n in [0, 50_001, usize::MAX] {
        let says = format!("the concurrency of queue \"default\" is {n}: choose 1 to 50000");
        let error = refused(good().queue("default", n), &[&says]);
        let Some(BuildError::Concurrency { queue, concurrency }) = error else { panic!("{n}") };
        assert_eq!((&*queue, concurrency), ("default", n));
    }
    assert_built(good().queue("default", 50_000));
}

#[test]
fn a_heartbeat_that_comes_too_late_is_refused() {
    let lease = Duration::from_secs(30);
    for heartbeat in [lease / 2 + Duration::from_millis(1), lease, lease * 2] {
        let error = refused(good().lease(lease).heartbeat(heartbeat), &["choose half of it"]);
        assert!(
            matches!(error, Some(BuildError::Heartbeat { heartbeat: h, .. }) if h == heartbeat)
        );
    }
    assert_built(good().lease(lease).heartbeat(lease / 2));
}

#[test]
fn durations_that_cannot_work_are_refused() {
    let (zero, tiny) = (Duration::ZERO, Duration::from_nanos(1));
    let century = Duration::from_secs(101 * 366 * 86_400);
    for (builder, says) in [
        (good().lease(zero), "the lease is 0ns: choose 1 s or more"),
        (good().lease(Duration::from_millis(999)), "the lease is 999ms: choose 1 s or more"),
        (good().lease(Duration::from_millis(10)), "a call that is slow for a moment would lose it"),
        (good().lease(century), "no more than a hundred years"),
        (good().lease(Duration::MAX), "no more than a hundred years"),
        (good().heartbeat(zero), "the heartbeat is 0ns: choose 1 ms or more"),
        (good().poll(tiny), "the polling interval is 1ns: choose 1 ms or more"),
        (good().call_timeout(zero), "the time a call may take is 0ns: choose 1 ms or more"),
        (good().timeout(zero), "the timeout is 0ns: choose 1 ms or more"),
    ] {
        let error = refused(builder, &[says]);
        assert!(matches!(error, Some(BuildError::Duration { .. })), "{says}");
    }
    assert_built(good().lease(Duration::from_secs(1)));
    // A worker may shut down without grace, and one may wait for a handler as long as it takes.
    assert_built(good().grace(zero));
    assert_built(good().grace(Duration::MAX).timeout(Duration::MAX));
}

#[test]
fn a_crash_limit_of_none_is_refused() {
    let error = refused(good().crash_limit(0), &["the crash limit is 0: choose 1 or more"]);
    assert!(matches!(error, Some(BuildError::CrashLimit)));
}

/// A policy of the application's own that allows no attempt.
struct Never;

impl RetryPolicy for Never {
    fn delay(&self, _: &Failed<'_>) -> Duration {
        Duration::ZERO
    }
    fn max_attempts(&self) -> u32 {
        0
    }
}

#[test]
fn a_retry_policy_that_cannot_work_is_refused() {
    fn policy(error: Option<BuildError>) -> Option<ImpossiblePolicy> {
        match error {
            Some(BuildError::Retry(policy)) => Some(policy),
            _ => None,
        }
    }
    let new = Exponential::new;
    let (base, cap) = (Duration::from_secs(10), Duration::from_secs(5));
    let error = refused(good().retry(new().base(base).cap(cap)), &["lower it or raise the cap"]);
    assert_eq!(policy(error), Some(ImpossiblePolicy::BaseAboveCap { base, cap }));
    for multiplier in [0.5, -1.0, f64::INFINITY, f64::NAN] {
        let says = ["choose a finite number that is 1 or more"];
        let error = refused(good().retry(new().multiplier(multiplier)), &says);
        assert!(matches!(policy(error), Some(ImpossiblePolicy::Multiplier(_))), "{multiplier}");
    }
    for jitter in [-0.1, 1.1, f64::NAN] {
        let says = ["choose 0 (none) to 1 (the whole delay)"];
        let error = refused(good().retry(new().jitter(jitter)), &says);
        assert!(matches!(policy(error), Some(ImpossiblePolicy::Jitter(_))), "{jitter}");
    }
    let says = ["the number of attempts is 0: choose 1 to 2147483647"];
    for builder in [good().retry(new().max_attempts(0)), good().retry(Never)] {
        assert_eq!(policy(refused(builder, &says)), Some(ImpossiblePolicy::MaxAttempts(0)));
    }
}

/// A codec whose name no store could keep.
struct Unnameable;

impl Codec for Unnameable {
    fn name(&self) -> &str {
        "c\0dec"
    }
    fn encode(&self, _: Encode<'_>) -> Result<Vec<u8>, BoxError> {
        Ok(Vec::new())
    }
    fn decode(&self, _: &[u8], _: Decode<'_>) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn a_codec_without_a_name_that_can_be_stored_is_refused() {
    let says = ["a codec cannot be used", "has a NUL character: remove it"];
    assert!(matches!(refused(good().codec(Unnameable), &says), Some(BuildError::Codec(_))));
    let driver = AnyDriver::new(MemoryDriver::new());
    let error = Client::builder(&driver).codec(Unnameable).build().unwrap_err();
    assert!(error.to_string().contains(says[1]), "{error}");
}

#[test]
fn a_worker_without_a_visible_name_is_refused() {
    let says = ["the worker's name cannot be used", "is blank: give it at least one visible"];
    let Some(BuildError::Name(error)) = refused(good().name(" "), &says) else {
        panic!("another error");
    };
    assert_eq!(error.problem(), &NameProblem::Blank);
    let says = ["is 256 bytes long: shorten it to 255 or fewer"];
    assert!(matches!(refused(good().name("w".repeat(256)), &says), Some(BuildError::Name(_))));
}

#[test]
fn a_handler_whose_type_has_no_name_is_refused() {
    let builder = good().handlers(Handlers::new().on_raw("", swallow));
    let says = ["invalid job type \"\" of a handler", "job type is empty: give it"];
    assert!(matches!(refused(builder, &says), Some(BuildError::InvalidType { .. })));
}

#[tokio::test]
async fn a_url_that_names_no_driver_is_refused_with_what_to_write() {
    for url in ["", "jobs.db"] {
        let error = taskharbor::connect(url).await.unwrap_err();
        assert!(matches!(&error, ConnectError::NotAUrl(text) if text == url), "{error}");
        assert!(
            error.to_string().contains("start it with one of http:, https:, memory:"),
            "{error}"
        );
    }
    for (url, unknown) in [("mysql://localhost/jobs", "mysql:"), (":", ":"), ("://", ":")] {
        let error = taskharbor::connect(url).await.unwrap_err();
        assert!(matches!(&error, ConnectError::UnknownScheme(it) if it == unknown), "{error}");
        assert!(error.to_string().contains("use one of http:, https:, memory:"), "{error}");
    }
    let error = taskharbor::connect("memory://jobs").await.unwrap_err();
    assert!(matches!(error, ConnectError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("write memory: and nothing more"), "{error}");
}

#[tokio::test]
async fn a_url_with_a_password_does_not_show_it() {
    let error = taskharbor::connect("mysql://ada:secret@localhost/jobs").await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test]
async fn each_connection_to_memory_is_a_store_of_its_own() {
    let (one, other) = (taskharbor::connect("memory:").await, taskharbor::connect("memory:").await);
    let (one, other) = (Client::new(&one.unwrap()), Client::new(&other.unwrap()));
    assert!(one.enqueue(Sort).idempotency_key("k").await.unwrap().is_new());
    assert!(other.enqueue(Sort).idempotency_key("k").await.unwrap().is_new());
}

/// The output of a future that is ready at its first poll, outside any runtime.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_worker_that_is_started_outside_a_runtime_says_so() {
    let running = good().build().unwrap().start();
    for ended in [at_once(running.ended()), at_once(running.shutdown())] {
        let error = ended.expect("it has ended").unwrap_err();
        assert!(matches!(error, WorkerError::NoRuntime), "{error}");
        assert_eq!(
            error.to_string(),
            "there is no tokio runtime here: start the worker inside one"
        );
    }
}

#[test]
fn a_worker_that_is_run_outside_a_runtime_says_so() {
    let ended = at_once(good().build().unwrap().run()).expect("it has ended");
    assert!(matches!(ended, Err(WorkerError::NoRuntime)), "{ended:?}");
}
