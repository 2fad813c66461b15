//! [`PostgresDriver`]: the store for clients and workers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use taskharbor_core::{
    Driver, DriverError, JobId, QueueName, Timestamp,
    driver::{
        Announce, Answers, DriverId, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended,
        Fire, Limits, OutputPage, Outputs, Reserve, Reserved, Settle, Settled, Watch,
    },
    error::{FireRefused, Refusal, Rejected},
};
use tokio_postgres::Row;

use crate::{
    SchemaName,
    answer::{self, AnswerRow, get},
    held::HeldCalls,
    lane_turn::LaneTurns,
    scan_start::ScanStarts,
    session::Session,
    statement::Statements,
    value::Value,
    wake::{Wakeups, Work},
};

/// Jobs in a PostgreSQL database. Clones share one pool of connections.
///
/// ```
/// use taskharbor_core::AnyDriver;
/// use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_url("postgres://app:secret@db.example.com/app")?
///     .schema(SchemaName::new("jobs")?)
///     .pool_size(20);
/// let driver = AnyDriver::new(PostgresDriver::open(config).await?);
/// driver.migrate().await?; // creates the schema, or brings it up to date
/// // Now: Client::new(&driver) and Worker::builder(&driver), of the crate taskharbor.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresDriver {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) session: Session,
    pub(crate) statements: Statements,
    pub(crate) schema: SchemaName,
    pub(crate) channel: String,
    pub(crate) notify_in_transactions: bool,
    pub(crate) limits: Limits,
    pub(crate) wakeups: Wakeups,
    pub(crate) held_calls: HeldCalls,
    pub(crate) scan_starts: Arc<ScanStarts>,
    pub(crate) turns: LaneTurns,
    pub(crate) id: DriverId,
    /// Whether the role may insert into the tables, as far as is known.
    pub(crate) inserts_directly: AtomicBool,
    /// Whether the schema was found to be of our version.
    pub(crate) fits: AtomicBool,
}

impl Shared {
    /// The channel on which the commit of the application's transaction tells workers of new work.
    pub(crate) fn channel_in_transactions(&self) -> Option<&str> {
        self.notify_in_transactions.then_some(self.channel.as_str())
    }
}

impl PostgresDriver {
    /// Runs one statement on a schema that is known to fit.
    pub(crate) async fn query(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, DriverError> {
        if !self.shared.fits.load(Ordering::Acquire) {
            self.shared.check_version().await?;
        }
        self.shared.session.query(sql, values).await
    }

    pub(crate) async fn verdicts(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<AnswerRow>, DriverError> {
        self.query(sql, values).await?.iter().map(AnswerRow::read).collect()
    }

    /// Jobs became available in these queues, at this time or later; zero for in front of others.
    pub(crate) fn put_in_line(&self, queues: Vec<QueueName>, at: i64) {
        self.shared.scan_starts.lower(&queues, at);
        let work = queues.into_iter().map(|queue| Work::new(queue).in_front(at == 0));
        self.shared.wakeups.announce(work.collect(), false);
    }

    /// The identity that transactions on this store carry.
    pub(crate) fn identity(&self) -> DriverId {
        self.shared.id
    }
}

impl Driver for PostgresDriver {
    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn driver_id(&self) -> Option<DriverId> {
        Some(self.shared.id)
    }

    fn detached_handle(&self) -> Option<Self> {
        let shared = &self.shared;
        let session = shared.session.detached(1)?;
        // It is used for leases alone, so no worker waits for wake-ups there.
        let detached = Self::with(session, shared.schema.clone(), shared.limits, false);
        detached.shared.fits.store(shared.fits.load(Ordering::Acquire), Ordering::Release);
        Some(detached.known_as(shared.id))
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        // REF-5: the first fault of a call as a whole; here ENQ-6, and in other calls REF-4 too.
        self.shared.session.check_open()?;
        self.enqueue_sets(request).await
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        self.shared.session.check_open()?;
        self.reserve_jobs(request).await
    }

    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        self.shared.session.check_open()?;
        self.extend(request).await
    }

    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        self.shared.session.check_open()?;
        self.settle_jobs(request).await
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        self.shared.session.check_open()?;
        self.read_outputs(request).await
    }

    async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        self.shared.session.check_open()?;
        self.find_due_schedules(request).await
    }

    async fn fire(&self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        self.shared.session.check_open()?;
        self.fire_schedules(request).await
    }

    async fn announce(&self, request: Announce) -> Result<(), DriverError> {
        self.shared.session.check_open()?;
        self.announce_worker(request).await
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        self.shared.session.check_open()?;
        Ok(self.shared.wakeups.watch(queues).await)
    }

    async fn watch_job(&self, id: JobId) -> Result<Watch, DriverError> {
        self.shared.session.check_open()?;
        Ok(self.shared.wakeups.watch_job(id))
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        // A worker asks for the time first, and does not begin on a schema that it does not know.
        let rows = self.query(&self.shared.statements.time, &[]).await?;
        let now: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
        // STO-1: as it is, also if it was set back, or another server has taken over.
        answer::time(now)
    }

    async fn close(&self) -> Result<(), DriverError> {
        // CLO-1
        self.shared.wakeups.close().await;
        self.shared.session.close();
        Ok(())
    }
}
