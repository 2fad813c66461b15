//! Leases on stores and runtimes that misbehave.

use super::*;

#[test]
fn leases_end_with_the_runtime_that_the_worker_ran_on() {
    let driver = AnyDriver::new(MemoryDriver::new());
    let (began, has_begun) = mpsc::channel();
    let began = Mutex::new(began);
    let first = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (id, running) = first.block_on(async {
        let id = Client::new(&driver).enqueue(work("a")).await.unwrap().id().clone();
        let worker = Worker::builder(&driver).queue("default", 1).handlers(handler(move |_, _| {
            began.lock().unwrap().send(()).unwrap();
            std::future::pending()
        }));
        let worker = worker.lease(Duration::from_secs(1));
        (id, worker.build().unwrap().start())
    });
    has_begun.recv().unwrap();
    first.shutdown_timeout(Duration::from_secs(5));
    let second = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    second.block_on(async {
        assert!(matches!(running.ended().await, Err(WorkerError::RuntimeGone)));
        let worker = Worker::builder(&driver).queue("default", 1).poll(Duration::from_millis(50));
        let worker = worker.handlers(handler(|_, _| async { DONE }));
        let running = worker.build().unwrap().start();
        let handle = Client::new(&driver).handle::<Work>(id);
        let done = tokio::time::timeout(Duration::from_secs(60), handle.wait()).await;
        running.shutdown().await.unwrap();
        done.expect("the lease of a dropped handler was kept").unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_in_a_heartbeat_ends_the_worker_with_an_error() {
    let (rig, driver) = rig_with_interference();
    let mut once = true;
    set(
        &driver.extend,
        move |_| if std::mem::take(&mut once) { Action::Panic } else { Action::None },
    );
    let long = rig.enqueue("long").await;
    let run = rig.worker(handler(|job, _| async move {
        let seconds = if job.name == "long" { 15 } else { 1 };
        tokio::time::sleep(SECOND * seconds).await;
        DONE
    }));
    let running = run.build().unwrap().start();
    tokio::time::sleep(20 * SECOND).await;
    // Healthy store, healthy handlers, and yet:
    let quick = rig.enqueue("quick").await;
    let ended = tokio::time::timeout(100 * LEASE, running.ended()).await;
    let (long, quick) = (rig.record(&long).await, rig.record(&quick).await);
    assert!(
        matches!(ended, Ok(Err(WorkerError::Crashed)))
            || [&long, &quick].iter().all(|it| it.state == State::Done),
        "after 100 leases the worker still runs ({ended:?}), without heartbeats; the job in flight \
         is {:?} on delivery {}, a quick job enqueued later is {:?} on delivery {}: {:#?}",
        long.state,
        long.job.deliveries,
        quick.state,
        quick.job.deliveries,
        rig.log.lines()
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_held_twice_costs_no_other_its_lease() {
    let rig = WorkerRig::new();
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(rig.enqueue(&format!("long {n}")).await);
    }
    rig.enqueue("retry").await;
    // The retry is recorded, its answer lost, and then nothing can be settled for 40 s.
    rig.store.next(Op::Settle, [Fault::LoseReply]);
    let run = rig.worker(handler(|job, cx| async move {
        if job.name == "retry" && cx.delivery() == 1 {
            return Err("once".into());
        }
        tokio::time::sleep(100 * SECOND).await;
        DONE
    }));
    let _running = run.build().unwrap().start();
    rig.log.until("away settle").await;
    rig.store.down(&[Op::Settle]);
    tokio::time::sleep(40 * SECOND).await;
    rig.store.up();
    for id in &ids {
        rig.finished(id).await;
    }
    // No heartbeat failed in the store; no call of the kind was down.
    for id in &ids {
        assert_eq!(rig.log.count(&format!("lost {id}")), 0, "{:#?}", rig.log.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn leases_are_extended_between_two_settle_calls_that_hang() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    rig.store.next(Op::Settle, [Fault::Hang; 6]);
    let run = rig.worker(handler(|_, _| async {
        tokio::time::sleep(SECOND * 5).await;
        DONE
    }));
    let _running = run.build().unwrap().start();
    let record = rig.finished(&id).await;
    let seen = (record.job.deliveries, rig.log.count("lost"));
    assert_eq!(seen, (1, 0), "{:#?}", rig.log.lines());
}

struct Inside(Arc<Mutex<HashSet<String>>>, String);
impl Drop for Inside {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_never_outlives_the_lease_of_a_late_reservation() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let running: Arc<Mutex<HashSet<String>>> = Arc::default();
    let overlaps = Arc::new(AtomicUsize::new(0));
    let run = || {
        let (running, overlaps) = (Arc::clone(&running), Arc::clone(&overlaps));
        rig.worker(handler(move |job, _| {
            let (running, overlaps) = (Arc::clone(&running), Arc::clone(&overlaps));
            async move {
                if !running.lock().unwrap().insert(job.name.clone()) {
                    overlaps.fetch_add(1, Ordering::SeqCst);
                }
                let _inside = Inside(Arc::clone(&running), job.name);
                tokio::time::sleep(20 * SECOND).await;
                DONE
            }
        }))
    };
    // The answer comes after 25 s; the lease of 30 s counts from the question.
    rig.store.next(Op::Reserve, [Fault::Late(25 * SECOND)]);
    let _first = run().build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    let _second = run().build().unwrap().start();
    rig.finished(&id).await;
    tokio::time::sleep(LEASE).await;
    assert_eq!(overlaps.load(Ordering::SeqCst), 0, "{:#?}", rig.log.lines());
}

/// The keeper waits a whole heartbeat after each answer, even if that took long and jobs arrived
/// meanwhile: the beat at 10 s is answered at 25 s, the next goes out at 35 s, two seconds before
/// the lease of 40 s is given up.
#[tokio::test(start_paused = true)]
async fn no_lease_is_lost_on_a_store_that_answers_every_heartbeat_slowly() {
    let rig = WorkerRig::new();
    let a = rig.enqueue("a").await;
    // Slow, but within what the leases allow.
    rig.store.next(Op::Extend, [Fault::Late(15 * SECOND), Fault::Late(3 * SECOND)]);
    let run = rig.worker(handler(|_, _| async {
        tokio::time::sleep(100 * SECOND).await;
        DONE
    }));
    let _running = run.build().unwrap().start();
    let record = rig.finished(&a).await;
    let seen = (record.job.deliveries, rig.log.count("lost"));
    assert_eq!(seen, (1, 0), "{:#?}", rig.log.lines());
}

/// Holds heartbeats up until it is told not to, and grants the first lease of the job that is named
/// as one of which hardly anything is left.
#[derive(Clone)]
struct HardlyAnyLeft {
    held_up: tokio::sync::watch::Sender<bool>,
    go_on: Arc<Mutex<mpsc::Receiver<()>>>,
    of: Arc<OnceLock<JobId>>,
}

impl Hook<MemoryDriver> for HardlyAnyLeft {
    async fn around(
        &self,
        call: Call,
        next: Next<'_, MemoryDriver>,
    ) -> Result<Answer, DriverError> {
        match &call {
            Call::ExtendLeases { .. } => {
                self.held_up.send_replace(true);
                // Fails once the test has dropped the other end.
                let _ = self.go_on.lock().unwrap().recv();
                next.make(call).await
            }
            Call::Reserve { request } => {
                let soon = request.now.saturating_add(SECOND);
                let mut answer = next.make(call).await?;
                if let Answer::Reserve(reserved) = &mut answer {
                    for leased in &mut reserved.jobs {
                        if self.of.get() == Some(&leased.job.id) && leased.job.deliveries == 1 {
                            leased.lease.expires_at = soon;
                        }
                    }
                }
                Ok(answer)
            }
            _ => next.make(call).await,
        }
    }
}

/// Runs on real threads, because the order of the threads matters: while the keeper is blocked, only
/// the handler's own task can notice that the lease has almost ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_lease_is_nearly_over_on_arrival_is_released() {
    let (go_on, held) = mpsc::channel();
    let (held_up, mut is_held_up) = tokio::sync::watch::channel(false);
    let of: Arc<OnceLock<JobId>> = Arc::default();
    let hook = HardlyAnyLeft { held_up, go_on: Arc::new(Mutex::new(held)), of: Arc::clone(&of) };
    let driver = AnyDriver::new(Intercept::new(MemoryDriver::new(), hook));
    let client = Client::new(&driver);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let late = Arc::clone(&of);
    let worker = Worker::builder(&driver)
        .queue("default", 2)
        .lease(Duration::from_secs(3_600))
        .heartbeat(Duration::from_millis(20))
        .handlers(handler(|job, cx| async move {
            if job.name == "long" {
                cx.cancelled().await;
            }
            DONE
        }))
        .observer(move |event: &Event<'_>| {
            let (what, job) = match event {
                Event::Started { job, .. } => ("started".to_owned(), job),
                Event::Released { job, why, .. } => (format!("released {why:?}"), job),
                Event::LeaseLost { job, .. } => ("lost".to_owned(), job),
                _ => return,
            };
            if late.get() == Some(&job.id) {
                let _ = tell.send(what);
            }
        });
    client.enqueue(work("long")).await.unwrap();
    let running = worker.build().unwrap().start();
    is_held_up.wait_for(|is| *is).await.unwrap();
    let id = of.get_or_init(|| JobId::new("late").unwrap());
    let handle = client.enqueue(work("late")).id(id.clone()).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "released ArrivedLate");
    assert_eq!(told.recv().await.unwrap(), "started");
    drop(go_on);
    assert_eq!(handle.wait().await.unwrap(), 0);
    let record = driver.inspect(id.clone(), driver.now().await.unwrap()).await.unwrap().unwrap();
    assert_eq!((record.job.deliveries, record.job.attempts), (2, 0));
    running.abort();
    running.ended().await.unwrap();
}
