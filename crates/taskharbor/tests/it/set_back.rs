//! A store whose clock is set back, by 45 s unless a test sets another time. The tests run in real time,
//! because they test the clock of a handle.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor::{
    AnyDriver, Client, Context, DriverError, Event, Handlers, JobResult, ReleaseReason, Worker,
    WorkerBuilder,
};
use taskharbor_core::driver::LeaseMark;
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};
use tokio::sync::Notify;

use crate::rig::{SECOND, Work, work};

const BACK: Duration = Duration::from_secs(45);
const SOON: Duration = Duration::from_secs(10);

/// The clock of a store, which can be set back, and of which the store can stop to tell.
#[derive(Clone, Default)]
struct Clock {
    /// By how many milliseconds.
    set_back_ms: Arc<AtomicU64>,
    is_silent: Arc<AtomicBool>,
    /// A worker has marked a lease as leaving.
    is_leaving: Arc<Notify>,
}

/// Whether a worker that is shutting down extends a lease by this call.
fn marks_as_leaving(call: &Call) -> bool {
    let Call::ExtendLeases { request } = call else { return false };
    request.items.iter().any(|item| item.mark == Some(LeaseMark::Leaving))
}

impl Hook<MemoryDriver> for Clock {
    async fn around(
        &self,
        call: Call,
        next: Next<'_, MemoryDriver>,
    ) -> Result<Answer, DriverError> {
        let is_leaving = marks_as_leaving(&call);
        let answer = next.make(call).await?;
        if is_leaving {
            self.is_leaving.notify_one();
        }
        Ok(match answer {
            Answer::StoreTime(_) if self.is_silent.load(Ordering::SeqCst) => {
                return Err(DriverError::unavailable("no time"));
            }
            Answer::StoreTime(now) => {
                let back = Duration::from_millis(self.set_back_ms.load(Ordering::SeqCst));
                Answer::StoreTime(now.saturating_sub(back))
            }
            answer => answer,
        })
    }
}

/// A store, of which each process has a handle.
#[derive(Default)]
struct Store {
    memory: MemoryDriver,
    clock: Clock,
}

impl Store {
    /// A handle of a process that asks for the time now.
    async fn handle(&self) -> AnyDriver {
        let driver = AnyDriver::new(Intercept::new(self.memory.clone(), self.clock.clone()));
        driver.now().await.unwrap();
        driver
    }

    fn set_back(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap();
        self.clock.set_back_ms.store(millis, Ordering::SeqCst);
    }

    /// A handle that has asked the time before the clock is set back, and one that asks after.
    async fn handles_around_a_step_back(&self, by: Duration) -> (AnyDriver, AnyDriver) {
        let before = self.handle().await;
        self.set_back(by);
        (before, self.handle().await)
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, future).await;
    done.unwrap_or_else(|_| panic!("{what} took longer than {SOON:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_within_seconds() {
    let store = Store::default();
    let (ours, stale) = (store.handle().await, store.handle().await);
    let handlers = Handlers::new().on(|_: Work, _: Context| async { JobResult::Ok(1_u64) });
    let poll = Duration::from_millis(30);
    let worker = Worker::builder(&ours).handlers(handlers).queue("default", 2).poll(poll);
    let running = worker.build().unwrap().start();
    let client = Client::new(&ours);
    soon("before", client.enqueue(work("before")).await.unwrap().wait()).await.unwrap();
    store.set_back(BACK);
    soon("a job", client.enqueue(work("unnoticed")).await.unwrap().wait()).await.unwrap();
    soon("noticing", async {
        while ours.clock_set_back().is_none() {
            client.enqueue(work("more")).await.unwrap().wait().await.unwrap();
        }
    })
    .await;
    let delayed = client.enqueue(work("delayed")).delay(SECOND / 2).await.unwrap();
    soon("a delay of half a second", delayed.wait()).await.unwrap();
    // A producer that has not noticed yet stores jobs whose time lies ahead.
    let ahead = Client::new(&stale).enqueue(work("ahead")).await.unwrap();
    assert_eq!(stale.clock_set_back(), None);
    soon("a job of a producer whose clock is ahead", ahead.wait()).await.unwrap();
    running.shutdown().await.unwrap();
}

/// How many handlers run a job, and how many have at once.
#[derive(Clone, Default)]
struct Runs {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    started: Arc<Notify>,
}

impl Runs {
    /// A worker whose handler takes a second.
    fn worker(&self, driver: &AnyDriver) -> WorkerBuilder {
        let runs = self.clone();
        let handler = move |_: Work, _: Context| {
            let runs = runs.clone();
            async move {
                let now = 1 + runs.running.fetch_add(1, Ordering::SeqCst);
                runs.most.fetch_max(now, Ordering::SeqCst);
                let _running = Running(Arc::clone(&runs.running));
                runs.started.notify_one();
                tokio::time::sleep(SECOND).await;
                JobResult::Ok(1_u64)
            }
        };
        let handlers = Handlers::new().on(handler);
        Worker::builder(driver).handlers(handlers).queue("default", 1).lease(3 * SECOND / 2)
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_never_has_two_handlers() {
    let (store, runs) = (Store::default(), Runs::default());
    let (before, after) = store.handles_around_a_step_back(BACK).await;
    let second = runs.worker(&after).build().unwrap().start();
    let job = Client::new(&after).enqueue(work("a")).await.unwrap();
    soon("the start", runs.started.notified()).await;
    let first = runs.worker(&before).build().unwrap().start();
    soon("the end", job.wait()).await.unwrap();
    assert_eq!(runs.most.load(Ordering::SeqCst), 1);
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_a_worker_that_is_leaving_never_has_two_handlers() {
    let (store, runs) = (Store::default(), Runs::default());
    let (before, after) = store.handles_around_a_step_back(BACK).await;
    let second = runs.worker(&after).build().unwrap().start();
    let job = Client::new(&after).enqueue(work("a")).await.unwrap();
    soon("the start", runs.started.notified()).await;
    let leaving = tokio::spawn(async move { second.shutdown().await });
    soon("the mark", store.clock.is_leaving.notified()).await;
    let first = runs.worker(&before).build().unwrap().start();
    soon("the end", job.wait()).await.unwrap();
    assert_eq!(runs.most.load(Ordering::SeqCst), 1);
    soon("the shutdown", leaving).await.unwrap().unwrap();
    first.shutdown().await.unwrap();
}

/// The shortest lease there can be has two thirds of it left when it is extended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_that_is_not_followed_gives_no_job_two_handlers() {
    let (store, runs) = (Store::default(), Runs::default());
    let (before, after) = store.handles_around_a_step_back(9 * SECOND / 10).await;
    let second = runs.worker(&after).lease(SECOND).build().unwrap().start();
    let job = Client::new(&after).enqueue(work("a")).await.unwrap();
    soon("the start", runs.started.notified()).await;
    let first = runs.worker(&before).lease(SECOND).build().unwrap().start();
    soon("the end", job.wait()).await.unwrap();
    assert_eq!(before.clock_set_back(), None);
    assert_eq!(runs.most.load(Ordering::SeqCst), 1);
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_cannot_be_compared_starts_no_job_of_another_worker() {
    let (store, runs) = (Store::default(), Runs::default());
    let (before, after) = store.handles_around_a_step_back(BACK).await;
    let second = runs.worker(&after).build().unwrap().start();
    Client::new(&after).enqueue(work("a")).await.unwrap();
    soon("the start", runs.started.notified()).await;
    store.clock.is_silent.store(true, Ordering::SeqCst);
    let released = Arc::new(Notify::new());
    let told = Arc::clone(&released);
    let first = runs.worker(&before).observer(move |event: &Event<'_>| {
        if let Event::Released { why: ReleaseReason::ClockSetBack, .. } = event {
            told.notify_one();
        }
    });
    let first = first.build().unwrap().start();
    soon("the release", released.notified()).await;
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
    assert_eq!(runs.most.load(Ordering::SeqCst), 1);
}
