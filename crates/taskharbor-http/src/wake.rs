//! [`Wakeups`]: the watches of a driver, and the one stream of events from the server that feeds them.
//!
//! The stream names the queues and jobs of all watches. A watch of something that it does not name makes
//! a new stream, which takes over while the old one is read for a moment longer, so no wake-up is lost
//! in between. Without a watch there is no stream.

mod event;
mod stream;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    DriverError, JobId, QueueName,
    driver::{WakeHub, Watch},
    wire::{WakeEvent, WatchRequest},
};
use tokio::{
    sync::{Notify, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::connection::Target;
use stream::Stream;

/// How long a watch waits for the stream that names what it watches.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before trying again, at first and at most.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Streams follow each other no faster, so that many new watches share one.
const MIN_GAP: Duration = Duration::from_millis(20);
/// For how long a stream is still read after another has taken over.
const RETIRE_AFTER: Duration = Duration::from_secs(1);
/// How often it is noticed that there are no watches any more.
const TIDY_INTERVAL: Duration = Duration::from_secs(30);
/// How many queues, and how many jobs, a stream names. A server takes no more.
const MAX_WATCHED: usize = 1_000;

/// The watches of a driver.
pub(crate) struct Wakeups {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    hub: WakeHub,
    target: Arc<Target>,
    /// How many watches there have been.
    asked: AtomicU64,
    /// There is another watch.
    pending: Notify,
    /// This many of the watches are named by the stream, or it is known that there is none.
    served: watch::Sender<u64>,
    /// A watch was not named in time, and may have missed something.
    is_late: AtomicBool,
}

impl Wakeups {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        let hub = WakeHub::new();
        hub.set_reaching(false);
        let shared = Shared {
            hub,
            target,
            asked: AtomicU64::new(0),
            pending: Notify::new(),
            served: watch::Sender::new(0),
            is_late: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// Waits for wake-ups about these queues. Returns when they arrive, or when it is known that they do
    /// not.
    pub(crate) async fn watch(&self, queues: Vec<QueueName>) -> Watch {
        let is_empty = queues.is_empty();
        let watch = self.shared.hub.watch(queues);
        if !is_empty {
            self.be_served().await;
        }
        watch
    }

    /// Waits for the end of a job, as [`Wakeups::watch`] does.
    pub(crate) async fn watch_job(&self, id: JobId) -> Watch {
        let watch = self.shared.hub.watch_job(id);
        self.be_served().await;
        watch
    }

    async fn be_served(&self) {
        let shared = &self.shared;
        let number = shared.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut served = shared.served.subscribe();
        self.start();
        shared.pending.notify_one();
        let served = served.wait_for(|served| *served >= number);
        if timeout(FIRST_ATTEMPT_TIMEOUT, served).await.is_err() {
            shared.is_late.store(true, Ordering::Release);
        }
    }

    /// Starts the task unless it runs; one that ended with its runtime is started again on another.
    fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(Keeper::new(Arc::clone(&self.shared)).run()));
        }
    }

    /// Ends the stream and all watches.
    pub(crate) fn close(&self) {
        self.end();
        self.shared.hub.close();
        self.shared.served.send_replace(u64::MAX);
    }

    fn end(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a stream names.
#[derive(Default)]
struct Named {
    queues: BTreeSet<QueueName>,
    jobs: BTreeSet<JobId>,
}

impl Named {
    fn watched(hub: &WakeHub) -> Self {
        let (queues, jobs) = hub.watched();
        Self {
            queues: queues.into_iter().take(MAX_WATCHED).collect(),
            jobs: jobs.into_iter().take(MAX_WATCHED).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.jobs.is_empty()
    }

    fn includes(&self, other: &Self) -> bool {
        self.queues.is_superset(&other.queues) && self.jobs.is_superset(&other.jobs)
    }

    fn request(&self) -> WatchRequest {
        WatchRequest {
            queues: self.queues.iter().cloned().collect(),
            jobs: self.jobs.iter().cloned().collect(),
        }
    }
}

/// A stream that is being read. When it is dropped, its reader goes on for [`RETIRE_AFTER`].
struct Open {
    number: u64,
    named: Named,
    since: Instant,
    _retire: oneshot::Sender<()>,
}

/// Keeps a stream open while there are watches.
struct Keeper {
    shared: Arc<Shared>,
    open: Option<Open>,
    /// Each ends with the number of its stream.
    readers: JoinSet<u64>,
    opened: u64,
    backoff: Duration,
}

impl Keeper {
    fn new(shared: Arc<Shared>) -> Self {
        let backoff = MIN_BACKOFF;
        Self { shared, open: None, readers: JoinSet::new(), opened: 0, backoff }
    }

    async fn run(mut self) {
        loop {
            let asked = self.shared.asked.load(Ordering::Acquire);
            let watched = Named::watched(&self.shared.hub);
            if watched.is_empty() {
                self.open = None;
                self.shared.hub.set_reaching(false);
                self.shared.served.send_replace(asked);
                self.shared.pending.notified().await;
                continue;
            }
            if self.open.as_ref().is_some_and(|open| open.named.includes(&watched)) {
                self.shared.served.send_replace(asked);
                self.wait().await;
                continue;
            }
            if let Some(open) = &self.open {
                sleep_until(open.since + MIN_GAP).await;
            }
            // Watches that came meanwhile are named, too.
            let asked = self.shared.asked.load(Ordering::Acquire);
            let watched = Named::watched(&self.shared.hub);
            match Stream::open(&self.shared.target, &watched.request()).await {
                Ok((stream, first)) => self.take_over(watched, stream, &first),
                Err(error) => {
                    self.lose(&error);
                    self.shared.served.send_replace(asked);
                    self.pause().await;
                }
            }
        }
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        tokio::select! {
            biased;
            Some(ended) = self.readers.join_next() => {
                let current = self.open.as_ref().map(|open| open.number);
                if ended.ok() == current && current.is_some() {
                    self.open = None;
                    self.shared.hub.set_reaching(false);
                    self.pause().await;
                }
            }
            () = self.shared.pending.notified() => {}
            () = sleep(TIDY_INTERVAL) => {}
        }
    }

    fn take_over(&mut self, named: Named, stream: Stream, first: &[WakeEvent]) {
        self.opened += 1;
        self.backoff = MIN_BACKOFF;
        let (retire, retired) = oneshot::channel();
        let (number, since) = (self.opened, Instant::now());
        let hub = self.shared.hub.clone();
        for event in first {
            apply(&hub, event);
        }
        if self.shared.is_late.swap(false, Ordering::AcqRel) {
            hub.wake_all();
        }
        self.readers.spawn(async move {
            tokio::select! {
                biased;
                () = read(stream, &hub) => {}
                () = async { let _ = retired.await; sleep(RETIRE_AFTER).await } => {}
            }
            number
        });
        self.open = Some(Open { number, named, since, _retire: retire });
    }

    /// No stream can be opened. Workers tell their observers what trying again will not cure; that the
    /// server is away they see themselves.
    fn lose(&mut self, error: &DriverError) {
        tracing::debug!(%error, "no wake-ups from the server");
        self.open = None;
        self.shared.hub.set_reaching(false);
        if !matches!(error, DriverError::Unavailable(_)) {
            self.shared.hub.set_problem(error.reason());
        }
    }

    /// Waits before the next attempt. Watches that come meanwhile need not wait for it.
    async fn pause(&mut self) {
        let until = Instant::now() + self.backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        loop {
            self.shared.served.send_replace(self.shared.asked.load(Ordering::Acquire));
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                () = self.shared.pending.notified() => {}
            }
        }
    }
}

async fn read(mut stream: Stream, hub: &WakeHub) {
    while let Some(events) = stream.next().await {
        for event in &events {
            apply(hub, event);
        }
    }
}

fn apply(hub: &WakeHub, event: &WakeEvent) {
    match event {
        WakeEvent::Queues(queues) => hub.wake(queues),
        WakeEvent::Job(id) => hub.wake_jobs([id]),
        WakeEvent::All => hub.wake_all(),
        WakeEvent::Reaching { reaching, problem } => {
            hub.set_reaching(*reaching);
            if let (false, Some(problem)) = (reaching, problem) {
                hub.set_problem(problem.as_str());
            }
        }
    }
}
