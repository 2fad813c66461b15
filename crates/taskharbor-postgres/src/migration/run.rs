//! Running the steps of a migration.
//!
//! A step that meets a long reader stops waiting for the lock after a moment, so
//! that the writers behind it go on, and is tried again. An index is built over connections of its
//! own: one builds, and one holds a lock in an open transaction so that no other process builds the
//! same index at the same time. A process that waits for that lock asks for it again and again,
//! because the builder waits for all who wait inside of a statement.

use std::time::Duration;

use taskharbor_core::DriverError;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Installed, Plan};
use crate::{
    SchemaName,
    error::{driver_error, is_blocked},
    open::Unfit,
    session::Session,
};

/// Time between two attempts to be the one process that builds an index.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Held by the process that builds an index.
const TRY_LOCK: &str =
    "SELECT pg_try_advisory_xact_lock(hashtextextended('taskharbor:{name}:index', 0))";

#[derive(Debug, thiserror::Error)]
enum Stuck {
    #[error(
        "step {step} of the migration got no lock for {waited:?}: find the transaction that is in \
         the way in pg_locks and pg_stat_activity, end it, and run the migration again"
    )]
    Blocked { step: i64, waited: Duration, source: DriverError },
    #[error(
        "step {step} of the migration needs connections of its own: run `taskharbor migrate up`, or \
         migrate with a driver that was opened from a URL"
    )]
    NoConnection { step: i64 },
}

/// Does all steps that were not done.
pub(crate) async fn run(
    session: &Session,
    schema: &SchemaName,
    plan: &Plan,
) -> Result<(), DriverError> {
    let installed = Installed::find(session, schema).await?;
    if installed.min_compatible > plan.newest() {
        return Err(Unfit::too_new(schema, installed, plan.newest()));
    }
    for (number, step) in plan.numbered().filter(|(number, _)| *number > installed.step) {
        let (queries, block) = plan.texts(schema, number, step);
        if !queries.is_empty() {
            build(session, schema, number, &queries).await?;
        }
        apply(session, number, &block, plan).await?;
    }
    Ok(())
}

/// Runs the block of a step, again while a lock is not to be had.
async fn apply(
    session: &Session,
    number: i64,
    block: &str,
    plan: &Plan,
) -> Result<(), DriverError> {
    // A time limit for statements is for calls, and a step may rewrite what calls only read.
    let script = format!("BEGIN; SET LOCAL statement_timeout = 0;\n{block}COMMIT");
    let start = Instant::now();
    loop {
        match session.batch(&script).await {
            Err(error) if is_blocked(&error) => {
                let waited = start.elapsed();
                if waited > plan.limit {
                    let stuck = Stuck::Blocked { step: number, waited, source: error };
                    return Err(DriverError::unavailable(stuck));
                }
                tracing::info!(step = number, "a step of the migration waits for a lock");
                sleep(plan.pause).await;
            }
            answer => return answer,
        }
    }
}

/// Runs the commands that the queries answer, outside of a transaction, one process at a time.
async fn build(
    session: &Session,
    schema: &SchemaName,
    number: i64,
    queries: &[String],
) -> Result<(), DriverError> {
    let guard = Own::connect(session, number).await?;
    let try_lock = TRY_LOCK.replace("{name}", schema.as_str());
    loop {
        guard.client.batch_execute("BEGIN").await.map_err(driver_error)?;
        if guard.texts(&try_lock).await? == ["t"] {
            break;
        }
        guard.client.batch_execute("ROLLBACK").await.map_err(driver_error)?;
        sleep(ASK_EVERY).await;
    }
    // The process that was faster has done it.
    if Installed::find(session, schema).await?.step >= number {
        return Ok(());
    }
    let builder = Own::connect(session, number).await?;
    for query in queries {
        for command in builder.texts(query).await? {
            builder.client.batch_execute(&command).await.map_err(driver_error)?;
        }
    }
    Ok(())
}

/// A connection that ends when it is dropped.
struct Own {
    client: Client,
    task: JoinHandle<()>,
}

impl Own {
    async fn connect(session: &Session, step: i64) -> Result<Self, DriverError> {
        let Some((client, connection)) = session.connect_to_migrate().await? else {
            return Err(DriverError::backend(Stuck::NoConnection { step }));
        };
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { client, task })
    }

    /// The first column of the answer.
    async fn texts(&self, sql: &str) -> Result<Vec<String>, DriverError> {
        let messages = self.client.simple_query(sql).await.map_err(driver_error)?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(rows.collect())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.task.abort();
    }
}
