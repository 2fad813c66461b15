//! Many jobs in one call.

use std::time::Duration;

use taskharbor::{EnqueueError, InvalidJob, Job, KeyHold, Options};
use taskharbor_core::{driver::Limits, error::Rejected};

use super::{Carry, Sum, carry, gate::Gate, store, sum};

#[tokio::test(start_paused = true)]
async fn many_jobs_are_one_call_to_the_store() {
    let gate = Gate::new();
    let handles = gate.client().enqueue_many((0..500).map(|n| sum([n]))).await.unwrap();
    assert_eq!(handles.len(), 500);
    assert_eq!(gate.calls(), [500]);
    assert_eq!(gate.stored().await.unwrap(), 500);
}

#[tokio::test(start_paused = true)]
async fn handles_come_in_the_order_of_the_jobs() {
    let harbor = store();
    let handles = harbor.client().enqueue_many((0..20).map(|n| sum([n]))).await.unwrap();
    let stored = harbor.jobs::<Sum>().await;
    assert_eq!(stored.len(), handles.len());
    for (n, (handle, stored)) in (0..).zip(handles.iter().zip(stored)) {
        assert!(handle.is_new());
        assert_eq!(handle.id(), &stored.record.job.id);
        assert_eq!(stored.job, sum([n]));
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_refused_keeps_all_from_being_stored() {
    let gate = Gate::new();
    let jobs = [carry(1), carry(Limits::DEFAULT_PAYLOAD_BYTES), carry(1)];
    let error = gate.client().enqueue_many(jobs).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Rejected(Rejected::PayloadTooLarge { .. })), "{error}");
    assert_eq!(gate.stored().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_jobs_at_all_are_fine() {
    let harbor = store();
    let handles = harbor.client().enqueue_many(Vec::<Sum>::new()).await.unwrap();
    assert!(handles.is_empty());
    assert!(harbor.records().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn options_go_for_all_of_them() {
    let harbor = store();
    let options = Options::new().queue("bulk").priority(-1).max_attempts(2).header("run", "7");
    harbor.client().enqueue_many([carry(1), carry(2)]).options(options).await.unwrap();
    let stored = harbor.jobs::<Carry>().await;
    assert_eq!(stored.len(), 2);
    for job in stored.into_iter().map(|stored| stored.record.job) {
        assert_eq!((job.queue.as_str(), job.priority), ("bulk", -1));
        assert_eq!(job.max_attempts, Some(2));
        assert_eq!(job.headers.get("run"), Some("7"));
        assert_eq!(job.headers.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn each_job_may_have_a_key_of_its_own() {
    let harbor = store();
    let keyed = |n| sum([n]).with(Options::new().idempotency_key(format!("sum:{n}")));
    let first = harbor.client().enqueue_many((0..3).map(keyed)).await.unwrap();
    assert!(first.iter().all(taskharbor::Handle::is_new));
    let second = harbor.client().enqueue_many((1..5).map(keyed)).await.unwrap();
    let is_new: Vec<_> = second.iter().map(taskharbor::Handle::is_new).collect();
    assert_eq!(is_new, [false, false, true, true]);
    assert_eq!((first[1].id(), first[2].id()), (second[0].id(), second[1].id()));
    assert_eq!(harbor.jobs::<Sum>().await.len(), 5);
    // One key twice in a call is one job.
    let twice = harbor.client().enqueue_many([keyed(9), keyed(9)]).await.unwrap();
    assert_eq!(twice[0].id(), twice[1].id());
    assert!(twice[0].is_new() && !twice[1].is_new());
}

#[tokio::test(start_paused = true)]
async fn options_of_a_job_go_before_those_of_all() {
    let harbor = store();
    let own = Options::new().queue("own").key_hold(KeyHold::UntilTerminal);
    let jobs = [carry(1).with(own.idempotency_key("k")), carry(2).with(Options::new())];
    let all = Options::new().queue("bulk").priority(3);
    harbor.client().enqueue_many(jobs).options(all).await.unwrap();
    let stored = harbor.jobs::<Carry>().await;
    let [own, other] = [&stored[0].record, &stored[1].record];
    assert_eq!((own.job.queue.as_str(), own.job.priority), ("own", 3));
    assert_eq!(own.key_hold, KeyHold::UntilTerminal);
    assert_eq!((other.job.queue.as_str(), other.job.priority), ("bulk", 3));
    assert_eq!(other.job.idempotency_key, None);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_stored_keeps_all_from_being_stored() {
    let harbor = store();
    let enqueue = |options| harbor.client().enqueue_many([sum([1]).with(options)]).into_future();
    let empty = enqueue(Options::new().idempotency_key("")).await.unwrap_err();
    assert!(matches!(empty, EnqueueError::Invalid(InvalidJob::Name(_))), "{empty}");
    for time in [Duration::ZERO, Duration::from_nanos(1_500), Duration::MAX] {
        let options = Options::new().idempotency_key("k").key_hold(KeyHold::For(time));
        let error = enqueue(options).await.unwrap_err();
        let expected = matches!(error, EnqueueError::Rejected(Rejected::KeyTimeOutOfRange { .. }));
        assert!(expected, "{time:?}: {error}");
    }
    assert!(harbor.records().await.is_empty());
}
