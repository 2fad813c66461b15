//! A context after the end of its execution.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_context_is_cancelled_when_the_execution_times_out() {
    let rig = WorkerRig::new();
    let kept: Arc<OnceLock<Context>> = Arc::default();
    let keep = Arc::clone(&kept);
    let handle = rig.client.enqueue(work("a")).timeout(SECOND).max_attempts(1).await.unwrap();
    let run = rig.worker(handler(move |_, cx| {
        let _ = keep.set(cx.clone());
        std::future::pending()
    }));
    let _running = run.build().unwrap().start();
    assert_eq!(rig.finished(handle.id()).await.state, State::Dlq);
    // What the handler has started with `blocking` looks at this, as the documentation says.
    assert!(kept.get().unwrap().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn waiting_to_be_cancelled_ends_with_the_job() {
    let rig = WorkerRig::new();
    let kept: Arc<OnceLock<Context>> = Arc::default();
    let keep = Arc::clone(&kept);
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(move |_, cx| {
        let _ = keep.set(cx.clone());
        async { DONE }
    }));
    let running = run.build().unwrap().start();
    rig.finished(&id).await;
    running.shutdown().await.unwrap();
    let cx = kept.get().unwrap();
    cx.progress("after the end");
    let told = tokio::time::timeout(3_600 * SECOND, cx.cancelled()).await;
    assert!(told.is_ok(), "a task beside the handler that waits for this is there for ever");
}

#[test]
fn the_lease_of_a_handler_that_blocks_ends_after_its_timeout() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (finish, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    runtime.block_on(async {
        let driver = AnyDriver::new(MemoryDriver::new());
        let client = Client::new(&driver);
        let stuck = handler(move |_, cx| {
            let blocked = Arc::clone(&blocked);
            async move {
                if cx.delivery() == 1 {
                    let _ = blocked.lock().unwrap().recv();
                }
                DONE
            }
        });
        let timeout = Duration::from_millis(100);
        let handle = client.enqueue(work("a")).timeout(timeout).await.unwrap();
        let worker = Worker::builder(&driver).handlers(stuck).queue("default", 2);
        let worker = worker.lease(Duration::from_secs(1)).poll(Duration::from_millis(50));
        let worker = worker.cancel_wait(Duration::from_millis(100));
        let running = worker.build().unwrap().start();
        // Its thread is blocked until another worker has done the job.
        let waited = tokio::time::timeout(Duration::from_secs(60), handle.wait()).await;
        finish.send(()).unwrap();
        running.shutdown().await.unwrap();
        waited.expect("the lease of a handler that cannot be stopped never ended").unwrap();
    });
}
