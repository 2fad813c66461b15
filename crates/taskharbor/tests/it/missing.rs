//! Jobs that a worker cannot run, and another one perhaps can.

use std::{sync::Arc, time::Duration};

use taskharbor::{
    Handlers, JobId, JobResult, MissingHandler, Outcome, ReleaseNote, ReleaseReason, State,
    Unreadable, WorkerBuilder,
};

use tokio::sync::Notify;

use crate::rig::{DONE, SECOND, WorkerRig, handler};

const MINUTE: Duration = Duration::from_secs(60);

/// Jobs of an unknown type, in an unknown codec and with a payload that does not decode, with the end of
/// the reason for which each is dead-lettered and that for which it is released.
async fn unfit(rig: &WorkerRig) -> [(JobId, &'static str, &'static str); 3] {
    let raw = |job_type: &str, payload: &[u8]| rig.client.enqueue_raw(job_type, payload);
    let codec = raw("work", br#"{"name":"a"}"#).max_attempts(1).codec("sealed-1").await;
    [
        (
            raw("new", b"{}").max_attempts(1).await.unwrap().id().clone(),
            "no handler for job type \"new\" is registered",
            "released NoHandler",
        ),
        (
            codec.unwrap().id().clone(),
            "the job was written with codec \"sealed-1\", which this worker does not know",
            "released Unreadable",
        ),
        (
            raw("work", b"[1, 2]").max_attempts(1).await.unwrap().id().clone(),
            "at line 1 column 2",
            "released Unreadable",
        ),
    ]
}

fn worker(rig: &WorkerRig) -> WorkerBuilder {
    rig.worker(handler(|_, _| async { DONE }))
}

#[tokio::test(start_paused = true)]
async fn jobs_that_a_worker_cannot_run_are_dead_lettered_after_ten_minutes() {
    let rig = WorkerRig::new();
    let jobs = unfit(&rig).await;
    let begun = rig.now();
    let _running = worker(&rig).build().unwrap().start();
    for (id, reason, released) in &jobs {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.attempts), (State::Dlq, 1));
        let text = record.reason.unwrap();
        assert!(text.as_str().ends_with(reason), "{text}");
        assert_eq!(rig.log.time_of(&format!("dead-lettered {id}")).since(begun), 10 * MINUTE);
        let times = rig.log.count(&format!("{released} {id}"));
        assert!((40..60).contains(&times), "released {times} times");
    }
    // Nothing is told to have failed before the wait was over.
    assert_eq!(rig.log.count("failed"), 2);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_a_worker_cannot_run_are_dead_lettered_at_once_if_it_says_so() {
    let rig = WorkerRig::new();
    let jobs = unfit(&rig).await;
    let begun = rig.now();
    let run = worker(&rig).missing_handler(MissingHandler::Fail).unreadable(Unreadable::Fail);
    let _running = run.build().unwrap().start();
    for (id, reason, _) in &jobs {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.deliveries), (State::Dlq, 1));
        let text = record.reason.unwrap();
        assert!(text.as_str().ends_with(reason), "{text}");
    }
    assert_eq!((rig.now(), rig.log.count("released")), (begun, 0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_the_next_version_runs_what_the_old_one_could_not() {
    let rig = WorkerRig::new();
    let jobs = unfit(&rig).await;
    let old = worker(&rig).build().unwrap().start();
    tokio::time::sleep(9 * MINUTE).await;
    for (id, ..) in &jobs {
        let record = rig.record(id).await;
        assert_eq!((record.state, record.job.attempts), (State::Scheduled, 0));
    }
    old.shutdown().await.unwrap();
    let done = |_, _| async { JobResult::Ok(None) };
    let knows = Handlers::new().on_raw("new", done).on_raw("work", done);
    let _new = rig.worker(knows).build().unwrap().start();
    for (id, ..) in &jobs {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.attempts), (State::Done, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn workers_that_come_and_go_count_the_wait_together() {
    let rig = WorkerRig::new();
    let jobs = unfit(&rig).await;
    let begun = rig.now();
    for _ in 0..9 {
        let running = worker(&rig).build().unwrap().start();
        tokio::time::sleep(MINUTE).await;
        running.shutdown().await.unwrap();
    }
    for (id, ..) in &jobs {
        let record = rig.record(id).await;
        assert_eq!((record.state, record.job.attempts), (State::Scheduled, 0));
        let note = record.job.released.unwrap();
        assert_eq!(note.unfit_since, Some(begun), "{note}");
    }
    let _last = worker(&rig).build().unwrap().start();
    for (id, ..) in &jobs {
        assert_eq!(rig.finished(id).await.state, State::Dlq);
        assert_eq!(rig.log.time_of(&format!("dead-lettered {id}")).since(begun), 10 * MINUTE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_crashed_its_worker_ends_the_wait() {
    let rig = WorkerRig::new();
    let id = rig.client.enqueue_raw("new", b"{}").await.unwrap().id().clone();
    let old = worker(&rig).build().unwrap().start();
    rig.log.until(&format!("released NoHandler {id}")).await;
    old.shutdown().await.unwrap();
    let started = Arc::new(Notify::new());
    let told = Arc::clone(&started);
    let knows = Handlers::new().on_raw("new", move |_, _| {
        told.notify_one();
        async {
            std::future::pending::<()>().await;
            JobResult::Ok(None)
        }
    });
    let new = rig.worker(knows).build().unwrap().start();
    started.notified().await;
    tokio::time::sleep(15 * MINUTE).await;
    new.abort();
    let old = worker(&rig).name("old").build().unwrap().start();
    tokio::time::sleep(5 * MINUTE).await;
    let record = rig.record(&id).await;
    assert_eq!(record.state, State::Scheduled);
    let since = record.job.released.unwrap().unfit_since.unwrap();
    assert!(rig.now().since(since) < 5 * MINUTE, "{since}");
    old.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_note_of_a_release_says_what_the_worker_found() {
    let rig = WorkerRig::new();
    let jobs = unfit(&rig).await;
    let end = rig.now().saturating_add(10 * MINUTE);
    let _running = worker(&rig).name("w1").build().unwrap().start();
    let found = [
        "worker w1 has no handler for type new",
        "worker w1 cannot read it",
        "worker w1 cannot read it",
    ];
    for ((id, reason, released), found) in jobs.iter().zip(found) {
        rig.log.until(&format!("{released} {id}")).await;
        let text = rig.record(id).await.job.released.unwrap().text;
        let start =
            format!("{found}, and it is dead-lettered at {end} if no other worker can run it");
        assert!(text.as_str().starts_with(&start), "{text}");
        assert!(found.contains("no handler") || text.as_str().ends_with(reason), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ran_ends_the_wait() {
    let rig = WorkerRig::new();
    let id = rig.client.enqueue_raw("new", b"{}").await.unwrap().id().clone();
    let old = worker(&rig).build().unwrap().start();
    tokio::time::sleep(9 * MINUTE).await;
    old.shutdown().await.unwrap();
    let later =
        Handlers::new().on_raw("new", |_, _| async { JobResult::Ok(Outcome::Snooze(SECOND)) });
    let new = rig.worker(later).name("w2").build().unwrap().start();
    rig.log.until(&format!("released Snoozed {id}")).await;
    let note = rig.record(&id).await.job.released.unwrap();
    assert_eq!(
        note,
        ReleaseNote::new(ReleaseReason::Snoozed, "its handler snoozed it on worker w2")
    );
    new.shutdown().await.unwrap();
    let again = rig.now();
    let _old = worker(&rig).build().unwrap().start();
    rig.finished(&id).await;
    assert!(rig.now().since(again) >= 10 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_handler_can_be_left_to_other_workers_for_ever() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue_raw("new", b"{}").await.unwrap();
    let run = worker(&rig).missing_handler(MissingHandler::Wait(Duration::MAX));
    let _running = run.build().unwrap().start();
    tokio::time::sleep(24 * 60 * MINUTE).await;
    assert_eq!(rig.state(handle.id()).await, State::Scheduled);
    // The delays stop growing at a minute, so a worker that knows the type has it soon.
    let times = rig.log.count("released NoHandler");
    assert!((24 * 60..24 * 60 + 60).contains(&times), "released {times} times");
    assert!(rig.record(handle.id()).await.due_at.unwrap().since(rig.now()) <= 60 * SECOND);
}
