//! A store that goes away, loses replies or hangs, in every phase of a worker.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taskharbor::{
    AnyDriver, Client, Context, Driver, DriverError, Handlers, Job, JobError, JobResult, Outcome,
    State, WorkerError,
};
use taskharbor_memory::MemoryDriver;

use crate::{
    faulty_store::{Fault, FaultyStore, Op},
    rig::{DONE, LEASE, SECOND, Work, WorkerRig, handler, work},
};

/// Jobs that succeed, fail once, snooze once and fail permanently, by name.
fn mixed(ran: &Arc<AtomicUsize>) -> Handlers {
    let ran = Arc::clone(ran);
    handler(move |job, cx| {
        ran.fetch_add(1, Ordering::SeqCst);
        async move {
            match (job.name.as_str(), cx.delivery()) {
                ("retry", 1) => Err("once".into()),
                ("snooze", 1) => Ok(Outcome::Snooze(SECOND)),
                ("dlq", _) => Err(JobError::unrecoverable("never")),
                _ => DONE,
            }
        }
    })
}

const MIXED: [(&str, State); 4] =
    [("ack", State::Done), ("retry", State::Done), ("snooze", State::Done), ("dlq", State::Dlq)];

#[tokio::test(start_paused = true)]
async fn an_outage_of_any_call_ends_nothing_and_is_reported_once() {
    for op in [Op::Reserve, Op::Settle] {
        let rig = WorkerRig::new();
        rig.store.down(&[op]);
        let ran = Arc::default();
        let _running = rig.worker(mixed(&ran)).build().unwrap().start();
        let mut ids = Vec::new();
        for (name, _) in MIXED {
            ids.push(rig.enqueue(name).await);
        }
        tokio::time::sleep(20 * SECOND).await;
        rig.store.up();
        for (id, (name, state)) in ids.iter().zip(MIXED) {
            assert_eq!(rig.finished(id).await.state, state, "{name} after {op:?}");
        }
        rig.log.until("back").await;
        assert_eq!(rig.log.count("away"), 1, "{op:?}");
        assert_eq!(rig.log.count("back"), 1, "{op:?}");
        assert_eq!(rig.log.count("lost"), 0, "{op:?}");
        assert_eq!(ran.load(Ordering::SeqCst), 6, "{op:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_gives_jobs_and_no_wake_ups_is_not_away() {
    let rig = WorkerRig::new();
    rig.store.down(&[Op::Watch]);
    let ran = Arc::default();
    let _running = rig.worker(mixed(&ran)).build().unwrap().start();
    let id = rig.enqueue("ack").await;
    rig.finished(&id).await;
    rig.log.until("wake-ups lost: the store is unavailable: the store is away").await;
    rig.store.up();
    rig.log.until("wake-ups back").await;
    assert_eq!((rig.log.count("wake-ups"), rig.log.count("away")), (2, 0));
}

/// Jobs that are shorter than a heartbeat, one always in hand, so that few leases are ever extended.
fn busy(rig: &WorkerRig) -> Handlers {
    let client = rig.client.clone();
    handler(move |job, _| {
        let client = client.clone();
        async move {
            tokio::time::sleep(SECOND / 4).await;
            while client.enqueue(job.clone()).await.is_err() {
                tokio::time::sleep(SECOND).await;
            }
            DONE
        }
    })
}

#[tokio::test(start_paused = true)]
async fn each_outage_is_reported_once_with_its_end_even_if_no_slot_is_free() {
    let rig = WorkerRig::new();
    let _running = rig.worker(busy(&rig)).queue("other", 1).build().unwrap().start();
    for n in 0..4 {
        rig.enqueue(&n.to_string()).await;
    }
    for outage in 1..=4 {
        rig.log.until_count("succeeded", 40 * outage).await;
        rig.store.down(&Op::ALL);
        tokio::time::sleep(15 * SECOND).await;
        assert_eq!((rig.log.count("away"), rig.log.count("back")), (outage, outage - 1));
        rig.store.up();
        tokio::time::sleep(6 * SECOND).await;
        assert_eq!((rig.log.count("away"), rig.log.count("back")), (outage, outage));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_found_by_announcements_if_no_other_part_calls() {
    let rig = WorkerRig::new();
    let id = long_job(&rig).await;
    let worker = rig.worker(sleeper()).lease(600 * SECOND).announce_every(10 * SECOND);
    let _running = worker.build().unwrap().start();
    rig.log.until("reserved").await;
    // A store that takes no announcements is not away.
    rig.store.down(&[Op::Announce]);
    tokio::time::sleep(40 * SECOND).await;
    assert_eq!(rig.log.count("away"), 0);
    rig.store.down(&[Op::Announce, Op::Time]);
    tokio::time::sleep(15 * SECOND).await;
    assert_eq!((rig.log.count("away"), rig.log.count("back")), (1, 0));
    rig.store.up();
    tokio::time::sleep(7 * SECOND).await;
    assert_eq!((rig.log.count("away"), rig.log.count("back")), (1, 1));
    rig.finished(&id).await;
    assert_eq!((rig.log.count("away"), rig.log.count("back")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_is_not_back_because_nothing_is_left_to_ask_of_it() {
    let rig = WorkerRig::new();
    let id = long_job(&rig).await;
    let _running = rig.worker(sleeper()).queue("other", 1).build().unwrap().start();
    rig.log.until("extended").await;
    rig.store.down(&Op::ALL);
    rig.log.until("lost").await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!((rig.log.count("away"), rig.log.count("back")), (1, 0));
    rig.store.up();
    rig.finished(&id).await;
    assert_eq!((rig.log.count("away"), rig.log.count("back")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_after_the_outage_it_began_in_is_not_another_one() {
    let rig = WorkerRig::new();
    rig.store.next(Op::Reserve, [Fault::Refuse, Fault::Refuse]);
    rig.store.next(Op::Settle, [Fault::Hang]);
    let ran = Arc::default();
    let _running = rig.worker(mixed(&ran)).build().unwrap().start();
    let id = rig.enqueue("ack").await;
    rig.log.until("reserved").await;
    rig.store.down(&[Op::Reserve]);
    rig.enqueue("ack").await;
    rig.log.until("away").await;
    rig.store.up();
    rig.finished(&id).await;
    tokio::time::sleep(60 * SECOND).await;
    let lines = rig.log.lines();
    let told = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(told("away"), told("back"), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_extended_in_time_is_not_blamed_on_the_store() {
    let rig = WorkerRig::new();
    long_job(&rig).await;
    let _running = rig.worker(sleeper()).build().unwrap().start();
    rig.log.until("extended").await;
    // As a process that is stopped and goes on later sees it: time has passed, and nothing was tried.
    rig.store.takes(SECOND);
    tokio::time::advance(3 * LEASE).await;
    rig.log.until("lost").await;
    let lost = rig.log.lines().into_iter().find(|line| line.starts_with("lost")).unwrap();
    assert!(lost.ends_with("this process was suspended or too busy to extend the lease in time"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_during_an_outage_begins_when_it_ends() {
    let store = FaultyStore::new(MemoryDriver::new());
    store.next(Op::Time, [Fault::Refuse, Fault::LoseReply, Fault::Refuse]);
    let driver = AnyDriver::new(store.driver());
    let worker = taskharbor::Worker::builder(&driver).queue("default", 1);
    let worker = worker.handlers(handler(|_, _| async { Ok(Outcome::Done(3)) }));
    let running = worker.build().unwrap().start();
    let handle = loop {
        match Client::new(&driver).enqueue(work("a")).await {
            Ok(handle) => break handle,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(handle.wait().await.unwrap(), 3);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_closed_is_noticed_while_all_slots_are_taken() {
    let rig = WorkerRig::new();
    let running = rig.worker(sleeper()).build().unwrap().start();
    for _ in 0..8 {
        long_job(&rig).await;
    }
    rig.log.until_count("started", 8).await;
    let closed = rig.now();
    rig.driver.close().await.unwrap();
    assert!(matches!(running.ended().await, Err(WorkerError::Closed)));
    assert!(rig.now().since(closed) < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_its_store_as_long_as_it_may() {
    let store = FaultyStore::new(MemoryDriver::new());
    store.down(&[Op::Time]);
    let driver = AnyDriver::new(store.driver());
    let worker = taskharbor::Worker::builder(&driver).queue("default", 1);
    let worker = worker.handlers(sleeper()).start_timeout(SECOND / 4);
    let ended = worker.build().unwrap().start().ended().await.unwrap_err();
    assert!(matches!(ended, WorkerError::Store(DriverError::Unavailable(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_an_outcome_records_it_once() {
    for (name, state) in MIXED {
        for lost in [1, 3] {
            let rig = WorkerRig::new();
            rig.store.next(Op::Settle, [Fault::LoseReply; 3].into_iter().take(lost));
            let ran = Arc::default();
            let _running = rig.worker(mixed(&ran)).build().unwrap().start();
            let id = rig.enqueue(name).await;
            assert_eq!(rig.finished(&id).await.state, state, "{name}");
            tokio::time::sleep(2 * LEASE).await;
            let again = usize::from(["retry", "snooze"].contains(&name));
            assert_eq!(ran.load(Ordering::SeqCst), 1 + again, "{name}");
            assert_eq!(rig.log.count("lost"), 0, "{name}");
            let told = ["succeeded", "retried", "released", "dead-lettered"];
            let told: usize = told.iter().map(|it| rig.log.count(it)).sum();
            assert_eq!(told, 1 + again, "{name}: {:#?}", rig.log.lines());
            rig.check().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_granted_in_a_lost_reply_come_back_when_their_leases_end() {
    let rig = WorkerRig::new();
    let start = rig.now();
    let id = rig.enqueue("ack").await;
    rig.store.next(Op::Reserve, [Fault::LoseReply]);
    let ran = Arc::default();
    let _running = rig.worker(mixed(&ran)).build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries, record.job.attempts), (State::Done, 2, 0));
    assert_eq!(record.finished_at.unwrap().since(start), LEASE);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// A job that takes 100 s, while heartbeats go wrong.
async fn long_job(rig: &WorkerRig) -> taskharbor::JobId {
    rig.enqueue("long").await
}

fn sleeper() -> Handlers {
    handler(|_, _| async {
        tokio::time::sleep(100 * SECOND).await;
        DONE
    })
}

#[tokio::test(start_paused = true)]
async fn heartbeats_that_fail_for_less_than_a_lease_stop_no_handler() {
    let rig = WorkerRig::new();
    let id = long_job(&rig).await;
    let _running = rig.worker(sleeper()).build().unwrap().start();
    rig.log.until_count("extended", 2).await;
    rig.store.down(&[Op::Extend]);
    // The lease was extended just now and would be given up after 27 s.
    tokio::time::sleep(26 * SECOND).await;
    rig.store.up();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 1));
    assert_eq!((rig.log.count("away"), rig.log.count("lost")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_stopped_when_its_lease_is_nearly_over_and_the_store_still_away() {
    let rig = WorkerRig::new();
    let id = long_job(&rig).await;
    let _running = rig.worker(sleeper()).build().unwrap().start();
    rig.log.until_count("extended", 1).await;
    let extended = rig.now();
    rig.store.down(&Op::ALL);
    rig.log.until("lost").await;
    assert_eq!(rig.log.time_of("lost").since(extended), 27 * SECOND);
    tokio::time::sleep(100 * SECOND).await;
    rig.store.up();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries, record.job.attempts), (State::Done, 2, 0));
    assert_eq!(rig.log.count("succeeded"), 1);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_whose_replies_are_lost_or_hang_stop_no_handler() {
    let rig = WorkerRig::new();
    let id = long_job(&rig).await;
    let faults = [Fault::LoseReply, Fault::Hang, Fault::Refuse, Fault::LoseReply];
    rig.store.next(Op::Extend, faults);
    let _running = rig.worker(sleeper()).call_timeout(3 * SECOND).build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 1));
    assert_eq!(rig.log.count("lost"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_hangs_for_ever_does_not_keep_a_handler_past_its_lease() {
    let rig = WorkerRig::new();
    long_job(&rig).await;
    rig.store.next(Op::Extend, [Fault::Hang; 100]);
    let start = rig.now();
    let _running = rig.worker(sleeper()).call_timeout(3_600 * SECOND).build().unwrap().start();
    rig.log.until("lost").await;
    assert_eq!(rig.log.time_of("lost").since(start), 27 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_sent_again_for_as_long_as_the_lease_can_be_kept() {
    let rig = WorkerRig::new();
    rig.store.down(&[Op::Settle]);
    let ran = Arc::default();
    let _running = rig.worker(mixed(&ran)).build().unwrap().start();
    let id = rig.enqueue("ack").await;
    tokio::time::sleep(20 * LEASE).await;
    assert_eq!(rig.state(&id).await, State::Inflight);
    rig.store.up();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Done, 1));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_cannot_be_sent_before_the_lease_ends_are_given_up_and_reported() {
    let rig = WorkerRig::new();
    let ran = Arc::default();
    let _running = rig.worker(mixed(&ran)).build().unwrap().start();
    rig.store.down(&[Op::Settle, Op::Extend]);
    let id = rig.enqueue("ack").await;
    rig.log.until("lost").await;
    rig.store.up();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.deliveries, record.job.attempts), (State::Done, 2, 0));
    assert_eq!(ran.load(Ordering::SeqCst), 2);
    assert_eq!(rig.log.count("lost"), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_hang_are_given_up_after_the_call_timeout() {
    for op in [Op::Watch, Op::Reserve, Op::Settle] {
        let rig = WorkerRig::new();
        rig.store.next(op, [Fault::Hang]);
        let ran = Arc::default();
        let _running = rig.worker(mixed(&ran)).build().unwrap().start();
        let id = rig.enqueue("ack").await;
        assert_eq!(rig.finished(&id).await.state, State::Done, "{op:?}");
        assert_eq!(ran.load(Ordering::SeqCst), 1, "{op:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_that_cannot_be_read_yet_is_waited_for() {
    #[derive(serde::Serialize, serde::Deserialize, Job)]
    #[job(type = "after", input = u64, output = u64)]
    struct After {}
    async fn after(job: After, cx: Context) -> JobResult<u64> {
        Ok(cx.input(&job)? + 1)
    }
    let rig = WorkerRig::new();
    let flow = taskharbor::Flow::first(work("first")).then(After {});
    let handle = rig.client.start(flow).await.unwrap();
    rig.store.next(Op::Outputs, [Fault::Refuse, Fault::LoseReply, Fault::Hang]);
    let first = |_: Work, _: Context| async { JobResult::Ok(6) };
    let handlers = Handlers::new().on(after).on(first);
    let _running = rig.worker(handlers).build().unwrap().start();
    let record = rig.finished(handle.id()).await;
    assert_eq!((record.state, record.job.attempts), (State::Done, 0));
    assert_eq!(handle.wait().await.unwrap(), 7);
}
