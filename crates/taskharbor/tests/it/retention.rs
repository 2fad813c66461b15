//! Terminal jobs are kept as long as the worker was told to, and no longer than a little more.

use std::time::Duration;

use taskharbor::{Admin, JobError, JobId, Manage, Outcome, Retention, Running, State};
use taskharbor_core::admin::Action;

use crate::{
    port::{DONE, LEASE, Port, SECOND, handler, work},
    unkind::{Fault, Op},
};

const HOUR: Duration = Duration::from_secs(3_600);
/// How much longer than its retention a job may stay: its last lease, and the time until a prune.
const LATER: Duration = Duration::from_secs(30 + 45);

fn start(port: &Port, retention: Retention) -> Running {
    let handlers = handler(|job, _| async move {
        if job.name == "dlq" { Err(JobError::unrecoverable("never")) } else { DONE }
    });
    port.worker(handlers).retention(retention).build().unwrap().start()
}

/// A job that ends in each way, in the order done, cancelled, dead-lettered.
async fn one_of_each(port: &Port) -> [JobId; 3] {
    let cancelled = port.client.enqueue(work("later")).delay(HOUR).await.unwrap().id().clone();
    let cancel = Manage::new(vec![cancelled.clone()], Action::Cancel, port.now());
    port.driver.manage(cancel).await.unwrap().remove(0).unwrap();
    let (done, dlq) = (port.enqueue("done").await, port.enqueue("dlq").await);
    for id in [&done, &dlq] {
        port.finished(id).await;
    }
    [done, cancelled, dlq]
}

/// Which of them are still there.
async fn kept(port: &Port, ids: &[JobId; 3]) -> [bool; 3] {
    let mut kept = [false; 3];
    for (kept, id) in kept.iter_mut().zip(ids) {
        *kept = port.driver.inspect(id.clone(), port.now()).await.unwrap().is_some();
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn done_and_cancelled_jobs_go_after_a_day_and_dead_lettered_ones_stay() {
    let port = Port::new();
    let _running = start(&port, Retention::new());
    let ids = one_of_each(&port).await;
    tokio::time::sleep(24 * HOUR - SECOND).await;
    assert_eq!(kept(&port, &ids).await, [true; 3]);
    tokio::time::sleep(SECOND + LATER).await;
    assert_eq!(kept(&port, &ids).await, [false, false, true]);
    tokio::time::sleep(1_000 * HOUR).await;
    assert_eq!(kept(&port, &ids).await, [false, false, true]);
    port.check().await;
}

#[tokio::test(start_paused = true)]
async fn each_way_to_end_is_kept_for_its_own_time() {
    let port = Port::new();
    let retention = Retention::new().done(2 * HOUR).cancelled(4 * HOUR).dlq(6 * HOUR);
    let _running = start(&port, retention);
    let ids = one_of_each(&port).await;
    for expected in
        [[true, true, true], [false, true, true], [false, false, true], [false, false, false]]
    {
        tokio::time::sleep(HOUR).await;
        assert_eq!(kept(&port, &ids).await, expected);
        tokio::time::sleep(HOUR + LATER).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_ever_is_not_looked_for() {
    let port = Port::new();
    let _running = start(&port, Retention::new().keep_done().keep_cancelled().keep_dlq());
    let ids = one_of_each(&port).await;
    tokio::time::sleep(1_000 * HOUR).await;
    assert_eq!(kept(&port, &ids).await, [true; 3]);
    assert_eq!(port.store.calls(Op::Prune), 0);
    assert_eq!(Retention::new().keep_done().keep_cancelled(), Retention::keep_all());
}

#[tokio::test(start_paused = true)]
async fn with_no_retention_a_job_goes_when_its_lease_would_have_run_out() {
    let port = Port::new();
    let _running = start(&port, Retention::keep_all().done(Duration::ZERO));
    let [done, ..] = one_of_each(&port).await;
    tokio::time::sleep(LEASE - SECOND).await;
    assert!(port.driver.inspect(done.clone(), port.now()).await.unwrap().is_some());
    // It is looked for every five seconds, and up to half as long again.
    tokio::time::sleep(9 * SECOND).await;
    assert!(port.driver.inspect(done, port.now()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_removed_without_a_pause_by_two_workers_side_by_side() {
    let port = Port::new();
    let jobs = (0..3_500).map(|n| work(n.to_string()));
    port.client.enqueue_many(jobs).await.unwrap();
    let all = start(&port, Retention::keep_all());
    port.log.until_count("succeeded", 3_500).await;
    all.shutdown().await.unwrap();
    tokio::time::sleep(2 * HOUR).await;
    let retention = Retention::new().done(HOUR);
    let workers = [start(&port, retention), start(&port, retention)];
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(port.driver.counts(taskharbor::Counts::new(port.now())).await.unwrap(), []);
    // Three full batches, the rest, and the worker that came second.
    assert!(port.store.calls(Op::Prune) >= 5);
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
    port.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_to_prune_disturbs_nothing_and_is_reported_once() {
    let port = Port::new();
    port.store.down(&[Op::Prune]);
    let running = start(&port, Retention::new());
    for n in 0..20 {
        let id = port.enqueue(&n.to_string()).await;
        assert_eq!(port.finished(&id).await.state, State::Done);
        tokio::time::sleep(60 * SECOND).await;
    }
    assert_eq!((port.log.count("away prune"), port.log.count("lost")), (1, 0));
    // It is left alone for up to half a minute at a time.
    assert!((30..=200).contains(&port.store.calls(Op::Prune)), "{}", port.store.calls(Op::Prune));
    port.store.up();
    port.log.until("back").await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_removal_that_hangs() {
    let port = Port::new();
    port.store.next(Op::Prune, [Fault::Hang; 10]);
    let running = start(&port, Retention::new());
    while port.store.calls(Op::Prune) == 0 {
        tokio::time::sleep(SECOND).await;
    }
    let asked = port.now();
    running.shutdown().await.unwrap();
    assert_eq!(port.now(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_not_over_is_never_removed() {
    let port = Port::new();
    let handlers = handler(|job, _| async move {
        if job.name == "long" {
            tokio::time::sleep(HOUR).await;
        }
        Ok(Outcome::Done(1))
    });
    let worker = port.worker(handlers).retention(Retention::new().done(Duration::ZERO));
    let _running = worker.build().unwrap().start();
    let long = port.enqueue("long").await;
    let later = port.client.enqueue(work("later")).delay(2 * HOUR).await.unwrap();
    tokio::time::sleep(HOUR - SECOND).await;
    assert_eq!(port.state(&long).await, State::Inflight);
    assert_eq!(port.state(later.id()).await, State::Scheduled);
}
