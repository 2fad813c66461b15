//! Transactions of `tokio_postgres` without a pool around it.

use taskharbor::{
    Admin, AnyDriver, Client, Context, Handlers, Job, JobResult, Outcome, State, Worker,
};
use taskharbor_postgres::PostgresDriver;
use tokio::sync::Mutex;

use crate::harness::store;

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(type = "sum", output = i64)]
struct Sum {
    of: Vec<i64>,
}

type App = (Mutex<tokio_postgres::Client>, PostgresDriver);

async fn sum(job: Sum, cx: Context<App>) -> JobResult<Outcome<i64>> {
    let (db, pg) = cx.state();
    let mut db = db.lock().await;
    let tx = db.transaction().await?;
    let sum = "SELECT sum(n)::bigint FROM unnest($1::bigint[]) n";
    let sum = tx.query_one(sum, &[&job.of]).await?.get(0);
    let done = cx.ack_in(pg.tx(&tx), sum).await?;
    tx.commit().await?;
    Ok(done)
}

#[tokio::test]
async fn a_job_is_stored_and_completed_in_transactions_of_tokio_postgres() {
    let store = store::named().await;
    let pg = store.driver().clone();
    let driver = AnyDriver::new(pg.clone());
    let client = Client::new(&driver);
    let mut db = store.sql().await;

    let tx = db.transaction().await.unwrap();
    let job = client.enqueue(Sum { of: vec![1, 2] }).within(pg.tx(&tx)).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = db.transaction().await.unwrap();
    // A savepoint is a transaction too, and what it rolls back was not enqueued.
    let savepoint = tx.transaction().await.unwrap();
    let undone = client.enqueue(Sum { of: Vec::new() }).within(pg.tx(&savepoint)).await;
    savepoint.rollback().await.unwrap();
    let kept = client.enqueue(Sum { of: vec![3] }).within(pg.tx(&tx)).await.unwrap();
    tx.commit().await.unwrap();

    let handlers = Handlers::new().on(sum).with_state((Mutex::new(db), pg));
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
