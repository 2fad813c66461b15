//! Handlers and observers that act on their own worker.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_handler_may_shut_its_own_worker_down() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let cell: Arc<OnceLock<Running>> = Arc::default();
    let inside = Arc::clone(&cell);
    let run = rig.worker(handler(move |_, _| {
        let running = Arc::clone(&inside);
        async move {
            tokio::time::sleep(SECOND).await;
            let _ = running.get().unwrap().shutdown().await;
            DONE
        }
    }));
    let _ = cell.set(run.build().unwrap().start());
    let start = rig.now();
    cell.get().unwrap().ended().await.unwrap();
    assert_eq!(rig.now().since(start), 21 * SECOND);
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_abort_or_drop_its_own_worker() {
    for abort in [false, true] {
        let rig = WorkerRig::new();
        let id = rig.enqueue("a").await;
        let cell: Arc<Mutex<Option<Running>>> = Arc::default();
        let inside = Arc::clone(&cell);
        let run = rig.worker(handler(move |_, _| {
            let running = Arc::clone(&inside);
            async move {
                tokio::time::sleep(SECOND).await;
                let running = running.lock().unwrap().take().unwrap();
                if abort {
                    running.abort();
                }
                drop(running);
                tokio::time::sleep(SECOND).await;
                DONE
            }
        }));
        *cell.lock().unwrap() = Some(run.build().unwrap().start());
        rig.log.until("worker stopped").await;
        let expected = if abort { State::Inflight } else { State::Done };
        assert_eq!(rig.state(&id).await, expected, "{abort}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_waits_for_a_job_behind_it_can_still_be_shut_down() {
    let rig = WorkerRig::new();
    let client = rig.client.clone();
    let id = rig.enqueue("outer").await;
    let handlers = handler(move |job, _| {
        let client = client.clone();
        async move {
            if job.name == "outer" {
                let inner = client.enqueue(work("inner")).await?;
                return Ok(Outcome::Done(inner.wait().await?));
            }
            DONE
        }
    });
    let run = Worker::builder(&rig.driver).handlers(handlers).queue("default", 1).lease(LEASE);
    let running = run.observer(Arc::clone(&rig.log)).build().unwrap().start();
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(rig.state(&id).await, State::Inflight);
    let start = rig.now();
    running.shutdown().await.unwrap();
    assert!(rig.now().since(start) <= 20 * SECOND);
    assert_eq!(rig.state(&id).await, State::Ready);
}

#[tokio::test(start_paused = true)]
async fn an_observer_may_call_back() {
    let rig = WorkerRig::new();
    let cell: Arc<OnceLock<Running>> = Arc::default();
    let inside = Arc::clone(&cell);
    let run = rig.worker(handler(|_, _| async { DONE }));
    let run = run.observer(move |event: &Event<'_>| {
        if matches!(event, Event::Succeeded { .. } | Event::ShuttingDown { .. }) {
            inside.get().unwrap().end_grace();
        }
    });
    let _ = cell.set(run.build().unwrap().start());
    rig.enqueue("a").await;
    cell.get().unwrap().ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_largest_durations_do_not_overflow() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).await.unwrap();
    let run = rig.worker(handler(|_, cx| async move {
        match cx.delivery() {
            1 => Err(JobError::retry_after(Duration::ZERO, "again")),
            2 => DONE,
            _ => Ok(Outcome::Snooze(Duration::MAX)),
        }
    }));
    let run = run
        .lease(Duration::from_secs(100 * 366 * 86_400))
        .grace(Duration::MAX)
        .cancel_wait(Duration::MAX)
        .call_timeout(Duration::MAX)
        .timeout(Duration::MAX)
        .poll(Duration::from_secs(86_400))
        .retry(Exponential::new().base(Duration::ZERO));
    let running = run.build().unwrap().start();
    assert_eq!(rig.finished(handle.id()).await.state, State::Done);
    running.shutdown().await.unwrap();
}

/// Real threads, a keeper of its own, tokens that change with every heartbeat, retries at once.
#[test]
fn many_quick_jobs_on_real_threads_with_rotating_tokens() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = FaultyStore::new(MemoryDriver::new());
        store.rotate_tokens();
        let driver = AnyDriver::new(store.driver());
        let client = Client::new(&driver);
        let (lost, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let start = || {
            let (lost, done) = (Arc::clone(&lost), Arc::clone(&done));
            let run = Worker::builder(&driver).queue("default", 64).handlers(handler(
                |job, cx| async move {
                    let n: u64 = job.name.parse().unwrap();
                    tokio::time::sleep(Duration::from_millis(n % 40)).await;
                    if n.is_multiple_of(3) && cx.attempt() < 3 { Err("again".into()) } else { DONE }
                },
            ));
            let run = run.lease(SECOND).heartbeat(Duration::from_millis(3));
            let run = run.retry(Exponential::new().base(Duration::ZERO));
            let run = run.observer(move |event: &Event<'_>| match event {
                Event::LeaseLost { .. } => drop(lost.fetch_add(1, Ordering::SeqCst)),
                Event::Succeeded { .. } => drop(done.fetch_add(1, Ordering::SeqCst)),
                _ => {}
            });
            run.build().unwrap().start()
        };
        let (first, second) = (start(), start());
        let jobs: Vec<_> = (0..4_000).map(|n| work(n.to_string())).collect();
        let tasks: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let client = client.clone();
                tokio::spawn(async move { client.enqueue(job).await.unwrap() })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().wait().await.unwrap();
        }
        first.shutdown().await.unwrap();
        second.shutdown().await.unwrap();
        assert_eq!((lost.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (0, 4_000));
        assert_eq!(driver.check().await.unwrap(), []);
    });
}
