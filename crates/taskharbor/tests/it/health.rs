//! The health of a worker: the check whether it consumes jobs.

use taskharbor::{
    Context, DeclaredLimits, Flow, Health, HealthProblem, Job, JobResult, QueueLimits, Running,
    State, WorkerPhase,
};

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, SECOND, WorkerRig, handler, work},
};

fn handlers() -> taskharbor::Handlers {
    handler(|job, _| async move {
        if job.name == "long" {
            tokio::time::sleep(3_600 * SECOND).await;
        }
        DONE
    })
}

/// Looks every second until the health is as wanted; fails after this many.
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
    let rig = WorkerRig::new();
    let running = rig.worker(handlers()).build().unwrap().start();
    rig.enqueue("long").await;
    rig.log.until("started").await;
    assert!(running.health().is_ready(), "{}", running.health());
    rig.store.next(op, [Fault::Hang, Fault::Hang, Fault::Hang]);
    for _ in 0..4 {
        rig.enqueue("short").await;
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
async fn a_reserver_that_hangs_is_reported_until_it_recovers() {
    wedged(Op::Reserve, |it| matches!(it, HealthProblem::Reserving(_))).await;
}

#[tokio::test(start_paused = true)]
async fn a_settler_that_hangs_is_reported_until_it_recovers() {
    wedged(Op::Settle, |it| matches!(it, HealthProblem::Settling(_))).await;
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_hangs_is_reported_until_it_recovers() {
    wedged(Op::Extend, |it| matches!(it, HealthProblem::ExtendingLeases(_))).await;
}

#[tokio::test(start_paused = true)]
async fn an_input_that_cannot_be_read_is_reported_until_it_can() {
    #[derive(serde::Serialize, serde::Deserialize, Job)]
    #[job(type = "after", input = u64, output = u64)]
    struct After {}
    async fn after(job: After, cx: Context) -> JobResult<u64> {
        Ok(cx.input(&job)? + 1)
    }
    let rig = WorkerRig::new();
    let running = rig.worker(handlers().on(after)).build().unwrap().start();
    // The slot is taken, but nothing runs in it.
    rig.store.next(Op::Outputs, [Fault::Hang, Fault::Hang]);
    let flow = Flow::first(work("short")).then(After {});
    let handle = rig.client.start(flow).await.unwrap();
    let is_expected = |it: &HealthProblem| matches!(it, HealthProblem::ReadingInputs(_));
    until(&running, 45, |health| health.problems.iter().any(is_expected)).await;
    let health = running.health();
    assert!(!health.is_ready() && health.is_live() && health.busy == 1, "{health}");
    assert_eq!(rig.finished(handle.id()).await.state, State::Done);
    assert!(running.health().is_ready(), "{}", running.health());
}

#[tokio::test(start_paused = true)]
async fn limits_that_cannot_be_declared_are_reported_until_they_can() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Configure, [Fault::Hang, Fault::Hang]);
    let mut limits = QueueLimits::new();
    limits.inflight = Some(3);
    let declared = DeclaredLimits::owned_by("billing").queue("default", limits);
    let running = rig.worker(handlers()).limits(declared).build().unwrap().start();
    let id = rig.enqueue("short").await;
    until(&running, 1, Health::is_ready).await;
    let is_expected = |it: &HealthProblem| matches!(it, HealthProblem::DeclaringLimits(_));
    until(&running, 45, |health| health.problems.iter().any(is_expected)).await;
    assert!(running.health().is_live() && rig.state(&id).await == State::Ready);
    rig.finished(&id).await;
    assert!(running.health().is_ready(), "{}", running.health());
}

/// Nothing about jobs depends on announcements.
#[tokio::test(start_paused = true)]
async fn an_announcer_that_hangs_leaves_the_worker_ready() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Announce, [Fault::Hang; 20]);
    let worker = rig.worker(handlers()).announce_every(10 * SECOND);
    let running = worker.build().unwrap().start();
    for _ in 0..100 {
        tokio::time::sleep(SECOND).await;
        let id = rig.enqueue("short").await;
        rig.finished(&id).await;
        assert!(running.health().is_ready(), "{}", running.health());
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_worker_and_an_idle_one_are_healthy() {
    let rig = WorkerRig::new();
    let running = rig.worker(handlers()).build().unwrap().start();
    for busy in [0, 8] {
        for _ in 0..busy {
            rig.enqueue("long").await;
        }
        rig.enqueue(if busy > 0 { "waits" } else { "short" }).await;
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
    let rig = WorkerRig::new();
    rig.store.down(&[Op::Time]);
    let running = rig.worker(handlers()).build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    rig.store.up();
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
