//! The defaults of a type, for jobs without options of their own.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{
    BuildError, Context, Exponential, Failed, Handlers, Job, JobResult, RetryPolicy, State,
};

use crate::rig::{SECOND, WorkerRig};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "slow", timeout = "1s", max_attempts = 2)]
struct Slow {}

async fn slow(_: Slow, cx: Context) -> JobResult {
    assert_eq!(cx.timeout(), Some(SECOND));
    assert_eq!(cx.max_attempts(), 2);
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn timeout_and_attempts_of_a_type_apply_however_a_job_was_enqueued() {
    let rig = WorkerRig::new();
    let typed = rig.client.enqueue(Slow {}).await.unwrap().id().clone();
    let raw = rig.client.enqueue_raw("slow", b"{}").await.unwrap().id().clone();
    let _running = rig.worker(Handlers::new().on(slow)).build().unwrap().start();
    for id in [typed, raw] {
        let record = rig.finished(&id).await;
        assert_eq!((record.state, record.job.attempts), (State::Dlq, 2));
        let reason = record.reason.unwrap();
        assert_eq!(reason.as_str(), "failed 2 times; last error: timed out after 1s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_and_its_type_go_before_the_worker() {
    let rig = WorkerRig::new();
    let raw = rig.client.enqueue_raw("slow", b"{}").timeout(2 * SECOND).max_attempts(1);
    let id = raw.await.unwrap().id().clone();
    let waits = |_: Slow, cx: Context| async move {
        assert_eq!((cx.timeout(), cx.max_attempts()), (Some(2 * SECOND), 1));
        std::future::pending::<JobResult>().await
    };
    let run = rig.worker(Handlers::new().on(waits)).timeout(60 * SECOND);
    let _running = run.build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!(record.reason.unwrap().as_str(), "failed 1 time; last error: timed out after 2s");
}

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Serialize, Deserialize, Job)]
#[job(type = "webhook", retry = Exponential::new().base(HOUR).cap(HOUR).jitter(0.0).max_attempts(3))]
struct Webhook {}

#[derive(Serialize, Deserialize)]
struct Plain {}

impl Job for Plain {
    const TYPE: &'static str = "plain";
    type Input = ();
    type Output = ();

    fn retry_policy() -> Option<Box<dyn RetryPolicy>> {
        Some(Box::new(Immediately))
    }
}

/// A policy of the application's own.
struct Immediately;

impl RetryPolicy for Immediately {
    fn delay(&self, _: &Failed<'_>) -> Duration {
        Duration::ZERO
    }

    fn max_attempts(&self) -> u32 {
        4
    }
}

async fn fails<J: Job>(_: J, _: Context) -> JobResult {
    Err("no".into())
}

#[tokio::test(start_paused = true)]
async fn a_type_may_have_a_retry_policy_of_its_own() {
    let rig = WorkerRig::new();
    let start = rig.now();
    let handlers = Handlers::new().on(fails::<Webhook>).on(fails::<Plain>).on(fails::<Slow>);
    let jobs = [
        ("webhook", 3, 2 * HOUR),
        ("plain", 4, Duration::ZERO),
        // That of the worker: a second.
        ("slow", 2, SECOND),
    ];
    let mut ids = Vec::new();
    for (job_type, ..) in jobs {
        ids.push(rig.client.enqueue_raw(job_type, b"{}").await.unwrap().id().clone());
    }
    let _running = rig.worker(handlers).build().unwrap().start();
    for (id, (job_type, attempts, took)) in ids.iter().zip(jobs) {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.attempts), (State::Dlq, attempts), "{job_type}");
        assert_eq!(record.finished_at.unwrap().since(start), took, "{job_type}");
    }
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "hopeless", retry = Exponential::new().jitter(7.0))]
struct Hopeless {}

#[test]
fn a_policy_of_a_type_that_cannot_work_is_refused() {
    let driver = taskharbor::AnyDriver::new(taskharbor_memory::MemoryDriver::new());
    let worker = taskharbor::Worker::builder(&driver).queue("default", 1);
    let refused = worker.handlers(Handlers::new().on(fails::<Hopeless>)).build().unwrap_err();
    assert!(matches!(refused, BuildError::RetryOf { ref job_type, .. } if job_type == "hopeless"));
}
