//! The events for observers.

use std::sync::{Arc, Mutex};

use taskharbor::{Counters, Event, JobError, Operation, Outcome};

use crate::{
    faulty_store::Op,
    rig::{DONE, SECOND, WorkerRig, handler},
};

#[tokio::test(start_paused = true)]
async fn every_step_of_a_job_is_observed_in_order() {
    let rig = WorkerRig::new();
    let run = rig.worker(handler(|job, cx| async move {
        match (job.name.as_str(), cx.delivery()) {
            ("bad", _) => Err(JobError::unrecoverable("bad")),
            ("flaky", 1) => Err("flaky".into()),
            ("tired", 1) => Ok(Outcome::Snooze(SECOND)),
            ("long", _) => {
                tokio::time::sleep(11 * SECOND).await;
                DONE
            }
            _ => DONE,
        }
    }));
    let running = run.build().unwrap().start();
    rig.log.until("worker started").await;
    for (name, steps) in [
        ("good", vec!["reserved", "started", "succeeded"]),
        ("bad", vec!["reserved", "started", "failed", "dead-lettered"]),
        (
            "flaky",
            vec!["reserved", "started", "failed", "retried", "reserved", "started", "succeeded"],
        ),
        (
            "tired",
            vec!["reserved", "started", "released Snoozed", "reserved", "started", "succeeded"],
        ),
        ("long", vec!["reserved", "started", "extended", "succeeded"]),
    ] {
        let before = rig.log.lines().len();
        let id = rig.enqueue(name).await;
        rig.finished(&id).await;
        let lines = &rig.log.lines()[before..];
        assert_eq!(lines.len(), steps.len(), "{lines:#?}");
        for (line, step) in lines.iter().zip(steps) {
            assert!(line.starts_with(step) && line.contains(id.as_str()), "{line}: {step}");
        }
    }
    running.shutdown().await.unwrap();
    let lines = rig.log.lines();
    assert_eq!(lines[0], "worker started");
    assert_eq!(lines[lines.len() - 2..], ["shutting down with 0", "worker stopped, 0 left"]);
}

#[tokio::test(start_paused = true)]
async fn counters_can_be_read_while_they_count() {
    let rig = WorkerRig::new();
    let counters = Counters::new();
    let client = taskharbor::Client::builder(&rig.driver).observer(counters.clone());
    let client = client.build().unwrap();
    let run = rig.worker(handler(|job, cx| async move {
        if job.name == "bad" {
            return Err(JobError::unrecoverable("bad"));
        }
        if cx.attempt() == 1 { Err("once".into()) } else { DONE }
    }));
    let _running = run.observer(counters.clone()).build().unwrap().start();
    for name in ["good", "bad"] {
        for _ in 0..2 {
            let key = client.enqueue(crate::rig::work(name)).idempotency_key(name);
            rig.finished(key.await.unwrap().id()).await;
        }
    }
    let counts = counters.read();
    assert_eq!((counts.enqueued, counts.existing), (2, 2));
    assert_eq!((counts.reserved, counts.started), (3, 3));
    assert_eq!((counts.succeeded, counts.failed, counts.retried), (1, 2, 1));
    assert_eq!((counts.dead_lettered, counts.leases_lost, counts.outages), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_disturbs_no_job() {
    let rig = WorkerRig::new();
    let run = rig.worker(handler(|_, _| async { DONE }));
    let run = run.observer(|_: &Event<'_>| panic!("clumsy observer"));
    let running = run.build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.finished(&id).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_call_of_a_worker_to_its_store_is_observed() {
    let rig = WorkerRig::new();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    let note = move |event: &Event<'_>| {
        if let Event::Called { operation, items, took, error, .. } = event {
            noted.lock().unwrap().push((*operation, *items, *took, error.is_some()));
        }
    };
    let run = rig.worker(handler(|_, _| async {
        tokio::time::sleep(25 * SECOND).await;
        DONE
    }));
    let running = run.observer(note).build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.finished(&id).await;
    // A call that takes long says so, and one that fails.
    rig.store.down(&[Op::Reserve]);
    tokio::time::sleep(60 * SECOND).await;
    rig.store.up();
    tokio::time::sleep(60 * SECOND).await;
    running.shutdown().await.unwrap();
    let calls = calls.lock().unwrap();
    let of = |wanted| calls.iter().filter(move |call| call.0 == wanted);
    assert_eq!(of(Operation::Watch).map(|call| call.1).collect::<Vec<_>>(), [1]);
    // Eight slots are free, or seven while the job runs.
    assert!(of(Operation::Reserve).all(|call| (7..=8).contains(&call.1)), "{calls:?}");
    assert!(
        of(Operation::Reserve).any(|call| call.3) && of(Operation::Reserve).any(|call| !call.3)
    );
    assert_eq!(of(Operation::ExtendLeases).map(|call| call.1).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(of(Operation::Settle).map(|call| call.1).collect::<Vec<_>>(), [1]);
    assert!(of(Operation::Prune).next().is_some());
}
