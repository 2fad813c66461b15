//! The store under test, handles to it, and the application's own transactions on it.

use std::{path::PathBuf, time::Duration};

use taskharbor_core::{
    AnyDriver,
    driver::{Answers, Enqueue, Enqueued, Settle, Settled, Transaction},
    error::{Refusal, Rejected},
};
use taskharbor_memory::MemoryDriver;
use taskharbor_postgres::PostgresDriver;
use taskharbor_sqlite::{Config, SqliteDriver, rusqlite::Connection};
use taskharbor_testkit::postgres::server::Server;
use tokio_postgres::{Client, NoTls};

use crate::{Outcome, choice::StoreKind, workers::proxy::Proxy};

/// How long the application waits for the lock of a file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadlocks are found soon, before a statement gives up waiting for other reasons.
const SERVER_SETTINGS: &str = "max_connections = 200\ndeadlock_timeout = 50ms\nfsync = on";

/// A store that is removed with this.
pub(crate) enum Store {
    Memory(MemoryDriver),
    Sqlite(Dir),
    Postgres(Server),
}

/// A directory that is removed when it is dropped.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn make(name: &str) -> Outcome<Self> {
        let dir =
            std::env::temp_dir().join(format!("taskharbor-chaos-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // The system removes what is left in its directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Store {
    /// A new, empty store.
    pub(crate) async fn make(kind: StoreKind) -> Outcome<Self> {
        let store = match kind {
            StoreKind::Memory => Self::Memory(MemoryDriver::new()),
            StoreKind::Sqlite => Self::Sqlite(Dir::make("store")?),
            StoreKind::Postgres => {
                let server = tokio::task::spawn_blocking(|| Server::start_with(SERVER_SETTINGS));
                Self::Postgres(server.await?)
            }
        };
        store.open().await?.driver.migrate().await?;
        Ok(store)
    }

    /// The address of the store, for other processes.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory(_) => "memory:".to_owned(),
            Self::Sqlite(dir) => format!("sqlite:{}?create=true", dir.0.join("jobs.db").display()),
            Self::Postgres(server) => server.url(),
        }
    }

    /// A handle that shares nothing with others but the store.
    pub(crate) async fn open(&self) -> Outcome<Handle> {
        Ok(match self {
            Self::Memory(driver) => {
                Handle { driver: AnyDriver::new(driver.clone()), application: Application::None }
            }
            Self::Sqlite(_) => {
                let config = Config::from_url(&self.url())?.busy_timeout(BUSY_TIMEOUT);
                let driver = SqliteDriver::open_with(config).await?;
                let connection = Connection::open(driver.path())?;
                connection.busy_timeout(BUSY_TIMEOUT)?;
                let application = Application::Sqlite(driver.clone(), connection);
                Handle { driver: AnyDriver::new(driver), application }
            }
            Self::Postgres(server) => {
                let driver = open_postgres(&server.url()).await?;
                let client = connect(&server.url()).await?;
                let application = Application::Postgres(driver.clone(), client);
                Handle { driver: AnyDriver::new(driver), application }
            }
        })
    }

    /// A handle that reaches a server through a proxy; for other stores one as any other.
    pub(crate) async fn open_through(&self, proxy: Option<&Proxy>) -> Outcome<AnyDriver> {
        match (self, proxy) {
            (Self::Postgres(server), Some(proxy)) => {
                let [old, new] = [server.port(), proxy.port()].map(|port| format!(":{port}/"));
                Ok(AnyDriver::new(open_postgres(&server.url().replace(&old, &new)).await?))
            }
            _ => Ok(self.open().await?.driver),
        }
    }

    /// How many deadlocks the server has found. Sessions report theirs when they end.
    pub(crate) async fn deadlocks(&self) -> Outcome<i64> {
        let Self::Postgres(server) = self else { return Ok(0) };
        let sum = "SELECT coalesce(sum(deadlocks), 0)::bigint FROM pg_stat_database";
        Ok(connect(&server.url()).await?.query_one(sum, &[]).await?.get(0))
    }
}

async fn open_postgres(url: &str) -> Outcome<PostgresDriver> {
    let config = taskharbor_postgres::Config::from_url(url)?.pool_size(2);
    Ok(PostgresDriver::open(config).await?)
}

async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A handle to the store, and the application's own connection to it.
pub(crate) struct Handle {
    pub(crate) driver: AnyDriver,
    application: Application,
}

enum Application {
    /// The store has no transactions.
    None,
    Sqlite(SqliteDriver, Connection),
    Postgres(PostgresDriver, Client),
}

/// How the application ends its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
}

/// What the store answered in a transaction.
pub(crate) type InTransaction = (Answers<Vec<Enqueued>, Rejected>, Answers<Settled, Refusal>);

impl Handle {
    pub(crate) const fn has_transactions(&self) -> bool {
        !matches!(self.application, Application::None)
    }

    /// Whether closing the handle closes no other. Handles to a store in memory are one.
    pub(crate) const fn is_own(&self) -> bool {
        self.has_transactions()
    }

    /// Enqueues and settles in a transaction of the application.
    pub(crate) async fn in_transaction(
        &mut self,
        enqueue: Enqueue,
        settle: Settle,
        end: End,
    ) -> Outcome<InTransaction> {
        match &mut self.application {
            Application::None => Err("the store has no transactions".into()),
            Application::Sqlite(driver, connection) => {
                let mut tx = tokio::task::block_in_place(|| driver.begin(connection))?;
                let answers = (tx.enqueue(enqueue).await, tx.settle(settle).await);
                tokio::task::block_in_place(|| match end {
                    End::Commit => tx.commit(),
                    End::Rollback => tx.rollback(),
                })?;
                Ok(answers)
            }
            Application::Postgres(driver, client) => {
                let transaction = client.transaction().await?;
                let mut tx = driver.tx(&transaction);
                let answers = (tx.enqueue(enqueue).await, tx.settle(settle).await);
                match end {
                    End::Commit => transaction.commit().await?,
                    End::Rollback => transaction.rollback().await?,
                }
                Ok(answers)
            }
        }
    }
}
