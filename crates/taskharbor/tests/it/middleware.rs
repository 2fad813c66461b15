//! Middleware around handlers.

use std::sync::{Arc, Mutex};

use taskharbor::{Call, CallResult, JobError, Next, Outcome, State};

use crate::rig::{DONE, SECOND, WorkerRig, handler, work};

async fn doubled(call: Call, next: Next) -> CallResult {
    match next.run(call).await? {
        Outcome::Done(Some(bytes)) => {
            let number: u64 = serde_json::from_slice(&bytes)?;
            Ok(Outcome::Done(Some(serde_json::to_vec(&(number * 2))?.into())))
        }
        other => Ok(other),
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_async_function_is_a_middleware() {
    let rig = WorkerRig::new();
    let run = rig.worker(handler(|_, _| async { Ok(Outcome::Done(21)) })).middleware(doubled);
    let _running = run.build().unwrap().start();
    let handle = rig.client.enqueue(work("a")).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn the_first_one_added_is_the_outermost() {
    let rig = WorkerRig::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let layer = |name: &'static str| {
        let order = Arc::clone(&order);
        move |call: Call, next: Next| {
            let order = Arc::clone(&order);
            async move {
                order.lock().unwrap().push(format!("{name} before {}", call.id()));
                let result = next.run(call).await;
                order.lock().unwrap().push(format!("{name} after"));
                result
            }
        }
    };
    let run = rig.worker(handler(|_, _| async { DONE }));
    let run = run.middleware(layer("outer")).middleware(layer("inner"));
    let _running = run.build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.finished(&id).await;
    let expected = [
        format!("outer before {id}"),
        format!("inner before {id}"),
        "inner after".to_owned(),
        "outer after".to_owned(),
    ];
    assert_eq!(*order.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_middleware_may_answer_in_the_handlers_place() {
    let rig = WorkerRig::new();
    let run = rig.worker(handler(|_, _| async { panic!("it was not to run") }));
    let guard = |_: Call, _: Next| async { Err(JobError::unrecoverable("closed on Sundays")) };
    let _running = run.middleware(guard).build().unwrap().start();
    let id = rig.enqueue("a").await;
    assert_eq!(rig.finished(&id).await.reason.unwrap().as_str(), "closed on Sundays");
}

#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_of_middleware_are_failed_attempts_too() {
    async fn clumsy(call: Call, next: Next) -> CallResult {
        match call.attempt() {
            1 => panic!("clumsy"),
            2 => std::future::pending().await,
            _ => next.run(call).await,
        }
    }
    let rig = WorkerRig::new();
    let run = rig.worker(handler(|_, _| async { DONE })).middleware(clumsy);
    let _running = run.timeout(5 * SECOND).build().unwrap().start();
    let id = rig.enqueue("a").await;
    let record = rig.finished(&id).await;
    assert_eq!(record.state, State::Done);
    let errors: Vec<_> = record.errors.iter().map(|it| it.error.as_str()).collect();
    assert_eq!(errors, ["panicked: clumsy", "timed out after 5s"]);
}
