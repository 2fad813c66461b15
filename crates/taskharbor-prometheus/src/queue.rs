//! [`QueueGauges`]: the number of jobs of each queue, read from the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use taskharbor::{
    Admin, AnyDriver, Client, Counts, DriverError, ManageError, QueueCounts, QueueInfo,
    ScheduleRecord, State, Timestamp, WorkerStatus,
};
use taskharbor_core::admin::{ListSettings, Setting, SettingKind};

use crate::{
    encode,
    label::{Labels, Names, labels},
};

/// How many schedules a call reads.
const PAGE: usize = 1_000;

/// Gauges of queues and schedules. Clones share the numbers.
///
/// They describe the whole store, so only **one process** should refresh and serve them. If each
/// worker did, a sum over all processes would count each job many times, and each process would
/// query the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use taskharbor_prometheus::Metrics;
///
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = taskharbor::Client::new(&driver);
/// client.enqueue_raw("email:send", b"{}").queue("mail").await?;
/// let metrics = Metrics::new();
/// metrics.queues().refresh(&driver).await?; // at each scrape, in one process
/// assert!(metrics.encode().contains("queue=\"mail\""));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct QueueGauges(Arc<Gauges>);

#[derive(Default)]
struct Gauges {
    jobs: Shown,
    oldest_seconds: Shown,
    paused: Shown,
    workers: Shown,
    slots: Shown,
    schedule_late_seconds: Shown,
    schedule_skipped: Shown<Counter>,
    queue_names: Names,
    schedule_names: Names,
}

type Value = Gauge<f64, AtomicU64>;

/// A metric that is set to what the store says.
trait Set: Clone + Default {
    type Number: Copy;

    fn set_to(&self, value: Self::Number);
}

impl Set for Value {
    type Number = f64;

    fn set_to(&self, value: f64) {
        self.set(value);
    }
}

impl Set for Counter {
    type Number = u64;

    fn set_to(&self, value: u64) {
        self.inner().store(value, Ordering::Relaxed);
    }
}

/// A family of metrics of which only those of the last refresh are shown.
struct Shown<M = Value> {
    family: Family<Labels, M>,
    labels: Mutex<BTreeSet<Labels>>,
}

impl<M: Set> Default for Shown<M> {
    fn default() -> Self {
        Self { family: Family::default(), labels: Mutex::default() }
    }
}

impl<M: Set> Shown<M> {
    /// Shows these values and no others.
    fn show(&self, values: BTreeMap<Labels, M::Number>) {
        let mut shown = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in shown.iter().filter(|labels| !values.contains_key(*labels)) {
            self.family.remove(gone);
        }
        for (labels, value) in &values {
            self.family.get_or_create_owned(labels).set_to(*value);
        }
        *shown = values.into_keys().collect();
    }
}

/// What the store says at one time.
#[derive(Default)]
struct Snapshot {
    jobs: BTreeMap<Labels, f64>,
    oldest_seconds: BTreeMap<Labels, f64>,
    paused: BTreeMap<Labels, f64>,
    workers: BTreeMap<Labels, f64>,
    slots: BTreeMap<Labels, f64>,
    schedule_late_seconds: BTreeMap<Labels, f64>,
    schedule_skipped: BTreeMap<Labels, u64>,
}

impl QueueGauges {
    /// The jobs of a queue in one state are counted up to this number; a gauge with this value
    /// means this many or more. So a refresh is cheap, however many terminal jobs are kept.
    pub const COUNT_AT_MOST: usize = 100_000;

    /// Creates gauges without values.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Registers the gauges in a registry, for a process that serves only these.
    /// [`Metrics`](crate::Metrics) includes them already.
    pub fn register(&self, registry: &mut Registry) {
        let Gauges { jobs, oldest_seconds, paused, workers, slots, .. } = &*self.0;
        let Gauges { schedule_late_seconds, schedule_skipped, .. } = &*self.0;
        let help = "Jobs of a queue by state";
        registry.register("taskharbor_queue_jobs", help, jobs.family.clone());
        let help = "How long the oldest ready job of a queue has been due";
        registry.register("taskharbor_queue_oldest_seconds", help, oldest_seconds.family.clone());
        let help = "Whether a queue is paused";
        registry.register("taskharbor_queue_paused", help, paused.family.clone());
        let help = "How many workers have announced that they serve a queue";
        registry.register("taskharbor_queue_workers", help, workers.family.clone());
        let help = "Slots of the workers that have announced that they serve a queue";
        registry.register("taskharbor_slots", help, slots.family.clone());
        let help = "How long the next slot of a schedule has been due";
        let late = schedule_late_seconds.family.clone();
        registry.register("taskharbor_schedule_late_seconds", help, late);
        let help = "Slots of a schedule for which no job was stored";
        let skipped = schedule_skipped.family.clone();
        registry.register("taskharbor_schedule_skipped", help, skipped);
    }

    /// Returns only the gauges, in the text format of OpenMetrics.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut registry = Registry::default();
        self.register(&mut registry);
        encode(&registry)
    }

    /// Reads the store and sets the gauges. Call it before each scrape, or every 15 s, in one process.
    ///
    /// # Errors
    ///
    /// [`DriverError`], if the store cannot be read. Then no gauge is shown, because an old number
    /// would look like a healthy queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the gauges as they were.
    pub async fn refresh(&self, driver: &AnyDriver) -> Result<(), DriverError> {
        let read = self.read(driver).await;
        let (snapshot, result) = match read {
            Ok(snapshot) => (snapshot, Ok(())),
            Err(error) => (Snapshot::default(), Err(error)),
        };
        self.0.jobs.show(snapshot.jobs);
        self.0.oldest_seconds.show(snapshot.oldest_seconds);
        self.0.paused.show(snapshot.paused);
        self.0.workers.show(snapshot.workers);
        self.0.slots.show(snapshot.slots);
        self.0.schedule_late_seconds.show(snapshot.schedule_late_seconds);
        self.0.schedule_skipped.show(snapshot.schedule_skipped);
        result
    }

    async fn read(&self, driver: &AnyDriver) -> Result<Snapshot, DriverError> {
        let now = driver.now().await?;
        let mut snapshot = Snapshot::default();
        for queue in driver.counts(Counts::new(now).at_most(Self::COUNT_AT_MOST)).await? {
            snapshot.add_queue(&self.0.queue_names.label(queue.queue.as_str()), &queue, now);
        }
        let workers = Client::new(driver).workers().await.map_err(failed)?;
        let present: Vec<_> = workers.into_iter().filter(|it| !it.is_overdue).collect();
        for queue in present.iter().flat_map(|it| &it.info).flat_map(|info| &info.queues) {
            snapshot.add_served(&self.0.queue_names.label(&queue.name), queue);
        }
        let tells_all =
            |it: &WorkerStatus| it.info.as_ref().is_some_and(|info| info.queues_left_out == 0);
        if !present.iter().all(tells_all) {
            // Any queue may be one that a worker has left out.
            snapshot.workers.retain(|_, count| *count > 0.0);
        }
        let mut next = Some(ListSettings::new(PAGE).kind(SettingKind::Schedule));
        while let Some(request) = next {
            let page = driver.settings(request.clone()).await?;
            for setting in &page.items {
                if let Setting::Schedule(schedule) = setting {
                    let label = self.0.schedule_names.label(schedule.name.as_str());
                    snapshot.add_schedule(&label, schedule, now);
                }
            }
            next = page.next.map(|cursor| request.after(cursor));
        }
        Ok(snapshot)
    }
}

impl Snapshot {
    /// Queues that share a label are added up.
    #[expect(clippy::cast_precision_loss, reason = "no queue has 2^52 jobs")]
    fn add_queue(&mut self, label: &str, queue: &QueueCounts, now: Timestamp) {
        for &state in State::ALL {
            let labels = labels([("queue", label), ("state", state.as_str())]);
            *self.jobs.entry(labels).or_default() += queue.states.get(state) as f64;
        }
        let oldest = queue.oldest_ready.map_or(0.0, |due| now.since(due).as_secs_f64());
        greatest(&mut self.oldest_seconds, labels([("queue", label)]), oldest);
        // A queue without a worker is shown with none, so that an alert can tell.
        self.workers.entry(labels([("queue", label)])).or_default();
        let paused = f64::from(u8::from(queue.paused_since.is_some()));
        greatest(&mut self.paused, labels([("queue", label)]), paused);
    }

    #[expect(clippy::cast_precision_loss, reason = "no worker has 2^52 slots")]
    fn add_served(&mut self, label: &str, queue: &QueueInfo) {
        *self.workers.entry(labels([("queue", label)])).or_default() += 1.0;
        let free = queue.slots.saturating_sub(queue.busy);
        for (state, count) in [("busy", queue.busy), ("free", free)] {
            let labels = labels([("queue", label), ("state", state)]);
            *self.slots.entry(labels).or_default() += count as f64;
        }
    }

    fn add_schedule(&mut self, label: &str, schedule: &ScheduleRecord, now: Timestamp) {
        let due = schedule.next_slot.filter(|_| schedule.paused_since.is_none());
        let late = due.map_or(0.0, |slot| now.since(slot).as_secs_f64());
        greatest(&mut self.schedule_late_seconds, labels([("schedule", label)]), late);
        let skipped = schedule.totals.skipped + schedule.totals.missed;
        *self.schedule_skipped.entry(labels([("schedule", label)])).or_default() += skipped;
    }
}

fn failed(error: ManageError) -> DriverError {
    match error {
        ManageError::Store(error) => error,
        other => DriverError::backend(other.to_string()),
    }
}

fn greatest(values: &mut BTreeMap<Labels, f64>, labels: Labels, value: f64) {
    let shown = values.entry(labels).or_default();
    *shown = shown.max(value);
}

impl Default for QueueGauges {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for QueueGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueGauges").finish_non_exhaustive()
    }
}
