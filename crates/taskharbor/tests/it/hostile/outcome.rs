//! Outcomes that a store does not take, or not like this.

use super::*;

#[tokio::test(start_paused = true)]
async fn outcomes_that_are_sent_one_by_one_keep_their_leases() {
    let (port, driver) = twisted();
    // A store that takes 200 ms for a call, and one outcome that spoils the first batch.
    let mut spoilt = false;
    set(&driver.settle, move |request: &Settle| {
        if request.items.len() > 1 && !spoilt {
            spoilt = true;
            return Twist::Fail(DriverError::backend("one of these I cannot take"));
        }
        Twist::Late(Duration::from_millis(200))
    });
    let jobs = (0..300).map(|n| work(n.to_string()));
    let handles = port.client.enqueue_many(jobs).await.unwrap();
    let run = Worker::builder(&port.driver)
        .handlers(handler(|_, _| async {
            tokio::time::sleep(SECOND).await;
            DONE
        }))
        .queue("default", 300)
        .lease(LEASE)
        .observer(Arc::clone(&port.log));
    let _running = run.build().unwrap().start();
    for handle in handles {
        port.finished(handle.id()).await;
    }
    assert_eq!(port.log.count("lost"), 0);
}

fn acks(request: &Settle, id: &JobId) -> bool {
    request.items.iter().any(|it| it.id == *id && matches!(it.transition, Transition::Ack { .. }))
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_store_never_takes_becomes_a_failure() {
    let (port, driver) = twisted();
    let id = port.enqueue("poison").await;
    let poison = id.clone();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    set(&driver.settle, move |request: &Settle| {
        counted.fetch_add(1, Ordering::SeqCst);
        if acks(request, &poison) {
            return Twist::Fail(DriverError::backend("invalid byte sequence"));
        }
        Twist::None
    });
    let _running = port.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(3_600 * SECOND).await;
    let record = port.record(&id).await;
    assert!(
        record.state != State::Inflight,
        "after an hour it is {:?}, delivery {}, {} settle calls",
        record.state,
        record.job.deliveries,
        calls.load(Ordering::SeqCst),
    );
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_store_never_takes_slows_down_no_other() {
    let (port, driver) = twisted();
    let poison = port.enqueue("poison").await;
    set(&driver.settle, move |request: &Settle| {
        if acks(request, &poison) {
            return Twist::Fail(DriverError::backend("invalid byte sequence"));
        }
        Twist::None
    });
    let _running = port.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(60 * SECOND).await;
    let start = port.now();
    for n in 0..100 {
        let id = port.enqueue(&n.to_string()).await;
        port.finished(&id).await;
    }
    let took = port.now().since(start);
    let (away, back) = (port.log.count("away"), port.log.count("back"));
    assert!(
        took < 10 * SECOND && away <= 2,
        "a hundred jobs one after another, none of which sleeps, took {took:?}; told {away} times \
         that the store is away and {back} times that it is back"
    );
}

/// As large as a job may be.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "large", input = u64, output = u64)]
struct Large {
    load: String,
}

#[tokio::test(start_paused = true)]
async fn a_flow_larger_than_a_call_is_dead_lettered() {
    let port = Port::new();
    let id = port.enqueue("grow").await;
    let handlers = Handlers::new().on(|_: Work, _: Context| async {
        let mut flow = Flow::first(work("first"));
        for _ in 0..260 {
            flow = flow.then(Large { load: "x".repeat(1024 * 1024 - 100) });
        }
        JobResult::Ok(flow)
    });
    let _running = port.worker(handlers).build().unwrap().start();
    tokio::time::sleep(120 * SECOND).await;
    let record = port.record(&id).await;
    assert!(
        record.state != State::Inflight,
        "after two minutes it is {:?} on delivery {}, {} settle calls: {:#?}",
        record.state,
        record.job.deliveries,
        port.store.calls(Op::Settle),
        port.log.lines().iter().take(6).collect::<Vec<_>>(),
    );
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "after", input = u64, output = u64)]
struct After {}

#[tokio::test(start_paused = true)]
async fn a_job_whose_input_can_never_be_read_fails() {
    let (port, driver) = twisted();
    set(&driver.outputs, |_| Twist::Fail(DriverError::backend("the row is corrupt")));
    let handlers = Handlers::new()
        .on(|_: Work, _: Context| async { JobResult::Ok(6) })
        .on(|_: After, _: Context| async { JobResult::Ok(7) });
    let handle = port.client.start(Flow::first(work("first")).then(After {})).await.unwrap();
    let _running = port.worker(handlers).build().unwrap().start();
    tokio::time::sleep(24 * 3_600 * SECOND).await;
    let record = port.record(handle.id()).await;
    assert!(
        record.state != State::Inflight || record.job.attempts > 0,
        "after a day it is {:?}, attempts {}, delivery {}",
        record.state,
        record.job.attempts,
        record.job.deliveries
    );
}

#[tokio::test(start_paused = true)]
async fn outcomes_do_not_wait_for_the_heartbeats_of_others() {
    let port = Port::new();
    port.enqueue("long").await;
    port.store.next(Op::Extend, [Fault::Hang]);
    let run = port.worker(handler(|job, _| async move {
        let millis = if job.name == "long" { 10_500 } else { 0 };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        DONE
    }));
    let _running = run.build().unwrap().start();
    tokio::time::sleep(11 * SECOND).await;
    let (start, quick) = (port.now(), port.enqueue("quick").await);
    let record = port.finished(&quick).await;
    let took = record.finished_at.unwrap().since(start);
    assert!(took < SECOND, "a job that takes no time on a store that answers took {took:?}");
}
