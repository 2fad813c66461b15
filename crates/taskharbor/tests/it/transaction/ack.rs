//! Acknowledging a job in the handler's own transaction.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use taskharbor::{
    AckError, Client, Context, Driver, Handlers, Job, JobId, JobResult, Outcome, Refusal, State,
};
use taskharbor_core::{
    driver::{Demand, Reserve},
    name::Holder,
};

use super::open::Open;
use crate::{
    faulty_store::{Fault, FaultyStore, Op},
    rig::{LEASE, SECOND, Work, WorkerRig, handler, work},
};

/// A worker whose handler gets a transaction; answers the one job it has.
async fn run<F, Fut>(rig: &WorkerRig, run: F) -> (JobId, taskharbor::Running)
where
    F: Fn(Work, Context, Open) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = JobResult<Outcome<u64>>> + Send + 'static,
{
    let store = rig.store.clone();
    let handlers = handler(move |job, cx| run(job, cx, store.begin()));
    let running = rig.worker(handlers).build().unwrap().start();
    (rig.enqueue("a").await, running)
}

/// How often each of these was told: failed, retried, succeeded, lost.
fn told(rig: &WorkerRig) -> [usize; 4] {
    ["failed", "retried", "succeeded", "lost"].map(|line| rig.log.count(line))
}

#[tokio::test(start_paused = true)]
async fn a_job_is_done_when_the_transaction_commits() {
    let rig = WorkerRig::new();
    let (id, _running) = run(&rig, |_, cx, mut tx| async move {
        let done = cx.ack_in(&mut tx, 42).await?;
        tx.commit().await;
        Ok(done)
    })
    .await;
    rig.log.until("succeeded").await;
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.deliveries, record.job.attempts), (State::Done, 1, 0));
    assert_eq!(rig.client.handle::<Work>(id).wait().await.unwrap(), 42);
    assert_eq!(told(&rig), [0, 0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_enqueued_in_the_same_transaction_goes_with_it() {
    let rig = WorkerRig::new();
    let client: Client = rig.client.clone();
    let (first, _running) = run(&rig, move |job, cx, mut tx| {
        let client = client.clone();
        async move {
            if job.name == "a" {
                client.enqueue(work("next")).within(&mut tx).await?;
            }
            let done = cx.ack_in(&mut tx, 1).await?;
            // The first time everything is rolled back.
            if cx.attempt() == 1 && job.name == "a" {
                return Err("not this time".into());
            }
            tx.commit().await;
            Ok(done)
        }
    })
    .await;
    rig.log.until_count("succeeded", 2).await;
    assert_eq!(rig.record(&first).await.job.attempts, 1);
    assert_eq!(rig.log.count("started"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_rolled_back_fails_the_attempt_with_the_handlers_error() {
    let rig = WorkerRig::new();
    let (id, _running) = run(&rig, |_, cx, mut tx| async move {
        let done = cx.ack_in(&mut tx, 1).await?;
        if cx.attempt() == 1 {
            drop(tx);
            return Err("no".into());
        }
        tx.commit().await;
        Ok(done)
    })
    .await;
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Done, 1));
    assert_eq!(record.job.last_error.unwrap().as_str(), "no");
    assert_eq!(rig.log.count(&format!("failed {id} no")), 1);
    rig.log.until("succeeded").await;
    assert_eq!(told(&rig), [1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_transaction_was_not_committed_is_never_done() {
    for kind in 0..3 {
        let rig = WorkerRig::new();
        let (id, _running) = run(&rig, move |_, cx, mut tx| async move {
            let done = cx.ack_in(&mut tx, 1).await?;
            if cx.attempt() > 1 {
                tx.commit().await;
                return Ok(done);
            }
            drop(tx);
            Ok([done, Outcome::Done(7), Outcome::Snooze(SECOND)].into_iter().nth(kind).unwrap())
        })
        .await;
        let record = rig.finished(&id).await;
        assert_eq!((record.state, record.job.attempts), (State::Done, 1), "{kind}");
        let text = "the transaction in which the job was acknowledged was not committed";
        assert_eq!(record.job.last_error.unwrap().as_str(), text);
        assert_eq!(rig.log.count(&format!("failed {id} {text}")), 1);
        rig.log.until("succeeded").await;
        assert_eq!(told(&rig), [1, 1, 1, 0], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_committed_is_done_even_if_the_handler_fails_later() {
    let rig = WorkerRig::new();
    let (id, _running) = run(&rig, |_, cx, mut tx| async move {
        cx.ack_in(&mut tx, 9).await?;
        tx.commit().await;
        Err("the mail about it was not sent".into())
    })
    .await;
    rig.log.until("succeeded").await;
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Done, 0));
    tokio::time::sleep(2 * LEASE).await;
    // The handler failed, the job did not.
    assert_eq!(told(&rig), [1, 0, 1, 0]);
    assert_eq!(rig.log.count("started"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_output_may_return_as_usual() {
    #[derive(Serialize, Deserialize, Job)]
    #[job(type = "silent")]
    struct Silent {}
    let rig = WorkerRig::new();
    async fn silent(_: Silent, cx: Context<FaultyStore>) -> JobResult {
        let mut tx = cx.state().begin();
        cx.ack_in(&mut tx, ()).await?;
        tx.commit().await;
        Ok(())
    }
    let handlers = Handlers::new().on(silent).with_state(rig.store.clone());
    let _running = rig.worker(handlers).build().unwrap().start();
    rig.client.enqueue(Silent {}).await.unwrap().wait().await.unwrap();
    rig.log.until("succeeded").await;
    assert_eq!(told(&rig), [0, 0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn handlers_of_bytes_acknowledge_with_bytes() {
    let rig = WorkerRig::new();
    let store = rig.store.clone();
    let handlers = Handlers::new().on_raw("raw", move |payload, cx: Context| {
        let mut tx = store.begin();
        async move {
            let done = cx.ack_raw_in(&mut tx, Some(payload)).await?;
            tx.commit().await;
            JobResult::Ok(done)
        }
    });
    let _running = rig.worker(handlers).build().unwrap().start();
    let handle = rig.client.enqueue_raw("raw", b"\xff").await.unwrap();
    assert_eq!(&handle.wait_raw().await.unwrap().unwrap()[..], b"\xff");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_lease_is_lost_is_refused() {
    let rig = WorkerRig::new();
    let (store, errors) = (rig.store.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&errors);
    let (id, running) = run(&rig, move |_, cx, mut tx| {
        let (store, seen) = (store.clone(), Arc::clone(&seen));
        async move {
            // Another worker, whose clock is ahead, takes it.
            let later = cx.created_at().saturating_add(2 * LEASE);
            let demands = vec![Demand::new(cx.queue().clone(), 1)];
            let thief = Reserve::new(demands, Holder::new("thief").unwrap(), later, LEASE);
            assert_eq!(store.store.reserve(thief).await.unwrap().jobs.len(), 1);
            let error = cx.ack_in(&mut tx, 1).await.unwrap_err();
            seen.lock().unwrap().push(matches!(error, AckError::Refused(Refusal::LeaseMismatch)));
            Err(error.into())
        }
    })
    .await;
    rig.log.until("lost").await;
    running.abort();
    assert_eq!(*errors.lock().unwrap(), [true]);
    assert_eq!((rig.log.count("retried"), rig.log.count("succeeded")), (0, 0));
    assert_eq!(rig.record(&id).await.job.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_before_it_was_sent_leaves_the_job_as_it_was() {
    struct Sour;
    impl Serialize for Sour {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("sour"))
        }
    }
    impl<'de> Deserialize<'de> for Sour {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            Ok(Self)
        }
    }
    let (rig, other) = (WorkerRig::new(), WorkerRig::new());
    let elsewhere = other.store.clone();
    let (id, _running) = run(&rig, move |_, cx, mut tx| {
        let mut wrong = elsewhere.begin();
        async move {
            let errors = [
                cx.ack_in(&mut wrong, 1).await.unwrap_err(),
                cx.ack_in(&mut tx, Sour).await.map(drop).unwrap_err(),
                cx.ack_in(&mut tx, "x".repeat(1 << 20)).await.map(drop).unwrap_err(),
            ];
            assert!(matches!(
                errors,
                [AckError::OtherStore, AckError::Encode(_), AckError::TooLarge { .. }]
            ));
            Ok(Outcome::Done(5))
        }
    })
    .await;
    assert_eq!(rig.finished(&id).await.state, State::Done);
    assert_eq!(rig.client.handle::<Work>(id).wait().await.unwrap(), 5);
    assert_eq!(told(&rig), [0, 0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_acknowledged_once_in_an_execution() {
    let rig = WorkerRig::new();
    let (id, _running) = run(&rig, |_, cx, mut tx| async move {
        let done = cx.ack_in(&mut tx, 1).await?;
        assert!(matches!(cx.ack_in(&mut tx, 2).await, Err(AckError::Again)));
        tx.commit().await;
        Ok(done)
    })
    .await;
    assert_eq!(rig.client.handle::<Work>(id).wait().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_has_left_behind_cannot_acknowledge_its_job() {
    let rig = WorkerRig::new();
    let (left, mut behind) = tokio::sync::mpsc::unbounded_channel();
    let (id, _running) = run(&rig, move |_, cx, tx| {
        left.send((cx, tx)).unwrap();
        async { Ok(Outcome::Done(3)) }
    })
    .await;
    rig.finished(&id).await;
    let (cx, mut tx) = behind.recv().await.unwrap();
    assert!(matches!(cx.ack_in(&mut tx, 1).await, Err(AckError::Over)));
    assert_eq!(rig.client.handle::<Work>(id).wait().await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_in_the_transaction_fails_the_attempt() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Transaction, [Fault::Refuse]);
    let (id, _running) = run(&rig, |_, cx, mut tx| async move {
        let done = cx.ack_in(&mut tx, 1).await?;
        tx.commit().await;
        Ok(done)
    })
    .await;
    assert_eq!(rig.finished(&id).await.job.attempts, 1);
    rig.log.until("succeeded").await;
    assert_eq!(told(&rig), [1, 1, 1, 0]);
}
