//! An application that has its own tables beside the jobs.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, Event, Exponential, Handlers, Job, JobId, JobRecord,
    JobResult, Observer, Outcome, State, Worker, WorkerBuilder,
};
use taskharbor_postgres::PostgresDriver;
use tokio::{sync::watch, time::timeout};

use crate::{
    environment,
    postgres::store::{self, Store},
    transaction::Library,
};

/// How long a test waits for something that takes much less time.
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The tables. A schema is used by many tests, one after another.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS app_order (id bigint PRIMARY KEY);
CREATE TABLE IF NOT EXISTS app_account (id bigint PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE IF NOT EXISTS app_ledger (job text PRIMARY KEY, amount bigint NOT NULL)";

/// The job of most tests.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "work", output = u64)]
pub(super) struct Work {
    pub(super) name: String,
}

pub(super) fn work(name: impl Into<String>) -> Work {
    Work { name: name.into() }
}

/// A handler of [`Work`] made of a closure, so that a test reads in one place.
pub(super) fn handler<F, Fut>(handler: F) -> Handlers
where
    F: Fn(Work, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = JobResult<Outcome<u64>>> + Send + 'static,
{
    Handlers::new().on(handler)
}

pub(super) struct App<L: Library> {
    pub(super) client: Client,
    pub(super) driver: AnyDriver,
    pub(super) pg: PostgresDriver,
    pub(super) pool: L::Pool,
    pub(super) log: Arc<Log>,
    pub(super) store: Store,
}

impl<L: Library> Clone for App<L> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            driver: self.driver.clone(),
            pg: self.pg.clone(),
            pool: self.pool.clone(),
            log: Arc::clone(&self.log),
            store: self.store.clone(),
        }
    }
}

impl<L: Library> App<L> {
    pub(super) async fn new() -> Self {
        let store = store::named().await;
        store.sql().await.batch_execute(TABLES).await.unwrap();
        let pg = store.driver().clone();
        let driver = AnyDriver::new(pg.clone());
        let url = environment::required("TASKHARBOR_TEST_POSTGRES");
        let pool = L::pool(&url, store.application(), store.schema(), 4);
        let client = Client::new(&driver);
        Self { client, driver, pg, pool, log: Arc::default(), store }
    }

    pub(super) async fn db(&self) -> L::Db {
        L::connect(&self.pool).await.unwrap()
    }

    /// A worker with eight slots whose retries come soon.
    pub(super) fn worker(&self, handlers: Handlers) -> WorkerBuilder {
        self.worker_on(&self.driver, handlers)
    }

    pub(super) fn worker_on(&self, driver: &AnyDriver, handlers: Handlers) -> WorkerBuilder {
        Worker::builder(driver)
            .handlers(handlers)
            .queue("default", 8)
            .retry(Exponential::new().base(Duration::from_millis(10)).multiplier(1.0))
            .observer(Arc::clone(&self.log))
    }

    /// The first number that a query answers.
    pub(super) async fn number(&self, sql: &str) -> i64 {
        self.store.sql().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// How many rows a table has that others can see.
    pub(super) async fn count(&self, table: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM {table}")).await
    }

    /// Waits until a query answers more than zero. Each look takes a round trip and nothing more.
    pub(super) async fn until(&self, sql: &str) {
        let sql_connection = self.store.sql().await;
        let looking = async {
            while sql_connection.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
        };
        timeout(WAIT_LIMIT, looking).await.unwrap_or_else(|_| panic!("it never came: {sql}"));
    }

    /// Waits until a connection of this test waits for a lock.
    pub(super) async fn until_a_session_waits_for_a_lock(&self) {
        self.until(&format!(
            "SELECT count(*) FROM pg_stat_activity
             WHERE application_name = '{}' AND wait_event_type = 'Lock'",
            self.store.application()
        ))
        .await;
    }

    pub(super) async fn record(&self, id: &JobId) -> Option<JobRecord> {
        let now = self.driver.now().await.unwrap();
        self.driver.inspect(id.clone(), now).await.unwrap()
    }

    pub(super) async fn state(&self, id: &JobId) -> Option<State> {
        self.record(id).await.map(|record| record.state)
    }

    /// The store contradicts itself nowhere.
    pub(super) async fn check(&self) {
        assert_eq!(self.driver.check().await.unwrap(), []);
    }
}

/// What comes in time.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(WAIT_LIMIT, future).await.expect("it takes too long")
}

/// What workers told, in order.
#[derive(Default)]
pub(super) struct Log {
    lines: watch::Sender<Vec<String>>,
}

impl Log {
    /// Adds a line of the test's own.
    pub(super) fn note(&self, line: impl Into<String>) {
        self.lines.send_modify(|lines| lines.push(line.into()));
    }

    /// What was told that begins like this.
    pub(super) fn all(&self, beginning: &str) -> Vec<String> {
        self.lines.borrow().iter().filter(|it| it.starts_with(beginning)).cloned().collect()
    }

    /// How many lines begin like this.
    pub(super) fn count(&self, start: &str) -> usize {
        self.lines.borrow().iter().filter(|line| line.starts_with(start)).count()
    }

    pub(super) async fn until(&self, start: &str) {
        self.until_count(start, 1).await;
    }

    /// Waits until this many lines begin like this.
    pub(super) async fn until_count(&self, start: &str, count: usize) {
        let mut lines = self.lines.subscribe();
        let enough = |lines: &Vec<String>| {
            lines.iter().filter(|line| line.starts_with(start)).count() >= count
        };
        if timeout(WAIT_LIMIT, lines.wait_for(enough)).await.is_err() {
            panic!("{count} lines with {start:?} did not come: {:#?}", self.lines.borrow());
        }
    }
}

impl Observer for Log {
    fn on(&self, event: &Event<'_>) {
        self.note(match event {
            Event::Started { job, .. } => format!("started {}", job.id),
            Event::Failed { job, error, .. } => format!("failed {} {error}", job.id),
            Event::Succeeded { job, .. } => format!("succeeded {}", job.id),
            Event::Retried { job, .. } => format!("retried {}", job.id),
            Event::DeadLettered { job, reason, .. } => format!("dead-lettered {} {reason}", job.id),
            Event::StoreUnavailable { error, .. } => format!("unavailable {error}"),
            Event::LeaseExtended { job, .. } => format!("extended {}", job.id),
            Event::LeaseLost { job, why, .. } => format!("lost {} {why}", job.id),
            _ => return,
        });
    }
}

/// The step after [`Work`].
#[derive(Serialize, Deserialize, Job)]
#[job(type = "after", input = u64, output = u64)]
pub(super) struct After {}

pub(super) async fn after(job: After, cx: Context) -> JobResult<u64> {
    Ok(cx.input(&job)? + 1)
}
