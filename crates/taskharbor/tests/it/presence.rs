//! Workers as they announce themselves, evictions, and recovery that is faster than a lease.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taskharbor::{BuildError, Handlers, State, WorkerPhase, WorkerStatus};

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, LEASE, SECOND, WorkerRig, handler},
};

/// Handlers that count their runs. A job that is called `stuck` runs for an hour.
fn counting(ran: &Arc<AtomicUsize>) -> Handlers {
    let ran = Arc::clone(ran);
    handler(move |job, _| {
        ran.fetch_add(1, Ordering::SeqCst);
        async move {
            match job.name.as_str() {
                "stuck" => tokio::time::sleep(3_600 * SECOND).await,
                "fails" => return Err("no".into()),
                _ => tokio::time::sleep(SECOND / 100).await,
            }
            DONE
        }
    })
}

async fn only(rig: &WorkerRig) -> WorkerStatus {
    let mut workers = rig.client.workers().await.unwrap();
    assert_eq!(workers.len(), 1, "{workers:?}");
    workers.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_worker_tells_what_it_is_and_does() {
    let rig = WorkerRig::new();
    let worker = rig.worker(counting(&Arc::default())).name("w-1").version("1.4.2");
    let running = worker.announce_every(10 * SECOND).build().unwrap().start();
    let ids = [rig.enqueue("a").await, rig.enqueue("b").await, rig.enqueue("fails").await];
    for id in &ids[..2] {
        rig.finished(id).await;
    }
    rig.enqueue("stuck").await;
    tokio::time::sleep(26 * SECOND).await;
    let seen = only(&rig).await;
    assert_eq!((seen.name.as_str(), seen.is_overdue), ("w-1", false));
    assert!(rig.now().since(seen.seen_at) <= 13 * SECOND);
    let info = seen.info.unwrap();
    assert_eq!((info.version.as_deref(), info.phase), (Some("1.4.2"), WorkerPhase::Working));
    assert_eq!((info.pid, info.types), (std::process::id(), vec!["work".to_owned()]));
    let queue = &info.queues[0];
    assert_eq!((queue.name.as_str(), queue.slots, queue.busy), ("default", 8, 1));
    assert_eq!((queue.done, queue.dead, queue.lost), (2, 0, 0));
    assert_eq!(queue.started, 3 + queue.failed);
    assert_eq!(queue.run.iter().sum::<u64>(), 2 + queue.failed);
    assert_eq!(queue.wait.iter().sum::<u64>(), queue.started);
    assert!((13..=26).contains(&info.oldest_secs.unwrap()));
    running.quiet();
    tokio::time::sleep(SECOND).await;
    assert_eq!(only(&rig).await.info.unwrap().phase, WorkerPhase::Quiet);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_withdraws_its_announcement_and_one_that_dies_is_overdue() {
    let rig = WorkerRig::new();
    let start = |name: &str| {
        let worker = rig.worker(counting(&Arc::default())).name(name);
        worker.announce_every(10 * SECOND).build().unwrap().start()
    };
    let (ends, dies) = (start("ends"), start("dies"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.client.workers().await.unwrap().len(), 2);
    ends.shutdown().await.unwrap();
    dies.abort();
    let seen = only(&rig).await;
    assert_eq!((seen.name.as_str(), seen.is_overdue), ("dies", false));
    tokio::time::sleep(30 * SECOND).await;
    assert!(only(&rig).await.is_overdue);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_is_the_callers_announces_itself_only_if_asked() {
    let rig = WorkerRig::new();
    let _running = rig.worker(counting(&Arc::default())).build().unwrap().start();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(rig.client.workers().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_dead_worker_start_elsewhere_long_before_their_leases_end() {
    let rig = WorkerRig::new();
    let (dead_runs, runs) = (Arc::default(), Arc::default());
    let worker = |name: &str, ran| {
        let worker = rig.worker(counting(ran)).name(name).lease(600 * SECOND);
        worker.fast_recovery(10 * SECOND).build().unwrap().start()
    };
    let dead = worker("dead", &dead_runs);
    let ids = [rig.enqueue("stuck").await, rig.enqueue("stuck").await];
    rig.log.until_count("started", 2).await;
    dead.abort();
    let (died_at, _running) = (rig.now(), worker("alive", &runs));
    rig.log.until_count("started", 4).await;
    assert!(rig.now().since(died_at) <= 15 * SECOND, "{:?}", rig.now().since(died_at));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(rig.log.lines().iter().filter(|it| *it == "evicted dead: 2").count(), 1);
    for id in &ids {
        assert_eq!(rig.state(id).await, State::Inflight);
    }
    rig.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_living_worker_that_is_evicted_records_nothing_and_its_jobs_run_again() {
    let rig = WorkerRig::new();
    let (first, second) = (Arc::default(), Arc::default());
    let _evicted = rig.worker(counting(&first)).name("evicted").build().unwrap().start();
    let id = rig.enqueue("stuck").await;
    rig.log.until("started").await;
    assert_eq!(rig.client.evict("unknown").await.unwrap(), 0);
    assert_eq!(rig.client.evict("evicted").await.unwrap(), 1);
    rig.log.until("lost").await;
    let _other = rig.worker(counting(&second)).name("other").build().unwrap().start();
    tokio::time::sleep(2 * 3_600 * SECOND).await;
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 2));
    assert_eq!(first.load(Ordering::SeqCst) + second.load(Ordering::SeqCst), 2);
    assert_eq!(rig.log.count("succeeded"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_second_worker_of_a_name_is_reported() {
    let rig = WorkerRig::new();
    let start = || {
        let worker = rig.worker(counting(&Arc::default())).name("twin");
        worker.announce_every(10 * SECOND).build().unwrap().start()
    };
    let first = start();
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.log.count("name shared"), 0);
    let _second = start();
    rig.log.until("name shared twin").await;
    first.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn workers_of_one_name_do_not_evict_each_other() {
    let rig = WorkerRig::new();
    let worker = |lease| {
        let worker = rig.worker(counting(&Arc::default())).name("same").lease(lease);
        worker.fast_recovery(3 * SECOND).build().unwrap().start()
    };
    let first = worker(LEASE);
    let id = rig.enqueue("stuck").await;
    rig.log.until("started").await;
    first.abort();
    let _second = worker(LEASE);
    tokio::time::sleep(LEASE / 2).await;
    // The lease cannot be told from those of the second, so it ends by itself.
    assert_eq!(rig.record(&id).await.job.deliveries, 1);
    assert_eq!(rig.log.count("evicted"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_may_not_evict_others_says_so_once() {
    let rig = WorkerRig::new();
    let worker = |name: &str| {
        let worker = rig.worker(counting(&Arc::default())).name(name);
        worker.fast_recovery(3 * SECOND).build().unwrap().start()
    };
    rig.store.next(Op::Evict, [Fault::Deny; 5]);
    let dead = worker("dead");
    tokio::time::sleep(SECOND).await;
    dead.abort();
    let _running = worker("alive");
    rig.log.until("eviction denied: ").await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(rig.log.count("eviction denied"), 1);
    // Meanwhile it was allowed.
    assert_eq!(rig.log.count("evicted dead"), 1);
}

#[test]
fn times_that_cannot_be_are_refused() {
    let driver = taskharbor::AnyDriver::new(taskharbor_memory::MemoryDriver::new());
    let builder = || {
        let worker = taskharbor::Worker::builder(&driver).queue("default", 1);
        worker.handlers(counting(&Arc::default()))
    };
    let day = 86_400 * SECOND;
    for refused in [
        builder().announce_every(SECOND / 2).build(),
        builder().announce_every(day).build(),
        builder().fast_recovery(2 * SECOND).build(),
        builder().fast_recovery(day).build(),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, BuildError::Duration { .. }), "{error}");
        assert!(error.to_string().contains("8 hours"), "{error}");
    }
}
