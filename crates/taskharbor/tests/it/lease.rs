//! Leases: kept, lost, stolen, and passed on from the dead.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use taskharbor::{AnyDriver, Client, Driver, Event, JobError, Outcome, State, Worker};
use taskharbor_core::{
    QueueName,
    driver::{Demand, Leased, Reserve},
    name::Holder,
};
use taskharbor_memory::MemoryDriver;

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, LEASE, SECOND, WorkerRig, handler, work},
};

#[tokio::test(start_paused = true)]
async fn a_long_job_is_kept_alive_by_heartbeats() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = || {
        rig.worker(handler(|_, _| async {
            tokio::time::sleep(10 * LEASE - SECOND).await;
            DONE
        }))
    };
    let _first = run().build().unwrap().start();
    let _second = run().build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 1));
    assert_eq!(record.job.expirations, 0);
    assert_eq!(rig.log.count("started"), 1);
    assert_eq!(rig.log.count("extended"), 29);
}

#[tokio::test(start_paused = true)]
async fn all_leases_are_extended_in_one_call() {
    let rig = WorkerRig::new();
    for n in 0..8 {
        rig.enqueue(&n.to_string()).await;
    }
    let run = rig.worker(handler(|_, _| async {
        tokio::time::sleep(LEASE - SECOND).await;
        DONE
    }));
    let _running = run.build().unwrap().start();
    rig.log.until_count("succeeded", 8).await;
    assert_eq!(rig.log.count("extended"), 16);
    assert_eq!(rig.store.calls(Op::Extend), 2);
}

/// Takes the job over as another worker would whose clock is far ahead.
async fn steal(rig: &WorkerRig) -> Leased {
    let demands = vec![Demand::new(QueueName::new("default").unwrap(), 1)];
    let thief = Holder::new("thief").unwrap();
    let later = rig.now().saturating_add(2 * LEASE);
    let reserved = rig.store.store.reserve(Reserve::new(demands, thief, later, 100 * LEASE));
    reserved.await.unwrap().jobs.pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_reserves_its_own_job_again_stops_the_first_handler() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let (running, most) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let run = rig.worker(handler(move |_, _| {
        let (this, seen) = (Arc::clone(&running), Arc::clone(&seen));
        async move {
            // One of them is the closure's.
            seen.fetch_max(Arc::strong_count(&this) - 1, Ordering::SeqCst);
            tokio::time::sleep(100 * SECOND).await;
            DONE
        }
    }));
    let run = run.name("evicted").lease(3_600 * SECOND).heartbeat(600 * SECOND);
    let _running = run.build().unwrap().start();
    rig.log.until("started").await;
    assert_eq!(rig.client.evict("evicted").await.unwrap(), 1);
    rig.log.until("lost").await;
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 2));
    assert_eq!((rig.log.count("started"), rig.log.count("lost")), (2, 1));
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_lease_was_stolen_is_stopped_at_the_next_heartbeat() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| async {
        tokio::time::sleep(1_000 * SECOND).await;
        panic!("it was not stopped")
    }));
    let start = rig.now();
    let running = run.build().unwrap().start();
    rig.log.until("started").await;
    let stolen = steal(&rig).await;
    rig.log.until("lost").await;
    assert_eq!(rig.log.time_of("lost").since(start), 10 * SECOND);
    running.shutdown().await.unwrap();
    // The thief holds it as before; nothing of the first run was recorded.
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Inflight, 0));
    rig.driver.ack(&stolen, None, rig.now()).await.unwrap();
    assert_eq!(rig.log.count("failed") + rig.log.count("succeeded"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_handler_whose_lease_was_stolen_is_refused() {
    for fails in [false, true] {
        let rig = WorkerRig::new();
        let id = rig.enqueue("a").await;
        let run = rig.worker(handler(move |_, _| async move {
            tokio::time::sleep(SECOND).await;
            if fails { Err(JobError::unrecoverable("late")) } else { DONE }
        }));
        let _running = run.build().unwrap().start();
        rig.log.until("started").await;
        steal(&rig).await;
        rig.log.until("lost").await;
        assert_eq!(rig.log.count("succeeded") + rig.log.count("dead-lettered"), 0);
        let record = rig.record(&id).await;
        assert_eq!((record.state, record.job.attempts), (State::Inflight, 0));
        assert_eq!(record.held.unwrap().holder.as_str(), "thief");
    }
}

#[tokio::test(start_paused = true)]
async fn the_latest_token_is_used_when_the_driver_rotates_them() {
    let rig = WorkerRig::new();
    rig.store.rotate_tokens();
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(rig.enqueue(&n.to_string()).await);
    }
    let run = rig.worker(handler(|job, cx| async move {
        let n: u32 = job.name.parse().unwrap();
        tokio::time::sleep(SECOND * 13 * n).await;
        if n.is_multiple_of(2) && cx.attempt() == 1 { Err("again".into()) } else { DONE }
    }));
    let _running = run.build().unwrap().start();
    for id in &ids {
        assert_eq!(rig.finished(id).await.state, State::Done);
    }
    assert_eq!(rig.log.count("lost"), 0);
    assert!(rig.log.count("extended") > 10);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_waits_for_the_heartbeat_in_flight_and_uses_its_token() {
    let rig = WorkerRig::new();
    rig.store.rotate_tokens();
    let id = rig.enqueue("a").await;
    // It ends while the heartbeat that has changed its token is not answered yet.
    rig.store.next(Op::Extend, [Fault::Late(2 * SECOND)]);
    let run = rig.worker(handler(|_, _| async {
        tokio::time::sleep(Duration::from_millis(10_500)).await;
        DONE
    }));
    let start = rig.now();
    let _running = run.build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!(record.state, State::Done);
    assert_eq!(record.finished_at.unwrap().since(start), 12 * SECOND);
    assert_eq!(rig.log.count("lost"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_lease_is_nearly_over_on_arrival_is_released_and_not_started() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    // Two seconds of the lease are left when the answer comes, and handlers stop three before it ends.
    rig.store.next(Op::Reserve, [Fault::Late(LEASE - 2 * SECOND)]);
    let start = rig.now();
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.attempts, record.job.deliveries), (State::Done, 0, 2));
    assert_eq!(rig.log.time_of("reserved").since(start), LEASE - 2 * SECOND);
    assert_eq!(rig.log.count("reserved"), 2);
    assert_eq!(rig.log.count("released ArrivedLate"), 1, "{:#?}", rig.log.lines());
    assert_eq!(rig.log.count("started"), 1, "{:#?}", rig.log.lines());
    // It does not wait for the end of its lease.
    assert_eq!(record.started_at.unwrap().since(start), LEASE - 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn when_a_worker_dies_another_finishes_its_job() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = |takes: Duration| {
        rig.worker(handler(move |_, _| async move {
            tokio::time::sleep(takes).await;
            DONE
        }))
    };
    let start = rig.now();
    let dead = run(1_000 * SECOND).build().unwrap().start();
    rig.log.until("started").await;
    dead.abort();
    dead.ended().await.unwrap();
    let _alive = run(SECOND).build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!(record.state, State::Done);
    assert_eq!((record.job.deliveries, record.job.expirations, record.job.attempts), (2, 1, 0));
    assert_eq!(record.started_at.unwrap().since(start), LEASE);
    assert_eq!(rig.log.count("released"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_leases_keep_expiring_is_dead_lettered_at_the_crash_limit() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let ran = Arc::new(AtomicU32::new(0));
    for _ in 0..4 {
        let ran = Arc::clone(&ran);
        let run = rig.worker(handler(move |_, _| {
            ran.fetch_add(1, Ordering::SeqCst);
            std::future::pending()
        }));
        let before = rig.log.count("reserved");
        let running = run.crash_limit(3).build().unwrap().start();
        rig.log.until_count("reserved", before + 1).await;
        tokio::time::sleep(SECOND).await;
        running.abort();
        running.ended().await.unwrap();
    }
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Dlq, 4));
    let reason = record.reason.unwrap();
    assert!(reason.as_str().contains("its lease ran out 3 times in a row"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn two_workers_on_one_queue_never_run_a_job_at_the_same_time() {
    let rig = WorkerRig::new();
    let mut ids = Vec::new();
    for n in 0..200 {
        ids.push(rig.enqueue(&n.to_string()).await);
    }
    let running: Arc<Vec<AtomicUsize>> = Arc::new((0..200).map(|_| AtomicUsize::new(0)).collect());
    let start = || {
        let running = Arc::clone(&running);
        let run = rig.worker(handler(move |job, cx| {
            let running = Arc::clone(&running);
            async move {
                let n: u32 = job.name.parse().unwrap();
                let at = &running[n as usize];
                assert_eq!(at.fetch_add(1, Ordering::SeqCst), 0);
                // From nothing to three leases, differently in each attempt.
                tokio::time::sleep(SECOND * ((n * 37 + cx.attempt() * 53) % 90)).await;
                assert_eq!(at.fetch_sub(1, Ordering::SeqCst), 1);
                if cx.attempt() == 1 { Err("once".into()) } else { DONE }
            }
        }));
        run.build().unwrap().start()
    };
    let (first, second) = (start(), start());
    for id in &ids {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.deliveries), (State::Done, 2));
        // Had it run twice at once, it would have failed for that.
        let errors: Vec<_> = record.errors.iter().map(|it| it.error.as_str()).collect();
        assert_eq!(errors, ["once"]);
    }
    assert_eq!(rig.log.count("lost"), 0);
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

/// Real threads and real time, since this is about threads: every thread of the runtime is blocked
/// until three heartbeats have gone out.
#[test]
fn handlers_that_block_every_thread_do_not_stop_heartbeats() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (beat, beats) = mpsc::channel::<()>();
    let beats = Arc::new(std::sync::Mutex::new(beats));
    runtime.block_on(async {
        let driver = AnyDriver::new(MemoryDriver::new());
        let client = Client::new(&driver);
        let blocking = handler(move |_, _| {
            let beats = Arc::clone(&beats);
            async move {
                for _ in 0..3 {
                    let beat = beats.lock().unwrap().recv_timeout(Duration::from_secs(60));
                    beat.expect("no heartbeat went out while the threads were blocked");
                }
                Ok(Outcome::Done(1))
            }
        });
        let worker = Worker::builder(&driver)
            .handlers(blocking)
            .queue("default", 4)
            .lease(Duration::from_millis(1_500))
            .heartbeat(Duration::from_millis(50))
            .observer(move |event: &Event<'_>| {
                if matches!(event, Event::LeaseExtended { .. }) {
                    let _ = beat.send(());
                }
            });
        let jobs = client.enqueue_many((0..4).map(|n| work(n.to_string()))).await.unwrap();
        let running = worker.build().unwrap().start();
        for job in jobs {
            assert_eq!(job.wait().await.unwrap(), 1);
        }
        running.shutdown().await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_job_that_arrives_a_moment_earlier_is_started() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    rig.store.next(Op::Reserve, [Fault::Late(LEASE * 9 / 10 - Duration::from_millis(1))]);
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 1));
}
