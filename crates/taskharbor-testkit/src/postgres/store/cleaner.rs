//! Emptying and removing schemas, on connections that belong to no test.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Error};

use super::{Way, connect, pool};
use crate::postgres::bouncer;

/// How long the connections of a test may outlive it before its schema is given up.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// The time between two looks at whether they are gone.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The tables that were written to since they were last emptied: one that never was has no pages,
/// and emptying it would cost as much as any other.
const WRITTEN_TO: &str = "
SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'p') AND relname NOT IN ('th_meta', 'th_role')
    AND pg_relation_size(oid) > 0";

/// Sequences that no column owns are not restarted together with a table.
const RESTART_SEQUENCES: &str = "
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE schemaname = $1 AND last_value IS NOT NULL";

/// Schemas of processes that are no longer connected, and those of one that had our id before us.
const LEFTOVERS: &str = "
SELECT nspname::text FROM pg_namespace, substring(nspname FROM '^(th_test_[0-9]+)_[0-9]+$') AS owner
WHERE owner = $1
    OR owner IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = owner)";

/// Connections for work on schemas; clones share them.
#[derive(Clone)]
pub(super) struct Cleaner {
    url: Arc<str>,
    idle: Arc<Mutex<Vec<Client>>>,
}

impl Cleaner {
    pub(super) fn new(url: String) -> Self {
        Self { url: url.into(), idle: Arc::default() }
    }

    async fn connection(&self) -> Result<Client, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(client) => Ok(client),
            None => connect(&self.url, &pool::name(), "pg_catalog").await,
        }
    }

    fn keep(&self, client: Client) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    /// Removes what earlier test processes have left on this server. From here on we are connected,
    /// which tells others that we live.
    pub(super) async fn remove_leftovers(&self) -> Result<(), Error> {
        let client = self.connection().await?;
        client.batch_execute("SELECT pg_advisory_lock(hashtext('th_test'))").await?;
        let leftovers = client.query(LEFTOVERS, &[&pool::name()]).await?;
        for schema in leftovers.iter().map(|row| row.get::<_, &str>(0)) {
            client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
        }
        client.batch_execute("SELECT pg_advisory_unlock_all()").await?;
        self.keep(client);
        Ok(())
    }

    /// Empties all tables, once no session can write to them any more: a call whose future was
    /// dropped may still be in flight.
    pub(super) async fn empty(
        &self,
        schema: &str,
        application: &str,
        way: Way,
    ) -> Result<(), String> {
        let emptied = timeout(WAIT_LIMIT, self.empty_once_unused(schema, application, way)).await;
        let in_time = emptied.map_err(|_| "its connections stayed open".to_owned())?;
        in_time.map_err(|error| format!("{error:?}"))
    }

    async fn empty_once_unused(
        &self,
        schema: &str,
        application: &str,
        way: Way,
    ) -> Result<(), Error> {
        let client = self.connection().await?;
        until_closed(&client, application, way).await?;
        truncate(&client, schema).await?;
        self.keep(client);
        Ok(())
    }
}

async fn until_closed(client: &Client, application: &str, way: Way) -> Result<(), Error> {
    let backends = "SELECT pid FROM pg_stat_activity WHERE application_name = $1";
    let backends = client.prepare(backends).await?;
    loop {
        let rows = client.query(&backends, &[&application]).await?;
        let backends: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        let gone = match way {
            Way::Pooled => bouncer::shared().is_done_with(application, &backends).await,
            Way::Direct => backends.is_empty(),
        };
        if gone {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn truncate(client: &Client, schema: &str) -> Result<(), Error> {
    let tables: Option<String> = client.query_one(WRITTEN_TO, &[&schema]).await?.get(0);
    if let Some(tables) = tables {
        client.batch_execute(&format!("TRUNCATE {tables} RESTART IDENTITY CASCADE")).await?;
    }
    client.query(RESTART_SEQUENCES, &[&schema]).await.map(drop)
}
