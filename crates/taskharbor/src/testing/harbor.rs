//! [`Harbor`]: a whole installation inside one test.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Admin, AnyDriver, JobId, State, Timestamp,
    admin::{Counts, Filter, List, StateCounts},
    driver::Limits,
    job::JobRecord,
};
use taskharbor_memory::MemoryDriver;
use tokio::sync::Notify;

use super::clock::{TokioClock, is_paused};
use crate::{
    Client, Event, Handlers, Job, MissingHandler, Observer, Options, Retention, Running,
    Unreadable, Worker, WorkerBuilder, codec::Format,
};

/// How many times the test steps aside, with nothing happening, before all is said to be quiet.
const QUIET: u32 = 200;
/// What runs for longer than this is taken for something that never ends.
const PATIENCE: Duration = Duration::from_secs(7 * 86_400);
/// Handlers of a queue that run at once.
const CONCURRENCY: usize = 16;
/// Where the clock starts: 1 January 2030.
const EPOCH_MICROS: i64 = 1_893_456_000_000_000;

/// A store in memory, a client, a worker and a clock that moves when told to.
pub struct Harbor {
    driver: AnyDriver,
    client: Client,
    running: Option<Running>,
    activity: Arc<Activity>,
}

/// A job as it is stored, with its data.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredJob<J> {
    /// The data it was enqueued with.
    pub job: J,
    /// All that the store knows about it.
    pub record: JobRecord,
}

/// Counts events, so that the harbor can tell when nothing happens any more.
#[derive(Debug, Default)]
struct Activity {
    events: AtomicU64,
    happened: Notify,
}

impl Observer for Activity {
    fn on(&self, event: &Event<'_>) {
        // Calls and heartbeats move no job, and there are many of them while a handler sleeps.
        if matches!(event, Event::LeaseExtended { .. } | Event::Called { .. }) {
            return;
        }
        self.events.fetch_add(1, Ordering::SeqCst);
        self.happened.notify_one();
    }
}

#[expect(clippy::panic, reason = "a test that cannot go on fails, as an assertion does")]
impl Harbor {
    /// An installation with these handlers, whose worker serves the queues of their jobs. Without
    /// handlers there is no worker, and what is enqueued stays. Jobs that are over are kept for ever
    /// ([`Retention::keep_all`]), so that they can be looked at; [`Harbor::configured`] can change it.
    ///
    /// # Panics
    ///
    /// If the worker cannot be built, or if tokio's clock is running: write
    /// `#[tokio::test(start_paused = true)]` above the test.
    #[must_use]
    #[track_caller]
    pub fn new(handlers: Handlers) -> Self {
        Self::configured(handlers, |worker| worker)
    }

    /// As [`Harbor::new`], with a worker that is configured further: retries, middleware, leases,
    /// further queues.
    ///
    /// # Panics
    ///
    /// As [`Harbor::new`].
    #[must_use]
    #[track_caller]
    pub fn configured(
        handlers: Handlers,
        configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Self {
        assert!(
            is_paused(),
            "tokio's clock is running: write #[tokio::test(start_paused = true)] above the test"
        );
        let epoch = Timestamp::from_micros(EPOCH_MICROS).unwrap_or(Timestamp::EPOCH);
        let clock = Arc::new(TokioClock::starting_at(epoch));
        let store = MemoryDriver::with_clock(Arc::clone(&clock) as _);
        let driver = AnyDriver::new(store).with_clock(clock);
        let activity = Arc::new(Activity::default());
        let client = Client::builder(&driver).observer(Arc::clone(&activity)).build();
        let client = client.unwrap_or_else(|error| panic!("the client cannot be built: {error}"));
        let harbor = Self { driver, client, running: None, activity };
        harbor.start_configured(handlers, configure)
    }

    /// This installation with a worker for these handlers, in place of the one it had: for
    /// handlers whose state holds the harbor's own client.
    ///
    /// # Panics
    ///
    /// If the worker cannot be built.
    #[must_use]
    #[track_caller]
    pub fn start(self, handlers: Handlers) -> Self {
        self.start_configured(handlers, |worker| worker)
    }

    /// As [`Harbor::start`], with a worker that is configured further.
    ///
    /// # Panics
    ///
    /// If the worker cannot be built.
    #[must_use]
    #[track_caller]
    pub fn start_configured(
        mut self,
        handlers: Handlers,
        configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Self {
        self.running = start(&self.driver, handlers, &self.activity, configure);
        self
    }

    /// The client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The driver, to look at the store directly.
    #[must_use]
    pub const fn driver(&self) -> &AnyDriver {
        &self.driver
    }

    /// What the clock shows.
    pub async fn now(&self) -> Timestamp {
        self.driver.now().await.unwrap_or_else(|error| panic!("no time: {error}"))
    }

    /// Lets this much time pass. All that falls due in it happens at its time and in its order.
    pub async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
        self.quiet().await;
    }

    /// Lets everything run that can run now, until no job is ready or inflight. Time passes only
    /// as far as running handlers sleep.
    ///
    /// # Panics
    ///
    /// If that takes a week or more of the paused clock: then some handler never ends.
    pub async fn run_until_idle(&self) {
        let started = tokio::time::Instant::now();
        loop {
            self.quiet().await;
            let busy = self.busy().await;
            if busy == 0 || self.running.is_none() {
                return;
            }
            if started.elapsed() >= PATIENCE {
                let busy = self
                    .records()
                    .await
                    .into_iter()
                    .filter(|it| matches!(it.state, State::Ready | State::Inflight));
                let busy = busy.map(|it| {
                    format!("{} in queue {}: {}", it.job.job_type, it.job.queue, it.state)
                });
                panic!(
                    "after a week some jobs are still ready or running: a handler never ends, or a \
                     queue is not served: {:#?}",
                    busy.collect::<Vec<_>>()
                );
            }
            tokio::select! {
                () = self.activity.happened.notified() => {}
                () = tokio::time::sleep(Duration::from_secs(3_600)) => {}
            }
        }
    }

    /// Steps aside until nothing happens any more at this instant.
    async fn quiet(&self) {
        let mut seen = self.activity.events.load(Ordering::SeqCst);
        let mut still = 0;
        while still < QUIET {
            tokio::task::yield_now().await;
            let events = self.activity.events.load(Ordering::SeqCst);
            still = if events == seen { still + 1 } else { 0 };
            seen = events;
        }
    }

    async fn busy(&self) -> usize {
        let counts = self.driver.counts(Counts::new(self.now().await)).await;
        let counts = counts.unwrap_or_else(|error| panic!("no counts: {error}"));
        let states: StateCounts = counts.into_iter().map(|queue| queue.states).sum();
        states.ready + states.inflight
    }

    /// All that the store knows about a job.
    ///
    /// # Panics
    ///
    /// If no such job is stored.
    pub async fn record(&self, id: &JobId) -> JobRecord {
        let record = self.driver.inspect(id.clone(), self.now().await).await;
        match record {
            Ok(Some(record)) => record,
            Ok(None) => panic!("no job {id} is stored"),
            Err(error) => panic!("job {id} cannot be read: {error}"),
        }
    }

    /// Where a job stands.
    ///
    /// # Panics
    ///
    /// If no such job is stored.
    pub async fn state(&self, id: &JobId) -> State {
        self.record(id).await.state
    }

    /// All jobs of a type, in the order in which they were enqueued.
    ///
    /// # Panics
    ///
    /// If one cannot be read as that type.
    pub async fn jobs<J: Job>(&self) -> Vec<StoredJob<J>> {
        let mut jobs = Vec::new();
        for record in self.records().await {
            if record.job.job_type.as_str() != J::TYPE {
                continue;
            }
            let name = Format::named_in(&record.job.headers);
            let format = Format::known().into_iter().find(|format| format.name() == name);
            let format = format.unwrap_or_else(|| panic!("no codec {name:?} is known"));
            match format.decode(&record.job.payload) {
                Ok(job) => jobs.push(StoredJob { job, record }),
                Err(error) => panic!("job {} cannot be read: {error}", record.job.id),
            }
        }
        jobs
    }

    /// All jobs that are stored, in the order in which they were enqueued.
    pub async fn records(&self) -> Vec<JobRecord> {
        let now = self.now().await;
        let (mut records, mut request) =
            (Vec::new(), List::new(Filter::all(), Limits::MAX_PAGE, now));
        loop {
            let page = self.driver.list(request.clone()).await;
            let page = page.unwrap_or_else(|error| panic!("the jobs cannot be listed: {error}"));
            for summary in page.items {
                records.push(self.record(&summary.id).await);
            }
            let Some(next) = page.next else { return records };
            request = request.after(next);
        }
    }

    /// Asserts that a job of this type was enqueued that looks as described, and answers its
    /// record.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn assert_enqueued<J: Job>(&self, looks_right: impl Fn(&J) -> bool) -> JobRecord {
        let jobs = self.jobs::<J>().await;
        let count = jobs.len();
        let found = jobs.into_iter().find(|stored| looks_right(&stored.job));
        match found {
            Some(stored) => stored.record,
            None => panic!("none of the {count} jobs of type {:?} looks as expected", J::TYPE),
        }
    }

    /// Shuts the worker down, as a deploy would.
    ///
    /// # Panics
    ///
    /// If the worker had ended in another way.
    pub async fn shutdown(&self) {
        if let Some(running) = &self.running
            && let Err(error) = running.shutdown().await
        {
            panic!("the worker did not shut down: {error}");
        }
    }
}

#[expect(clippy::panic, reason = "a test that cannot go on fails, as an assertion does")]
#[track_caller]
fn start(
    driver: &AnyDriver,
    handlers: Handlers,
    activity: &Arc<Activity>,
    configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> Option<Running> {
    let queues = handlers.queues();
    if queues.is_empty() {
        return None;
    }
    let mut worker = Worker::builder(driver).handlers(handlers).seed(0).name("harbor");
    // Hints and due times say when to look; looking more often would only make a year longer.
    worker = worker.poll(Duration::from_secs(86_400));
    // A test looks at its jobs when it likes, however much time it has let pass.
    worker = worker.retention(Retention::keep_all());
    for queue in queues {
        worker = worker.queue(queue, CONCURRENCY);
    }
    // There is no other worker that could run what this one cannot.
    worker = worker.missing_handler(MissingHandler::Fail).unreadable(Unreadable::Fail);
    let worker = configure(worker).observer(Arc::clone(activity));
    let worker =
        worker.build().unwrap_or_else(|error| panic!("the worker cannot be built: {error}"));
    Some(worker.start())
}

impl<S: Send + Sync + 'static> Handlers<S> {
    /// The queues in which jobs for these handlers wait by default, each once.
    fn queues(&self) -> Vec<String> {
        let default = || Options::DEFAULT_QUEUE.to_owned();
        let named = self.entries().iter().map(|it| it.queue.clone().unwrap_or_else(default));
        let mut queues: Vec<String> = named.collect();
        queues.sort();
        queues.dedup();
        queues
    }
}

impl fmt::Debug for Harbor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harbor").field("running", &self.running.is_some()).finish_non_exhaustive()
    }
}
