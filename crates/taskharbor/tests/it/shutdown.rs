//! Stopping a worker in each phase, in bounded time, without loss and without charge.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use taskharbor::{
    AnyDriver, CancelReason, Client, Driver, Event, Handlers, Outcome, Running, State, Worker,
    WorkerError,
};
use taskharbor_memory::MemoryDriver;

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, LEASE, SECOND, WorkerRig, handler, work},
};

const MS: Duration = Duration::from_millis(1);

/// How long it takes to shut down.
async fn shutdown(rig: &WorkerRig, running: &Running) -> Duration {
    let start = rig.now();
    running.shutdown().await.unwrap();
    rig.now().since(start)
}

/// A handler that takes this long.
fn takes(time: Duration) -> Handlers {
    handler(move |_, _| async move {
        tokio::time::sleep(time).await;
        DONE
    })
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_stops_at_once() {
    let rig = WorkerRig::new();
    let running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(shutdown(&rig, &running).await, Duration::ZERO);
    // It takes nothing more, and shutting down again is fine.
    let id = rig.enqueue("a").await;
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(rig.state(&id).await, State::Ready);
    assert_eq!(shutdown(&rig, &running).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_within_the_grace_period_is_recorded() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(takes(15 * SECOND - MS));
    let running = run.build().unwrap().start();
    rig.log.until("started").await;
    assert_eq!(shutdown(&rig, &running).await, 15 * SECOND - MS);
    assert_eq!(rig.state(&id).await, State::Done);
}

#[tokio::test(start_paused = true)]
async fn leases_are_kept_while_handlers_finish() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(takes(5 * LEASE));
    let running = run.grace(10 * LEASE).build().unwrap().start();
    rig.log.until("started").await;
    running.shutdown().await.unwrap();
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_to_stop_after_the_grace_period_and_its_job_released() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, cx| async move {
        assert_eq!(cx.cancelled().await, CancelReason::Shutdown);
        tokio::time::sleep(SECOND).await;
        Err("put away my things".into())
    }));
    let running = run.build().unwrap().start();
    rig.log.until("started").await;
    assert_eq!(shutdown(&rig, &running).await, 16 * SECOND);
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Ready, 0));
    assert_eq!((rig.log.count("released Shutdown"), rig.log.count("retried")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_finishes_after_being_told_is_recorded() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).await.unwrap();
    let run = rig.worker(handler(|_, cx| async move {
        cx.cancelled().await;
        Ok(Outcome::Done(8))
    }));
    let running = run.build().unwrap().start();
    rig.log.until("started").await;
    running.shutdown().await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ignores_the_order_to_stop_is_stopped_and_its_job_released() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| std::future::pending()));
    let running = run.build().unwrap().start();
    rig.log.until("started").await;
    assert_eq!(shutdown(&rig, &running).await, 20 * SECOND);
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_can_be_cut_short() {
    let rig = WorkerRig::new();
    rig.enqueue("a").await;
    let run = rig.worker(handler(|_, cx| async move {
        cx.cancelled().await;
        Err("stopped".into())
    }));
    let running = run.grace(3_600 * SECOND).build().unwrap().start();
    rig.log.until("started").await;
    let start = rig.now();
    let (ended, ()) = tokio::join!(running.shutdown(), async {
        tokio::time::sleep(2 * SECOND).await;
        running.end_grace();
    });
    ended.unwrap();
    assert_eq!(rig.now().since(start), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn thirty_deploys_during_one_job_charge_nothing() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).max_attempts(1).await.unwrap();
    for deploy in 1..=30 {
        let run = rig.worker(handler(|_, _| std::future::pending()));
        let running = run.grace(SECOND).build().unwrap().start();
        rig.log.until_count("started", deploy).await;
        running.shutdown().await.unwrap();
    }
    let record = rig.record(handle.id()).await;
    assert_eq!((record.job.attempts, record.job.expirations), (0, 0));
    let _last = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    assert_eq!(rig.finished(handle.id()).await.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_arrive_after_the_order_to_stop_are_released_unstarted() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    rig.store.next(Op::Reserve, [Fault::Late(5 * SECOND)]);
    let running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    assert_eq!(shutdown(&rig, &running).await, 4 * SECOND);
    assert_eq!(rig.log.count("started"), 0);
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.deliveries, record.job.attempts), (State::Ready, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_hangs_does_not_hold_up_the_end() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Reserve, [Fault::Hang]);
    let run = rig.worker(handler(|_, _| async { DONE })).call_timeout(3_600 * SECOND);
    let running = run.build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    let took = shutdown(&rig, &running).await;
    assert!((20 * SECOND..21 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_cannot_be_recorded_do_not_hold_up_the_end() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    rig.store.down(&[Op::Settle]);
    let running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.log.until("away settle").await;
    assert_eq!(shutdown(&rig, &running).await, 23 * SECOND);
    assert_eq!(rig.log.count("worker stopped, 1 left"), 1);
    rig.store.up();
    let _next = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries, record.job.attempts), (State::Done, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_ends_during_the_shutdown_costs_nothing() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.store.down(&[Op::Settle]);
    rig.log.until("away settle").await;
    let (ended, ()) = tokio::join!(running.shutdown(), async {
        tokio::time::sleep(10 * SECOND).await;
        rig.store.up();
    });
    ended.unwrap();
    assert_eq!(rig.state(&id).await, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_its_store_can_be_stopped() {
    let rig = WorkerRig::new();
    rig.store.down(&Op::ALL);
    let running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.log.until("away").await;
    assert_eq!(shutdown(&rig, &running).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_stops_the_worker_as_a_shutdown_does() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(takes(10 * SECOND));
    let running = run.build().unwrap().start();
    rig.log.until("started").await;
    drop(running);
    rig.log.until("worker stopped, 0 left").await;
    assert_eq!(rig.state(&id).await, State::Done);
}

/// Kubernetes kills a process 30 s after it has asked it to stop.
#[tokio::test(start_paused = true)]
async fn a_worker_tells_how_long_its_shutdown_takes_and_by_default_that_is_25_s() {
    let rig = WorkerRig::new();
    let told = Arc::new(Mutex::new(None));
    let hears = Arc::clone(&told);
    let run = rig.worker(handler(|_, _| std::future::pending()));
    let run = run.observer(move |event: &Event<'_>| {
        if let Event::WorkerStarted { shutdown_within, .. } = event {
            *hears.lock().unwrap() = Some(*shutdown_within);
        }
    });
    // Nothing is left out that could take time: a handler that does not stop, an outage, a call that hangs.
    rig.enqueue("a").await;
    let running = run.call_timeout(3_600 * SECOND).build().unwrap().start();
    rig.log.until("started").await;
    rig.store.next(Op::Settle, [Fault::Hang]);
    rig.store.next(Op::Extend, [Fault::Hang]);
    let took = shutdown(&rig, &running).await;
    assert_eq!(*told.lock().unwrap(), Some(25 * SECOND));
    // The last second is for the process.
    assert!((20 * SECOND..=24 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_worker_reserves_nothing_and_goes_on_with_what_it_has() {
    let rig = WorkerRig::new();
    let before = rig.enqueue("before").await;
    let running = rig.worker(takes(3_600 * SECOND)).build().unwrap().start();
    rig.log.until("started").await;
    running.quiet();
    running.quiet();
    let after = rig.enqueue("after").await;
    let record = rig.finished(&before).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 1));
    tokio::time::sleep(3_600 * SECOND).await;
    assert_eq!(rig.record(&after).await.job.deliveries, 0);
    assert_eq!(rig.log.count("quiet with 1"), 1);
    assert_eq!((rig.log.count("shutting"), rig.log.count("worker stopped")), (0, 0));
    assert_eq!(shutdown(&rig, &running).await, Duration::ZERO);
    assert_eq!(rig.log.count("worker stopped, 0 left"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_worker_releases_jobs_that_arrive_late() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    rig.store.next(Op::Reserve, [Fault::Late(5 * SECOND)]);
    let running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    running.quiet();
    rig.log.until("released Shutdown").await;
    let record = rig.record(&id).await;
    assert_eq!((record.state, rig.log.count("started")), (State::Ready, 0));
    assert_eq!(shutdown(&rig, &running).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_closed_driver_ends_the_worker_with_an_error() {
    let rig = WorkerRig::new();
    rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| std::future::pending()));
    let running = run.build().unwrap().start();
    rig.log.until("started").await;
    rig.driver.close().await.unwrap();
    assert!(matches!(running.ended().await, Err(WorkerError::Closed)));
    assert_eq!(rig.log.count("lost"), 1);
}

/// Real threads: a handler that blocks its thread cannot be stopped, and does not hold up the end.
#[test]
fn a_handler_that_blocks_its_thread_does_not_hold_up_the_end() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (finish, blocked) = mpsc::channel::<()>();
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(blocked));
    let (began, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    runtime.block_on(async {
        let driver = AnyDriver::new(MemoryDriver::new());
        let handle = Client::new(&driver).enqueue(work("a")).await.unwrap();
        let stuck = handler(move |_, _| {
            let (blocked, began) = (blocked.clone(), began.clone());
            async move {
                began.send(()).unwrap();
                let _ = blocked.lock().unwrap().recv();
                DONE
            }
        });
        let worker = Worker::builder(&driver).handlers(stuck).queue("default", 1);
        let worker = worker.grace(Duration::ZERO).cancel_wait(Duration::from_millis(20));
        let running = worker.build().unwrap().start();
        has_begun.recv().await.unwrap();
        running.shutdown().await.unwrap();
        let now = driver.now().await.unwrap();
        let record = taskharbor::Admin::inspect(&driver, handle.id().clone(), now).await.unwrap();
        // It is still running, so it is not released; its lease will end.
        assert_eq!(record.unwrap().state, State::Inflight);
        finish.send(()).unwrap();
    });
}
