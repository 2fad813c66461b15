//! Completing a job in its handler's own transaction.

use std::{sync::Arc, time::Duration};

use taskharbor::{AckError, Context, Driver, Flow, JobResult, Outcome, Refusal, Running, State};
use taskharbor_core::{
    driver::{Demand, Reserve},
    name::Holder,
};
use tokio::sync::Semaphore;

use super::app::{After, App, Work, after, handler, soon, work};
use crate::transaction::Library;

/// A worker whose handler gets the application.
fn start<L, F, Fut>(app: &App<L>, run: F) -> Running
where
    L: Library,
    F: Fn(Work, Context, App<L>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = JobResult<Outcome<u64>>> + Send + 'static,
{
    let state = app.clone();
    let handlers = handler(move |job, cx| run(job, cx, state.clone()));
    app.worker(handlers).build().unwrap().start()
}

/// The effect of a job, which can happen once.
fn effect(cx: &Context) -> String {
    format!("INSERT INTO app_ledger VALUES ('{}', 1)", cx.id())
}

pub async fn the_effect_and_the_ack_are_seen_together<L: Library>() {
    let app = App::<L>::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let inside = Arc::clone(&gate);
    let running = start(&app, move |_, cx, app| {
        let gate = Arc::clone(&inside);
        async move {
            let mut db = app.db().await;
            let mut open = L::begin(&mut db).await?;
            L::execute(&mut open, &effect(&cx)).await?;
            let done = cx.ack_in(L::tx(&app.pg, &mut open), 42).await?;
            app.log.note("acked");
            gate.acquire().await?.forget();
            L::commit(open).await?;
            Ok(done)
        }
    });
    let handle = app.client.enqueue(work("a")).await.unwrap();
    app.log.until("acked").await;
    assert_eq!(app.state(handle.id()).await, Some(State::Inflight));
    assert_eq!(app.count("app_ledger").await, 0);
    gate.add_permits(1);
    assert_eq!(soon(handle.wait()).await.unwrap(), 42);
    assert_eq!(app.count("app_ledger").await, 1);
    app.log.until("succeeded").await;
    let record = app.record(handle.id()).await.unwrap();
    assert_eq!((record.job.deliveries, record.job.attempts), (1, 0));
    running.shutdown().await.unwrap();
    app.check().await;
}

/// Runs one job whose first attempt ends like this after its ack and before its commit.
async fn spoilt<L: Library>(how: fn() -> JobResult<()>) -> App<L> {
    let app = App::<L>::new().await;
    let running = start(&app, move |_, cx, app| async move {
        let mut db = app.db().await;
        let mut open = L::begin(&mut db).await?;
        L::execute(&mut open, &effect(&cx)).await?;
        let done = cx.ack_in(L::tx(&app.pg, &mut open), 1).await?;
        if cx.attempt() == 1 {
            how()?;
            L::rollback(open).await?;
            return Ok(done);
        }
        L::commit(open).await?;
        Ok(done)
    });
    let handle = app.client.enqueue(work("a")).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 1);
    app.log.until("succeeded").await;
    assert_eq!(app.count("app_ledger").await, 1);
    assert_eq!((app.log.count("started"), app.log.count("retried")), (2, 1));
    let record = app.record(handle.id()).await.unwrap();
    assert_eq!((record.state, record.job.attempts), (State::Done, 1));
    running.shutdown().await.unwrap();
    app.check().await;
    app
}

pub async fn a_job_whose_transaction_is_rolled_back_is_tried_again_and_takes_effect_once<
    L: Library,
>() {
    let app = spoilt::<L>(|| Ok(())).await;
    assert_eq!(app.log.count("failed"), 1);
}

pub async fn a_handler_that_fails_between_ack_and_commit_takes_effect_once<L: Library>() {
    spoilt::<L>(|| Err("no".into())).await;
}

pub async fn a_handler_that_panics_between_ack_and_commit_takes_effect_once<L: Library>() {
    spoilt::<L>(|| panic!("no")).await;
}

pub async fn a_worker_that_has_lost_its_lease_is_refused<L: Library>() {
    let app = App::<L>::new().await;
    let running = start(&app, |_, cx, app| async move {
        // Another worker, whose clock is ahead, takes the job.
        let lease = Duration::from_secs(3_600);
        let later = cx.created_at().saturating_add(lease);
        let demands = vec![Demand::new(cx.queue().clone(), 1)];
        let thief = Reserve::new(demands, Holder::new("thief").unwrap(), later, lease);
        assert_eq!(app.pg.reserve(thief).await?.jobs.len(), 1);
        let mut db = app.db().await;
        let mut open = L::begin(&mut db).await?;
        L::execute(&mut open, &effect(&cx)).await?;
        let error = cx.ack_in(L::tx(&app.pg, &mut open), 1).await.unwrap_err();
        assert!(matches!(error, AckError::Refused(Refusal::LeaseMismatch)), "{error:?}");
        app.log.note("refused");
        Err(error.into())
    });
    let handle = app.client.enqueue(work("a")).await.unwrap();
    app.log.until("refused").await;
    app.log.until("lost").await;
    running.abort();
    running.ended().await.unwrap();
    assert_eq!(app.count("app_ledger").await, 0);
    let record = app.record(handle.id()).await.unwrap();
    assert_eq!((record.state, record.job.attempts), (State::Inflight, 0));
    app.check().await;
}

pub async fn a_transaction_of_another_driver_is_refused<L: Library>() {
    let (app, other) = (App::<L>::new().await, App::<L>::new().await);
    let elsewhere = other.pg.clone();
    let running = start(&app, move |_, cx, app| {
        let elsewhere = elsewhere.clone();
        async move {
            let mut db = app.db().await;
            let mut open = L::begin(&mut db).await?;
            let error = cx.ack_in(L::tx(&elsewhere, &mut open), 1).await.unwrap_err();
            assert!(matches!(error, AckError::OtherStore), "{error:?}");
            L::rollback(open).await?;
            Ok(Outcome::Done(5))
        }
    });
    let handle = app.client.enqueue(work("a")).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 5);
    running.shutdown().await.unwrap();
}

pub async fn a_caller_that_waits_for_a_member_of_a_flow_goes_on_at_the_commit<L: Library>() {
    let app = App::<L>::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let (state, inside) = (app.clone(), Arc::clone(&gate));
    let handlers = handler(move |_, cx| {
        let (app, gate) = (state.clone(), Arc::clone(&inside));
        async move {
            let mut db = app.db().await;
            let mut open = L::begin(&mut db).await?;
            L::execute(&mut open, &effect(&cx)).await?;
            let done = cx.ack_in(L::tx(&app.pg, &mut open), 6).await?;
            app.log.note("acked");
            gate.acquire().await?.forget();
            L::commit(open).await?;
            Ok(done)
        }
    });
    // It would look for itself too late: the commit tells it.
    let worker = app.worker(handlers.on(after)).poll(Duration::from_secs(600));
    let running = worker.build().unwrap().start();
    let flow = Flow::first(work("first")).then(After {});
    let flow = app.client.start(flow).await.unwrap();
    app.log.until("acked").await;
    assert_eq!(app.state(flow.id()).await, Some(State::Blocked));
    gate.add_permits(1);
    assert_eq!(soon(flow.wait()).await.unwrap(), 7);
    assert_eq!(app.count("app_ledger").await, 1);
    running.shutdown().await.unwrap();
    app.check().await;
}

pub async fn a_transaction_that_is_kept_open_delays_no_other_call<L: Library>() {
    let app = App::<L>::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let (state, inside) = (app.clone(), Arc::clone(&gate));
    let handlers = handler(move |job, cx| {
        let (app, gate) = (state.clone(), Arc::clone(&inside));
        async move {
            match job.name.as_str() {
                // Runs until the test is over, and needs heartbeats meanwhile.
                "long" => gate.acquire().await?.forget(),
                "sibling" => app.log.until_count("acked", 3).await,
                "held" => {
                    let mut db = app.db().await;
                    let mut open = L::begin(&mut db).await?;
                    L::execute(&mut open, &effect(&cx)).await?;
                    let done = cx.ack_in(L::tx(&app.pg, &mut open), 1).await?;
                    app.log.note("acked");
                    gate.acquire().await?.forget();
                    L::commit(open).await?;
                    return Ok(done);
                }
                "failing" if cx.attempt() == 1 => return Err("no".into()),
                _ => {}
            }
            Ok(Outcome::Done(2))
        }
    });
    // A lease is not extended while the handler's transaction holds the job: it has to last the test.
    let worker = app.worker(handlers.on(after)).lease(Duration::from_secs(600));
    let running = worker.heartbeat(Duration::from_secs(4)).build().unwrap().start();
    let held_flow = Flow::first(work("held")).then(After {});
    let held_flow = app.client.start(held_flow).await.unwrap();
    let held = app.client.enqueue(work("held")).await.unwrap();
    let long = app.client.enqueue(work("long")).await.unwrap();
    app.log.until_count("acked", 2).await;
    // The flow of this one is held by the other, once that has acknowledged itself.
    let siblings = Flow::group([work("held"), work("sibling")]).discard();
    let siblings = app.client.start(siblings).await.unwrap();
    app.log.until_count("acked", 3).await;

    // Plain jobs, failing ones and whole flows come and go beside it, and leases are extended.
    let plain = app.client.enqueue_many((0..20).map(|n| work(format!("{n}")))).await.unwrap();
    let failing = app.client.enqueue(work("failing")).await.unwrap();
    let flow = app.client.start(Flow::first(work("first")).then(After {})).await.unwrap();
    for handle in plain.iter().chain([&failing]) {
        assert_eq!(soon(handle.wait()).await.unwrap(), 2);
    }
    assert_eq!(soon(flow.wait()).await.unwrap(), 3);
    app.log.until(&format!("extended {}", long.id())).await;
    assert_eq!(app.state(held.id()).await, Some(State::Inflight));

    assert_eq!(app.log.all("unavailable"), [""; 0]);

    gate.add_permits(4);
    soon(siblings.wait()).await.unwrap();
    assert_eq!(soon(held.wait()).await.unwrap(), 1);
    assert_eq!(soon(held_flow.wait()).await.unwrap(), 2);
    assert_eq!(soon(long.wait()).await.unwrap(), 2);
    assert_eq!(app.log.all("lost"), [""; 0]);
    running.shutdown().await.unwrap();
    app.check().await;
}

/// A handler may leave its transaction to a task that goes on without it.
pub async fn a_transaction_that_outlives_its_handler_delays_no_other_call<L: Library>() {
    let app = App::<L>::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let inside = Arc::clone(&gate);
    let running = start(&app, move |job, cx, app| {
        let gate = Arc::clone(&inside);
        async move {
            if job.name != "leaky" || cx.attempt() > 1 {
                return Ok(Outcome::Done(2));
            }
            let (acked, done) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let mut db = app.db().await;
                let mut open = L::begin(&mut db).await.unwrap();
                let done = cx.ack_in(L::tx(&app.pg, &mut open), 1).await.unwrap();
                let _ = acked.send(done);
                gate.acquire().await.unwrap().forget();
                L::rollback(open).await.unwrap();
            });
            Ok(done.await?)
        }
    });
    let leaky = app.client.enqueue(work("leaky")).await.unwrap();
    app.log.until("started").await;
    app.until_a_session_waits_for_a_lock().await;
    let others = app.client.enqueue_many((0..20).map(|n| work(format!("{n}")))).await.unwrap();
    for other in &others {
        assert_eq!(soon(other.wait()).await.unwrap(), 2);
    }
    gate.add_permits(1);
    assert_eq!(soon(leaky.wait()).await.unwrap(), 2);
    running.shutdown().await.unwrap();
}
