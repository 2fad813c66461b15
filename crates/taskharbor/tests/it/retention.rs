//! Terminal jobs are kept for the worker's retention, and removed soon after.

use std::time::Duration;

use taskharbor::{Admin, JobError, JobId, Manage, Outcome, Retention, Running, State};
use taskharbor_core::admin::Action;

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, LEASE, SECOND, WorkerRig, handler, work},
};

const HOUR: Duration = Duration::from_secs(3_600);
/// How much longer than its retention a job may stay: its last lease, and the time until a prune.
const LATER: Duration = Duration::from_secs(30 + 45);

fn start(rig: &WorkerRig, retention: Retention) -> Running {
    let handlers = handler(|job, _| async move {
        if job.name == "dlq" { Err(JobError::unrecoverable("never")) } else { DONE }
    });
    rig.worker(handlers).retention(retention).build().unwrap().start()
}

/// A job that ends in each way, in the order done, cancelled, dead-lettered.
async fn one_of_each(rig: &WorkerRig) -> [JobId; 3] {
    let cancelled = rig.client.enqueue(work("later")).delay(HOUR).await.unwrap().id().clone();
    let cancel = Manage::new(vec![cancelled.clone()], Action::Cancel, rig.now());
    rig.driver.manage(cancel).await.unwrap().remove(0).unwrap();
    let (done, dlq) = (rig.enqueue("done").await, rig.enqueue("dlq").await);
    for id in [&done, &dlq] {
        rig.finished(id).await;
    }
    [done, cancelled, dlq]
}

/// Which of them are still there.
async fn kept(rig: &WorkerRig, ids: &[JobId; 3]) -> [bool; 3] {
    let mut kept = [false; 3];
    for (kept, id) in kept.iter_mut().zip(ids) {
        *kept = rig.driver.inspect(id.clone(), rig.now()).await.unwrap().is_some();
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn done_and_cancelled_jobs_go_after_a_day_and_dead_lettered_ones_stay() {
    let rig = WorkerRig::new();
    let _running = start(&rig, Retention::new());
    let ids = one_of_each(&rig).await;
    tokio::time::sleep(24 * HOUR - SECOND).await;
    assert_eq!(kept(&rig, &ids).await, [true; 3]);
    tokio::time::sleep(SECOND + LATER).await;
    assert_eq!(kept(&rig, &ids).await, [false, false, true]);
    tokio::time::sleep(1_000 * HOUR).await;
    assert_eq!(kept(&rig, &ids).await, [false, false, true]);
    rig.check().await;
}

#[tokio::test(start_paused = true)]
async fn each_way_to_end_is_kept_for_its_own_time() {
    let rig = WorkerRig::new();
    let retention = Retention::new().done(2 * HOUR).cancelled(4 * HOUR).dlq(6 * HOUR);
    let _running = start(&rig, retention);
    let ids = one_of_each(&rig).await;
    for expected in
        [[true, true, true], [false, true, true], [false, false, true], [false, false, false]]
    {
        tokio::time::sleep(HOUR).await;
        assert_eq!(kept(&rig, &ids).await, expected);
        tokio::time::sleep(HOUR + LATER).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_ever_is_not_looked_for() {
    let rig = WorkerRig::new();
    let _running = start(&rig, Retention::new().keep_done().keep_cancelled().keep_dlq());
    let ids = one_of_each(&rig).await;
    tokio::time::sleep(1_000 * HOUR).await;
    assert_eq!(kept(&rig, &ids).await, [true; 3]);
    assert_eq!(rig.store.calls(Op::Prune), 0);
    assert_eq!(Retention::new().keep_done().keep_cancelled(), Retention::keep_all());
}

#[tokio::test(start_paused = true)]
async fn with_no_retention_a_job_goes_when_its_lease_would_have_run_out() {
    let rig = WorkerRig::new();
    let _running = start(&rig, Retention::keep_all().done(Duration::ZERO));
    let [done, ..] = one_of_each(&rig).await;
    tokio::time::sleep(LEASE - SECOND).await;
    assert!(rig.driver.inspect(done.clone(), rig.now()).await.unwrap().is_some());
    // It is looked for every five seconds, and up to half as long again.
    tokio::time::sleep(9 * SECOND).await;
    assert!(rig.driver.inspect(done, rig.now()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_removed_without_a_pause_by_two_workers_side_by_side() {
    let rig = WorkerRig::new();
    let jobs = (0..3_500).map(|n| work(n.to_string()));
    rig.client.enqueue_many(jobs).await.unwrap();
    let all = start(&rig, Retention::keep_all());
    rig.log.until_count("succeeded", 3_500).await;
    all.shutdown().await.unwrap();
    tokio::time::sleep(2 * HOUR).await;
    let retention = Retention::new().done(HOUR);
    let workers = [start(&rig, retention), start(&rig, retention)];
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(rig.driver.counts(taskharbor::Counts::new(rig.now())).await.unwrap(), []);
    // Three full batches, the rest, and the worker that came second.
    assert!(rig.store.calls(Op::Prune) >= 5);
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
    rig.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_to_prune_disturbs_nothing_and_is_reported_once() {
    let rig = WorkerRig::new();
    rig.store.down(&[Op::Prune]);
    let running = start(&rig, Retention::new());
    for n in 0..20 {
        let id = rig.enqueue(&n.to_string()).await;
        assert_eq!(rig.finished(&id).await.state, State::Done);
        tokio::time::sleep(60 * SECOND).await;
    }
    assert_eq!((rig.log.count("away prune"), rig.log.count("lost")), (1, 0));
    // It is left alone for up to half a minute at a time.
    assert!((30..=200).contains(&rig.store.calls(Op::Prune)), "{}", rig.store.calls(Op::Prune));
    rig.store.up();
    rig.log.until("back").await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_removal_that_hangs() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Prune, [Fault::Hang; 10]);
    let running = start(&rig, Retention::new());
    while rig.store.calls(Op::Prune) == 0 {
        tokio::time::sleep(SECOND).await;
    }
    let asked = rig.now();
    running.shutdown().await.unwrap();
    assert_eq!(rig.now(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_not_over_is_never_removed() {
    let rig = WorkerRig::new();
    let handlers = handler(|job, _| async move {
        if job.name == "long" {
            tokio::time::sleep(HOUR).await;
        }
        Ok(Outcome::Done(1))
    });
    let worker = rig.worker(handlers).retention(Retention::new().done(Duration::ZERO));
    let _running = worker.build().unwrap().start();
    let long = rig.enqueue("long").await;
    let later = rig.client.enqueue(work("later")).delay(2 * HOUR).await.unwrap();
    tokio::time::sleep(HOUR - SECOND).await;
    assert_eq!(rig.state(&long).await, State::Inflight);
    assert_eq!(rig.state(later.id()).await, State::Scheduled);
}
