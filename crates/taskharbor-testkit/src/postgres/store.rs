//! An empty store for each test, on the server that all of them share.
//!
//! A store is a schema. Making one takes far longer than most tests, so that a schema is lent to a
//! test, emptied when the test has returned it, and lent again.

mod cleaner;
mod pool;

use std::sync::Arc;

use taskharbor_postgres::{Config, PostgresDriver, SchemaName, StatementMode};
use tokio_postgres::{Client, NoTls};

use self::pool::Loan;
use crate::{
    Intercept, KeepAlive,
    postgres::{bouncer, environment},
};

/// How many connections the driver of a test has: enough for calls to overlap.
const POOL_SIZE: usize = 2;

/// How a store is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Straight from the driver to the server.
    Direct,
    /// Through pgbouncer, which may give a connection to another client after every transaction.
    Pooled,
}

impl Way {
    fn url(self) -> String {
        match self {
            Self::Direct => environment::required("TASKHARBOR_TEST_POSTGRES"),
            Self::Pooled => bouncer::shared().url(),
        }
    }
}

/// As whom the server knows a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who installed the schema.
    Owner,
    /// A role that may do what `th_grant` lets a part do, and nothing else.
    Part(&'static str),
}

impl Role {
    /// The parts that every schema of the tests is granted to.
    pub const PARTS: [&'static str; 3] = ["worker", "producer", "viewer"];

    /// The name of the role that has this part in all schemas of tests.
    pub fn name(part: &str) -> String {
        format!("th_test_{part}")
    }

    /// What a connection is told as it starts, so that everything on it is done by this role.
    fn options(self) -> String {
        match self {
            Self::Owner => String::new(),
            Self::Part(part) => format!("?options=-c%20role={}", Self::name(part)),
        }
    }
}

/// A driver on an empty store that no other test uses. When the last clone of it is dropped, the
/// store goes to another test.
pub type Store = Intercept<PostgresDriver, KeepAlive<Arc<Loan>>>;

impl Store {
    /// A driver with this way of sending statements on a store of its own.
    pub async fn open(way: Way, role: Role, statements: StatementMode) -> Self {
        let loan = pool::take(way).await;
        let config = config_as(way, role, &loan.schema, &loan.application).statements(statements);
        let driver = PostgresDriver::open(config).await.expect("the server can be reached");
        Self::new(driver, KeepAlive(Arc::new(loan)))
    }

    fn loan(&self) -> &Loan {
        &self.hook().0
    }

    /// Another driver on the same store, as another process would have.
    pub async fn another(&self) -> PostgresDriver {
        self.another_with(|config| config).await
    }

    /// As [`Store::another`], with settings of its own.
    pub async fn another_with(&self, settings: impl FnOnce(Config) -> Config) -> PostgresDriver {
        let Loan { schema, application, way } = self.loan();
        let driver = PostgresDriver::open(settings(config(*way, schema, application))).await;
        driver.expect("the server can be reached")
    }

    /// Another driver on the same store, with another role.
    pub async fn another_as(&self, role: Role) -> PostgresDriver {
        let Loan { schema, application, way } = self.loan();
        let driver = PostgresDriver::open(config_as(*way, role, schema, application)).await;
        driver.expect("the server can be reached")
    }

    /// The schema in which everything is.
    pub fn schema(&self) -> &str {
        &self.loan().schema
    }

    /// The name that connections of this test have to have, so that the store is not given to
    /// another test before they have ended.
    pub fn application(&self) -> &str {
        &self.loan().application
    }

    /// A connection to the server on which the test looks at the tables itself.
    pub async fn sql(&self) -> Client {
        let client = connect(&Way::Direct.url(), &self.loan().application, self.schema()).await;
        client.expect("the server can be reached")
    }
}

/// How a driver reaches a schema; the server knows its connections by the name of the application.
fn config(way: Way, schema: &str, application: &str) -> Config {
    config_as(way, Role::Owner, schema, application)
}

fn config_as(way: Way, role: Role, schema: &str, application: &str) -> Config {
    Config::from_url(&format!("{}{}", way.url(), role.options()))
        .expect("the URL of the server is one")
        .schema(SchemaName::new(schema).expect("it is a plain name"))
        .application_name(application)
        .pool_size(POOL_SIZE)
}

/// A driver as applications have it.
pub async fn named() -> Store {
    Store::open(Way::Direct, Role::Owner, StatementMode::Named).await
}

/// A driver that leaves no statement prepared on a connection, with the privileges of a worker.
pub async fn unnamed() -> Store {
    Store::open(Way::Direct, Role::Part("worker"), StatementMode::Unnamed).await
}

/// A driver that reaches the server through pgbouncer.
pub async fn pooled() -> Store {
    Store::open(Way::Pooled, Role::Owner, StatementMode::Unnamed).await
}

/// The name of a schema that does not exist yet, and how to reach it. The next test process
/// on this server removes it.
pub fn blank() -> (String, Config) {
    let schema = pool::new_name();
    let config = config(Way::Direct, &schema, &schema);
    (schema, config)
}

/// A connection that ends when its client is dropped.
pub async fn connect(
    url: &str,
    application: &str,
    schema: &str,
) -> Result<Client, tokio_postgres::Error> {
    let mut config: tokio_postgres::Config = url.parse()?;
    config.application_name(application).options(format!("-c search_path={schema}"));
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use taskharbor_core::{
        Admin, Driver, JobId, JobType, NewJob, QueueName, Timestamp, driver::Enqueue,
    };

    use super::*;

    fn noon() -> Timestamp {
        Timestamp::from_micros(1_794_744_000_000_000).unwrap()
    }

    fn job(id: &str) -> NewJob {
        let (queue, job_type) = (QueueName::new("q").unwrap(), JobType::new("work").unwrap());
        NewJob::new(JobId::new(id).unwrap(), queue, job_type, b"".as_slice())
    }

    /// What is installed and granted stays.
    fn is_emptied(table: &str) -> bool {
        !["th_meta", "th_role"].contains(&table)
    }

    async fn rows(store: &Store) -> i64 {
        let client = store.sql().await;
        let tables = client
            .query("SELECT tablename FROM pg_tables WHERE schemaname = $1", &[&store.schema()])
            .await
            .unwrap();
        let mut rows = 0;
        for table in tables.iter().map(|row| row.get::<_, String>(0)).filter(|it| is_emptied(it)) {
            let count = format!("SELECT count(*) FROM {}.{table}", store.schema());
            rows += client.query_one(&count, &[]).await.unwrap().get::<_, i64>(0);
        }
        rows
    }

    async fn put(store: &Store) {
        let request = Enqueue::new(vec![job("a").into()], noon());
        store.enqueue(request).await.unwrap().remove(0).unwrap();
    }

    #[tokio::test]
    async fn schemas_are_reused_empty() {
        let mut seen = HashSet::new();
        for _ in 0..200 {
            let store = named().await;
            assert_eq!(rows(&store).await, 0, "{} was not emptied", store.schema());
            if !seen.insert(store.schema().to_owned()) {
                return;
            }
            put(&store).await;
            assert!(rows(&store).await > 0);
        }
        panic!("no schema came back");
    }

    #[tokio::test]
    async fn stores_that_are_open_at_once_have_nothing_in_common() {
        let (one, other) = tokio::join!(named(), unnamed());
        assert_ne!(one.schema(), other.schema());
        put(&one).await;
        let id = JobId::new("a").unwrap();
        assert!(one.inspect(id.clone(), noon()).await.unwrap().is_some());
        assert!(other.inspect(id, noon()).await.unwrap().is_none());
        one.driver().close().await.unwrap();
    }

    #[tokio::test]
    async fn two_drivers_on_one_store_see_the_same_jobs() {
        let store = named().await;
        let another = store.another().await;
        put(&store).await;
        let found = another.inspect(JobId::new("a").unwrap(), noon()).await.unwrap();
        assert!(found.is_some());
    }

    #[tokio::test]
    async fn a_schema_is_made_when_it_is_migrated() {
        let store = named().await;
        let (schema, config) = blank();
        let exists = "SELECT to_regnamespace($1) IS NOT NULL";
        let exists = async |client: &Client| {
            client.query_one(exists, &[&schema]).await.unwrap().get::<_, bool>(0)
        };
        let client = store.sql().await;
        let driver = PostgresDriver::open(config).await.unwrap();
        assert!(!exists(&client).await);
        driver.migrate().await.unwrap();
        assert!(exists(&client).await);
    }

    #[tokio::test]
    async fn a_store_is_emptied_only_after_its_last_connection_is_gone() {
        let store = named().await;
        let schema = store.schema().to_owned();
        let lingering = store.sql().await;
        drop(store);
        for _ in 0..20 {
            assert_ne!(named().await.schema(), schema, "its tables may still be written to");
        }
        lingering.simple_query("SELECT 1").await.unwrap();
    }
}
