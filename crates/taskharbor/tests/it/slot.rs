//! The number of handlers that run at the same time, and their queues.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taskharbor::{Handlers, JobResult, Options};

use crate::{
    faulty_store::Op,
    rig::{DONE, SECOND, WorkerRig, handler, work},
};

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_than_their_queue_allows() {
    let rig = WorkerRig::new();
    for queue in ["default", "slow", "wide"] {
        let jobs = (0..100).map(|n| work(n.to_string()));
        let options = Options::new().queue(queue);
        rig.client.enqueue_many(jobs).options(options).await.unwrap();
    }
    let counts: Arc<[(&str, usize, AtomicUsize, AtomicUsize); 3]> = Arc::new(
        [("default", 8), ("slow", 1), ("wide", 50)]
            .map(|(queue, limit)| (queue, limit, AtomicUsize::new(0), AtomicUsize::new(0))),
    );
    let counted = Arc::clone(&counts);
    let run = rig.worker(handler(move |_, cx| {
        let counts = Arc::clone(&counted);
        async move {
            let of = |it: &&(&str, usize, AtomicUsize, AtomicUsize)| it.0 == cx.queue().as_str();
            let (_, limit, running, most) = counts.iter().find(of).unwrap();
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= *limit);
            most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(SECOND).await;
            running.fetch_sub(1, Ordering::SeqCst);
            DONE
        }
    }));
    let _running = run.queue("slow", 1).queue("wide", 50).build().unwrap().start();
    rig.log.until_count("succeeded", 300).await;
    for (queue, limit, _, most) in counts.iter() {
        assert_eq!(most.load(Ordering::SeqCst), *limit, "{queue}");
    }
    assert_eq!(rig.log.count("failed"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_is_woken_and_hardly_ever_asks() {
    let rig = WorkerRig::new();
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(3_600 * SECOND).await;
    let idle = rig.store.calls(Op::Reserve);
    assert!((100..200).contains(&idle), "{idle} calls in an hour");
    let enqueued = rig.now();
    let id = rig.enqueue("a").await;
    assert_eq!(rig.finished(&id).await.started_at, Some(enqueued));
}

#[tokio::test(start_paused = true)]
async fn scheduled_jobs_start_on_time_without_polling() {
    let rig = WorkerRig::new();
    let later = rig.now().saturating_add(7 * SECOND);
    let handle = rig.client.enqueue(work("a")).run_at(later).await.unwrap();
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let record = rig.finished(handle.id()).await;
    assert_eq!(record.started_at, Some(later));
    assert!(rig.store.calls(Op::Reserve) <= 4);
}

#[tokio::test(start_paused = true)]
async fn handlers_for_names_known_at_run_time_get_the_bytes() {
    let rig = WorkerRig::new();
    let mut handlers = Handlers::new();
    for name in ["upper", "same"] {
        handlers = handlers.on_raw(name, move |payload, cx| async move {
            assert_eq!(cx.job_type().as_str(), name);
            let bytes =
                if name == "upper" { payload.to_ascii_uppercase() } else { payload.to_vec() };
            JobResult::Ok(Some(bytes.into()))
        });
    }
    let _running = rig.worker(handlers).build().unwrap().start();
    for (name, output) in [("upper", b"\xffABC"), ("same", b"\xffabc")] {
        let handle = rig.client.enqueue_raw(name, b"\xffabc").await.unwrap();
        assert_eq!(&handle.wait_raw().await.unwrap().unwrap()[..], output);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_falls_due_while_its_queue_is_full_starts_with_the_next_free_slot() {
    let rig = WorkerRig::new();
    let soon = rig.now().saturating_add(5 * SECOND);
    rig.client.enqueue(work("long")).queue("narrow").await.unwrap();
    let due = rig.client.enqueue(work("due")).queue("narrow").run_at(soon).await.unwrap();
    let run = rig.worker(handler(|job, _| async move {
        let seconds = if job.name == "long" { 10 } else { 0 };
        tokio::time::sleep(SECOND * seconds).await;
        DONE
    }));
    let start = rig.now();
    let _running = run.queue("narrow", 1).build().unwrap().start();
    rig.log.until("started").await;
    // Another queue is asked meanwhile, when the narrow one has no slot.
    for n in 0..3 {
        tokio::time::sleep(SECOND).await;
        rig.enqueue(&n.to_string()).await;
    }
    let record = rig.finished(due.id()).await;
    assert_eq!(record.started_at.unwrap().since(start), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_job_starts_on_time_however_long_the_worker_was_idle() {
    let rig = WorkerRig::new();
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(3_600 * SECOND).await;
    for millis in [1, 3, 10, 50] {
        let due = rig.now().saturating_add(std::time::Duration::from_millis(millis));
        let handle = rig.client.enqueue(work("a")).run_at(due).await.unwrap();
        assert_eq!(rig.finished(handle.id()).await.started_at, Some(due));
    }
}
