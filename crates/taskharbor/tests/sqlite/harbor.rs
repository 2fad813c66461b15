//! Testing handlers that use the file of their jobs.

use taskharbor::testing::{Harbor, Time, call};

use super::*;

#[tokio::test]
async fn time_is_moved_by_hand() {
    let temp = TempDir::new("manual");
    real::time_is_moved_by_hand(&AnyDriver::new(temp.driver().await)).await;
}

#[tokio::test]
async fn real_time_passes_by_itself() {
    let temp = TempDir::new("real");
    real::real_time_passes_by_itself(&AnyDriver::new(temp.driver().await)).await;
}

#[tokio::test]
#[should_panic(expected = "tokio's clock is paused, and a real store needs a running one")]
async fn a_paused_clock_is_refused() {
    tokio::time::pause();
    let driver = taskharbor::connect("memory:").await.unwrap();
    let _ = Harbor::on(&driver, Time::Real, Handlers::new());
}

#[tokio::test]
async fn a_handler_completes_its_job_in_its_transaction_under_test() {
    let temp = TempDir::new("harbor-ack");
    let sqlite = temp.driver().await;
    let conn = rusqlite::Connection::open(temp.file()).unwrap();
    conn.execute_batch("CREATE TABLE orders (number INTEGER)").unwrap();
    let count = || conn.query_row("SELECT count(*) FROM orders", [], |row| row.get::<_, i64>(0));

    // By itself: what the handler writes is committed, and there is no job to complete.
    let app = App { sqlite: sqlite.clone() };
    let outcome = call(book, Double { number: 7 }, app.clone()).await.unwrap();
    assert!(matches!(outcome, Outcome::Acked { .. }));
    assert_eq!(count(), Ok(1));

    let driver = AnyDriver::new(sqlite);
    let handlers = Handlers::new().on(book).with_state(app);
    let harbor = Harbor::on(&driver, Time::Manual, handlers);
    let job = harbor.client().enqueue(Double { number: 7 }).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(harbor.state(job.id()).await, State::Done);
    assert_eq!(count(), Ok(2));
}

#[tokio::test]
async fn a_job_is_seen_in_the_transaction_that_enqueued_it() {
    let temp = TempDir::new("seen");
    let sqlite = temp.driver().await;
    let driver = AnyDriver::new(sqlite.clone());
    let harbor = Harbor::on(&driver, Time::Manual, Handlers::new());
    let mut conn = rusqlite::Connection::open(temp.file()).unwrap();
    let mut tx = sqlite.begin(&mut conn).unwrap();
    let job = harbor.client().enqueue(Double { number: 4 }).within(&mut tx).await.unwrap();
    let seen = harbor.assert_enqueued_in(&mut tx, |it: &Double| it.number == 4).await;
    assert_eq!(seen, *job.id());
    tx.rollback().unwrap();
    assert!(harbor.jobs::<Double>().await.is_empty());
}
