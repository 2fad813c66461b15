//! Many jobs in one call.

use taskharbor::{EnqueueError, Options};
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
        assert_eq!(job.headers.get("th-codec"), Some("json"));
    }
}
