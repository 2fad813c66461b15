//! The messages of drivers on the channel of a schema, because of which few of them look for a job.

use std::{future::poll_fn, time::Duration};

use taskharbor_core::Driver;
use taskharbor_postgres::SchemaName;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::{
    fixture::{after, job, lease, noon, queue, store_at},
    harness::{
        environment,
        store::{self, Store},
    },
};

const SOON: Duration = Duration::from_secs(10);

/// A connection that receives all notifications of a store.
pub(crate) async fn eavesdrop(store: &Store) -> (Client, UnboundedReceiver<Vec<String>>) {
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let mut config: tokio_postgres::Config = url.parse().unwrap();
    config.application_name(store.application());
    let (client, mut connection) = config.connect(NoTls).await.unwrap();
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(it) = message {
                let _ = sender.send(it.payload().split('\t').map(str::to_owned).collect());
            }
        }
    });
    let channel = SchemaName::new(store.schema()).unwrap().channel();
    client.batch_execute(&format!("LISTEN \"{channel}\"")).await.unwrap();
    (client, receiver)
}

/// The next message, by its fields.
pub(crate) async fn next(messages: &mut UnboundedReceiver<Vec<String>>) -> Vec<String> {
    timeout(SOON, messages.recv()).await.expect("a message").expect("the connection lives")
}

/// Waits until this many listeners of the queue `q` hold their locks.
async fn until_listeners(store: &Store, count: i64) {
    let sql = store.sql().await;
    let channel = SchemaName::new(store.schema()).unwrap().channel();
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 \
                AND classid::bigint = hashtext($1)::bigint & 4294967295 \
                AND objid::bigint = hashtext('q')::bigint & 4294967295";
    let wait = async {
        while sql.query_one(held, &[&channel]).await.unwrap().get::<_, i64>(0) != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, wait).await.expect("all listeners hold their locks");
}

#[tokio::test]
async fn a_driver_that_leaves_no_due_job_tells_the_other_listeners() {
    let store = store::named().await;
    let other = store.another().await;
    let _other = other.watch(vec![queue("q")]).await.unwrap();
    until_listeners(&store, 1).await;
    // It counts the others when it begins to listen.
    let driver = store.another().await;
    let mut watch = driver.watch(vec![queue("q")]).await.unwrap();
    until_listeners(&store, 2).await;
    let (_client, mut messages) = eavesdrop(&store).await;

    // A driver with workers of its own announces its jobs after the commit.
    store_at(&other, job("a"), noon()).await;
    let announced = next(&mut messages).await;
    let [sender, number] = [announced[1].clone(), announced[2].clone()];
    assert_eq!(announced, ["a1", &sender, &number, "1", "-", "0", "q"]);
    // The wake-up that comes when listening begins may be earlier than the announcement, so the
    // driver looks until its look covers it.
    let mut granted = 0;
    let drained = loop {
        timeout(SOON, watch.woken()).await.expect("a wake-up");
        granted += lease(&driver, "q", 10).await.len();
        if let Ok(message) = timeout(Duration::from_millis(200), messages.recv()).await {
            break message.unwrap();
        }
    };
    assert_eq!(granted, 1);
    // The lease of the job that was granted ends too late to be told.
    assert_eq!((&*drained[0], &drained[3..6]), ("d1", &[sender, number, "-".into()][..]));
    assert_eq!(drained[7], "q");
}

#[tokio::test]
async fn a_listener_that_is_alone_tells_nothing_about_its_looks() {
    let store = store::named().await;
    let producer = store.another().await;
    let driver = store.another().await;
    let mut watch = driver.watch(vec![queue("q")]).await.unwrap();
    let (client, mut messages) = eavesdrop(&store).await;
    let channel = SchemaName::new(store.schema()).unwrap().channel();
    for number in 0..3 {
        store_at(&producer, job(format!("a{number}")), noon()).await;
        timeout(SOON, watch.woken()).await.expect("a wake-up");
        lease(&driver, "q", 10).await;
    }
    // Closing sends what there is to tell, and all messages come one after another.
    driver.close().await.unwrap();
    client.execute("SELECT pg_notify($1, 'end')", &[&channel]).await.unwrap();
    loop {
        let message = next(&mut messages).await;
        if message == ["end"] {
            break;
        }
        assert_ne!(message[0], "d1", "{message:?}");
    }
}

#[tokio::test]
async fn a_job_for_later_wakes_listeners_when_it_falls_due() {
    let store = store::named().await;
    let producer = store.another().await;
    let driver = store.another().await;
    let mut watch = driver.watch(vec![queue("q")]).await.unwrap();
    // The first call of a quiet producer notifies inside its transaction.
    store_at(&producer, job("first"), noon()).await;
    let quiet = Duration::from_millis(300);
    while timeout(quiet, watch.woken()).await.is_ok() {}
    let due_in = Duration::from_millis(900);
    store_at(&producer, job("later").run_at(after(due_in)), noon()).await;
    assert!(timeout(due_in / 2, watch.woken()).await.is_err(), "it was woken at once");
    timeout(SOON, watch.woken()).await.expect("a wake-up");
}

#[tokio::test]
async fn the_name_of_a_queue_and_messages_of_other_versions_wake_all_listeners_at_once() {
    let store = store::named().await;
    let driver = store.another().await;
    let mut watch = driver.watch(vec![queue("q")]).await.unwrap();
    let mut other = driver.watch(vec![queue("other")]).await.unwrap();
    let quiet = Duration::from_millis(200);
    while timeout(quiet, watch.woken()).await.is_ok() {}
    while timeout(quiet, other.woken()).await.is_ok() {}
    let sql = store.sql().await;
    let channel = SchemaName::new(store.schema()).unwrap().channel();
    let notify = "SELECT pg_notify($1, $2)";
    sql.execute(notify, &[&channel, &"q"]).await.unwrap();
    timeout(SOON, watch.woken()).await.expect("a wake-up");
    assert!(timeout(quiet, other.woken()).await.is_err());
    sql.execute(notify, &[&channel, &"z9\twhatever"]).await.unwrap();
    timeout(SOON, watch.woken()).await.expect("a wake-up");
    timeout(SOON, other.woken()).await.expect("a wake-up");
}
