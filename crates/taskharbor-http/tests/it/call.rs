//! Calls: what is sent, what is not, and what happens when a caller gives up.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, JobType, NewJob, QueueName, Timestamp,
    driver::{Enqueue, Enqueued},
    error::InvalidRequest,
};
use taskharbor_http::{Config, HttpDriver};
use tokio::time::timeout;

use crate::{
    fake::{self, Hang, Then, driver, json},
    served::memory,
};

/// A broken driver fails a test instead of hanging it.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn job(id: &str) -> NewJob {
    let (queue, job_type) = (QueueName::new("q").unwrap(), JobType::new("work").unwrap());
    NewJob::new(JobId::new(id).unwrap(), queue, job_type, b"{}".as_slice())
}

pub(crate) fn enqueue(id: &str, now: Timestamp) -> Enqueue {
    Enqueue::new(vec![job(id).into()], now)
}

#[tokio::test]
async fn a_request_that_the_server_would_refuse_for_its_size_is_not_sent() {
    let driver = driver(Then::Hang(Arc::default())).await;
    let (queue, job_type) = (QueueName::new("q").unwrap(), JobType::new("work").unwrap());
    let large = NewJob::new(JobId::new("a").unwrap(), queue, job_type, vec![b'x'; 200_000]);
    let now = Timestamp::from_micros(0).unwrap();
    let error = driver.enqueue(Enqueue::new(vec![large.into()], now)).await.unwrap_err();
    let DriverError::Invalid(InvalidRequest::OutOfRange { value, max, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(max, 100_000);
    assert!(value > max);
}

#[tokio::test]
async fn a_server_that_hangs_is_unavailable_after_the_timeout() {
    let address = fake::server(Then::Hang(Arc::default())).await;
    let config = Config::from_url(&format!("http://{address}")).unwrap();
    let driver = HttpDriver::open(config.timeout(Duration::from_secs(1))).await.unwrap();
    let error = driver.store_time().await.unwrap_err();
    assert!(matches!(error, DriverError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("has not answered within 1s"), "{error}");
}

#[tokio::test]
async fn a_call_that_is_dropped_gives_up_its_connection_and_its_place() {
    let hang = Arc::new(Hang::default());
    let address = fake::server(Then::Hang(Arc::clone(&hang))).await;
    let config = Config::from_url(&format!("http://{address}")).unwrap();
    let driver = HttpDriver::open(config.connections(1)).await.unwrap();
    for _ in 0..3 {
        let call = tokio::spawn({
            let driver = driver.clone();
            async move { driver.store_time().await }
        });
        // A request arrives only when the one before has given up the only place.
        timeout(LIMIT, hang.arrived.notified()).await.unwrap();
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        timeout(LIMIT, hang.gone.notified()).await.unwrap();
    }
}

#[tokio::test]
async fn more_calls_than_connections_wait_for_each_other() {
    let served = memory().await;
    let calls = (0..200).map(|_| {
        let driver = served.driver().clone();
        tokio::spawn(async move { driver.store_time().await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_enqueue_whose_answer_was_lost_can_be_repeated() {
    let served = memory().await;
    let driver = served.driver();
    let now = driver.store_time().await.unwrap();
    for expected in [1, 0] {
        let answers = driver.enqueue(enqueue("a", now)).await.unwrap();
        let stored = answers[0].as_ref().unwrap();
        let new = stored.iter().filter(|it| matches!(it, Enqueued::Inserted(_))).count();
        assert_eq!(new, expected);
    }
    assert!(driver.inspect(JobId::new("a").unwrap(), now).await.unwrap().is_some());
}

#[tokio::test]
async fn a_detached_handle_works_on_a_runtime_of_its_own_and_is_closed_apart() {
    let served = memory().await;
    let driver = served.driver().clone();
    let told = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let detached = driver.detached_handle().unwrap();
            let told = detached.store_time().await;
            detached.close().await.unwrap();
            assert!(matches!(detached.store_time().await, Err(DriverError::Closed)));
            told
        })
    });
    told.await.unwrap().unwrap();
    served.driver().store_time().await.unwrap();
}

#[test]
fn connections_of_a_runtime_that_has_ended_are_replaced() {
    let server = tokio::runtime::Runtime::new().unwrap();
    let driver = server.block_on(async { memory().await.clone() });
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { driver.driver().store_time().await }).unwrap();
    }
}

#[tokio::test]
async fn a_closed_driver_sends_nothing() {
    let driver = driver(json("200 OK", "null")).await;
    driver.close().await.unwrap();
    let watch = timeout(LIMIT, driver.watch(vec![QueueName::new("q").unwrap()])).await.unwrap();
    assert!(matches!(watch, Err(DriverError::Closed)));
    assert!(matches!(driver.migrate().await, Err(DriverError::Closed)));
}
