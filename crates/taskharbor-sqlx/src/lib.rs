//! Enqueues and completes jobs of TaskHarbor inside transactions of [sqlx](https://docs.rs/sqlx):
//! the changes happen if and only if the application commits.
//!
//! ```no_run
//! use sqlx::{PgPool, postgres::PgPoolOptions};
//! use taskharbor::{BoxError, Client, Context, Job, JobResult, Outcome};
//! use taskharbor_sqlx as _; // `within` and `ack_in` take transactions of sqlx
//!
//! #[derive(serde::Serialize, serde::Deserialize, Job)]
//! #[job(type = "order:confirm", output = i64)]
//! struct Confirm {
//!     order: i64,
//! }
//!
//! struct App {
//!     db: PgPool,
//!     client: Client,
//! }
//!
//! async fn open(url: &str) -> Result<App, BoxError> {
//!     let client = Client::new(&taskharbor::connect(url).await?);
//!     Ok(App { db: PgPoolOptions::new().connect(url).await?, client })
//! }
//!
//! /// The order and the job that confirms it are stored together, or neither is.
//! async fn place(app: &App, order: i64) -> Result<(), BoxError> {
//!     let mut tx = app.db.begin().await?;
//!     sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind(order).execute(&mut *tx).await?;
//!     app.client.enqueue(Confirm { order }).within(&mut tx).await?;
//!     tx.commit().await?;
//!     Ok(())
//! }
//!
//! /// What the handler writes and that its job is done are one as well.
//! async fn confirm(job: Confirm, cx: Context<App>) -> JobResult<Outcome<i64>> {
//!     let mut tx = cx.state().db.begin().await?;
//!     let confirm = "UPDATE orders SET confirmed = true WHERE id = $1";
//!     sqlx::query(confirm).bind(job.order).execute(&mut *tx).await?;
//!     let done = cx.ack_in(&mut tx, job.order).await?;
//!     tx.commit().await?;
//!     Ok(done)
//! }
//! ```
//!
//! When a transaction is dropped, sqlx sends the rollback only when its connection is used next, or
//! returns to its pool. Until then the database keeps the locks of the transaction, including that
//! of a job that was completed in it. So drop the connection together with the transaction, as
//! above, or call `rollback`.
//!
//! The driver itself does not use sqlx. This crate never begins or ends a transaction, and leaves
//! no prepared statement on the connection, so it also works with a connection pooler. Its version
//! follows that of sqlx, which is part of its interface.

mod argument;
mod error;

use std::{error::Error, fmt};

use sqlx::{AssertSqlSafe, PgConnection, Row, postgres::PgRow};
use taskharbor_core::{AnyDriver, driver::OpenTransaction};
use taskharbor_postgres::{
    PostgresDriver, Tx,
    bridge::{AnswerRow, Statements, Value},
};

pub use sqlx;

/// Wraps the application's own transaction, which must be on the database of this driver, as a
/// [`Transaction`](taskharbor_core::driver::Transaction). `client.enqueue(job).within(&mut tx)` and
/// `context.ack_in(&mut tx, output)` do this by themselves.
///
/// Takes a `sqlx::Transaction<'_, sqlx::Postgres>`, or a connection on which a transaction was
/// begun in another way. On a connection without a transaction, every call is a transaction of its
/// own. [`Tx`] describes the isolation levels.
///
/// ```
/// # use taskharbor::{AnyDriver, BoxError, Client, postgres::PostgresDriver};
/// # async fn place(pool: sqlx::PgPool, driver: AnyDriver) -> Result<(), BoxError> {
/// let client = Client::new(&driver);
/// let mut order = pool.begin().await?;
/// sqlx::query("INSERT INTO orders (id) VALUES (42)").execute(&mut *order).await?;
/// client.enqueue_raw("order:confirm", b"42").within(&mut order).await?;
///
/// // The same with the driver in your hands:
/// let postgres: &PostgresDriver = driver.downcast_ref().ok_or("this store is not PostgreSQL")?;
/// let tx = taskharbor_sqlx::tx(postgres, &mut order);
/// client.enqueue_raw("order:print", b"42").within(tx).await?;
/// order.commit().await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn tx<'a>(pg: &PostgresDriver, tx: &'a mut PgConnection) -> Tx<Borrowed<'a>> {
    Tx::new(pg, Borrowed(tx))
}

/// Marks the implementations of [`OpenTransaction`] for transactions of sqlx.
#[derive(Clone, Copy, Debug)]
pub enum Sqlx {}

impl<'a> OpenTransaction<Sqlx> for &'a mut PgConnection {
    type Transaction = Tx<Borrowed<'a>>;

    fn on(self, driver: &AnyDriver) -> Option<Self::Transaction> {
        driver.downcast_ref().map(|pg| tx(pg, self))
    }
}

impl<'a> OpenTransaction<Sqlx> for &'a mut sqlx::Transaction<'_, sqlx::Postgres> {
    type Transaction = Tx<Borrowed<'a>>;

    fn on(self, driver: &AnyDriver) -> Option<Self::Transaction> {
        OpenTransaction::<Sqlx>::on(&mut **self, driver)
    }
}

/// A connection of sqlx with the application's transaction open on it.
pub struct Borrowed<'a>(&'a mut PgConnection);

impl fmt::Debug for Borrowed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Borrowed")
    }
}

impl Statements for Borrowed<'_> {
    async fn run(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<AnswerRow>, Box<dyn Error + Send + Sync>> {
        let arguments = argument::of(values)?;
        // The text is the driver's own, and what varies in it, the name of the schema, was checked and quoted. Kept by
        // name it would be lost behind a pooler, and would take the place of the application's own in the cache.
        let query = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(false);
        let rows = query.fetch_all(&mut *self.0).await.map_err(error::driver_error)?;
        Ok(rows.iter().map(answer_row).collect::<Result<_, _>>().map_err(error::driver_error)?)
    }
}

fn answer_row(row: &PgRow) -> Result<AnswerRow, sqlx::Error> {
    Ok(AnswerRow {
        ord: row.try_get("ord")?,
        verdict: row.try_get("verdict")?,
        detail: row.try_get("detail")?,
        wakes: row.try_get("wakes")?,
    })
}

/// The programs in the guide, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/postgres.md")]
struct Guide;
