//! Jobs acknowledged in a transaction when replies are lost, leases run out or the worker stops.

use taskharbor::{Context, JobResult, Outcome, State};

use crate::{
    faulty_store::{Fault, FaultyStore, Op},
    rig::{LEASE, SECOND, WorkerRig, handler, work},
};

/// Acknowledges the job and commits that unless the job is named "forgetful".
async fn acknowledge(name: String, cx: Context, store: FaultyStore) -> JobResult<Outcome<u64>> {
    let mut tx = store.begin();
    let done = cx.ack_in(&mut tx, 1).await?;
    if name != "forgetful" {
        tx.commit().await;
    }
    Ok(done)
}

fn start(rig: &WorkerRig) -> taskharbor::Running {
    let store = rig.store.clone();
    let handlers = handler(move |job, cx| acknowledge(job.name, cx, store.clone()));
    rig.worker(handlers).build().unwrap().start()
}

#[tokio::test(start_paused = true)]
async fn what_the_store_answers_tells_the_truth_also_on_the_last_attempt_and_after_lost_replies() {
    for lost in 0..3 {
        for (name, state, told) in
            [("careful", State::Done, "succeeded"), ("forgetful", State::Dlq, "dead-lettered")]
        {
            let rig = WorkerRig::new();
            rig.store.next(Op::Settle, [Fault::LoseReply; 3].into_iter().take(lost));
            let _running = start(&rig);
            let job = rig.client.enqueue(work(name)).max_attempts(1).await.unwrap();
            rig.log.until(told).await;
            assert_eq!(rig.state(job.id()).await, state, "{name}, {lost} replies lost");
            tokio::time::sleep(2 * LEASE).await;
            let ends = ["succeeded", "retried", "released", "dead-lettered", "lost"];
            let ends: usize = ends.iter().map(|it| rig.log.count(it)).sum();
            assert_eq!(ends, 1, "{name}, {lost} replies lost: {:#?}", rig.log.lines());
            assert_eq!(rig.log.count("failed"), usize::from(name == "forgetful"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_lost_reply_is_told_as_one() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Settle, [Fault::LoseReply]);
    let _running = start(&rig);
    let job = rig.client.enqueue(work("forgetful")).max_attempts(2).await.unwrap();
    assert_eq!(rig.finished(job.id()).await.state, State::Dlq);
    rig.log.until("dead-lettered").await;
    assert_eq!((rig.log.count("retried"), rig.log.count("failed")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn the_keeper_leaves_a_job_alone_that_a_transaction_holds() {
    let rig = WorkerRig::new();
    let store = rig.store.clone();
    let start = rig.now();
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
    let _running = rig.worker(handlers).build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.log.until("lost").await;
    // Extended once, at 10 s, before it was acknowledged; stopped when that lease was nearly over.
    assert_eq!(rig.store.calls(Op::Extend), 1);
    assert_eq!(rig.log.time_of("lost").since(start), 37 * SECOND);
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.attempts, record.job.deliveries), (State::Done, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_ack_waits_for_the_heartbeat_in_flight_and_uses_its_token() {
    let rig = WorkerRig::new();
    rig.store.rotate_tokens();
    rig.store.next(Op::Extend, [Fault::Late(2 * SECOND)]);
    let (store, start) = (rig.store.clone(), rig.now());
    let handlers = handler(move |job, cx| {
        let store = store.clone();
        async move {
            // The heartbeat goes out at ten seconds and is answered two later.
            tokio::time::sleep(11 * SECOND).await;
            acknowledge(job.name, cx, store).await
        }
    });
    let _running = rig.worker(handlers).build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.log.until("succeeded").await;
    assert_eq!(rig.state(&id).await, State::Done);
    assert_eq!(rig.log.time_of("succeeded").since(start), 12 * SECOND);
    assert_eq!(rig.log.count("lost"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_stopped_between_ack_and_commit_gives_its_job_back() {
    let rig = WorkerRig::new();
    let store = rig.store.clone();
    let handlers = handler(move |_, cx| {
        let mut tx = store.begin();
        async move {
            let _done = cx.ack_in(&mut tx, 1).await?;
            std::future::pending().await
        }
    });
    let worker = rig.worker(handlers).grace(SECOND).cancel_wait(SECOND);
    let running = worker.build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.log.until("started").await;
    running.shutdown().await.unwrap();
    assert_eq!(rig.log.count("released Shutdown"), 1);
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_out_of_time_after_the_commit_has_succeeded() {
    let rig = WorkerRig::new();
    let store = rig.store.clone();
    let handlers = handler(move |_, cx| {
        let mut tx = store.begin();
        async move {
            cx.ack_in(&mut tx, 1).await?;
            tx.commit().await;
            std::future::pending().await
        }
    });
    let _running = rig.worker(handlers).timeout(5 * SECOND).build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.log.until("succeeded").await;
    assert_eq!(rig.state(&id).await, State::Done);
    assert_eq!(rig.log.count("retried"), 0);
}
