//! One client on several runtimes, as applications have it that call it from a pool of threads or
//! from a command's `main`.

use taskharbor::{Client, DriverError, EnqueueError, Handle};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use super::{
    carry,
    gate::{Gate, soon, waits},
};
use crate::build::at_once;

/// A runtime that does nothing except inside `block_on`.
fn runtime() -> Runtime {
    #[expect(clippy::expect_used, reason = "without a runtime there is no test")]
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// Enqueues a job in a task of this runtime.
fn enqueue_on(runtime: &Runtime, client: &Client) -> JoinHandle<Result<Handle<()>, EnqueueError>> {
    let client = client.clone();
    runtime.spawn(async move { client.enqueue(carry(1)).await })
}

fn is_unavailable<T>(answer: &Result<T, EnqueueError>) -> bool {
    matches!(answer, Err(EnqueueError::Store(DriverError::Unavailable(_))))
}

#[test]
fn waiting_callers_learn_that_the_sending_runtime_has_ended() {
    let (gate, client) = Gate::holding_one();
    gate.hold(1);
    let (sending, other) = (runtime(), runtime());
    let mut first = client.enqueue(carry(1)).into_future();
    let mut waiting = client.enqueue(carry(2)).into_future();
    assert!(sending.block_on(waits(&mut first)));
    assert!(sending.block_on(waits(&mut waiting)));
    gate.release();
    sending.block_on(first).unwrap();
    // The next call is at the gate, and the one for whom it was made on another runtime by now.
    sending.block_on(gate.arrived(2));
    assert!(other.block_on(waits(&mut waiting)));
    drop(sending);
    let answer = other.block_on(soon(&mut waiting)).expect("it is answered");
    assert!(is_unavailable(&answer), "{answer:?}");
    other.block_on(client.enqueue(carry(3)).into_future()).unwrap();
    assert_eq!(gate.calls(), [1, 1, 1]);
}

#[test]
fn a_runtime_that_ends_with_a_call_in_flight_strands_no_caller() {
    let (gate, client) = Gate::holding_one();
    let (sending, other) = (runtime(), runtime());
    let first = enqueue_on(&sending, &client);
    sending.block_on(gate.arrived(1));
    let mut waiting = enqueue_on(&other, &client);
    other.block_on(tokio::task::yield_now());
    drop(sending);
    assert!(other.block_on(first).unwrap_err().is_cancelled());
    // Whether another caller sends its job or the job is not sent at all, the caller learns which.
    let answer = other.block_on(soon(&mut waiting)).expect("it is not stranded").unwrap();
    assert!(answer.is_ok() || is_unavailable(&answer), "{answer:?}");
    other.block_on(client.enqueue(carry(3)).into_future()).unwrap();
}

#[test]
fn a_runtime_that_is_blocked_strands_no_caller() {
    let (gate, client) = Gate::holding_one();
    let (idle, other) = (runtime(), runtime());
    let mut first = client.enqueue(carry(1)).into_future();
    assert!(idle.block_on(waits(&mut first)));
    let mut waiting = enqueue_on(&other, &client);
    other.block_on(tokio::task::yield_now());
    gate.release();
    // Nothing runs on a runtime of one thread between two calls of `block_on`.
    idle.block_on(first).unwrap();
    let answer = other.block_on(soon(&mut waiting)).expect("it is not stranded").unwrap();
    assert!(answer.unwrap().is_new());
}

#[test]
fn one_may_enqueue_outside_any_runtime() {
    let gate = Gate::new();
    let client = gate.client();
    let mut enqueueing = client.enqueue(carry(1)).into_future();
    let answer = at_once(&mut enqueueing).expect("the memory driver answers at once");
    assert!(answer.unwrap().is_new());
    // Nor does another caller wait for it.
    runtime().block_on(client.enqueue(carry(2)).into_future()).unwrap();
    assert_eq!(gate.calls(), [1, 1]);
}

#[test]
fn many_threads_store_every_job_once() {
    let gate = Gate::new();
    let client = gate.client();
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for _ in 0..100 {
                        client.enqueue(carry(1)).await.map_err(|error| error.to_string())?;
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(gate.calls().iter().sum::<usize>(), 800);
        assert_eq!(gate.stored().await.unwrap(), 800);
    });
}
