//! Opening a [`PostgresDriver`], and checking the version of the schema.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use taskharbor_core::{
    DriverError, QueueName, debug_as_display,
    driver::{DriverId, Limits},
};

use crate::{
    Config, ConfigError, PostgresDriver, SchemaName,
    driver::Shared,
    held::HeldCalls,
    lane_turn::LaneTurns,
    migration::{self, Installed, Plan, VERSION},
    scan_start::ScanStarts,
    session::Session,
    statement::Statements,
    wake::Wakeups,
};

/// Why a driver was not opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Invalid settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server cannot be used.
    #[error("{}", .0.reason())]
    Failed(DriverError),
}

debug_as_display!(OpenError);

/// The schema in the database is not one that this program works with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(
        "TaskHarbor is not installed in the schema {0} of this database: run `taskharbor migrate up`, `driver.migrate()`, or the SQL that `taskharbor migrate print` prints"
    )]
    Missing(SchemaName),
    #[error(
        "the schema {schema} is of version {found}, older than this program needs ({VERSION}): run `taskharbor migrate up`, `driver.migrate()`, or the SQL that `taskharbor migrate print` prints"
    )]
    TooOld { schema: SchemaName, found: i64 },
    #[error(
        "the schema {schema} is of version {found} and needs a program that knows version {needed}, newer than this program knows ({known}): use a newer version of this program"
    )]
    TooNew { schema: SchemaName, found: i64, needed: i64, known: i64 },
}

impl Unfit {
    pub(crate) fn too_new(schema: &SchemaName, installed: Installed, known: i64) -> DriverError {
        let Installed { version: found, min_compatible: needed, .. } = installed;
        DriverError::backend(Self::TooNew { schema: schema.clone(), found, needed, known })
    }
}

impl PostgresDriver {
    /// Connects to the database of a URL, such as `postgres://user@host/database?schema=jobs`.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::open(Config::from_url(url)?).await
    }

    /// Connects, and checks whether this program can use the version of the schema. A missing or
    /// older schema is not an error here: call [`Admin::migrate`](taskharbor_core::Admin::migrate)
    /// next.
    ///
    /// # Errors
    ///
    /// [`OpenError`], also for a schema that is too new for this program. A newer schema that is
    /// compatible with this program is not an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let session = Session::open(&config)?;
        let driver = Self::with(session, config.schema, config.limits, config.listen)
            .notify(config.notify_in_transactions);
        match driver.shared.find_installed().await {
            Ok(installed) if installed.min_compatible <= VERSION => Ok(driver),
            Ok(installed) => {
                let schema = &driver.shared.schema;
                Err(OpenError::Failed(Unfit::too_new(schema, installed, VERSION)))
            }
            Err(error) => Err(OpenError::Failed(error)),
        }
    }

    /// Uses a pool of the application, which also closes it. The driver leaves no state on its
    /// connections.
    ///
    /// Such a driver gets no wake-ups, because it has no connection of its own, and a worker
    /// extends its leases over the same pool. If handlers can use all connections of the pool, use
    /// [`PostgresDriver::open`] instead.
    #[must_use]
    pub fn from_pool(pool: deadpool_postgres::Pool, schema: SchemaName) -> Self {
        Self::from_pool_with(pool, Config::bare().schema(schema))
    }

    /// Does the same as [`PostgresDriver::from_pool`], with the schema, the statement mode, the
    /// call deadline, the limits and the wake-ups of `config`. The address and the TLS settings of
    /// `config` are not used.
    #[must_use]
    pub fn from_pool_with(pool: deadpool_postgres::Pool, config: Config) -> Self {
        let session = Session::from_pool(pool, config.statements, config.call_deadline);
        Self::with(session, config.schema, config.limits, config.listen)
            .notify(config.notify_in_transactions)
    }

    pub(crate) fn with(session: Session, schema: SchemaName, limits: Limits, listen: bool) -> Self {
        let channel = schema.channel();
        let scan_starts = Arc::new(ScanStarts::default());
        let lowered = Arc::clone(&scan_starts);
        let on_in_front = Arc::new(move |queue: Option<&QueueName>| match queue {
            Some(queue) => lowered.lower([queue], 0),
            None => lowered.clear(),
        });
        let shared = Shared {
            wakeups: Wakeups::new(session.clone(), channel.clone(), listen, on_in_front),
            held_calls: HeldCalls::new(session.max_size(), session.deadline()),
            statements: Statements::of(&schema),
            session,
            schema,
            channel,
            notify_in_transactions: true,
            limits,
            scan_starts,
            turns: LaneTurns::default(),
            inserts_directly: AtomicBool::new(true),
            id: DriverId::new(),
            fits: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn known_as(mut self, id: DriverId) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.id = id;
        }
        self
    }

    fn notify(mut self, notify: bool) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.notify_in_transactions = notify;
        }
        self
    }

    /// The version of the schema that this driver works with.
    pub const VERSION: i64 = VERSION;

    /// The version of the schema that is installed, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`DriverError::Unavailable`], [`DriverError::Backend`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn installed_version(&self) -> Result<Option<i64>, DriverError> {
        Ok(Some(self.shared.find_installed().await?.version).filter(|version| *version > 0))
    }

    /// Removes the schema **with all jobs in it**. Everything else in the schema is removed, too.
    ///
    /// # Errors
    ///
    /// [`DriverError::Unavailable`], [`DriverError::Backend`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the schema is removed or unchanged.
    pub async fn uninstall(&self) -> Result<(), DriverError> {
        self.shared.fits.store(false, Ordering::Release);
        let sql = self.shared.schema.sql("DROP SCHEMA IF EXISTS {schema} CASCADE");
        self.shared.session.batch(&sql).await
    }

    /// The schema in which the jobs are.
    #[must_use]
    pub fn schema(&self) -> &SchemaName {
        &self.shared.schema
    }
}

impl Shared {
    async fn find_installed(&self) -> Result<Installed, DriverError> {
        Installed::find(&self.session, &self.schema).await
    }

    /// Whether this program can use what is installed.
    pub(crate) async fn check_version(&self) -> Result<(), DriverError> {
        let installed = self.find_installed().await?;
        if installed.min_compatible > VERSION {
            return Err(Unfit::too_new(&self.schema, installed, VERSION));
        }
        if installed.version < VERSION {
            let schema = self.schema.clone();
            return Err(DriverError::backend(match installed.version {
                0 => Unfit::Missing(schema),
                found => Unfit::TooOld { schema, found },
            }));
        }
        self.fits.store(true, Ordering::Release);
        Ok(())
    }

    /// Brings the schema up to date.
    pub(crate) async fn migrate(&self) -> Result<(), DriverError> {
        migration::run(&self.session, &self.schema, &Plan::own()).await?;
        self.check_version().await
    }
}
