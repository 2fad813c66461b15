//! The information in a handler's context, and the calls that it offers.

use std::sync::Arc;

use taskharbor::{Admin, CancelReason, Handlers, Outcome, State};
use taskharbor_core::admin::{Action, Manage};

use crate::rig::{DONE, SECOND, Work, WorkerRig, handler, work};

#[tokio::test(start_paused = true)]
async fn the_context_tells_everything_about_the_execution() {
    struct App(&'static str);
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).timeout(60 * SECOND).header("tenant", "acme");
    let handle = handle.priority(3).idempotency_key("k").await.unwrap();
    let (id, created_at) = (handle.id().clone(), rig.now());
    tokio::time::sleep(SECOND).await;
    let handlers = Handlers::new().on(move |job: Work, cx: taskharbor::Context<App>| {
        let id = id.clone();
        async move {
            assert_eq!((job.name.as_str(), cx.state().0), ("a", "state"));
            assert_eq!((cx.id(), cx.job_type().as_str()), (&id, "work"));
            assert_eq!(
                (cx.queue().as_str(), cx.headers().get("tenant")),
                ("default", Some("acme"))
            );
            assert_eq!((cx.attempt(), cx.delivery(), cx.created_at()), (1, 1, created_at));
            assert_eq!(cx.deadline(), Some(created_at.saturating_add(61 * SECOND)));
            assert_eq!(cx.time_left(), Some(60 * SECOND));
            assert_eq!((cx.timeout(), cx.run_at()), (Some(60 * SECOND), None));
            assert_eq!((cx.available_at(), cx.max_attempts()), (created_at, 20));
            assert_eq!(cx.idempotency_key().unwrap().as_str(), "k");
            assert_eq!((cx.flow(), cx.last_error(), cx.is_cancelled()), (None, None, false));
            taskharbor::JobResult::Ok(5)
        }
    });
    let run = rig.worker(handlers.with_state(App("state")));
    let _running = run.build().unwrap().start();
    assert_eq!(handle.wait().await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn progress_is_stored_with_the_next_heartbeat() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, cx| async move {
        cx.progress("1 of 2");
        cx.progress("half");
        tokio::time::sleep(15 * SECOND).await;
        cx.progress("nearly");
        tokio::time::sleep(100 * SECOND).await;
        DONE
    }));
    let _running = run.build().unwrap().start();
    for (beats, text) in [(1, "half"), (2, "nearly"), (3, "nearly")] {
        rig.log.until_count("extended", beats).await;
        assert_eq!(rig.record(&id).await.progress.unwrap().as_str(), text);
    }
}

async fn cancel(rig: &WorkerRig, id: &taskharbor::JobId) {
    let request = Manage::new(vec![id.clone()], Action::Cancel, rig.now());
    rig.driver.manage(request).await.unwrap().pop().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_handler_of_a_cancelled_job_learns_it_and_the_job_ends_as_cancelled() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let log = Arc::clone(&rig.log);
    let run = rig.worker(handler(move |_, cx| {
        let log = Arc::clone(&log);
        async move {
            assert_eq!(cx.cancelled().await, CancelReason::Requested);
            log.note("told");
            Err("stopped half way".into())
        }
    }));
    let _running = run.build().unwrap().start();
    rig.log.until("started").await;
    cancel(&rig, &id).await;
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Cancelled, 0));
    assert_eq!((rig.log.count("told"), rig.log.count("released CancelRequested")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_finishes_although_it_was_cancelled_is_done() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).await.unwrap();
    let run = rig.worker(handler(|_, cx| async move {
        cx.cancelled().await;
        tokio::time::sleep(SECOND).await;
        Ok(Outcome::Done(1))
    }));
    let _running = run.build().unwrap().start();
    rig.log.until("started").await;
    cancel(&rig, handle.id()).await;
    assert_eq!(handle.wait().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_that_does_not_listen_is_stopped_in_bounded_time() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| std::future::pending()));
    let start = rig.now();
    let _running = run.build().unwrap().start();
    rig.log.until("started").await;
    cancel(&rig, &id).await;
    let record = rig.finished(&id).await;
    assert_eq!(record.state, State::Cancelled);
    // Told with the heartbeat after ten seconds, stopped five seconds later.
    assert_eq!(record.finished_at.unwrap().since(start), 15 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn blocking_work_runs_beside_the_handlers() {
    let rig = WorkerRig::new();
    let run = rig.worker(handler(|job, cx| async move {
        let call = cx.clone();
        let number = taskharbor::blocking(move || {
            assert_ne!(job.name, "panic", "in a thread");
            if job.name == "fail" { Err("in vain") } else { Ok(u64::from(call.attempt())) }
        });
        Ok(Outcome::Done(number.await?))
    }));
    let _running = run.build().unwrap().start();
    for (name, expected) in [("ok", None), ("fail", Some("in vain")), ("panic", Some("panicked: "))]
    {
        let handle = rig.client.enqueue(work(name)).max_attempts(1).await.unwrap();
        let record = rig.finished(handle.id()).await;
        match expected {
            None => assert_eq!(record.state, State::Done),
            Some(text) => {
                assert!(record.job.last_error.unwrap().as_str().starts_with(text), "{name}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_and_max_attempts_are_the_jobs_own_or_else_the_workers() {
    let rig = WorkerRig::new();
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let run = rig.worker(handler(move |job, cx| {
        tell.lock().unwrap().push((job.name, cx.max_attempts(), cx.timeout(), cx.run_at()));
        async { DONE }
    }));
    let retry = taskharbor::Exponential::new().max_attempts(4);
    let _running = run.retry(retry).timeout(9 * SECOND).build().unwrap().start();
    let run_at = rig.now().saturating_add(5 * SECOND);
    let own = rig.client.enqueue(work("own")).max_attempts(2).timeout(3 * SECOND).run_at(run_at);
    let own = own.await.unwrap();
    rig.enqueue("other").await;
    rig.finished(own.id()).await;
    let expected = [
        ("other".to_owned(), 4, Some(9 * SECOND), None),
        ("own".to_owned(), 2, Some(3 * SECOND), Some(run_at)),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}
