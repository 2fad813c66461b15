//! Jobs acknowledged in a transaction when replies are lost, leases run out or the worker stops.

use taskharbor::{Context, JobResult, Outcome, State};

use crate::{
    port::{LEASE, Port, SECOND, handler, work},
    unkind::{Fault, Op, Unkind},
};

/// Acknowledges the job and commits that unless the job is named "forgetful".
async fn acknowledge(name: String, cx: Context, store: Unkind) -> JobResult<Outcome<u64>> {
    let mut tx = store.begin();
    let done = cx.ack_in(&mut tx, 1).await?;
    if name != "forgetful" {
        tx.commit().await;
    }
    Ok(done)
}

fn start(port: &Port) -> taskharbor::Running {
    let store = port.store.clone();
    let handlers = handler(move |job, cx| acknowledge(job.name, cx, store.clone()));
    port.worker(handlers).build().unwrap().start()
}

#[tokio::test(start_paused = true)]
async fn what_the_store_answers_tells_the_truth_also_on_the_last_attempt_and_after_lost_replies() {
    for lost in 0..3 {
        for (name, state, told) in
            [("careful", State::Done, "succeeded"), ("forgetful", State::Dlq, "dead-lettered")]
        {
            let port = Port::new();
            port.store.next(Op::Settle, [Fault::LoseReply; 3].into_iter().take(lost));
            let _running = start(&port);
            let job = port.client.enqueue(work(name)).max_attempts(1).await.unwrap();
            port.log.until(told).await;
            assert_eq!(port.state(job.id()).await, state, "{name}, {lost} replies lost");
            tokio::time::sleep(2 * LEASE).await;
            let ends = ["succeeded", "retried", "released", "dead-lettered", "lost"];
            let ends: usize = ends.iter().map(|it| port.log.count(it)).sum();
            assert_eq!(ends, 1, "{name}, {lost} replies lost: {:#?}", port.log.lines());
            assert_eq!(port.log.count("failed"), usize::from(name == "forgetful"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_lost_reply_is_told_as_one() {
    let port = Port::new();
    port.store.next(Op::Settle, [Fault::LoseReply]);
    let _running = start(&port);
    let job = port.client.enqueue(work("forgetful")).max_attempts(2).await.unwrap();
    assert_eq!(port.finished(job.id()).await.state, State::Dlq);
    port.log.until("dead-lettered").await;
    assert_eq!((port.log.count("retried"), port.log.count("failed")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn the_keeper_leaves_a_job_alone_that_a_transaction_holds() {
    let port = Port::new();
    let store = port.store.clone();
    let start = port.now();
    let handlers = handler(move |_, cx| {
        let store = store.clone();
        async move {
            let mut tx = store.begin();
            tokio::time::sleep(15 * SECOND).await;
            let done = cx.ack_in(&mut tx, 1).await?;
            // As if the transaction were open for far too long.
            if cx.delivery() == 1 {
                tokio::time::sleep(100 * LEASE).await;
            }
            tx.commit().await;
            Ok(done)
        }
    });
    let _running = port.worker(handlers).build().unwrap().start();
    let id = port.enqueue("a").await;
    port.log.until("lost").await;
    // Extended once, at 10 s, before it was acknowledged; stopped when that lease was nearly over.
    assert_eq!(port.store.calls(Op::Extend), 1);
    assert_eq!(port.log.time_of("lost").since(start), 37 * SECOND);
    let record = port.finished(&id).await;
    assert_eq!((record.state, record.job.attempts, record.job.deliveries), (State::Done, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_ack_waits_for_the_heartbeat_in_flight_and_uses_its_token() {
    let port = Port::new();
    port.store.rotate_tokens();
    port.store.next(Op::Extend, [Fault::Late(2 * SECOND)]);
    let (store, start) = (port.store.clone(), port.now());
    let handlers = handler(move |job, cx| {
        let store = store.clone();
        async move {
            // The heartbeat goes out at ten seconds and is answered two later.
            tokio::time::sleep(11 * SECOND).await;
            acknowledge(job.name, cx, store).await
        }
    });
    let _running = port.worker(handlers).build().unwrap().start();
    let id = port.enqueue("a").await;
    port.log.until("succeeded").await;
    assert_eq!(port.state(&id).await, State::Done);
    assert_eq!(port.log.time_of("succeeded").since(start), 12 * SECOND);
    assert_eq!(port.log.count("lost"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_stopped_between_ack_and_commit_gives_its_job_back() {
    let port = Port::new();
    let store = port.store.clone();
    let handlers = handler(move |_, cx| {
        let mut tx = store.begin();
        async move {
            let _done = cx.ack_in(&mut tx, 1).await?;
            std::future::pending().await
        }
    });
    let worker = port.worker(handlers).grace(SECOND).cancel_wait(SECOND);
    let running = worker.build().unwrap().start();
    let id = port.enqueue("a").await;
    port.log.until("started").await;
    running.shutdown().await.unwrap();
    assert_eq!(port.log.count("released Shutdown"), 1);
    let record = port.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_out_of_time_after_the_commit_has_succeeded() {
    let port = Port::new();
    let store = port.store.clone();
    let handlers = handler(move |_, cx| {
        let mut tx = store.begin();
        async move {
            cx.ack_in(&mut tx, 1).await?;
            tx.commit().await;
            std::future::pending().await
        }
    });
    let _running = port.worker(handlers).timeout(5 * SECOND).build().unwrap().start();
    let id = port.enqueue("a").await;
    port.log.until("succeeded").await;
    assert_eq!(port.state(&id).await, State::Done);
    assert_eq!(port.log.count("retried"), 0);
}
