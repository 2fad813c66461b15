//! Jobs for which a worker has no handler.

use taskharbor::{Handlers, JobResult, MissingHandler, State};

use crate::port::{DONE, Port, SECOND, handler};

#[tokio::test(start_paused = true)]
async fn a_job_without_a_handler_is_dead_lettered_saying_so() {
    let port = Port::new();
    let handle = port.client.enqueue_raw("unheard-of", b"{}").await.unwrap();
    let run = port.worker(handler(|_, _| async { DONE }));
    let _running = run.build().unwrap().start();
    let record = port.finished(handle.id()).await;
    assert_eq!((record.state, record.job.deliveries), (State::Dlq, 1));
    let reason = record.reason.unwrap();
    assert_eq!(reason.as_str(), "no handler for job type \"unheard-of\" is registered");
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_handler_can_be_left_to_a_worker_that_has_one() {
    let port = Port::new();
    let handle = port.client.enqueue_raw("new", b"{}").max_attempts(1).await.unwrap();
    let old = port.worker(handler(|_, _| async { DONE }));
    let old = old.missing_handler(MissingHandler::Release(10 * SECOND)).build().unwrap().start();
    port.log.until_count("released NoHandler", 30).await;
    let record = port.record(handle.id()).await;
    assert_eq!((record.state, record.job.attempts), (State::Scheduled, 0));
    old.shutdown().await.unwrap();
    let knows = Handlers::new().on_raw("new", |_, _| async { JobResult::Ok(None) });
    let _new = port.worker(knows).build().unwrap().start();
    let record = port.finished(handle.id()).await;
    assert_eq!((record.state, record.job.attempts, record.job.deliveries), (State::Done, 0, 31));
}
