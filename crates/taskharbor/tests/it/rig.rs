//! [`WorkerRig`]: the base of most tests of the worker: a faulty driver on a paused clock, a client, a
//! worker's builder, and a log of all events.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, Event, Handlers, Job, JobId, JobResult, Observer, Outcome,
    State, Timestamp, Worker, WorkerBuilder, testing::TokioClock,
};
use taskharbor_core::{clock::Clock, job::JobRecord};
use taskharbor_memory::MemoryDriver;
use tokio::sync::Notify;

use crate::faulty_store::FaultyStore;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The job of most tests. Its output is a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Job)]
#[job(type = "work", output = u64)]
pub(crate) struct Work {
    pub(crate) name: String,
}

pub(crate) fn work(name: impl Into<String>) -> Work {
    Work { name: name.into() }
}

/// A handler of [`Work`] made of a closure, so that a test reads in one place.
pub(crate) fn handler<F, Fut>(handler: F) -> Handlers
where
    F: Fn(Work, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = JobResult<Outcome<u64>>> + Send + 'static,
{
    Handlers::new().on(handler)
}

pub(crate) const DONE: JobResult<Outcome<u64>> = Ok(Outcome::Done(0));

pub(crate) struct WorkerRig {
    pub(crate) store: FaultyStore,
    pub(crate) driver: AnyDriver,
    pub(crate) clock: TokioClock,
    pub(crate) client: Client,
    pub(crate) log: Arc<Log>,
}

impl WorkerRig {
    /// Needs `#[tokio::test(start_paused = true)]`.
    pub(crate) fn new() -> Self {
        let epoch = Timestamp::from_micros(2_000_000_000_000_000).unwrap();
        let clock = TokioClock::starting_at(epoch);
        let store = FaultyStore::new(MemoryDriver::with_clock(Arc::new(clock)));
        let driver = AnyDriver::new(store.driver()).with_clock(Arc::new(clock));
        let client = Client::new(&driver);
        Self { store, driver, clock, client, log: Arc::new(Log::new(clock)) }
    }

    /// A worker with eight slots, a lease of 30 s, a heartbeat every 10 s and exact retries.
    pub(crate) fn worker(&self, handlers: Handlers) -> WorkerBuilder {
        Worker::builder(&self.driver)
            .handlers(handlers)
            .queue("default", 8)
            .lease(LEASE)
            .retry(taskharbor::Exponential::new().base(SECOND).jitter(0.0))
            .seed(7)
            .observer(Arc::clone(&self.log))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn enqueue(&self, name: &str) -> JobId {
        self.client.enqueue(work(name)).await.unwrap().id().clone()
    }

    pub(crate) async fn record(&self, id: &JobId) -> JobRecord {
        self.driver.inspect(id.clone(), self.now()).await.unwrap().unwrap()
    }

    pub(crate) async fn state(&self, id: &JobId) -> State {
        self.record(id).await.state
    }

    /// Waits for the job to be over, as long as it takes.
    pub(crate) async fn finished(&self, id: &JobId) -> JobRecord {
        loop {
            let record = self.record(id).await;
            if matches!(record.state, State::Done | State::Dlq | State::Cancelled) {
                return record;
            }
            self.log.more().await;
        }
    }

    /// The store contradicts itself nowhere.
    pub(crate) async fn check(&self) {
        assert_eq!(self.driver.check().await.unwrap(), []);
    }
}

/// All that happened, in order, as lines of text with the time.
pub(crate) struct Log {
    clock: TokioClock,
    lines: Mutex<Vec<(Timestamp, String)>>,
    added: Notify,
}

impl Log {
    fn new(clock: TokioClock) -> Self {
        Self { clock, lines: Mutex::default(), added: Notify::new() }
    }

    /// Adds a line of the test's own, as handlers do.
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push((self.clock.now(), line.into()));
        self.added.notify_waiters();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().map(|(_, line)| line.clone()).collect()
    }

    /// How many lines begin like this.
    pub(crate) fn count(&self, start: &str) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|(_, line)| line.starts_with(start)).count()
    }

    /// When the first line that begins like this was added.
    pub(crate) fn time_of(&self, start: &str) -> Timestamp {
        let lines = self.lines.lock().unwrap();
        let found = lines.iter().find(|(_, line)| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no line begins with {start:?}: {lines:#?}")).0
    }

    /// Waits until some line begins like this.
    pub(crate) async fn until(&self, start: &str) {
        self.until_count(start, 1).await;
    }

    /// Waits until this many lines begin like this.
    pub(crate) async fn until_count(&self, start: &str, count: usize) {
        let waiting = async {
            loop {
                let added = self.added.notified();
                if self.count(start) >= count {
                    return;
                }
                added.await;
            }
        };
        let limit = Duration::from_secs(1_000_000);
        if tokio::time::timeout(limit, waiting).await.is_err() {
            panic!("{count} lines with {start:?} did not come: {:#?}", self.lines());
        }
    }

    /// Waits for another line.
    pub(crate) async fn more(&self) {
        let limit = Duration::from_secs(1_000_000);
        let added = tokio::time::timeout(limit, self.added.notified()).await;
        added.unwrap_or_else(|_| panic!("nothing more happened: {:#?}", self.lines()));
    }
}

impl Observer for Log {
    fn on(&self, event: &Event<'_>) {
        let line = match event {
            Event::Reserved { job, .. } => format!("reserved {}", job.id),
            Event::Started { job, .. } => format!("started {}", job.id),
            Event::Failed { job, error, .. } => format!("failed {} {error}", job.id),
            Event::Succeeded { job, .. } => format!("succeeded {}", job.id),
            Event::Retried { job, .. } => format!("retried {}", job.id),
            Event::DeadLettered { job, reason, .. } => format!("dead-lettered {} {reason}", job.id),
            Event::Released { job, why, .. } => format!("released {why:?} {}", job.id),
            Event::LeaseExtended { job, .. } => format!("extended {}", job.id),
            Event::LeaseLost { job, why, .. } => format!("lost {} {why}", job.id),
            Event::StoreUnavailable { doing, .. } => format!("away {doing}"),
            Event::StoreBack { .. } => "back".to_owned(),
            Event::WakeUpsLost { problem, .. } => format!("wake-ups lost: {problem}"),
            Event::WakeUpsBack { .. } => "wake-ups back".to_owned(),
            Event::ScheduleFired { job, is_new: true, .. } => format!("fired {job}"),
            Event::ScheduleFired { job, .. } => format!("skipped for {job}"),
            Event::ScheduleFailed { schedule, error, .. } => {
                format!("not fired {schedule}: {error}")
            }
            Event::SchedulesDenied { owner, denied, .. } => format!("denied {owner}: {denied}"),
            Event::LimitsDenied { owner, denied, .. } => format!("limits denied {owner}: {denied}"),
            Event::Throttled { job, not_held: None, .. } => format!("throttled {}", job.id),
            Event::Throttled { job, .. } => format!("throttled, not held {}", job.id),
            Event::NameShared { name, .. } => format!("name shared {name}"),
            Event::WorkerEvicted { name, leases, .. } => format!("evicted {name}: {leases}"),
            Event::EvictionDenied { error, .. } => format!("eviction denied: {error}"),
            Event::WorkerStarted { .. } => "worker started".to_owned(),
            Event::Quiet { inflight, .. } => format!("quiet with {inflight}"),
            Event::ShuttingDown { inflight, .. } => format!("shutting down with {inflight}"),
            Event::WorkerStopped { abandoned, .. } => format!("worker stopped, {abandoned} left"),
            _ => return,
        };
        self.note(line);
    }
}
