//! Ending a worker when something keeps it from ending.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_worker_without_wake_ups_reserves_all_the_same() {
    let rig = WorkerRig::new();
    rig.store.down(&[Op::Watch]);
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let id = rig.enqueue("a").await;
    let record = finished_within(&rig, &id, 3_600 * SECOND).await;
    assert!(
        record.is_some(),
        "an hour without wake-ups, {} reserve calls: polling alone has to be enough",
        rig.store.calls(Op::Reserve)
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_does_not_start_can_be_shut_down() {
    let store = FaultyStore::new(MemoryDriver::new());
    store.next(Op::Time, [Fault::Hang]);
    let driver = AnyDriver::new(store.driver());
    let worker = Worker::builder(&driver).queue("default", 1);
    let worker = worker.handlers(handler(|_, _| async { DONE })).call_timeout(3_600 * SECOND);
    let running = worker.build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    let start = tokio::time::Instant::now();
    running.shutdown().await.unwrap();
    let took = start.elapsed();
    assert!(took <= 25 * SECOND, "the documented bound is 25 s; it took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_does_not_start_can_be_aborted() {
    let store = FaultyStore::new(MemoryDriver::new());
    store.next(Op::Time, [Fault::Hang]);
    let driver = AnyDriver::new(store.driver());
    let worker = Worker::builder(&driver).queue("default", 1);
    let worker = worker.handlers(handler(|_, _| async { DONE }));
    let running = worker.build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    let start = tokio::time::Instant::now();
    running.abort();
    running.ended().await.unwrap();
    let took = start.elapsed();
    assert!(took <= SECOND, "everything stops where it is, after {took:?}");
}

#[test]
fn handlers_that_block_every_thread_do_not_hold_up_the_end() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (finish, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (begin, has_begun) = mpsc::channel::<()>();
    let driver = AnyDriver::new(MemoryDriver::new());
    let running = runtime.block_on(async {
        let stuck = handler(move |_, _| {
            let (blocked, begin) = (Arc::clone(&blocked), begin.clone());
            async move {
                begin.send(()).unwrap();
                let _ = blocked.lock().unwrap().recv();
                DONE
            }
        });
        let client = Client::new(&driver);
        for n in 0..2 {
            client.enqueue(work(n.to_string())).await.unwrap();
        }
        let worker = Worker::builder(&driver).handlers(stuck).queue("default", 2);
        let worker = worker.grace(Duration::ZERO).cancel_wait(Duration::from_millis(20));
        worker.build().unwrap().start()
    });
    for _ in 0..2 {
        has_begun.recv().unwrap();
    }
    let (ended, has_ended) = mpsc::channel();
    let in_time = std::thread::scope(|scope| {
        let (runtime, running) = (&runtime, &running);
        scope.spawn(move || {
            let _ = runtime.block_on(running.shutdown());
            let _ = ended.send(());
        });
        // The threads are blocked until this has come, or will never come.
        let in_time = has_ended.recv_timeout(Duration::from_secs(60)).is_ok();
        drop(finish);
        in_time
    });
    assert!(in_time, "the shutdown waited for handlers that cannot be stopped");
}

#[tokio::test(start_paused = true)]
async fn deploys_without_time_to_stop_charge_nothing() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).await.unwrap();
    for deploy in 1..=7 {
        let run = rig.worker(handler(|_, _| std::future::pending()));
        let run = run.grace(Duration::ZERO).cancel_wait(Duration::ZERO);
        let running = run.build().unwrap().start();
        rig.log.until_count("reserved", deploy).await;
        tokio::time::sleep(SECOND).await;
        running.shutdown().await.unwrap();
        if rig.state(handle.id()).await == State::Dlq {
            break;
        }
    }
    let record = rig.record(handle.id()).await;
    let seen = (record.state, record.job.expirations);
    assert_eq!(seen, (State::Ready, 0), "{:?}", record.reason);
}

#[test]
fn running_a_worker_on_a_runtime_without_io_says_so() {
    let driver = AnyDriver::new(MemoryDriver::new());
    let worker = Worker::builder(&driver).handlers(handler(|_, _| async { DONE }));
    let worker = worker.queue("default", 1).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let run = async { tokio::time::timeout(Duration::from_millis(200), worker.run()).await };
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run)));
    assert!(ran.is_ok(), "`WorkerError` has variants for this");
}

#[test]
fn a_worker_on_a_runtime_without_timers_says_so() {
    let driver = AnyDriver::new(MemoryDriver::new());
    let worker = Worker::builder(&driver).handlers(handler(|_, _| async { DONE }));
    let worker = worker.queue("default", 1).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ended = runtime.block_on(async { worker.start().ended().await });
    assert!(matches!(ended, Err(WorkerError::NotStarted(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_dropped_as_soon_as_it_is_started_says_that_it_stopped() {
    let rig = WorkerRig::new();
    drop(rig.worker(handler(|_, _| async { DONE })).build().unwrap().start());
    rig.log.until("worker stopped, 0 left").await;
}
