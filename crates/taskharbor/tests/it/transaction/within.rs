//! Enqueueing in a transaction.

use taskharbor::{
    Admin, AnyDriver, Client, EnqueueError, Filter, Flow, JobId, Limits, List, State, WaitError,
};
use taskharbor_memory::MemoryDriver;

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, SECOND, WorkerRig, handler, work},
};

async fn stored(rig: &WorkerRig) -> Vec<JobId> {
    let page = rig.driver.list(List::new(Filter::all(), Limits::MAX_PAGE, rig.now())).await;
    page.unwrap().items.into_iter().map(|summary| summary.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_is_there_if_and_only_if_the_transaction_commits() {
    let rig = WorkerRig::new();
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let mut tx = rig.store.begin();
    let handle = rig.client.enqueue(work("a")).within(&mut tx).await.unwrap();
    assert!(handle.is_new());
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(stored(&rig).await, []);
    assert!(matches!(handle.wait().await, Err(WaitError::Gone)));
    tx.commit().await;
    assert_eq!(handle.wait().await.unwrap(), 0);

    let mut tx = rig.store.begin();
    let rolled_back = rig.client.enqueue(work("b")).within(&mut tx).await.unwrap();
    drop(tx);
    tokio::time::sleep(60 * SECOND).await;
    assert!(matches!(rolled_back.wait().await, Err(WaitError::Gone)));
    // Nothing went past the transactions.
    assert_eq!(rig.store.calls(Op::Enqueue), 0);
}

#[tokio::test(start_paused = true)]
async fn many_jobs_raw_ones_and_flows_go_into_one_transaction() {
    let rig = WorkerRig::new();
    let mut tx = rig.store.begin();
    let (client, names) = (&rig.client, ["a", "b", "c"]);
    let many = client.enqueue_many(names.map(work)).within(&mut tx).await.unwrap();
    let raw = client.enqueue_raw("raw", b"bytes").within(&mut tx).await.unwrap();
    #[derive(serde::Serialize, serde::Deserialize, taskharbor::Job)]
    #[job(type = "after", input = u64, output = u64)]
    struct After {}
    let flow = Flow::first(work("first")).then(After {});
    let flow = client.start(flow).name("steps").within(&mut tx).await.unwrap();
    assert_eq!(stored(&rig).await, []);
    tx.commit().await;
    assert_eq!(stored(&rig).await.len(), 6);
    for id in many.iter().map(taskharbor::Handle::id).chain([raw.id()]) {
        assert_eq!(rig.state(id).await, State::Ready);
    }
    assert_eq!(rig.state(flow.id()).await, State::Blocked);
    rig.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_answers_the_job_that_holds_it() {
    let rig = WorkerRig::new();
    let keyed = |name| rig.client.enqueue(work(name)).idempotency_key("welcome-42");
    let first = keyed("a").await.unwrap();
    let mut tx = rig.store.begin();
    let again = keyed("b").within(&mut tx).await.unwrap();
    assert_eq!((again.id(), again.is_new()), (first.id(), false));
    let other = rig.client.enqueue(work("c")).idempotency_key("other");
    let other = other.within(&mut tx).await.unwrap();
    let twice = rig.client.enqueue(work("d")).idempotency_key("other").within(&mut tx);
    assert_eq!(twice.await.unwrap().id(), other.id());
    tx.commit().await;
    assert_eq!(stored(&rig).await, [first.id().clone(), other.id().clone()]);
}

#[tokio::test(start_paused = true)]
async fn the_transaction_of_another_store_is_refused() {
    let (rig, other) = (WorkerRig::new(), WorkerRig::new());
    let without = Client::new(&AnyDriver::new(MemoryDriver::new()));
    let mut tx = other.store.begin();
    for client in [&rig.client, &without] {
        let one = client.enqueue(work("a")).within(&mut tx).await.unwrap_err();
        assert!(matches!(one, EnqueueError::OtherStore));
        assert!(one.to_string().contains("with the driver that the client was built with"));
        let many = client.enqueue_many([work("a")]).within(&mut tx).await.unwrap_err();
        assert!(matches!(many, EnqueueError::OtherStore));
        let flow = client.start(Flow::first(work("a"))).within(&mut tx).await.unwrap_err();
        assert!(matches!(flow, EnqueueError::OtherStore));
    }
    tx.commit().await;
    assert_eq!(stored(&other).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_fails_or_hangs_fails_the_call() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Transaction, [Fault::Refuse, Fault::Hang]);
    for _ in 0..2 {
        let mut tx = rig.store.begin();
        let failed = rig.client.enqueue(work("a")).within(&mut tx).await.unwrap_err();
        assert!(matches!(failed, EnqueueError::Store(_)), "{failed}");
    }
    assert_eq!(stored(&rig).await, []);
}
