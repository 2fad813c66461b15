//! [`Tx`]: the application's own transaction, for jobs that are stored and completed in it.

use std::{error::Error, future::Future};

use taskharbor_core::{
    DriverError, JobType,
    driver::{Answers, DriverId, Enqueue, Enqueued, SeenJob, Settle, Settled, Transaction},
    error::{Refusal, Rejected},
};
use tokio_postgres::types::{ToSql, Type};

use crate::{PostgresDriver, answer::AnswerRow, seen, value::Value};

/// An open transaction of a PostgreSQL client in which statements can be run: `tokio_postgres`
/// here, other clients in separate crates.
pub trait Statements: Send {
    /// Runs a statement whose answer has four columns, each of which may be NULL: `ord int8`,
    /// `verdict text`, `detail text` and `wakes text[]`.
    fn run(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<AnswerRow>, Box<dyn Error + Send + Sync>>> + Send;
}

/// The application's own transaction, as [`PostgresDriver::tx`] makes it.
///
/// Its changes happen if and only if the application commits. At READ COMMITTED, enqueueing a job
/// that is stored already, or whose key is held, returns the existing job, and the transaction goes
/// on. At REPEATABLE READ and above, a job that another transaction has stored since this one began
/// cannot be seen. Then the call fails as [`DriverError::Unavailable`] with SQLSTATE 40001, and the
/// transaction has to be started again, as after any other conflict at those levels.
#[derive(Debug)]
pub struct Tx<S> {
    driver: PostgresDriver,
    statements: S,
}

impl<S> Tx<S> {
    /// Wraps an open transaction on the database of this driver. For crates that bridge another client: see
    /// [`bridge`](crate::bridge).
    pub fn new(driver: &PostgresDriver, statements: S) -> Self {
        Self { driver: driver.clone(), statements }
    }
}

impl<S: Statements> Transaction for Tx<S> {
    fn driver(&self) -> DriverId {
        self.driver.identity()
    }

    async fn enqueue(&mut self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        self.driver.shared.session.check_open()?;
        self.driver.enqueue_in(&mut self.statements, request).await
    }

    async fn settle(&mut self, request: Settle) -> Answers<Settled, Refusal> {
        self.driver.shared.session.check_open()?;
        self.driver.settle_in(&mut self.statements, request).await
    }

    async fn stored(&mut self, job_type: JobType) -> Result<Vec<SeenJob>, DriverError> {
        let sql = self.driver.schema().sql(seen::STATEMENT);
        let values = [Value::Text(Some(job_type.as_str()))];
        let rows = run(&mut self.statements, &sql, &values).await?;
        rows.iter().map(seen::read).collect()
    }
}

pub(crate) async fn run(
    statements: &mut impl Statements,
    sql: &str,
    values: &[Value<'_>],
) -> Result<Vec<AnswerRow>, DriverError> {
    statements.run(sql, values).await.map_err(failed)
}

fn failed(error: Box<dyn Error + Send + Sync>) -> DriverError {
    match error.downcast::<tokio_postgres::Error>() {
        Ok(error) => crate::error::driver_error(*error),
        Err(error) => match error.downcast::<DriverError>() {
            Ok(error) => *error,
            Err(error) => DriverError::Backend(error.into()),
        },
    }
}

/// A transaction of `tokio_postgres`, or of `deadpool_postgres`, which is one.
impl Statements for &tokio_postgres::Transaction<'_> {
    async fn run(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<AnswerRow>, Box<dyn Error + Send + Sync>> {
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value.bind(), value.sql_type())).collect();
        let rows = self.query_typed(sql, &typed).await?;
        Ok(rows.iter().map(AnswerRow::read).collect::<Result<_, _>>()?)
    }
}

impl PostgresDriver {
    /// Wraps the application's own transaction, for `client.enqueue(job).within(pg.tx(&tx))` and
    /// `context.ack_in(pg.tx(&tx), output)`. It must be a transaction on the database of this
    /// driver.
    ///
    /// Takes a transaction of `tokio_postgres` or of `deadpool_postgres`.
    #[must_use]
    pub fn tx<'a>(
        &self,
        tx: &'a tokio_postgres::Transaction<'a>,
    ) -> Tx<&'a tokio_postgres::Transaction<'a>> {
        Tx::new(self, tx)
    }
}
