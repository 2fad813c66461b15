//! A driver that is bound to the runtime it was opened on gives the lease keeper a handle of its own.
//! In real time, but waiting for events alone.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use taskharbor::{AnyDriver, Client, Driver, DriverError, Timestamp, Worker};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call as Intercepted, Hook, Intercept, Next, Op};
use tokio::sync::watch;

use crate::rig::{DONE, handler, work};

/// A call: the operation, the handle, and whether it came from the keeper's thread.
type Call = (&'static str, Handle, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handle {
    Home,
    Detached,
}

/// Notes which handle of a memory driver is called from where.
#[derive(Clone)]
struct CallRecorder {
    store: MemoryDriver,
    handle: Handle,
    calls: Arc<Mutex<Vec<Call>>>,
    extended: watch::Sender<usize>,
    on_close: OnClose,
}

/// The behaviour of a detached handle when it is closed.
#[derive(Clone, Copy)]
enum OnClose {
    Closes,
    HangsWhenClosed,
}

impl CallRecorder {
    fn new(on_close: OnClose) -> Self {
        let (store, calls) = (MemoryDriver::new(), Arc::default());
        Self { store, handle: Handle::Home, calls, extended: watch::Sender::new(0), on_close }
    }

    fn driver(&self) -> Intercept<MemoryDriver, Self> {
        Intercept::new(self.store.clone(), self.clone())
    }

    fn note(&self, operation: &'static str) {
        let is_keeper = thread::current().name() == Some("taskharbor-leases");
        self.calls.lock().unwrap().push((operation, self.handle, is_keeper));
    }

    fn calls(&self, operation: &str) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.0 == operation).copied().collect()
    }
}

impl Hook<MemoryDriver> for CallRecorder {
    async fn around(
        &self,
        call: Intercepted,
        next: Next<'_, MemoryDriver>,
    ) -> Result<Answer, DriverError> {
        let op = call.op();
        self.note(op.name());
        match (op, self.handle, self.on_close) {
            // A detached handle is closed by itself; the store stays.
            (Op::Close, Handle::Detached, OnClose::Closes) => Ok(Answer::Close(())),
            (Op::Close, Handle::Detached, OnClose::HangsWhenClosed) => std::future::pending().await,
            (Op::ExtendLeases, ..) => {
                let answer = next.make(call).await;
                self.extended.send_modify(|count| *count += 1);
                answer
            }
            _ => next.make(call).await,
        }
    }

    fn detached(&self, _: Option<MemoryDriver>) -> Option<(MemoryDriver, Self)> {
        self.note("detached_handle");
        Some((self.store.clone(), Self { handle: Handle::Detached, ..self.clone() }))
    }
}

fn worker(driver: &AnyDriver, store: &CallRecorder) -> Worker {
    let extended = store.extended.subscribe();
    let handlers = handler(move |_, _| {
        let mut extended = extended.clone();
        async move {
            extended.wait_for(|count| *count >= 2).await.unwrap();
            DONE
        }
    });
    let worker = Worker::builder(driver).handlers(handlers).queue("default", 1);
    worker.heartbeat(Duration::from_millis(20)).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_extended_through_the_detached_handle_only() {
    let store = CallRecorder::new(OnClose::Closes);
    let driver = AnyDriver::new(store.driver());
    let running = worker(&driver, &store).start();
    while store.calls("reserve").is_empty() {
        tokio::task::yield_now().await;
    }
    // The worker has started the clock that they all share.
    assert_eq!(store.calls("store_time"), [("store_time", Handle::Detached, true)]);
    let handle = Client::new(&driver).enqueue(work("a")).await.unwrap();
    handle.wait().await.unwrap();
    running.shutdown().await.unwrap();
    assert_eq!(store.calls("detached_handle"), [("detached_handle", Handle::Home, true)]);
    for (operation, handle, is_keeper) in [
        ("extend_leases", Handle::Detached, true),
        ("reserve", Handle::Home, false),
        ("settle", Handle::Home, false),
    ] {
        let calls = store.calls(operation);
        assert!(!calls.is_empty(), "{operation}");
        assert!(calls.iter().all(|it| *it == (operation, handle, is_keeper)), "{calls:?}");
    }
    assert_eq!(store.calls("store_time").len(), 1);
    // The handle was the worker's own; the user's stays open.
    assert_eq!(store.calls("close"), [("close", Handle::Detached, true)]);
    driver.store_time().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_detached_handle_that_does_not_close_does_not_keep_the_worker_running() {
    let store = CallRecorder::new(OnClose::HangsWhenClosed);
    let driver = AnyDriver::new(store.driver());
    let running = worker(&driver, &store).start();
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, running.shutdown()).await.unwrap().unwrap();
    assert_eq!(store.calls("close").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn on_one_shared_runtime_no_detached_handle_is_needed() {
    let store = CallRecorder::new(OnClose::Closes);
    let clock = taskharbor::testing::TokioClock::starting_at(Timestamp::EPOCH);
    let driver = AnyDriver::new(store.driver()).with_clock(Arc::new(clock));
    let running = worker(&driver, &store).start();
    Client::new(&driver).enqueue(work("a")).await.unwrap().wait().await.unwrap();
    running.shutdown().await.unwrap();
    assert_eq!(store.calls("detached_handle"), []);
    assert!(store.calls("extend_leases").iter().all(|call| call.1 == Handle::Home));
    assert_eq!(store.calls("close"), []);
}
