//! Many queues, calls that hang, invalid answers.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_worker_may_serve_more_slots_than_one_call_can_fill() {
    let rig = WorkerRig::new();
    let mut run = rig.worker(handler(|_, _| async { DONE }));
    for n in 0..101 {
        run = run.queue(format!("q{n}"), 1_000);
    }
    let _running = run.build().unwrap().start();
    let id = rig.enqueue("a").await;
    let record = finished_within(&rig, &id, 600 * SECOND).await;
    assert!(record.is_some(), "{:#?}", rig.log.lines());
}

#[tokio::test(start_paused = true)]
async fn one_enqueue_that_hangs_is_given_up_and_holds_up_no_other_for_ever() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Enqueue, [Fault::Hang]);
    let first = tokio::time::timeout(60 * SECOND, rig.client.enqueue(work("a")).into_future());
    assert!(matches!(first.await, Ok(Err(_))), "its call hangs, and is given up");
    // The store is as well as can be, and answers callers that ask it directly.
    let keyed = rig.client.enqueue(work("k")).idempotency_key("k").await;
    keyed.unwrap();
    let other = tokio::time::timeout(3_600 * SECOND, rig.client.enqueue(work("b")).into_future());
    assert!(other.await.is_ok(), "an hour later no job without a key has been enqueued");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_always_says_now_is_not_asked_without_pause() {
    let (rig, driver) = rig_with_interference();
    driver.due_now.store(5_000, Ordering::SeqCst);
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    let calls = rig.store.calls(Op::Reserve);
    assert!(calls <= 1_100, "{calls} calls in one second");
}
