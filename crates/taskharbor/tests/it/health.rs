//! Whether a worker consumes jobs, as it says itself.

use taskharbor::{Health, HealthProblem, Running, WorkerPhase};

use crate::{
    port::{DONE, Port, SECOND, handler},
    unkind::{Fault, Op},
};

fn handlers() -> taskharbor::Handlers {
    handler(|job, _| async move {
        if job.name == "long" {
            tokio::time::sleep(3_600 * SECOND).await;
        }
        DONE
    })
}

/// Looks every second until the health is as wanted; fails after so many.
async fn until(running: &Running, seconds: u32, wanted: impl Fn(&Health) -> bool) {
    for _ in 0..=seconds {
        if wanted(&running.health()) {
            return;
        }
        tokio::time::sleep(SECOND).await;
    }
    panic!("{}", running.health());
}

/// Makes calls of one kind hang: the worker is not ready within 45 s, and ready again after.
async fn wedged(op: Op, is_expected: impl Fn(&HealthProblem) -> bool) {
    let port = Port::new();
    let running = port.worker(handlers()).build().unwrap().start();
    port.enqueue("long").await;
    port.log.until("started").await;
    assert!(running.health().is_ready(), "{}", running.health());
    port.store.next(op, [Fault::Hang, Fault::Hang, Fault::Hang]);
    for _ in 0..4 {
        port.enqueue("short").await;
    }
    until(&running, 45, |health| health.problems.iter().any(&is_expected)).await;
    let health = running.health();
    assert!(!health.is_ready() && health.is_live(), "{health}");
    // Three calls hang for 30 s each.
    until(&running, 120, Health::is_ready).await;
    tokio::time::sleep(120 * SECOND).await;
    assert!(running.health().is_ready(), "{}", running.health());
}

#[tokio::test(start_paused = true)]
async fn a_reserver_that_hangs_is_told_of_and_forgotten() {
    wedged(Op::Reserve, |it| matches!(it, HealthProblem::Reserving(_))).await;
}

#[tokio::test(start_paused = true)]
async fn a_settler_that_hangs_is_told_of_and_forgotten() {
    wedged(Op::Settle, |it| matches!(it, HealthProblem::Settling(_))).await;
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_hangs_is_told_of_and_forgotten() {
    wedged(Op::Extend, |it| matches!(it, HealthProblem::ExtendingLeases(_))).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_worker_and_an_idle_one_are_healthy() {
    let port = Port::new();
    let running = port.worker(handlers()).build().unwrap().start();
    for busy in [0, 8] {
        for _ in 0..busy {
            port.enqueue("long").await;
        }
        port.enqueue(if busy > 0 { "waits" } else { "short" }).await;
        for _ in 0..30 {
            tokio::time::sleep(60 * SECOND).await;
            let health = running.health();
            assert!(health.is_ready(), "{health}");
            assert_eq!((health.slots, health.busy), (8, busy), "{health}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn health_knows_the_phase() {
    let port = Port::new();
    port.store.down(&[Op::Time]);
    let running = port.worker(handlers()).build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    port.store.up();
    until(&running, 45, Health::is_ready).await;
    running.quiet();
    let health = running.health();
    assert_eq!(
        (health.phase, health.is_ready(), health.is_live()),
        (WorkerPhase::Quiet, false, true)
    );
    running.shutdown().await.unwrap();
    let health = running.health();
    assert_eq!((health.phase, health.is_live()), (WorkerPhase::Ended, false));
    assert_eq!(health.to_string(), "ended: 0 of 8 slots taken");
}
