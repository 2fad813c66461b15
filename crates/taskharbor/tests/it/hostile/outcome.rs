//! Outcomes that a store does not take, or not like this.

use super::*;

#[tokio::test(start_paused = true)]
async fn outcomes_that_are_sent_one_by_one_keep_their_leases() {
    let (rig, driver) = rig_with_interference();
    // A store that takes 200 ms for a call, and one outcome that spoils the first batch.
    let mut spoilt = false;
    set(&driver.settle, move |request: &Settle| {
        if request.items.len() > 1 && !spoilt {
            spoilt = true;
            return Action::Fail(DriverError::backend("one of these I cannot take"));
        }
        Action::Late(Duration::from_millis(200))
    });
    let jobs = (0..300).map(|n| work(n.to_string()));
    let handles = rig.client.enqueue_many(jobs).await.unwrap();
    let run = Worker::builder(&rig.driver)
        .handlers(handler(|_, _| async {
            tokio::time::sleep(SECOND).await;
            DONE
        }))
        .queue("default", 300)
        .lease(LEASE)
        .observer(Arc::clone(&rig.log));
    let _running = run.build().unwrap().start();
    for handle in handles {
        rig.finished(handle.id()).await;
    }
    assert_eq!(rig.log.count("lost"), 0);
}

fn acks(request: &Settle, id: &JobId) -> bool {
    request.items.iter().any(|it| it.id == *id && matches!(it.transition, Transition::Ack { .. }))
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_store_never_takes_becomes_a_failure() {
    let (rig, driver) = rig_with_interference();
    let id = rig.enqueue("poison").await;
    let poison = id.clone();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    set(&driver.settle, move |request: &Settle| {
        counted.fetch_add(1, Ordering::SeqCst);
        if acks(request, &poison) {
            return Action::Fail(DriverError::backend("invalid byte sequence"));
        }
        Action::None
    });
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(3_600 * SECOND).await;
    let record = rig.record(&id).await;
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
    let (rig, driver) = rig_with_interference();
    let poison = rig.enqueue("poison").await;
    set(&driver.settle, move |request: &Settle| {
        if acks(request, &poison) {
            return Action::Fail(DriverError::backend("invalid byte sequence"));
        }
        Action::None
    });
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(60 * SECOND).await;
    let start = rig.now();
    for n in 0..100 {
        let id = rig.enqueue(&n.to_string()).await;
        rig.finished(&id).await;
    }
    let took = rig.now().since(start);
    let (away, back) = (rig.log.count("away"), rig.log.count("back"));
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
    let rig = WorkerRig::new();
    let id = rig.enqueue("grow").await;
    let handlers = Handlers::new().on(|_: Work, _: Context| async {
        let mut flow = Flow::first(work("first"));
        for _ in 0..260 {
            flow = flow.then(Large { load: "x".repeat(1024 * 1024 - 100) });
        }
        JobResult::Ok(flow)
    });
    let _running = rig.worker(handlers).build().unwrap().start();
    tokio::time::sleep(120 * SECOND).await;
    let record = rig.record(&id).await;
    assert!(
        record.state != State::Inflight,
        "after two minutes it is {:?} on delivery {}, {} settle calls: {:#?}",
        record.state,
        record.job.deliveries,
        rig.store.calls(Op::Settle),
        rig.log.lines().iter().take(6).collect::<Vec<_>>(),
    );
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "after", input = u64, output = u64)]
struct After {}

#[tokio::test(start_paused = true)]
async fn a_job_whose_input_can_never_be_read_fails() {
    let (rig, driver) = rig_with_interference();
    set(&driver.outputs, |_| Action::Fail(DriverError::backend("the row is corrupt")));
    let handlers = Handlers::new()
        .on(|_: Work, _: Context| async { JobResult::Ok(6) })
        .on(|_: After, _: Context| async { JobResult::Ok(7) });
    let handle = rig.client.start(Flow::first(work("first")).then(After {})).await.unwrap();
    let _running = rig.worker(handlers).build().unwrap().start();
    tokio::time::sleep(24 * 3_600 * SECOND).await;
    let record = rig.record(handle.id()).await;
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
    let rig = WorkerRig::new();
    rig.enqueue("long").await;
    rig.store.next(Op::Extend, [Fault::Hang]);
    let run = rig.worker(handler(|job, _| async move {
        let millis = if job.name == "long" { 10_500 } else { 0 };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        DONE
    }));
    let _running = run.build().unwrap().start();
    tokio::time::sleep(11 * SECOND).await;
    let (start, quick) = (rig.now(), rig.enqueue("quick").await);
    let record = rig.finished(&quick).await;
    let took = record.finished_at.unwrap().since(start);
    assert!(took < SECOND, "a job that takes no time on a store that answers took {took:?}");
}
