//! The options of an enqueue are stored with the job.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{FailurePolicy, Flow, Job, JobId, KeyHold, Options, State};

use super::{Sum, store, sum};

/// A job whose type has something to say about everything that a type can.
#[derive(Debug, Serialize, Deserialize)]
struct Picky;

impl Job for Picky {
    const TYPE: &'static str = "picky";
    type Input = ();
    type Output = ();
    fn options() -> Options {
        Options::new()
            .queue("slow")
            .delay(Duration::from_secs(60))
            .timeout(Duration::from_secs(5))
            .max_attempts(3)
            .priority(-7)
            .header("tenant", "none")
            .header("origin", "type")
    }
}

/// The same, as far as the derive goes.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "derived", queue = "slow", max_attempts = 3, timeout = "5s", priority = -7)]
struct Derived;

#[tokio::test(start_paused = true)]
async fn every_option_of_the_call_is_stored() {
    let harbor = store();
    let run_at = harbor.now().await.saturating_add(Duration::from_secs(3_600));
    let handle = harbor
        .client()
        .enqueue(sum([1, 2]))
        .queue("math")
        .run_at(run_at)
        .timeout(Duration::from_millis(1_500))
        .max_attempts(7)
        .priority(12)
        .header("tenant", "acme")
        .header("trace", "00-abc")
        .idempotency_key(42)
        .key_hold(KeyHold::UntilDone)
        .id(JobId::new("mine").unwrap())
        .await
        .unwrap();
    assert_eq!(handle.id().as_str(), "mine");
    assert!(handle.is_new());
    let record = harbor.record(handle.id()).await;
    assert_eq!(record.state, State::Scheduled);
    assert_eq!(record.key_hold, KeyHold::UntilDone);
    let job = record.job;
    assert_eq!((job.job_type.as_str(), job.queue.as_str()), ("sum", "math"));
    assert_eq!(&job.payload[..], br#"{"terms":[1,2]}"#);
    assert_eq!(job.run_at, Some(run_at));
    assert_eq!(job.timeout, Some(Duration::from_millis(1_500)));
    assert_eq!(job.max_attempts, Some(7));
    assert_eq!(job.priority, 12);
    let headers: Vec<_> = job.headers.iter().collect();
    assert_eq!(headers, [("tenant", "acme"), ("trace", "00-abc")]);
    assert_eq!(job.idempotency_key.unwrap().as_str(), "42");
    assert_eq!(job.created_at, harbor.now().await);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_asked_for_has_the_defaults() {
    let harbor = store();
    let handle = harbor.client().enqueue(sum([])).await.unwrap();
    let record = harbor.record(handle.id()).await;
    assert_eq!(record.state, State::Ready);
    assert_eq!(record.key_hold, KeyHold::UntilPruned);
    assert_eq!(record.job.on_failure, FailurePolicy::Block);
    let job = record.job;
    assert_eq!(job.queue.as_str(), Options::DEFAULT_QUEUE);
    assert_eq!((job.run_at, job.timeout, job.max_attempts), (None, None, None));
    assert_eq!((job.priority, job.headers.len()), (0, 0));
    assert_eq!((job.idempotency_key, job.flow), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_delay_counts_from_now() {
    let harbor = store();
    harbor.advance(Duration::from_secs(10)).await;
    let due = harbor.now().await.saturating_add(Duration::from_secs(90));
    let delayed = harbor.client().enqueue(sum([])).delay(Duration::from_secs(90)).await.unwrap();
    assert_eq!(harbor.record(delayed.id()).await.job.run_at, Some(due));
    harbor.advance(Duration::from_secs(89)).await;
    assert_eq!(harbor.state(delayed.id()).await, State::Scheduled);
    harbor.advance(Duration::from_secs(1)).await;
    assert_eq!(harbor.state(delayed.id()).await, State::Ready);
}

#[tokio::test(start_paused = true)]
async fn of_a_delay_and_an_instant_the_later_word_counts() {
    let (harbor, hour) = (store(), Duration::from_secs(3_600));
    let now = harbor.now().await;
    let at = harbor.client().enqueue(sum([])).delay(hour).run_at(now).await.unwrap();
    assert_eq!(harbor.record(at.id()).await.job.run_at, Some(now));
    let after = harbor.client().enqueue(sum([])).run_at(now).delay(hour).await.unwrap();
    assert_eq!(harbor.record(after.id()).await.job.run_at, Some(now.saturating_add(hour)));
}

#[tokio::test(start_paused = true)]
async fn options_of_the_type_apply() {
    let harbor = store();
    let due = harbor.now().await.saturating_add(Duration::from_secs(60));
    let picky = harbor.client().enqueue(Picky).await.unwrap();
    let derived = harbor.client().enqueue(Derived).await.unwrap();
    for handle in [&picky, &derived] {
        let job = harbor.record(handle.id()).await.job;
        assert_eq!(job.queue.as_str(), "slow");
        assert_eq!(job.timeout, Some(Duration::from_secs(5)));
        assert_eq!((job.max_attempts, job.priority), (Some(3), -7));
    }
    let job = harbor.record(picky.id()).await.job;
    assert_eq!(job.run_at, Some(due));
    assert_eq!(
        (job.headers.get("tenant"), job.headers.get("origin")),
        (Some("none"), Some("type"))
    );
}

#[tokio::test(start_paused = true)]
async fn options_of_the_call_override_those_of_the_type() {
    let harbor = store();
    let now = harbor.now().await;
    let one_by_one = harbor
        .client()
        .enqueue(Picky)
        .queue("fast")
        .run_at(now)
        .timeout(Duration::from_secs(1))
        .max_attempts(1)
        .priority(0)
        .header("tenant", "acme");
    let options = Options::new()
        .queue("fast")
        .run_at(now)
        .timeout(Duration::from_secs(1))
        .max_attempts(1)
        .priority(0)
        .header("tenant", "acme");
    let at_once = harbor.client().enqueue(Picky).options(options);
    for enqueue in [one_by_one, at_once] {
        let handle = enqueue.await.unwrap();
        let job = harbor.record(handle.id()).await.job;
        assert_eq!((job.queue.as_str(), job.run_at), ("fast", Some(now)));
        assert_eq!(job.timeout, Some(Duration::from_secs(1)));
        assert_eq!((job.max_attempts, job.priority), (Some(1), 0));
        // Headers of both are kept, and of two with one name the call's.
        assert_eq!(job.headers.get("tenant"), Some("acme"));
        assert_eq!(job.headers.get("origin"), Some("type"));
    }
}

#[tokio::test(start_paused = true)]
async fn options_leave_alone_what_they_do_not_set() {
    let harbor = store();
    let enqueue = harbor.client().enqueue(Picky).priority(9);
    let handle = enqueue.options(Options::new().max_attempts(4)).await.unwrap();
    let job = harbor.record(handle.id()).await.job;
    assert_eq!((job.queue.as_str(), job.priority), ("slow", 9));
    assert_eq!(job.max_attempts, Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_step_has_options_of_its_own_over_those_of_its_type() {
    let harbor = store();
    let options = Options::new().queue("fast").failure_policy(FailurePolicy::Cancel);
    let flow = Flow::first(Picky.with(options)).then(Picky);
    let tail = harbor.client().start(flow).await.unwrap();
    let jobs = harbor.jobs::<Picky>().await;
    let [first, last] = &jobs[..] else { panic!("{} jobs", jobs.len()) };
    assert_eq!(first.record.job.queue.as_str(), "fast");
    assert_eq!(first.record.job.on_failure, FailurePolicy::Cancel);
    assert_eq!(first.record.job.priority, -7);
    assert_eq!(&last.record.job.id, tail.id());
    assert_eq!(last.record.job.queue.as_str(), "slow");
    assert_eq!(last.record.job.on_failure, FailurePolicy::Block);
}

#[tokio::test(start_paused = true)]
async fn a_raw_job_is_stored_by_name_and_bytes() {
    let harbor = store();
    let bytes = [0, 159, 146, 150];
    let plain = harbor.client().enqueue_raw("image:thumb", &bytes).await.unwrap();
    let job = harbor.record(plain.id()).await.job;
    assert_eq!((job.job_type.as_str(), job.queue.as_str()), ("image:thumb", "default"));
    assert_eq!(&job.payload[..], bytes);
    assert!(job.headers.is_empty());

    let raw = harbor.client().enqueue_raw(String::from("image:thumb"), bytes.to_vec());
    let written = raw.codec("cbor").queue("images").priority(1).header("tenant", "acme");
    let job = harbor.record(written.await.unwrap().id()).await.job;
    assert_eq!((job.queue.as_str(), job.priority), ("images", 1));
    assert_eq!(job.headers.get("th-codec"), Some("cbor"));
    assert_eq!(job.headers.get("tenant"), Some("acme"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_enqueued_until_it_is_awaited() {
    let harbor = store();
    drop(harbor.client().enqueue(sum([1])).priority(3));
    drop(harbor.client().enqueue_many([sum([1])]));
    drop(harbor.client().start(Flow::first(sum([1]))));
    assert!(harbor.records().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_job_gets_an_id_of_its_own() {
    let harbor = store();
    let first = harbor.client().enqueue(sum([1])).await.unwrap();
    let second = harbor.client().enqueue(sum([1])).await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(harbor.jobs::<Sum>().await.len(), 2);
}
