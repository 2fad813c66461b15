//! [`WorkerBuilder`]: the settings of a worker, checked once when it is built.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use taskharbor_core::{
    AnyDriver, Driver, JobType, Timestamp, driver::Incarnation, job::HeaderError, name::Holder,
};
use tokio::sync::{Notify, mpsc, watch};

use super::{
    Worker,
    build_error::BuildError,
    caretaker::Caretaker,
    caution::Caution,
    health::HealthNotes,
    outage::Outage,
    pace::MAX_AHEAD,
    part::{check_owner_versions, default_name, handlers, pools},
    pool::{SlotPool, SlotPools},
    shared::{Config, Phase, Shared},
    tally::Tally,
    unfit::{MissingHandler, Unreadable},
};
use crate::{
    Codec, DeclaredLimits, Exponential, Handlers, Middleware, Observer, Retention, RetryPolicy,
    Schedules, codec::Format, handler::Entry, inflight::Registry, observe::Observers,
};

/// The most jobs of one queue that a worker runs at once.
pub(super) const MAX_CONCURRENCY: usize = 50_000;
/// A heartbeat is sent after a third of the lease, and a second one has to fit before the handler is
/// stopped. On a busy machine a call to the store, or the turn of a task, can take 100 ms and more: with
/// leases of 10 ms healthy jobs were lost until the crash limit dead-lettered them.
const MIN_LEASE: Duration = Duration::from_secs(1);
/// How often the lease of a job may run out in a row.
pub(crate) const DEFAULT_CRASH_LIMIT: u32 = 5;
/// How often a worker announces itself.
const DEFAULT_BEAT: Duration = Duration::from_secs(10);
const MIN_BEAT: Duration = Duration::from_secs(1);
/// Three times this is the longest that an announcement can be valid.
const MAX_BEAT: Duration = Duration::from_secs(8 * 3_600);
const MIN_RECOVERY: Duration = Duration::from_secs(3);

/// Configures a [`Worker`]. [`WorkerBuilder::build`] checks all settings.
///
/// ```
/// use std::time::Duration;
///
/// use taskharbor::{Exponential, Worker};
/// # use taskharbor::{AnyDriver, BoxError, Handlers};
///
/// # async fn serve(driver: AnyDriver, handlers: Handlers) -> Result<(), BoxError> {
/// let worker = Worker::builder(&driver)
///     .handlers(handlers)
///     .queue("mail", 16) // at most 16 handlers of this queue run at once
///     .queue("reports", 2)
///     .timeout(Duration::from_secs(300)) // for jobs that set none
///     .retry(Exponential::new().base(Duration::from_secs(5)))
///     .grace(Duration::from_secs(25)) // how long a shutdown lets handlers go on
///     .build()?;
/// worker.run().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is built and run"]
pub struct WorkerBuilder {
    driver: AnyDriver,
    handlers: Vec<Entry<()>>,
    queues: Vec<(String, usize)>,
    allow_unserved: bool,
    middleware: Vec<Arc<dyn Middleware>>,
    observers: Vec<Arc<dyn Observer>>,
    codecs: Vec<Result<Format, HeaderError>>,
    retry: Arc<dyn RetryPolicy>,
    name: Option<String>,
    lease: Duration,
    heartbeat: Option<Duration>,
    grace: Duration,
    cancel_wait: Duration,
    poll: Duration,
    ahead: Duration,
    call_timeout: Duration,
    start_timeout: Option<Duration>,
    timeout: Option<Duration>,
    missing: MissingHandler,
    unreadable: Unreadable,
    crash_limit: u32,
    retention: Retention,
    schedules: Option<Schedules>,
    limits: Option<DeclaredLimits>,
    version: Option<String>,
    announce_every: Option<Duration>,
    fast_recovery: Option<Duration>,
    seed: Option<u64>,
}

impl WorkerBuilder {
    pub(super) fn new(driver: AnyDriver) -> Self {
        Self {
            driver,
            handlers: Vec::new(),
            queues: Vec::new(),
            allow_unserved: false,
            middleware: Vec::new(),
            observers: Vec::new(),
            codecs: Vec::new(),
            retry: Arc::new(Exponential::new()),
            name: None,
            lease: Duration::from_secs(60),
            heartbeat: None,
            grace: Duration::from_secs(15),
            cancel_wait: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            ahead: Duration::from_millis(20),
            call_timeout: Duration::from_secs(30),
            start_timeout: None,
            timeout: None,
            missing: MissingHandler::default(),
            unreadable: Unreadable::default(),
            crash_limit: DEFAULT_CRASH_LIMIT,
            retention: Retention::new(),
            schedules: None,
            limits: None,
            version: None,
            announce_every: None,
            fast_recovery: None,
            seed: None,
        }
    }

    /// Adds handlers. Handlers with different states can be added one after another.
    pub fn handlers(mut self, handlers: Handlers) -> Self {
        self.handlers.extend(handlers.into_entries());
        self
    }

    /// Serves this queue, with at most `concurrency` of its jobs at once.
    pub fn queue(mut self, name: impl Into<String>, concurrency: usize) -> Self {
        self.queues.push((name.into(), concurrency));
        self
    }

    /// Accepts handlers for job types whose default queue this worker does not serve.
    pub fn allow_unserved_queues(mut self) -> Self {
        self.allow_unserved = true;
        self
    }

    /// Wraps every handler in this middleware, inside the middleware added before. Panics and
    /// timeouts are handled outside all middleware.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Adds an observer, which receives the worker's events. Without one, events are only logged.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Adds a codec in which the worker can read jobs. It always knows JSON, and MessagePack with
    /// the feature `messagepack`.
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.codecs.push(Format::new(codec));
        self
    }

    /// The retry policy of all jobs whose type has none of its own
    /// ([`Job::retry_policy`](crate::Job::retry_policy)). Defaults to [`Exponential::new`].
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Arc::new(policy);
        self
    }

    /// The worker's name, which stands in its leases and in `taskharbor workers`. Defaults to host
    /// and process id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The version of your service, which `taskharbor workers` shows. Defaults to none.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The time between two announcements of the worker in the store, which `taskharbor workers`
    /// and the dashboard show. A quarter of it is added at random. No job depends on it. With zero
    /// the worker does not announce itself. Defaults to 10 s, and to zero if the driver has a clock
    /// of its own, as in tests.
    pub fn announce_every(mut self, every: Duration) -> Self {
        self.announce_every = Some(every);
        self
    }

    /// Evicts workers that died, so that their jobs run elsewhere before their leases end. This
    /// worker announces itself three times within this time, and evicts workers that have missed
    /// three announcements. Jobs of a dead worker start elsewhere within 1.5 times this time. Set
    /// it on all workers of a store: a worker without it is evicted only after 30 s.
    ///
    /// If an evicted worker is alive, its jobs run a second time, and the store refuses the
    /// outcomes of the first run. Do not use this where machines or processes can be suspended for
    /// longer than this time. At least 3 s. Defaults to off.
    pub fn fast_recovery(mut self, within: Duration) -> Self {
        self.fast_recovery = Some(within);
        self
    }

    /// The duration of a lease: if this worker dies, other workers can run its jobs after this
    /// time. At least 1 s, because a lease that is shorter than a slow call to the store cannot be
    /// extended in time. Defaults to 60 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often leases are extended. Defaults to a third of the lease.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// How long handlers have to finish when the worker shuts down. Defaults to 15 s, with which the
    /// process ends within 25 s ([`Running::shutdown`](crate::Running::shutdown)): Kubernetes
    /// and others kill a process after 30 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a handler that is told to stop has to end by itself, before it is stopped at its
    /// next `await`. Defaults to 5 s.
    pub fn cancel_wait(mut self, wait: Duration) -> Self {
        self.cancel_wait = wait;
        self
    }

    /// The polling interval: how often the store is asked for jobs if it sends no wake-ups. With
    /// wake-ups the interval is thirty times as long. A quarter of it is random. Defaults to 1 s.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// How far ahead jobs are reserved, at most. Jobs that will probably start within this time
    /// wait in the worker for the next free slot, so that short jobs do not wait for a call to the
    /// store. Their number follows from how fast the jobs of the queue end. With a fast store the
    /// worker reserves less far ahead, down to a quarter of this time. A job that does not start in
    /// time is released. With zero a job is reserved only when a slot is free for it. Defaults to
    /// 20 ms, never more than a twentieth of the lease, and to zero if the crash limit is 1.
    pub fn ahead(mut self, ahead: Duration) -> Self {
        self.ahead = ahead;
        self
    }

    /// How long a call to the store may take before it counts as failed. Defaults to 30 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// How long a worker that starts waits for an unavailable store, before it ends with
    /// [`WorkerError::Store`](crate::WorkerError::Store). Defaults to no limit.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = Some(timeout);
        self
    }

    /// The timeout of executions of jobs without a timeout of their own or of their type. Defaults
    /// to no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The treatment of jobs for which this worker has no handler. Defaults to
    /// [`MissingHandler::Wait`] for 10 minutes.
    pub fn missing_handler(mut self, missing: MissingHandler) -> Self {
        self.missing = missing;
        self
    }

    /// The treatment of jobs that were written with an unknown codec, or whose payload cannot be
    /// decoded. Defaults to [`Unreadable::Wait`] for 10 minutes.
    pub fn unreadable(mut self, unreadable: Unreadable) -> Self {
        self.unreadable = unreadable;
        self
    }

    /// How often the lease of a job may run out in a row before the job is dead-lettered instead of
    /// run. Without it, a job that kills its worker would run again and again. Defaults to 5.
    pub fn crash_limit(mut self, limit: u32) -> Self {
        self.crash_limit = limit;
        self
    }

    /// How long terminal jobs are kept. Each worker removes older records of all queues of the
    /// store, so use the same retention in all workers of a store. Defaults to [`Retention::new`].
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Declares these schedules when the worker starts: their owner has exactly these from then on. A
    /// list with a lower version than the stored one changes nothing. Their payloads are written as
    /// JSON. Defaults to none, which leaves the store as it is.
    ///
    /// Each worker fires the schedules of all owners, whether or not it declares any.
    pub fn schedules(mut self, schedules: Schedules) -> Self {
        self.schedules = Some(schedules);
        self
    }

    /// Declares these limits when the worker starts, before it reserves jobs: their owner has exactly
    /// these from then on. They hold for all workers of the store. A list with a lower version than the
    /// stored one changes nothing, and the worker keeps running. Schedules of the same owner need the
    /// same version. Defaults to none, which leaves the store as it is.
    ///
    /// ```
    /// # use taskharbor::{AnyDriver, DeclaredLimits, Handlers, QueueLimits, Worker};
    /// # fn build(driver: &AnyDriver, handlers: Handlers) -> Result<Worker, taskharbor::BuildError> {
    /// let limits = QueueLimits::new().inflight(50).per_lane(2);
    /// Worker::builder(driver)
    ///     .handlers(handlers)
    ///     .queue("mail", 16)
    ///     .limits(DeclaredLimits::owned_by("billing").version(7).queue("mail", limits))
    ///     .build()
    /// # }
    /// ```
    pub fn limits(mut self, limits: DeclaredLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// The seed of the random numbers, such as those of jitter, so that a simulation can be
    /// repeated. Defaults to a random one.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks the settings and returns the worker.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for the first thing found that cannot work.
    pub fn build(mut self) -> Result<Worker, BuildError> {
        let config = self.config()?;
        self.retry.check().map_err(BuildError::Retry)?;
        let pools = pools(&self.queues)?;
        let served: HashSet<&str> = pools.iter().map(|pool| pool.queue.as_str()).collect();
        let entries = std::mem::take(&mut self.handlers);
        let handlers = handlers(entries, |queue| self.allow_unserved || served.contains(queue))?;
        Ok(Worker { shared: Arc::new(self.assemble(config, pools, handlers)?) })
    }

    /// Returns a caretaker, which fires schedules and removes old jobs as the worker would, but
    /// runs no jobs. Queues, handlers and limits are left out.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for the first thing found that cannot work.
    pub fn caretaker(self) -> Result<Caretaker, BuildError> {
        let config = self.config()?;
        Ok(Caretaker::new(Arc::new(self.assemble(config, Vec::new(), HashMap::new())?)))
    }

    fn assemble(
        self,
        config: Config,
        pools: Vec<SlotPool>,
        handlers: HashMap<JobType, Entry<()>>,
    ) -> Result<Shared, BuildError> {
        let codecs = self.codecs.into_iter().collect::<Result<Vec<_>, _>>();
        let codecs = codecs.map_err(BuildError::Codec)?;
        // Codecs that were added go first, so that they may replace a built-in one.
        let formats: Vec<_> = codecs.into_iter().chain(Format::known()).collect();
        let declaration = self.schedules.map(|schedules| {
            // Their first slots are found when the worker starts and has the store's time.
            let limits = self.driver.limits();
            schedules.into_declaration(&Format::json(), &limits, Timestamp::EPOCH)
        });
        let declaration = declaration.transpose().map_err(BuildError::Schedule)?;
        let limits = self.limits.map(DeclaredLimits::into_declaration).transpose();
        let limits = limits.map_err(BuildError::Limits)?;
        check_owner_versions(declaration.as_ref(), limits.as_ref())?;
        let queues = pools.len();
        let concurrency: usize = pools.iter().map(|pool| pool.concurrency).sum();
        // So that handlers do not wait for a call to the store while there is more to do.
        let (outcomes, inbox) = mpsc::channel(concurrency.max(MAX_AHEAD));
        Ok(Shared {
            driver: self.driver,
            config,
            handlers,
            formats,
            middleware: self.middleware.into(),
            retry: self.retry,
            observers: Observers::new(self.observers),
            pools: SlotPools::new(pools),
            freed: Notify::new(),
            buffered: Notify::new(),
            caution: Caution::new(self.crash_limit),
            registry: Registry::default(),
            outcomes,
            inbox: Mutex::new(Some(inbox)),
            outage: Outage::default(),
            declaration: Mutex::new(declaration),
            limits: Mutex::new(limits),
            key_waits: AtomicBool::new(false),
            key_freed: Notify::new(),
            phase: watch::Sender::new(Phase::Working),
            clock: OnceLock::new(),
            random: Mutex::new(self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed)),
            closed: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            incarnation: Incarnation::from_bits(fastrand::u64(..)),
            announced_since: Mutex::new(None),
            tally: Tally::new(queues),
            health: HealthNotes::default(),
        })
    }

    fn config(&self) -> Result<Config, BuildError> {
        let lease = self.lease;
        // Long enough for a century and short enough to be added to any date in use.
        let lease_fits = Timestamp::EPOCH.checked_add(lease).is_some()
            && lease <= Duration::from_secs(100 * 366 * 86_400);
        if lease < MIN_LEASE || !lease_fits {
            let wanted = "1 s or more, and no more than a hundred years (a lease is extended after \
                          a third of it: if it is shorter, a call that is slow for a moment would lose it)";
            return Err(BuildError::Duration { what: "the lease", value: lease, wanted });
        }
        let heartbeat = self.heartbeat.unwrap_or(lease / 3);
        // Two have to fit, so that one that fails is not the last.
        if heartbeat > lease / 2 {
            return Err(BuildError::Heartbeat { heartbeat, lease });
        }
        let timeout = self.timeout.unwrap_or(Duration::MAX);
        for (what, value) in [
            ("the heartbeat", heartbeat),
            ("the polling interval", self.poll),
            ("the time a call may take", self.call_timeout),
            ("the timeout", timeout),
        ] {
            if value < Duration::from_millis(1) {
                let wanted = "1 ms or more";
                return Err(BuildError::Duration { what, value, wanted });
            }
        }
        if self.poll > Duration::from_secs(86_400) {
            let (what, value, wanted) = ("the polling interval", self.poll, "a day or less");
            return Err(BuildError::Duration { what, value, wanted });
        }
        if self.ahead > Duration::from_secs(1) {
            let (what, value, wanted) = ("the time to reserve ahead", self.ahead, "1 s or less");
            return Err(BuildError::Duration { what, value, wanted });
        }
        if self.crash_limit == 0 {
            return Err(BuildError::CrashLimit);
        }
        let holder = match &self.name {
            Some(name) => Holder::new(name).map_err(BuildError::Name)?,
            None => default_name().map_err(BuildError::Name)?,
        };
        Ok(Config {
            holder,
            lease_for: lease,
            heartbeat,
            grace: self.grace,
            cancel_wait: self.cancel_wait,
            poll: self.poll,
            // A job that waits when its worker dies is charged an expiration, which must not be the
            // last.
            ahead: if self.crash_limit == 1 { Duration::ZERO } else { self.ahead.min(lease / 20) },
            call_timeout: self.call_timeout,
            start_timeout: self.start_timeout,
            timeout: self.timeout,
            missing: self.missing.into(),
            unreadable: self.unreadable,
            crash_limit: self.crash_limit,
            retention: self.retention,
            version: self.version.clone(),
            announce_every: self.beat()?,
            recovers_others: self.fast_recovery.is_some(),
        })
    }

    /// How often the worker announces itself, if it does.
    fn beat(&self) -> Result<Option<Duration>, BuildError> {
        if let Some(within) = self.fast_recovery {
            if !(MIN_RECOVERY..=MAX_BEAT).contains(&within) {
                let (what, wanted) = ("the time for fast recovery", "3 s to 8 hours");
                return Err(BuildError::Duration { what, value: within, wanted });
            }
            return Ok(Some(within / 3));
        }
        match self.announce_every {
            None if self.driver.has_own_clock() => Ok(None),
            None => Ok(Some(DEFAULT_BEAT)),
            Some(Duration::ZERO) => Ok(None),
            Some(every) if (MIN_BEAT..=MAX_BEAT).contains(&every) => Ok(Some(every)),
            Some(value) => {
                let (what, wanted) =
                    ("the time between announcements", "1 s to 8 hours, or zero for none");
                Err(BuildError::Duration { what, value, wanted })
            }
        }
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("queues", &self.queues)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
