//! [`AnyDriver`]: one non-generic handle to any driver.
//!
//! Clients, workers and tools take this handle, so none of them has a type parameter for the store.
//! It also checks that the driver returns one answer for each item: a missing answer is a bug of
//! the driver and must not look like a missing job.

mod single;

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{
    Admin, Driver, DriverError, JobId, QueueName, State, Timestamp,
    admin::{
        Change, Configure, Counts, Cursor, Diagnosis, Evict, Evicted, Inconsistency, LaneStatus,
        List, ListLanes, ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting,
        WorkerRecord,
    },
    clock::{Clock, ClockReading, Timeline},
    driver::{
        Announce, Answers, Demand, DriverId, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases,
        Extended, Fire, Leased, Limits, OutputPage, Outputs, Reserve, Reserved, Settle, Settled,
        WakeHub, Watch,
    },
    error::{Denied, FireRefused, Refusal, Rejected},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

/// A handle to any driver; itself a driver. Cheap to clone.
#[derive(Clone)]
pub struct AnyDriver {
    driver: Arc<dyn Erased>,
    answers: Answering,
    timeline: Arc<Timeline>,
    /// Wakes every watcher of schedules in this process.
    schedules: WakeHub,
}

/// Whether the shape of a driver's answers is looked at.
#[derive(Clone, Copy)]
enum Answering {
    Checked,
    AsItIs,
}

impl AnyDriver {
    /// A handle to this driver.
    pub fn new(driver: impl Driver + Admin) -> Self {
        Self::with(driver, Answering::Checked)
    }

    /// A handle that does not check the driver's answers, for tests of drivers.
    pub fn unchecked(driver: impl Driver + Admin) -> Self {
        Self::with(driver, Answering::AsItIs)
    }

    fn with(driver: impl Driver + Admin, answers: Answering) -> Self {
        let timeline = Arc::new(Timeline::of_store());
        Self { driver: Arc::new(driver), answers, timeline, schedules: WakeHub::new() }
    }

    /// The same driver with this clock in place of the store's, for tests and simulations. Workers
    /// wait with the timers of tokio, so the clock has to follow those.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.timeline = Arc::new(Timeline::Given(clock));
        self
    }

    /// Whether [`AnyDriver::with_clock`] gave the handle a clock.
    #[must_use]
    pub fn has_own_clock(&self) -> bool {
        matches!(*self.timeline, Timeline::Given(_))
    }

    /// The current time for all users of this handle and its clones. The store is asked
    /// the first time, and again every 10 s or so.
    ///
    /// # Errors
    ///
    /// What [`Driver::store_time`] answers the first time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the clock as it was.
    pub async fn now(&self) -> Result<Timestamp, DriverError> {
        self.timeline.now(self).await
    }

    /// The clock behind [`AnyDriver::now`], which it keeps in step with the store.
    ///
    /// # Errors
    ///
    /// What [`Driver::store_time`] answers the first time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn clock(&self) -> Result<Arc<dyn Clock>, DriverError> {
        self.timeline.clock(self).await
    }

    /// The driver itself, if it is of this type.
    #[must_use]
    pub fn downcast_ref<D: Driver>(&self) -> Option<&D> {
        let driver = self.driver.as_any();
        match driver.downcast_ref::<Self>() {
            Some(inner) => inner.downcast_ref(),
            None => driver.downcast_ref(),
        }
    }

    /// Asks the store for its time, if the last question is `age` ago, and sets the clock behind
    /// [`AnyDriver::now`] by it. Zero asks at once. The answer is `None` if the store was not asked: the
    /// last question is more recent, or [`AnyDriver::with_clock`] gave the handle a clock.
    ///
    /// # Errors
    ///
    /// What [`Driver::store_time`] answers; the clock goes on as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the clock as it was.
    pub async fn sync_clock(&self, age: Duration) -> Result<Option<ClockReading>, DriverError> {
        self.timeline.sync(age, self).await
    }

    /// By how much the store's clock was set back, if that was detected in the last 30 s. The times
    /// of jobs that were stored before are ahead by as much.
    #[must_use]
    pub fn clock_set_back(&self) -> Option<Duration> {
        self.timeline.set_back()
    }

    /// A watch that is woken when this handle or a clone of it changes schedules.
    #[must_use]
    pub fn watch_schedules(&self) -> Watch {
        let name = QueueName::new("schedules");
        name.map_or_else(|_| Watch::never(), |name| self.schedules.watch(vec![name]))
    }

    /// Prepares the store: [`Admin::migrate`], without the trait in scope.
    ///
    /// # Errors
    ///
    /// What [`Admin::migrate`] answers.
    ///
    /// # Cancel safety
    ///
    /// As [`Admin::migrate`].
    pub async fn migrate(&self) -> Result<(), DriverError> {
        self.driver.migrate().await
    }

    fn complete<T>(&self, name: &str, asked: usize, answers: &[T]) -> Result<(), DriverError> {
        match self.answers {
            Answering::Checked if answers.len() != asked => Err(DriverError::ContractViolation(
                format!("{name} was asked about {asked} items and answered {}", answers.len()),
            )),
            Answering::Checked | Answering::AsItIs => Ok(()),
        }
    }

    fn asked_for(&self, demands: &[Demand], jobs: &[Leased]) -> Result<(), DriverError> {
        if matches!(self.answers, Answering::AsItIs) {
            return Ok(());
        }
        // Jobs come queue by queue, so that the last demand looked at is mostly the right one.
        let mut left: Vec<_> = demands.iter().map(|it| (&it.queue, it.limit)).collect();
        let mut at = 0;
        for Leased { job, .. } in jobs {
            if left.get(at).is_none_or(|(queue, _)| **queue != job.queue) {
                at = left.iter().position(|(queue, _)| **queue == job.queue).unwrap_or(left.len());
            }
            let wanted = left.get_mut(at).and_then(|(_, left)| {
                *left = left.checked_sub(1)?;
                Some(())
            });
            if wanted.is_none() {
                let (id, queue) = (&job.id, &job.queue);
                return Err(DriverError::ContractViolation(format!(
                    "reserve answered job {id} of queue {queue}, which was not asked for"
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for AnyDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyDriver")
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The twin of [`Driver`] and [`Admin`] that can be a trait object, written once per operation.
macro_rules! erase {
    ($($of:ident::$operation:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        trait Erased: Send + Sync {
            fn as_any(&self) -> &dyn Any;
            fn limits(&self) -> Limits;
            fn driver_id(&self) -> Option<DriverId>;
            fn detached_handle(&self) -> Option<Arc<dyn Erased>>;
            $(fn $operation(&self, $($argument: $type),*) -> BoxFuture<'_, $answer>;)*
        }

        impl<D: Driver + Admin> Erased for D {
            fn as_any(&self) -> &dyn Any {
                self
            }
            fn limits(&self) -> Limits {
                Driver::limits(self)
            }
            fn driver_id(&self) -> Option<DriverId> {
                Driver::driver_id(self)
            }
            fn detached_handle(&self) -> Option<Arc<dyn Erased>> {
                Driver::detached_handle(self).map(|handle| Arc::new(handle) as Arc<dyn Erased>)
            }
            $(fn $operation(&self, $($argument: $type),*) -> BoxFuture<'_, $answer> {
                Box::pin($of::$operation(self, $($argument),*))
            })*
        }
    };
}

erase! {
    Driver::enqueue(request: Enqueue) -> Answers<Vec<Enqueued>, Rejected>;
    Driver::reserve(request: Reserve) -> Result<Reserved, DriverError>;
    Driver::extend_leases(request: ExtendLeases) -> Answers<Extended, Refusal>;
    Driver::settle(request: Settle) -> Answers<Settled, Refusal>;
    Driver::outputs(request: Outputs) -> Answers<OutputPage, Refusal>;
    Driver::due_schedules(request: DueSchedules) -> Result<Due, DriverError>;
    Driver::fire(request: Fire) -> Answers<Vec<Enqueued>, FireRefused>;
    Driver::announce(request: Announce) -> Result<(), DriverError>;
    Driver::watch(queues: Vec<QueueName>) -> Result<Watch, DriverError>;
    Driver::watch_job(id: JobId) -> Result<Watch, DriverError>;
    Driver::store_time() -> Result<Timestamp, DriverError>;
    Driver::close() -> Result<(), DriverError>;
    Admin::migrate() -> Result<(), DriverError>;
    Admin::inspect(id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError>;
    Admin::list(request: List) -> Result<Page<JobSummary>, DriverError>;
    Admin::counts(request: Counts) -> Result<Vec<QueueCounts>, DriverError>;
    Admin::manage(request: Manage) -> Answers<State, Denied>;
    Admin::configure(request: Configure) -> Answers<(), Denied>;
    Admin::settings(request: ListSettings) -> Result<Page<Setting>, DriverError>;
    Admin::lanes(request: ListLanes) -> Result<Page<LaneStatus>, DriverError>;
    Admin::workers(request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError>;
    Admin::evict(request: Evict) -> Result<Evicted, DriverError>;
    Admin::prune(request: Prune) -> Result<usize, DriverError>;
    Admin::flow(id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError>;
    Admin::list_flows(request: ListFlows) -> Result<Page<FlowRecord>, DriverError>;
    Admin::export(after: Option<Cursor>, limit: usize) -> Result<Page<ExportUnit>, DriverError>;
    Admin::import(units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused>;
    Admin::diagnose() -> Result<Vec<Diagnosis>, DriverError>;
    Admin::check() -> Result<Vec<Inconsistency>, DriverError>;
}

impl Driver for AnyDriver {
    fn limits(&self) -> Limits {
        self.driver.limits()
    }

    fn driver_id(&self) -> Option<DriverId> {
        self.driver.driver_id()
    }

    /// The two go by one clock, and their answers are looked at alike.
    fn detached_handle(&self) -> Option<Self> {
        let driver = self.driver.detached_handle()?;
        let (timeline, schedules) = (Arc::clone(&self.timeline), self.schedules.clone());
        Some(Self { driver, answers: self.answers, timeline, schedules })
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let sizes: Vec<usize> = request.sets.iter().map(|set| set.jobs.len()).collect();
        let answers = self.driver.enqueue(request).await?;
        self.complete("enqueue", sizes.len(), &answers)?;
        for (answer, size) in answers.iter().zip(sizes) {
            if let Ok(jobs) = answer {
                self.complete("enqueue of a set", size, jobs)?;
            }
        }
        Ok(answers)
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        let demands = request.demands.clone();
        let reserved = self.driver.reserve(request).await?;
        self.asked_for(&demands, &reserved.jobs)?;
        Ok(reserved)
    }

    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let count = request.items.len();
        let answers = self.driver.extend_leases(request).await?;
        self.complete("extend_leases", count, &answers)?;
        Ok(answers)
    }

    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        let count = request.items.len();
        let answers = self.driver.settle(request).await?;
        self.complete("settle", count, &answers)?;
        Ok(answers)
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        let count = request.items.len();
        let answers = self.driver.outputs(request).await?;
        self.complete("outputs", count, &answers)?;
        Ok(answers)
    }

    async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        self.driver.due_schedules(request).await
    }

    async fn fire(&self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        let slots: Vec<usize> = request.items.iter().map(|item| item.slots.len()).collect();
        let answers = self.driver.fire(request).await?;
        self.complete("fire", slots.len(), &answers)?;
        for (slots, jobs) in slots.into_iter().zip(&answers) {
            if let Ok(jobs) = jobs {
                self.complete("fire", slots, jobs)?;
            }
        }
        Ok(answers)
    }

    async fn announce(&self, request: Announce) -> Result<(), DriverError> {
        self.driver.announce(request).await
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        self.driver.watch(queues).await
    }

    async fn watch_job(&self, id: JobId) -> Result<Watch, DriverError> {
        self.driver.watch_job(id).await
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        self.driver.store_time().await
    }

    async fn close(&self) -> Result<(), DriverError> {
        self.driver.close().await
    }
}

impl Admin for AnyDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        self.driver.migrate().await
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        self.driver.inspect(id, now).await
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.driver.list(request).await
    }

    async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        self.driver.counts(request).await
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        let count = request.ids.len();
        let answers = self.driver.manage(request).await?;
        self.complete("manage", count, &answers)?;
        Ok(answers)
    }

    async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        let count = request.changes.len();
        let changes_schedules = request.changes.iter().any(Change::is_of_schedules);
        let answers = self.driver.configure(request).await?;
        self.complete("configure", count, &answers)?;
        if changes_schedules {
            self.schedules.wake_all();
        }
        Ok(answers)
    }

    async fn settings(&self, request: ListSettings) -> Result<Page<Setting>, DriverError> {
        self.driver.settings(request).await
    }

    async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        self.driver.lanes(request).await
    }

    async fn workers(&self, request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError> {
        self.driver.workers(request).await
    }

    async fn evict(&self, request: Evict) -> Result<Evicted, DriverError> {
        self.driver.evict(request).await
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.driver.prune(request).await
    }

    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        self.driver.flow(id, now).await
    }

    async fn list_flows(&self, request: ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        self.driver.list_flows(request).await
    }

    async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        self.driver.export(after, limit).await
    }

    async fn import(&self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        let count = units.len();
        let answers = self.driver.import(units).await?;
        self.complete("import", count, &answers)?;
        Ok(answers)
    }

    async fn diagnose(&self) -> Result<Vec<Diagnosis>, DriverError> {
        self.driver.diagnose().await
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        self.driver.check().await
    }
}
