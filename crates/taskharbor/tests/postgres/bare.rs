//! Transactions of `tokio_postgres` without a pool around it, and passed as they are.

use taskharbor::{
    Admin, AnyDriver, Client, Context, EnqueueError, Handlers, Job, JobResult, Outcome, State,
    Worker,
};
use tokio::sync::Mutex;

use crate::harness::store;

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(type = "sum", output = i64)]
struct Sum {
    of: Vec<i64>,
}

async fn sum(job: Sum, cx: Context<Mutex<tokio_postgres::Client>>) -> JobResult<Outcome<i64>> {
    let mut db = cx.state().lock().await;
    let mut tx = db.transaction().await?;
    let sum = "SELECT sum(n)::bigint FROM unnest($1::bigint[]) n";
    let sum = tx.query_one(sum, &[&job.of]).await?.get(0);
    let done = cx.ack_in(&mut tx, sum).await?;
    tx.commit().await?;
    Ok(done)
}

#[tokio::test]
async fn a_job_is_stored_and_completed_in_transactions_of_tokio_postgres() {
    let store = store::named().await;
    let driver = AnyDriver::new(store.driver().clone());
    let client = Client::new(&driver);
    let mut db = store.sql().await;

    let mut tx = db.transaction().await.unwrap();
    let job = client.enqueue(Sum { of: vec![1, 2] }).within(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = db.transaction().await.unwrap();
    // A savepoint is a transaction too, and what it rolls back was not enqueued.
    let savepoint = tx.transaction().await.unwrap();
    let undone = client.enqueue(Sum { of: Vec::new() }).within(&savepoint).await;
    savepoint.rollback().await.unwrap();
    let kept = client.enqueue(Sum { of: vec![3] }).within(&mut tx).await.unwrap();
    tx.commit().await.unwrap();

    let handlers = Handlers::new().on(sum).with_state(Mutex::new(db));
    let worker = Worker::builder(&driver).handlers(handlers).queue("default", 2).build().unwrap();
    let running = worker.start();
    assert_eq!(job.wait().await.unwrap(), 3);
    assert_eq!(kept.wait().await.unwrap(), 3);
    running.shutdown().await.unwrap();
    let now = driver.now().await.unwrap();
    let record = driver.inspect(job.id().clone(), now).await.unwrap().unwrap();
    assert_eq!(record.state, State::Done);
    let undone = driver.inspect(undone.unwrap().id().clone(), now).await.unwrap();
    assert!(undone.is_none());
}

#[tokio::test]
async fn a_transaction_that_the_store_cannot_be_on_is_refused() {
    let store = store::named().await;
    let client = Client::new(&taskharbor::connect("memory:").await.unwrap());
    let mut db = store.sql().await;
    let mut tx = db.transaction().await.unwrap();
    let refused = client.enqueue(Sum { of: Vec::new() }).within(&mut tx).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::OtherStore), "{refused}");
    tx.commit().await.unwrap();
}
