//! [`Harbor`]: a complete installation inside one test.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Admin, AnyDriver, Driver, State, Timestamp,
    admin::{Counts, Filter, LaneStatus, ListLanes, QueueCounts},
    clock::{Clock, ManualClock},
    driver::{Due, DueSchedules},
};
use taskharbor_memory::MemoryDriver;
use tokio::sync::Notify;

use super::clock::{TokioClock, is_paused};
use crate::{
    Client, Event, Handlers, MissingHandler, Observer, Options, Retention, Running, Unreadable,
    Worker, WorkerBuilder,
};

/// How many times the test steps aside, with nothing happening, before all is said to be quiet.
const QUIET: u32 = 200;
/// What runs for longer than this is taken for something that never ends: in tokio's paused time, and
/// in real time.
const PAUSED_LIMIT: Duration = Duration::from_secs(7 * 86_400);
const REAL_LIMIT: Duration = Duration::from_secs(60);
/// How often a real store is asked whether its jobs have ended. Its own wake-ups come sooner.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Handlers of a queue that run at once.
const CONCURRENCY: usize = 16;
/// Where the clock starts: 1 January 2030.
const EPOCH_MICROS: i64 = 1_893_456_000_000_000;

/// A store, a client, a worker and a clock.
///
/// [`Harbor::new`] has a store in memory and a clock that follows tokio's paused clock.
/// [`Harbor::on`] takes the store of any driver, for handlers that use a real database.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use taskharbor::{Context, Handlers, Job, JobResult, State, testing::Harbor};
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "greet", output = String)]
/// struct Greet {
///     name: String,
/// }
///
/// async fn greet(job: Greet, _: Context) -> JobResult<String> {
///     Ok(format!("Hello, {}!", job.name))
/// }
///
/// # // In a test: #[tokio::test(start_paused = true)].
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let harbor = Harbor::new(Handlers::new().on(greet));
/// let job = harbor.client().enqueue(Greet { name: "Ada".into() }).await?;
/// harbor.run_until_idle().await;
/// assert_eq!(harbor.state(job.id()).await, State::Done);
/// assert_eq!(job.wait().await?, "Hello, Ada!");
/// harbor.assert_enqueued(|job: &Greet| job.name == "Ada").await;
/// # Ok(())
/// # }
/// ```
pub struct Harbor {
    time: Passing,
    driver: AnyDriver,
    client: Client,
    running: Option<Running>,
    activity: Arc<Activity>,
}

/// How time passes for a [`Harbor`] on a real store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// Real time: the store's own clock.
    Real,
    /// Manual time: it passes only with [`Harbor::advance`]. It starts on 1 January 2030. Functions
    /// of the store that read its own clock, such as `SELECT th_enqueue(…)`, use real time.
    Manual,
}

/// Where the time of a harbor comes from.
enum Passing {
    /// Tokio's clock, which is paused.
    Paused,
    Real,
    Manual(ManualClock),
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
    /// Creates an installation with these handlers, whose worker serves the queues of their jobs.
    /// Without handlers there is no worker, and enqueued jobs stay ready. Terminal jobs are kept
    /// for ever ([`Retention::keep_all`]), so that the test can read them; [`Harbor::configured`]
    /// can change that.
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

    /// Does the same as [`Harbor::new`], with further settings of the worker: retries, middleware,
    /// leases, more queues.
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
        let clock = Arc::new(TokioClock::starting_at(epoch()));
        let store = MemoryDriver::with_clock(Arc::clone(&clock) as _);
        let driver = AnyDriver::new(store).with_clock(clock);
        Self::assemble(driver, Passing::Paused).start_configured(handlers, configure)
    }

    /// Creates an installation on the store of this driver, which has to be migrated. It is for
    /// handlers that use a real database, complete their jobs in its transactions, or depend on the
    /// kind of store. Give each test a store of its own: a schema, or a file.
    ///
    /// ```no_run
    /// # use taskharbor::{Context, Handlers, Job, JobResult, State};
    /// use taskharbor::testing::{Harbor, Time};
    /// # #[derive(serde::Serialize, serde::Deserialize, Job)]
    /// # #[job(type = "remind")]
    /// # struct Remind;
    /// # async fn remind(_: Remind, _: Context) -> JobResult { Ok(()) }
    /// # async fn test() -> Result<(), Box<dyn std::error::Error>> {
    /// // In a test: #[tokio::test], without start_paused.
    /// let driver = taskharbor::connect("postgres://localhost/test?schema=remind").await?;
    /// driver.migrate().await?;
    /// let harbor = Harbor::on(&driver, Time::Manual, Handlers::new().on(remind));
    /// let day = std::time::Duration::from_secs(86_400);
    /// let job = harbor.client().enqueue(Remind).delay(day).await?;
    /// harbor.advance(day).await;
    /// assert_eq!(harbor.state(job.id()).await, State::Done);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the worker cannot be built, or if tokio's clock is paused, because connections would time
    /// out at once.
    #[must_use]
    #[track_caller]
    pub fn on(driver: &AnyDriver, time: Time, handlers: Handlers) -> Self {
        assert!(
            !is_paused(),
            "tokio's clock is paused, and a real store needs a running one: write #[tokio::test] \
             above the test, and use Time::Manual to move the time of its jobs"
        );
        let (driver, time) = match time {
            Time::Real => (driver.clone(), Passing::Real),
            Time::Manual => {
                let clock = ManualClock::new(epoch());
                (driver.clone().with_clock(Arc::new(clock.clone())), Passing::Manual(clock))
            }
        };
        Self::assemble(driver, time).start(handlers)
    }

    #[track_caller]
    fn assemble(driver: AnyDriver, time: Passing) -> Self {
        let activity = Arc::new(Activity::default());
        let client = Client::builder(&driver).observer(Arc::clone(&activity)).build();
        let client = client.unwrap_or_else(|error| panic!("the client cannot be built: {error}"));
        Self { time, driver, client, running: None, activity }
    }

    /// Starts a worker with these handlers in place of the worker that the harbor had, for handlers
    /// whose state holds the harbor's own client.
    ///
    /// # Panics
    ///
    /// If the worker cannot be built.
    #[must_use]
    #[track_caller]
    pub fn start(self, handlers: Handlers) -> Self {
        self.start_configured(handlers, |worker| worker)
    }

    /// Does the same as [`Harbor::start`], with further settings of the worker.
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
        let poll = match self.time {
            // Wake-ups and due times say when to look; looking more often would only make a year longer.
            Passing::Paused => Duration::from_secs(86_400),
            Passing::Real => Duration::from_secs(1),
            // The timers of the worker do not know that the clock was moved.
            Passing::Manual(_) => Duration::from_millis(1),
        };
        let configure = |worker: WorkerBuilder| configure(worker.poll(poll));
        self.running = start(&self.driver, handlers, &self.activity, configure);
        self
    }

    /// The client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The driver, for direct access to the store.
    #[must_use]
    pub const fn driver(&self) -> &AnyDriver {
        &self.driver
    }

    /// The current time of the clock.
    pub async fn now(&self) -> Timestamp {
        self.driver.now().await.unwrap_or_else(|error| panic!("no time: {error}"))
    }

    /// Lets this much time pass. Jobs and schedules that become due in it run at their times and in
    /// that order. With [`Time::Real`] the test waits for that long.
    pub async fn advance(&self, by: Duration) {
        match &self.time {
            Passing::Paused => {
                tokio::time::sleep(by).await;
                self.quiet().await;
            }
            Passing::Real => {
                tokio::time::sleep(by).await;
                self.run_until_idle().await;
            }
            Passing::Manual(clock) => {
                let end = clock.now().saturating_add(by);
                loop {
                    self.run_until_idle().await;
                    match self.next_due(end).await {
                        Some(due) => clock.set(due),
                        None => break,
                    }
                }
                clock.set(end);
            }
        }
    }

    /// When the next scheduled job falls due, the next slot of a schedule, or a job that a rate or a
    /// hold keeps back, if that is by `end`.
    async fn next_due(&self, end: Timestamp) -> Option<Timestamp> {
        let scheduled = self.list(Filter::all().state(State::Scheduled)).await;
        let jobs = scheduled.into_iter().filter_map(|job| job.due_at);
        let slot = self.due_schedules().await.next;
        let held = self.held_by_time(&self.counts().await).await;
        let held = held.into_iter().map(|(_, until)| until);
        jobs.chain(slot).chain(held).filter(|due| *due <= end).min()
    }

    /// How many ready jobs wait for nothing but time, and until when: those of lanes that a rate or a
    /// hold keeps back.
    async fn held_by_time(&self, counts: &[QueueCounts]) -> Vec<(usize, Timestamp)> {
        let (mut held, now) = (Vec::new(), self.now().await);
        for queue in counts.iter().filter(|it| it.states.ready > 0) {
            let mut page = Some(ListLanes::new(queue.queue.clone(), 1_000, now));
            while let Some(request) = page {
                let lanes = self.driver.lanes(request.clone()).await;
                let lanes = lanes.unwrap_or_else(|error| panic!("no lanes: {error}"));
                let until = |lane: LaneStatus| Some((lane.ready, lane.held_back?.why.until()?));
                let is_waiting = |lane: &LaneStatus| lane.ready > 0;
                held.extend(lanes.items.into_iter().filter(is_waiting).filter_map(until));
                page = lanes.next.map(|next| request.after(next));
            }
        }
        held
    }

    async fn counts(&self) -> Vec<QueueCounts> {
        let counts = self.driver.counts(Counts::new(self.now().await)).await;
        counts.unwrap_or_else(|error| panic!("no counts: {error}"))
    }

    async fn due_schedules(&self) -> Due {
        let request = DueSchedules::new(1_000, self.now().await);
        let due = self.driver.due_schedules(request).await;
        due.unwrap_or_else(|error| panic!("no schedules: {error}"))
    }

    /// Runs all jobs that can run now, until no job is ready or inflight. With a paused clock, time
    /// passes only while handlers sleep, or while rates and holds keep all ready jobs back. With
    /// [`Time::Manual`], jobs that rates and holds keep back stay ready: [`Harbor::advance`] runs
    /// them.
    ///
    /// # Panics
    ///
    /// If that takes a week or more of the paused clock, or a minute of real time, because then a
    /// handler probably never ends.
    pub async fn run_until_idle(&self) {
        let (limit, look) = match self.time {
            Passing::Paused => (PAUSED_LIMIT, Duration::from_secs(3_600)),
            Passing::Real | Passing::Manual(_) => (REAL_LIMIT, LOOK_EVERY),
        };
        let started = tokio::time::Instant::now();
        loop {
            if matches!(self.time, Passing::Paused) {
                self.quiet().await;
            }
            let busy = self.busy().await;
            if busy == 0 || self.running.is_none() {
                return;
            }
            if started.elapsed() >= limit {
                let busy = self
                    .records()
                    .await
                    .into_iter()
                    .filter(|it| matches!(it.state, State::Ready | State::Inflight));
                let busy = busy.map(|it| {
                    format!("{} in queue {}: {}", it.job.job_type, it.job.queue, it.state)
                });
                panic!(
                    "after {limit:?} some jobs are still ready or running: a handler never ends, \
                     or a queue is not served: {:#?}",
                    busy.collect::<Vec<_>>()
                );
            }
            tokio::select! {
                () = self.activity.happened.notified() => {}
                () = tokio::time::sleep(look) => {}
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
        let counts = self.counts().await;
        let jobs: usize = counts.iter().map(|it| it.states.ready + it.states.inflight).sum();
        let held: usize = match self.time {
            // Time does not pass by itself, so they are not waited for.
            Passing::Manual(_) => {
                self.held_by_time(&counts).await.into_iter().map(|(jobs, _)| jobs).sum()
            }
            Passing::Paused | Passing::Real => 0,
        };
        jobs.saturating_sub(held) + self.due_schedules().await.schedules.len()
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

/// Where clocks of tests start.
fn epoch() -> Timestamp {
    Timestamp::from_micros(EPOCH_MICROS).unwrap_or(Timestamp::EPOCH)
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
