//! The stream of wake-ups that all watches share.

use std::time::Duration;

use taskharbor_core::{
    AnyDriver, Driver, JobId, QueueName,
    driver::{Watch, Woken},
};
use taskharbor_memory::MemoryDriver;
use tokio::{net::TcpListener, sync::oneshot, time::timeout};

use crate::{
    call::enqueue,
    fake::{driver, json},
    served,
};

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// A broken driver fails the test instead of hanging it.
async fn woken(watch: &mut Watch) -> Woken {
    timeout(Duration::from_secs(30), watch.woken()).await.unwrap().unwrap()
}

#[tokio::test]
async fn what_another_caller_enqueues_wakes_a_watch() {
    let served = served::memory().await;
    let (here, there) = (served.driver(), served.driver().detached_handle().unwrap());
    let mut other = here.watch(vec![queue("other")]).await.unwrap();
    let mut watch = here.watch(vec![queue("q")]).await.unwrap();
    assert!(watch.can_wake() && other.can_wake());
    let now = there.store_time().await.unwrap();
    // The first of them is woken when the stream begins.
    assert_eq!(woken(&mut other).await, Woken::All);
    there.enqueue(enqueue("a", now)).await.unwrap();
    assert_eq!(woken(&mut watch).await, Woken::Queues(vec![queue("q")]));
    let mut job = here.watch_job(JobId::new("a").unwrap()).await.unwrap();
    assert!(job.can_wake());
    there.enqueue(enqueue("b", now)).await.unwrap();
    assert_eq!(woken(&mut watch).await, Woken::Queues(vec![queue("q")]));
    let cancel = taskharbor_core::admin::Manage::new(
        vec![JobId::new("a").unwrap()],
        taskharbor_core::admin::Action::Cancel,
        now,
    );
    taskharbor_core::Admin::manage(&there, cancel).await.unwrap()[0].as_ref().unwrap();
    assert_eq!(woken(&mut job).await, Woken::Job);
}

#[tokio::test]
async fn a_watch_learns_that_the_server_is_away_and_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = AnyDriver::new(MemoryDriver::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let first = served::spawn(listener, &store, async { drop(stopped.await) });
    let driver = served::connect(address).await;
    let mut watch = driver.watch(vec![queue("q")]).await.unwrap();
    assert_eq!(woken(&mut watch).await, Woken::All);
    assert!(watch.can_wake());

    stop.send(()).unwrap();
    first.await.unwrap();
    assert_eq!(woken(&mut watch).await, Woken::All);
    assert!(!watch.can_wake());
    assert_eq!(watch.problem(), None);

    let listener = TcpListener::bind(address).await.unwrap();
    drop(served::spawn(listener, &store, std::future::pending()));
    assert_eq!(woken(&mut watch).await, Woken::All);
    assert!(watch.can_wake());
    let now = driver.store_time().await.unwrap();
    driver.enqueue(enqueue("a", now)).await.unwrap();
    assert_eq!(woken(&mut watch).await, Woken::Queues(vec![queue("q")]));
}

#[tokio::test]
async fn a_server_that_refuses_to_stream_is_a_problem_that_workers_can_tell() {
    let body = r#"{"code":"needs_workers","title":"no","detail":"why"}"#;
    let driver = driver(json("403 Forbidden", body)).await;
    let watch = driver.watch(vec![queue("q")]).await.unwrap();
    assert!(!watch.can_wake());
    let problem = watch.problem().unwrap();
    assert!(problem.contains("use a token that may do this"), "{problem}");
}
