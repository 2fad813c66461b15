//! The crash limit: it counts crashes in a row, and nothing else.

use std::{sync::Arc, time::Duration};

use taskharbor::{Handlers, JobId, Outcome, Running, State};

use taskharbor_core::{
    QueueName,
    driver::{Demand, Driver, Reserve},
    name::Holder,
};

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, LEASE, SECOND, WorkerRig, handler},
};

const MS: Duration = Duration::from_millis(1);

/// Handlers whose worker dies while they run.
fn hangs() -> Handlers {
    handler(|_, _| std::future::pending())
}

fn start(rig: &WorkerRig, handlers: Handlers) -> Running {
    rig.worker(handlers).build().unwrap().start()
}

/// A worker starts the job and dies with it.
async fn crash(rig: &WorkerRig) {
    let before = rig.log.count("started");
    let dies = start(rig, hangs());
    rig.log.until_count("started", before + 1).await;
    dies.abort();
    dies.ended().await.unwrap();
    tokio::time::sleep(2 * LEASE).await;
}

/// The store grants the job, and the answer never reaches a worker.
async fn lose_answer(rig: &WorkerRig) {
    let demands = vec![Demand::new(QueueName::new("default").unwrap(), 1)];
    let holder = Holder::new("lost").unwrap();
    let reserved = rig.driver.reserve(Reserve::new(demands, holder, rig.now(), LEASE)).await;
    assert_eq!(reserved.unwrap().jobs.len(), 1);
    tokio::time::sleep(2 * LEASE).await;
}

async fn expirations(rig: &WorkerRig, id: &JobId) -> u32 {
    // What the next worker would be told.
    rig.record(id).await.job.expirations
}

#[tokio::test(start_paused = true)]
async fn a_job_that_crashes_its_worker_five_times_in_a_row_is_dead_lettered() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    for _ in 0..5 {
        crash(&rig).await;
    }
    let _alive = start(&rig, handler(|_, _| async { DONE }));
    let record = rig.finished(&id).await;
    assert_eq!((record.state, rig.log.count("started")), (State::Dlq, 5));
    assert_eq!(
        record.reason.unwrap().as_str(),
        "its lease ran out 5 times in a row: its worker died, hung or lost the store while running it, but the first time the job may not have reached it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_snoozed_between_crashes_is_not_dead_lettered() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    for round in 1..=8 {
        crash(&rig).await;
        let snoozes = handler(|_, _| async { Ok(Outcome::Snooze(60 * SECOND)) });
        let alive = start(&rig, snoozes);
        rig.log.until_count("released Snoozed", round).await;
        alive.shutdown().await.unwrap();
        assert_eq!(expirations(&rig, &id).await, 0);
        tokio::time::sleep(60 * SECOND).await;
    }
    let _alive = start(&rig, handler(|_, _| async { DONE }));
    assert_eq!(rig.finished(&id).await.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_a_shutdown_releases_between_crashes_is_not_dead_lettered() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    for _ in 0..8 {
        crash(&rig).await;
        let before = rig.log.count("started");
        let stopped = rig.worker(hangs()).grace(SECOND).build().unwrap().start();
        rig.log.until_count("started", before + 1).await;
        stopped.shutdown().await.unwrap();
        assert_eq!(expirations(&rig, &id).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_before_the_start_does_not_forget_the_crashes() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    crash(&rig).await;
    crash(&rig).await;
    let other = Handlers::new().on_raw("other", |_, _| async { taskharbor::JobResult::Ok(None) });
    let knows_not = start(&rig, other);
    rig.log.until("released NoHandler").await;
    knows_not.shutdown().await.unwrap();
    assert_eq!(expirations(&rig, &id).await, 2);
}

/// Deploys kill the worker before it could give the job back: after the announcement of the shutdown.
#[tokio::test(start_paused = true)]
async fn leases_of_workers_that_were_killed_while_shutting_down_do_not_count() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    for deploy in 1..=8 {
        let running = Arc::new(rig.worker(hangs()).grace(3_600 * SECOND).build().unwrap().start());
        rig.log.until_count("started", deploy).await;
        let ending = Arc::clone(&running);
        let shutdown = tokio::spawn(async move { ending.shutdown().await });
        tokio::time::sleep(SECOND).await;
        running.abort();
        shutdown.await.unwrap().unwrap();
        tokio::time::sleep(2 * LEASE).await;
    }
    let _alive = start(&rig, handler(|_, _| async { DONE }));
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.expirations), (State::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn answers_to_reserve_that_are_lost_are_no_crashes() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    for _ in 0..8 {
        lose_answer(&rig).await;
    }
    let _alive = start(&rig, handler(|_, _| async { DONE }));
    let record = rig.finished(&id).await;
    assert_eq!((record.state, rig.log.count("started")), (State::Done, 1));
    assert_eq!((record.job.deliveries, record.job.expirations), (9, 1));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_between_crashes_are_not_counted_with_them() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    for _ in 0..3 {
        crash(&rig).await;
        lose_answer(&rig).await;
        lose_answer(&rig).await;
    }
    let _alive = start(&rig, handler(|_, _| async { DONE }));
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.expirations), (State::Done, 3));
    assert_eq!(record.job.deliveries, 3 + 6 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_not_started_before_the_store_knows_if_it_may_have_crashed_a_worker() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    crash(&rig).await;
    rig.store.next(Op::Extend, [Fault::Refuse, Fault::LoseReply]);
    let begun = rig.now();
    let _alive = start(&rig, handler(|_, _| async { DONE }));
    let record = rig.finished(&id).await;
    assert_eq!(record.state, State::Done);
    // The second answer was lost, so it was the third that allowed the start.
    let lines = rig.log.lines();
    let started = lines.iter().rposition(|line| line.starts_with("started")).unwrap();
    assert!(lines[..started].iter().any(|line| line.starts_with("extended")), "{lines:#?}");
    assert!(rig.now().since(begun) >= MS);
}

#[tokio::test(start_paused = true)]
async fn a_healthy_job_costs_no_call_to_the_store_before_its_start() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let _alive = start(&rig, handler(|_, _| async { DONE }));
    assert_eq!(rig.finished(&id).await.state, State::Done);
    assert_eq!(rig.store.calls(Op::Extend), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_says_that_the_job_may_never_have_reached_its_worker() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    rig.store.next(Op::Reserve, [Fault::LoseReply]);
    let run = rig.worker(handler(|_, _| async { DONE })).crash_limit(1);
    let _alive = run.build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!(
        (record.state, record.reason.unwrap().as_str()),
        (
            State::Dlq,
            "its lease ran out: its worker died, hung or lost the store, or the job never reached it"
        )
    );
}
