//! Calls to the server: one statement, on one connection, under one deadline.
//!
//! Every call is a single statement outside of any transaction, so it happens whole or not at all,
//! and no connection is ever left inside a transaction. A call can only be abandoned: at the
//! deadline, or because the caller dropped its future. The statement then goes on at the server,
//! and `lent` ensures that the connection is not used until the statement has ended.

mod connect;
mod lent;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use deadpool_postgres::{Pool, PoolError, TimeoutType};
use taskharbor_core::DriverError;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tokio_postgres::{
    Client, Connection, Row, Socket, Statement,
    error::{DbError, SqlState},
    tls::MakeTlsConnect,
    types::Type,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::{
    connect::{Origin, Purpose, Way},
    lent::Lent,
};
use crate::{
    config::{self, Config, ConfigError, StatementMode},
    error::{driver_error, not_connected, pool_error},
    tls,
    value::Value,
};

/// How long a script may take at least: a migration may have to rewrite a large table.
const SCRIPT_DEADLINE: Duration = Duration::from_secs(600);

/// How often a call is repeated of which nothing has happened.
const REPEATS: u32 = 3;

/// A connection of its own, and what must be polled for it to work.
pub(crate) type Connected =
    (Client, Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>);

/// The way to the server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Session {
    pool: Pool,
    /// As many permits as the pool has places. Callers wait here and not in the pool, so that
    /// getting a connection with a permit only waits for the connection to be made.
    places: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// What all clones of a session have in common.
struct Shared {
    /// How to make connections, unless the application does.
    origin: Option<Origin>,
    way: Arc<Way>,
    deadline: Duration,
    closed: AtomicBool,
}

/// How many connections there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolStatus {
    /// The open connections.
    pub(crate) size: usize,
    /// Those of them that are idle.
    pub(crate) idle: usize,
}

#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("the call took longer than its deadline of {0:?} and was cancelled")]
    Deadline(Duration),
    #[error("the server did not accept a connection within {0:?}")]
    Connecting(Duration),
    #[error(
        "the server lost or refused a prepared statement, as behind a pooler: add \
         `statements=unnamed` to the URL"
    )]
    Statement(#[source] tokio_postgres::Error),
    #[error("the server did not prepare the statement before the call's deadline")]
    Preparing,
    #[error("the runtime is shutting down")]
    Runtime,
}

impl Session {
    /// Makes the pool, and no connection yet.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a size or time limit is zero or the certificates cannot be read.
    pub(crate) fn open(config: &Config) -> Result<Self, ConfigError> {
        config::check(config)?;
        let mut server = config.server.clone();
        server.connect_timeout(config.connect_timeout);
        let tls = tls::connector(config)?;
        let way = Way::new(config.statements);
        let origin =
            Origin { server, tls, connect_timeout: config.connect_timeout, way: Arc::clone(&way) };
        let pool = origin.pool(config.pool_size, config.call_deadline)?;
        Ok(Self::new(pool, Shared::new(Some(origin), way, config.call_deadline)))
    }

    /// Uses a pool of the application, which also closes it.
    pub(crate) fn from_pool(pool: Pool, statements: StatementMode, deadline: Duration) -> Self {
        Self::new(pool, Shared::new(None, Way::new(statements), deadline))
    }

    fn new(pool: Pool, shared: Arc<Shared>) -> Self {
        let places = Arc::new(Semaphore::new(pool.status().max_size));
        Self { pool, places, shared }
    }

    /// Whether statements are prepared once for each connection, and long ones cost nothing.
    pub(crate) fn prepares(&self) -> bool {
        self.shared.way.prepares()
    }

    /// Runs one statement in a transaction of its own and answers with its rows.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped has happened whole or not at all. Its connection is used again as
    /// soon as the statement is over.
    pub(crate) async fn query(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, DriverError> {
        let deadline = Instant::now() + self.shared.deadline;
        let attempt = self.attempt(sql, values, deadline);
        self.answer(self.within(self.shared.deadline, deadline, attempt).await)
    }

    /// As [`Session::query`], for what reads the whole store and may take as long as a script.
    pub(crate) async fn query_slowly(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, DriverError> {
        let limit = self.shared.deadline.max(SCRIPT_DEADLINE);
        let deadline = Instant::now() + limit;
        let attempt = self.attempt(sql, values, deadline);
        self.answer(self.within(limit, deadline, attempt).await)
    }

    /// Runs a script of several statements.
    ///
    /// Its connection is closed afterwards, because a script may change settings, and one that
    /// fails may leave its transaction open.
    ///
    /// # Cancel safety
    ///
    /// The script is cancelled where it is. What it wrote outside of a transaction stays.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), DriverError> {
        let limit = self.shared.deadline.max(SCRIPT_DEADLINE);
        let deadline = Instant::now() + limit;
        let answer = self.within(limit, deadline, async {
            let lent = self.lend(deadline).await?.spent();
            let done = lent.batch_execute(sql).await;
            lent.finish(done.as_ref().err());
            done.map_err(driver_error)
        });
        self.answer(answer.await)
    }

    /// A connection of its own to listen on, outside of the pool, or `None` if the application
    /// makes the connections.
    pub(crate) async fn connect_detached(&self) -> Result<Option<Connected>, DriverError> {
        self.connect_for(Purpose::Listening).await
    }

    /// As [`Session::connect_detached`], for statements that may take as long as they need.
    pub(crate) async fn connect_to_migrate(&self) -> Result<Option<Connected>, DriverError> {
        self.connect_for(Purpose::Migration).await
    }

    async fn connect_for(&self, purpose: Purpose) -> Result<Option<Connected>, DriverError> {
        self.check_open()?;
        let Some(origin) = &self.shared.origin else { return Ok(None) };
        let limit = origin.time_to_connect();
        match timeout(limit, origin.connect(purpose)).await {
            Ok(Ok(connected)) => self.answer(Ok(Some(connected))),
            Ok(Err(error)) => self.answer(Err(self.not_connected(driver_error(error)))),
            Err(_) => {
                let late = DriverError::unavailable(Stopped::Connecting(limit));
                self.answer(Err(self.not_connected(late)))
            }
        }
    }

    fn not_connected(&self, error: DriverError) -> DriverError {
        let place = self.shared.origin.as_ref().map(Origin::place).unwrap_or_default();
        not_connected(&place, error)
    }

    /// A session with connections of its own to the same server, or `None` if the application makes
    /// them. Each of the two is closed by itself.
    ///
    /// Connections live on the runtime on which they are made, so a thread with a runtime of its
    /// own needs connections of its own.
    pub(crate) fn detached(&self, size: usize) -> Option<Self> {
        let origin = self.shared.origin.as_ref()?;
        let deadline = self.shared.deadline;
        let pool = origin.pool(size.max(1), deadline).ok()?;
        let way = Arc::clone(&self.shared.way);
        Some(Self::new(pool, Shared::new(Some(origin.clone()), way, deadline)))
    }

    /// Closes the idle connections and lets the others end; every later call fails with
    /// [`DriverError::Closed`].
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.close_pool();
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let status = self.pool.status();
        PoolStatus { size: status.size, idle: status.available }
    }

    /// How many connections there can be.
    pub(crate) fn max_size(&self) -> usize {
        self.pool.status().max_size
    }

    /// How long a call may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    /// Whether it was not closed.
    pub(crate) fn check_open(&self) -> Result<(), DriverError> {
        if !self.shared.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        // The one that closed may have been another, with a pool of its own.
        self.close_pool();
        Err(DriverError::Closed)
    }

    /// A pool that is not ours is not ours to close.
    fn close_pool(&self) {
        self.places.close();
        if self.shared.origin.is_some() {
            self.pool.close();
        }
    }

    /// After close, every failure is reported as `Closed`.
    fn answer<T>(&self, answer: Result<T, DriverError>) -> Result<T, DriverError> {
        answer.or_else(|error| self.check_open().and(Err(error)))
    }

    async fn within<T>(
        &self,
        limit: Duration,
        deadline: Instant,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        self.check_open()?;
        match timeout_at(deadline, call).await {
            Ok(answer) => answer,
            Err(_) => Err(DriverError::unavailable(Stopped::Deadline(limit))),
        }
    }

    /// Waits for a place and a connection.
    ///
    /// Opening a connection costs both sides work. If it ended with the timeout of its caller, callers
    /// with short timeouts would keep the server busy and never get a connection. So it goes on in a
    /// task, and the new connection waits in the pool for the next caller.
    async fn lend(&self, deadline: Instant) -> Result<Lent, DriverError> {
        let late = |_| pool_error(PoolError::Timeout(TimeoutType::Wait));
        let place = timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(late)?.map_err(|_| DriverError::Closed)?;
        let pool = self.pool.clone();
        // The place is the last to go, when the connection is back. The driver's own pool has time
        // limits, but that of an application may have none.
        let work = async move { (timeout_at(deadline, pool.get()).await, place) };
        let (client, place) = to_its_end(work).await?;
        let client = client.map_err(late)?;
        let client = client.map_err(|error| self.not_connected(pool_error(error)))?;
        let tls = self.shared.origin.as_ref().map(|origin| origin.tls.clone());
        Ok(Lent::new(client, place, tls, deadline))
    }

    /// Runs the statement, again if it is known that nothing has happened: the connection was
    /// closed while it was idle, or the statement's name was not usable.
    async fn attempt(
        &self,
        sql: &str,
        values: &[Value<'_>],
        deadline: Instant,
    ) -> Result<Vec<Row>, DriverError> {
        let mut repeats = 0;
        loop {
            let lent = self.lend(deadline).await?;
            let is_named = self.prepares();
            let (lent, rows) = if is_named {
                self.run_named(lent, sql, values, deadline).await?
            } else {
                run_unnamed(lent, sql, values).await
            };
            let refusal = rows.as_ref().err().and_then(tokio_postgres::Error::as_db_error);
            let problem = refusal.and_then(StatementProblem::of).filter(|_| is_named);
            let was_idle = refusal.is_some_and(|it| *it.code() == SqlState::IDLE_SESSION_TIMEOUT);
            if let Some(problem) = problem {
                lent.statement_cache.clear();
                if problem == StatementProblem::Lost {
                    self.shared.way.fall_back("prepared statements get lost");
                }
            }
            let error = if problem.is_some() { None } else { rows.as_ref().err() };
            lent.finish(error);
            if (problem.is_some() || was_idle) && repeats < REPEATS {
                repeats += 1;
                continue;
            }
            return rows.map_err(|error| match problem {
                Some(_) => DriverError::unavailable(Stopped::Statement(error)),
                None => driver_error(error),
            });
        }
    }

    async fn run_named(
        &self,
        lent: Lent,
        sql: &str,
        values: &[Value<'_>],
        deadline: Instant,
    ) -> Result<(Lent, Result<Vec<Row>, tokio_postgres::Error>), DriverError> {
        let types = values.iter().map(Value::sql_type).collect();
        let (lent, statement) = prepared(lent, sql.to_owned(), types, deadline).await?;
        let rows = match statement {
            Ok(statement) => {
                let values: Vec<_> = values.iter().map(Value::bind).collect();
                lent.query(&statement, &values).await
            }
            Err(error) => Err(error),
        };
        Ok((lent, rows))
    }
}

async fn run_unnamed(
    lent: Lent,
    sql: &str,
    values: &[Value<'_>],
) -> (Lent, Result<Vec<Row>, tokio_postgres::Error>) {
    let values: Vec<_> = values.iter().map(|value| (value.bind(), value.sql_type())).collect();
    let rows = lent.query_typed(sql, &values).await;
    (lent, rows)
}

/// Why a statement that was prepared cannot be used although there is nothing wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatementProblem {
    /// The server does not know it, or knows another by its name.
    Lost,
    /// What it answers has changed, because a migration ran since.
    Changed,
}

impl StatementProblem {
    fn of(error: &DbError) -> Option<Self> {
        // The message may be in any language, but the server also says where it comes from.
        if *error.code() == SqlState::FEATURE_NOT_SUPPORTED {
            return (error.routine() == Some("RevalidateCachedQuery")).then_some(Self::Changed);
        }
        let lost = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
        // Values that do not fit belong to another program's statement of the same name.
        let foreign = ["exec_bind_message", "array_recv", "pq_copymsgbytes"];
        let is_foreign = error.routine().is_some_and(|routine| foreign.contains(&routine));
        (is_foreign || lost.contains(error.code())).then_some(Self::Lost)
    }
}

/// Finds or prepares the statement, and answers with the connection that knows it.
///
/// A preparation that is abandoned halfway leaves a statement with an unknown name at the server,
/// for as long as the connection lives. So it is done to its end with the connection in its hands:
/// then the statement is remembered and the connection goes back. A statement that is known is
/// found at once.
async fn prepared(
    lent: Lent,
    sql: String,
    types: Vec<Type>,
    deadline: Instant,
) -> Result<(Lent, Result<Statement, tokio_postgres::Error>), DriverError> {
    let preparation = async move {
        let statement = timeout_at(deadline, lent.prepare_typed_cached(&sql, &types)).await;
        // If it is still going on, the connection is busy and is seen to when it is dropped here.
        statement.ok().map(|statement| (lent.resting(), statement))
    };
    match to_its_end(preparation).await? {
        Some((lent, statement)) => Ok((lent.working(), statement)),
        None => Err(DriverError::unavailable(Stopped::Preparing)),
    }
}

/// Does `work` even if its caller stops waiting: here if it is done at once, else in a
/// task. If the caller has stopped waiting, the answer is dropped.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, DriverError> {
    let mut work = Box::pin(work);
    match std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        Poll::Ready(answer) => Ok(answer),
        Poll::Pending => {
            tokio::spawn(work).await.map_err(|_| DriverError::unavailable(Stopped::Runtime))
        }
    }
}

impl Shared {
    fn new(origin: Option<Origin>, way: Arc<Way>, deadline: Duration) -> Arc<Self> {
        Arc::new(Self { origin, way, deadline, closed: AtomicBool::new(false) })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("status", &self.status())
            .field("way", &self.shared.way)
            .field("deadline", &self.shared.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
