//! Callers that wait for the end of a job which another process settles.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver,
    admin::{Action, Manage},
    driver::{Settle, Settlement, Transaction, Watch, Woken},
};
use taskharbor_postgres::SchemaName;
use tokio::time::timeout;

use crate::{
    fixture::{ack, id, job, job_in, lease, noon, queue, settle, store_at},
    fleet::{eavesdrop, next},
    harness::store::{self, Store},
};

const SOON: Duration = Duration::from_secs(10);

/// Waits until the watch is woken because of its own job.
async fn ended(watch: &mut Watch) {
    let named = async { while watch.woken().await.expect("the driver is open") != Woken::Job {} };
    timeout(SOON, named).await.expect("a wake-up that names the job");
}

/// A caller of `here` waits for the job `a`, and `there` has heard of it.
async fn wait_for_a(store: &Store, here: &impl Driver, there: &impl Driver) -> Watch {
    let (_client, mut messages) = eavesdrop(store).await;
    let watch = here.watch_job(id("a")).await.unwrap();
    while next(&mut messages).await[0] != "w1" {}
    // Messages come in order, so that what follows comes after what was told.
    let mut later = there.watch(vec![queue("later")]).await.unwrap();
    store_at(here, job_in("later", "marker"), noon()).await;
    timeout(SOON, later.woken()).await.expect("a wake-up");
    watch
}

#[tokio::test]
async fn the_end_of_a_job_wakes_a_caller_of_another_process() {
    let store = store::named().await;
    let (here, there) = (store.another().await, store.another().await);
    let _working = there.watch(vec![queue("q")]).await.unwrap();
    store_at(&there, job("a"), noon()).await;
    let mut watch = wait_for_a(&store, &here, &there).await;
    settle(&there, &lease(&there, "q", 1).await, ack()).await;
    ended(&mut watch).await;
}

#[tokio::test]
async fn an_end_that_the_application_commits_wakes_a_caller_of_another_process() {
    let store = store::named().await;
    let (here, there) = (store.another().await, store.another().await);
    let _working = there.watch(vec![queue("q")]).await.unwrap();
    store_at(&there, job("a"), noon()).await;
    let mut watch = wait_for_a(&store, &here, &there).await;
    let mut sql = store.sql().await;
    let tx = sql.transaction().await.unwrap();
    let item = lease(&there, "q", 1).await.pop().unwrap();
    let items = vec![Settlement::new(item.job.id, item.lease.token, ack())];
    there.tx(&tx).settle(Settle::new(items, noon())).await.unwrap().remove(0).unwrap();
    tx.commit().await.unwrap();
    ended(&mut watch).await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_elsewhere_wakes_a_caller_of_another_process() {
    let store = store::named().await;
    let (here, there) = (store.another().await, store.another().await);
    store_at(&there, job("a"), noon()).await;
    let _listening = here.watch(vec![queue("q")]).await.unwrap();
    let mut watch = here.watch_job(id("a")).await.unwrap();
    let cancel = Manage::new(vec![id("a")], Action::Cancel, noon());
    there.manage(cancel).await.unwrap().remove(0).unwrap();
    ended(&mut watch).await;
}

#[tokio::test]
async fn without_a_caller_that_waits_no_end_is_notified() {
    let store = store::named().await;
    let driver = store.another().await;
    let _working = driver.watch(vec![queue("q")]).await.unwrap();
    let (client, mut messages) = eavesdrop(&store).await;
    store_at(&driver, job("a"), noon()).await;
    settle(&driver, &lease(&driver, "q", 1).await, ack()).await;
    // Closing sends what there is to tell, and all messages come one after another.
    driver.close().await.unwrap();
    let channel = SchemaName::new(store.schema()).unwrap().channel();
    client.execute("SELECT pg_notify($1, 'end')", &[&channel]).await.unwrap();
    loop {
        let message = next(&mut messages).await;
        assert_ne!(message[0], "e1");
        if message == ["end"] {
            break;
        }
    }
}
