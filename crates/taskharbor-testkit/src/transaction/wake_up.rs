//! Wake-ups for jobs that are enqueued in a transaction: their receivers and their time.

use std::{
    future::Future,
    pin::pin,
    task::{Context as Poller, Waker},
    time::Duration,
};

use taskharbor::{AnyDriver, Client, Driver, Outcome, QueueName};
use taskharbor_core::driver::Watch;

use super::app::{App, handler, soon, work};
use crate::transaction::Library;

fn queue(name: &str) -> Vec<QueueName> {
    vec![QueueName::new(name).unwrap()]
}

/// Whether there was a wake-up that was not received yet.
fn was_woken(watch: &mut Watch) -> bool {
    pin!(watch.woken()).poll(&mut Poller::from_waker(Waker::noop())).is_ready()
}

/// Waits for a wake-up of a queue that no other watch has. Wake-ups come one after another, so all earlier ones have
/// come.
async fn fence<L: Library>(app: &App<L>, watch: &mut Watch) {
    app.client.enqueue(work("fence")).queue("fence").await.unwrap();
    assert!(soon(watch.woken()).await.is_some());
}

pub async fn listeners_are_woken_by_the_commit_and_not_before<L: Library>() {
    let app = App::<L>::new().await;
    let listener = app.store.another().await;
    let mut jobs = listener.watch(queue("default")).await.unwrap();
    let mut fences = listener.watch(queue("fence")).await.unwrap();
    assert!(jobs.can_wake());
    while was_woken(&mut jobs) || was_woken(&mut fences) {}

    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    app.client.enqueue(work("a")).within(L::tx(&app.pg, &mut open)).await.unwrap();
    fence(&app, &mut fences).await;
    assert!(!was_woken(&mut jobs));
    L::commit(open).await.unwrap();
    assert!(soon(jobs.woken()).await.is_some());

    // A rolled back enqueue sends no wake-up.
    let mut open = L::begin(&mut db).await.unwrap();
    app.client.enqueue(work("b")).within(L::tx(&app.pg, &mut open)).await.unwrap();
    L::rollback(open).await.unwrap();
    fence(&app, &mut fences).await;
    assert!(!was_woken(&mut jobs));
}

pub async fn listeners_are_not_woken_if_notifications_are_off<L: Library>() {
    let app = App::<L>::new().await;
    let quiet = app.store.another_with(|config| config.notify_in_transactions(false)).await;
    let client = Client::new(&AnyDriver::new(quiet.clone()));
    let listener = app.store.another().await;
    let mut jobs = listener.watch(queue("default")).await.unwrap();
    let mut fences = listener.watch(queue("fence")).await.unwrap();
    while was_woken(&mut jobs) || was_woken(&mut fences) {}

    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    client.enqueue(work("a")).within(L::tx(&quiet, &mut open)).await.unwrap();
    L::commit(open).await.unwrap();
    fence(&app, &mut fences).await;
    assert!(!was_woken(&mut jobs));
}

pub async fn a_worker_elsewhere_runs_the_job_once_the_transaction_commits<L: Library>() {
    let app = App::<L>::new().await;
    // It polls once in ten minutes, and a wake-up comes within twenty seconds.
    let worker = AnyDriver::new(app.store.another().await);
    let handlers = handler(|_, _| async { Ok(Outcome::Done(1)) });
    let worker = app.worker_on(&worker, handlers).poll(Duration::from_secs(600));
    let running = worker.build().unwrap().start();
    let first = app.client.enqueue(work("first")).await.unwrap();
    assert_eq!(soon(first.wait()).await.unwrap(), 1);

    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    let second =
        app.client.enqueue(work("second")).within(L::tx(&app.pg, &mut open)).await.unwrap();
    L::commit(open).await.unwrap();
    assert_eq!(soon(second.wait()).await.unwrap(), 1);
    running.shutdown().await.unwrap();
}

pub async fn a_worker_without_wake_ups_finds_the_job_by_polling<L: Library>() {
    let app = App::<L>::new().await;
    let quiet = app.store.another_with(|config| config.notify_in_transactions(false)).await;
    let client = Client::new(&AnyDriver::new(quiet.clone()));
    let worker = AnyDriver::new(app.store.another().await);
    let handlers = handler(|_, _| async { Ok(Outcome::Done(1)) });
    // It polls thirty times as rarely where there are wake-ups.
    let worker = app.worker_on(&worker, handlers).poll(Duration::from_millis(10));
    let running = worker.build().unwrap().start();
    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    let handle = client.enqueue(work("a")).within(L::tx(&quiet, &mut open)).await.unwrap();
    L::commit(open).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 1);
    running.shutdown().await.unwrap();
}
