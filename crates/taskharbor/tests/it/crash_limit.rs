//! The crash limit: it counts crashes in a row, and nothing else.

use std::{sync::Arc, time::Duration};

use taskharbor::{Handlers, JobId, Outcome, Running, State};

use taskharbor_core::{
    QueueName,
    driver::{Demand, Driver, Reserve},
    name::Holder,
};

use crate::{
    port::{DONE, LEASE, Port, SECOND, handler},
    unkind::{Fault, Op},
};

const MS: Duration = Duration::from_millis(1);

/// Handlers whose worker dies while they run.
fn hangs() -> Handlers {
    handler(|_, _| std::future::pending())
}

fn start(port: &Port, handlers: Handlers) -> Running {
    port.worker(handlers).build().unwrap().start()
}

/// A worker starts the job and dies with it.
async fn crash(port: &Port) {
    let before = port.log.count("started");
    let dies = start(port, hangs());
    port.log.until_count("started", before + 1).await;
    dies.abort();
    dies.ended().await.unwrap();
    tokio::time::sleep(2 * LEASE).await;
}

/// The store grants the job, and the answer never reaches a worker.
async fn lose_answer(port: &Port) {
    let demands = vec![Demand::new(QueueName::new("default").unwrap(), 1)];
    let holder = Holder::new("lost").unwrap();
    let reserved = port.driver.reserve(Reserve::new(demands, holder, port.now(), LEASE)).await;
    assert_eq!(reserved.unwrap().jobs.len(), 1);
    tokio::time::sleep(2 * LEASE).await;
}

async fn expirations(port: &Port, id: &JobId) -> u32 {
    // What the next worker would be told.
    port.record(id).await.job.expirations
}

#[tokio::test(start_paused = true)]
async fn a_job_that_crashes_its_worker_five_times_in_a_row_is_dead_lettered() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    for _ in 0..5 {
        crash(&port).await;
    }
    let _alive = start(&port, handler(|_, _| async { DONE }));
    let record = port.finished(&id).await;
    assert_eq!((record.state, port.log.count("started")), (State::Dlq, 5));
    assert_eq!(
        record.reason.unwrap().as_str(),
        "its lease ran out 5 times in a row: its worker died, hung or lost the store while running it, but the first time the job may not have reached it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_snoozed_between_crashes_is_not_dead_lettered() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    for round in 1..=8 {
        crash(&port).await;
        let snoozes = handler(|_, _| async { Ok(Outcome::Snooze(60 * SECOND)) });
        let alive = start(&port, snoozes);
        port.log.until_count("released Snoozed", round).await;
        alive.shutdown().await.unwrap();
        assert_eq!(expirations(&port, &id).await, 0);
        tokio::time::sleep(60 * SECOND).await;
    }
    let _alive = start(&port, handler(|_, _| async { DONE }));
    assert_eq!(port.finished(&id).await.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_a_shutdown_gives_back_between_crashes_is_not_dead_lettered() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    for _ in 0..8 {
        crash(&port).await;
        let before = port.log.count("started");
        let stopped = port.worker(hangs()).grace(SECOND).build().unwrap().start();
        port.log.until_count("started", before + 1).await;
        stopped.shutdown().await.unwrap();
        assert_eq!(expirations(&port, &id).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_before_the_start_does_not_forget_the_crashes() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    crash(&port).await;
    crash(&port).await;
    let other = Handlers::new().on_raw("other", |_, _| async { taskharbor::JobResult::Ok(None) });
    let knows_not = start(&port, other);
    port.log.until("released NoHandler").await;
    knows_not.shutdown().await.unwrap();
    assert_eq!(expirations(&port, &id).await, 2);
}

/// Deploys kill the worker before it could give the job back: after the announcement of the shutdown.
#[tokio::test(start_paused = true)]
async fn leases_of_workers_that_were_killed_while_shutting_down_do_not_count() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    for deploy in 1..=8 {
        let running = Arc::new(port.worker(hangs()).grace(3_600 * SECOND).build().unwrap().start());
        port.log.until_count("started", deploy).await;
        let ending = Arc::clone(&running);
        let shutdown = tokio::spawn(async move { ending.shutdown().await });
        tokio::time::sleep(SECOND).await;
        running.abort();
        shutdown.await.unwrap().unwrap();
        tokio::time::sleep(2 * LEASE).await;
    }
    let _alive = start(&port, handler(|_, _| async { DONE }));
    let record = port.finished(&id).await;
    assert_eq!((record.state, record.job.expirations), (State::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn answers_to_reserve_that_are_lost_are_no_crashes() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    for _ in 0..8 {
        lose_answer(&port).await;
    }
    let _alive = start(&port, handler(|_, _| async { DONE }));
    let record = port.finished(&id).await;
    assert_eq!((record.state, port.log.count("started")), (State::Done, 1));
    assert_eq!((record.job.deliveries, record.job.expirations), (9, 1));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_between_crashes_are_not_counted_with_them() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    for _ in 0..3 {
        crash(&port).await;
        lose_answer(&port).await;
        lose_answer(&port).await;
    }
    let _alive = start(&port, handler(|_, _| async { DONE }));
    let record = port.finished(&id).await;
    assert_eq!((record.state, record.job.expirations), (State::Done, 3));
    assert_eq!(record.job.deliveries, 3 + 6 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_not_started_before_the_store_knows_if_it_may_have_crashed_a_worker() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    crash(&port).await;
    port.store.next(Op::Extend, [Fault::Refuse, Fault::LoseReply]);
    let begun = port.now();
    let _alive = start(&port, handler(|_, _| async { DONE }));
    let record = port.finished(&id).await;
    assert_eq!(record.state, State::Done);
    // The second answer was lost, so it was the third that allowed the start.
    let lines = port.log.lines();
    let started = lines.iter().rposition(|line| line.starts_with("started")).unwrap();
    assert!(lines[..started].iter().any(|line| line.starts_with("extended")), "{lines:#?}");
    assert!(port.now().since(begun) >= MS);
}

#[tokio::test(start_paused = true)]
async fn a_healthy_job_costs_no_call_to_the_store_before_its_start() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    let _alive = start(&port, handler(|_, _| async { DONE }));
    assert_eq!(port.finished(&id).await.state, State::Done);
    assert_eq!(port.store.calls(Op::Extend), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_says_that_the_job_may_never_have_reached_its_worker() {
    let port = Port::new();
    let id = port.enqueue("a").await;
    port.store.next(Op::Reserve, [Fault::LoseReply]);
    let run = port.worker(handler(|_, _| async { DONE })).crash_limit(1);
    let _alive = run.build().unwrap().start();
    let record = port.finished(&id).await;
    assert_eq!(
        (record.state, record.reason.unwrap().as_str()),
        (
            State::Dlq,
            "its lease ran out: its worker died, hung or lost the store, or the job never reached it"
        )
    );
}
