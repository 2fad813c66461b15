//! Testing handlers that use the database of their jobs.

use taskharbor::{
    AnyDriver, Context, Handlers, Job, JobResult, Outcome, State,
    testing::{Harbor, Time, call},
};
use tokio::sync::Mutex;

use crate::{harness::store, real};

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(type = "double", output = i64)]
struct Double {
    number: i64,
}

async fn double(
    job: Double,
    cx: Context<Mutex<tokio_postgres::Client>>,
) -> JobResult<Outcome<i64>> {
    let mut db = cx.state().lock().await;
    let mut tx = db.transaction().await?;
    let number: i64 = tx.query_one("SELECT 2 * $1::bigint", &[&job.number]).await?.get(0);
    let done = cx.ack_in(&mut tx, number).await?;
    tx.commit().await?;
    Ok(done)
}

#[tokio::test]
async fn time_is_moved_by_hand() {
    let store = store::named().await;
    real::time_is_moved_by_hand(&AnyDriver::new(store.driver().clone())).await;
}

#[tokio::test]
async fn real_time_passes_by_itself() {
    let store = store::named().await;
    real::real_time_passes_by_itself(&AnyDriver::new(store.driver().clone())).await;
}

#[tokio::test]
async fn a_handler_completes_its_job_in_its_transaction_under_test() {
    let store = store::named().await;
    let outcome = call(double, Double { number: 7 }, Mutex::new(store.sql().await)).await.unwrap();
    assert!(matches!(outcome, Outcome::Acked { .. }));
    let driver = AnyDriver::new(store.driver().clone());
    let handlers = Handlers::new().on(double).with_state(Mutex::new(store.sql().await));
    let harbor = Harbor::on(&driver, Time::Manual, handlers);
    let job = harbor.client().enqueue(Double { number: 7 }).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(harbor.state(job.id()).await, State::Done);
    assert_eq!(job.wait().await.unwrap(), 14);
    harbor.shutdown().await;
}

#[tokio::test]
async fn a_job_is_seen_in_the_transaction_that_enqueued_it() {
    let store = store::named().await;
    let driver = AnyDriver::new(store.driver().clone());
    let harbor = Harbor::on(&driver, Time::Manual, Handlers::new());
    let mut db = store.sql().await;
    let mut tx = db.transaction().await.unwrap();
    let job = harbor.client().enqueue(Double { number: 4 }).within(&mut tx).await.unwrap();
    let seen = harbor.assert_enqueued_in(&mut tx, |it: &Double| it.number == 4).await;
    assert_eq!(seen, *job.id());
    tx.rollback().await.unwrap();
    assert!(harbor.jobs::<Double>().await.is_empty());
}
