//! Jobs in the application's own transactions.

use std::time::Duration;

use taskharbor_conformance::LockedJob;
use taskharbor_core::{
    Admin, Driver, DriverError, State,
    driver::{Enqueue, Enqueued, Settle, Settled, Settlement, Transaction, Transition},
};
use taskharbor_sqlite::{
    SqliteDriver,
    rusqlite::{Connection, TransactionBehavior},
};

use crate::{
    fixture::{NOON, id, job, put, queue, state, take},
    temp_dir::TempDir,
};

struct App {
    driver: SqliteDriver,
    conn: Connection,
    temp: TempDir,
}

impl App {
    async fn new() -> Self {
        let temp = TempDir::new();
        let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
        let conn = Connection::open(temp.file()).unwrap();
        conn.execute_batch("CREATE TABLE orders (number INTEGER PRIMARY KEY)").unwrap();
        Self { driver, conn, temp }
    }

    fn orders(&self) -> i64 {
        self.conn.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap()
    }
}

fn one(text: &str) -> Enqueue {
    Enqueue::new(vec![job(text).into()], NOON)
}

#[tokio::test]
async fn a_job_and_the_data_of_the_application_are_one() {
    let mut app = App::new().await;
    let mut tx = app.driver.begin(&mut app.conn).unwrap();
    assert_eq!(Some(Transaction::driver(&tx)), app.driver.driver_id());
    tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    let answers = tx.enqueue(one("a")).await.unwrap();
    assert_eq!(answers, [Ok(vec![Enqueued::Inserted(id("a"))])]);
    assert_eq!(state(&app.driver, "a").await, None, "it is not committed yet");
    tx.commit().unwrap();
    assert_eq!(state(&app.driver, "a").await, Some(State::Ready));

    for explicitly in [true, false] {
        let mut tx = app.driver.begin(&mut app.conn).unwrap();
        tx.execute("INSERT INTO orders VALUES (2)", []).unwrap();
        tx.enqueue(one("b")).await.unwrap();
        match explicitly {
            true => tx.rollback().unwrap(),
            false => drop(tx),
        }
        assert_eq!(state(&app.driver, "b").await, None);
    }
    assert_eq!(app.orders(), 1);
    assert_eq!(app.driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_job_is_completed_in_the_transaction() {
    let mut app = App::new().await;
    put(&app.driver, "a").await;
    let leased = take(&app.driver).await.unwrap();
    let ack = Settlement::new(id("a"), leased.lease.token, Transition::Ack { output: None });
    for commits in [false, true] {
        let mut tx = app.driver.begin(&mut app.conn).unwrap();
        let answers = tx.settle(Settle::new(vec![ack.clone()], NOON)).await.unwrap();
        assert_eq!(answers, [Ok(Settled::Applied)]);
        if commits {
            tx.commit().unwrap();
        }
    }
    assert_eq!(state(&app.driver, "a").await, Some(State::Done));
    let again = app.driver.settle(Settle::new(vec![ack], NOON)).await.unwrap();
    assert_eq!(again, [Ok(Settled::AlreadyTerminal)]);
}

#[tokio::test]
async fn a_transaction_of_rusqlite_itself_takes_jobs() {
    let mut app = App::new().await;
    let tx = app.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    let answers = app.driver.within(&tx, |mut jobs| async move {
        let first = jobs.enqueue(one("a")).await.unwrap();
        let second = jobs.enqueue(one("a")).await.unwrap();
        (first, second)
    });
    let (first, second) = answers.unwrap();
    assert_eq!(first, [Ok(vec![Enqueued::Inserted(id("a"))])]);
    assert_eq!(second, [Ok(vec![Enqueued::Existing(id("a"))])]);
    tx.commit().unwrap();
    assert_eq!(state(&app.driver, "a").await, Some(State::Ready));
    assert_eq!(app.orders(), 1);

    // What outlives the call has nothing to act on.
    let tx = app.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let mut kept = app.driver.within(&tx, |jobs| async move { jobs }).unwrap();
    drop(tx);
    let DriverError::Backend(error) = kept.enqueue(one("b")).await.unwrap_err() else {
        panic!("not lasting")
    };
    assert!(error.to_string().contains("the transaction is over"), "{error}");
}

#[tokio::test]
async fn a_future_that_waits_for_something_else_goes_on_when_that_comes() {
    let mut app = App::new().await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let driver = app.driver.clone();
    let waiting = std::thread::spawn(move || {
        let tx = app.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let answer = driver.within(&tx, |mut jobs| async move {
            let text: &str = receive.await.unwrap();
            jobs.enqueue(one(text)).await
        });
        answer.unwrap().unwrap();
        tx.commit().unwrap();
        app
    });
    send.send("a").unwrap();
    let app = waiting.join().unwrap();
    assert_eq!(state(&app.driver, "a").await, Some(State::Ready));
}

#[tokio::test]
async fn a_connection_to_another_file_is_refused() {
    let app = App::new().await;
    let mut other = App::new().await;
    let mut memory = Connection::open_in_memory().unwrap();
    for conn in [&mut other.conn, &mut memory] {
        let DriverError::Backend(error) = app.driver.begin(conn).unwrap_err() else {
            panic!("not lasting")
        };
        assert!(error.to_string().contains("to another file"), "{error}");
        let tx = conn.transaction().unwrap();
        app.driver.within(&tx, |_| async {}).unwrap_err();
    }
    // The same file by another name is the same.
    let link = app.temp.dir().join("link.db");
    std::fs::hard_link(app.temp.file(), &link).unwrap();
    drop(app.driver.begin(&mut Connection::open(app.temp.file()).unwrap()).unwrap());
}

#[tokio::test]
async fn workers_are_woken_by_the_commit() {
    let mut app = App::new().await;
    let mut watch = app.driver.watch(vec![queue()]).await.unwrap();
    let mut tx = app.driver.begin(&mut app.conn).unwrap();
    tx.enqueue(one("a")).await.unwrap();
    tx.commit().unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(10), watch.woken()).await;
    assert!(matches!(woken, Ok(Some(_))), "no watch was woken");
}

#[tokio::test]
async fn a_closed_driver_takes_part_in_nothing() {
    let mut app = App::new().await;
    let mut tx = app.driver.begin(&mut app.conn).unwrap();
    app.driver.close().await.unwrap();
    assert!(matches!(tx.enqueue(one("a")).await, Err(DriverError::Closed)));
    drop(tx);
    assert!(matches!(app.driver.begin(&mut app.conn), Err(DriverError::Closed)));
}

#[tokio::test]
async fn a_job_that_another_transaction_settles_is_settled_after_it() {
    for commits in [false, true] {
        let temp = TempDir::new();
        let config = temp.config().busy_timeout(Duration::from_millis(50));
        let driver = SqliteDriver::open_with(config).await.unwrap();
        let locked = LockedJob::new(driver.clone()).await;
        let mut conn = Connection::open(temp.file()).unwrap();
        let mut tx = driver.begin(&mut conn).unwrap();
        locked.settle_in(&mut tx).await;
        if commits {
            tx.commit().unwrap();
            locked.after_commit().await;
        } else {
            tx.rollback().unwrap();
            locked.after_rollback().await;
        }
    }
}
