//! The driver on connections that the application makes and keeps.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool, Runtime};
use taskharbor_core::{Admin, Driver, DriverError, State, driver::Enqueue};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName, StatementMode};
use tokio_postgres::NoTls;

use crate::{
    fixture::{ack, counts, id, job, lease, noon, queue, settle, store},
    harness::{environment, store::named},
};

/// A pool as an application would make it.
fn pool(application: &str) -> Pool {
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let mut server: tokio_postgres::Config = url.parse().unwrap();
    server.application_name(application);
    let pool = Pool::builder(Manager::new(server, NoTls)).max_size(2);
    pool.runtime(Runtime::Tokio1).build().unwrap()
}

#[tokio::test]
async fn a_driver_on_the_pool_of_the_application_does_what_others_do() {
    let theirs = named().await;
    let schema = SchemaName::new(theirs.schema()).unwrap();
    let pool = pool(theirs.application());
    let config = Config::from_url("postgres://").unwrap().schema(schema.clone());
    let unnamed = config.statements(StatementMode::Unnamed);
    for (round, driver) in [
        PostgresDriver::from_pool(pool.clone(), schema.clone()),
        PostgresDriver::from_pool_with(pool.clone(), unnamed),
    ]
    .into_iter()
    .enumerate()
    {
        driver.migrate().await.unwrap();
        let names = ["a", "b"].map(|name| format!("{name}-{round}"));
        store(&driver, names.iter().map(job).collect()).await;
        let leased = lease(&driver, "q", 2).await;
        assert_eq!(leased.len(), 2);
        settle(&driver, &leased, ack()).await;
        for name in names {
            let record = theirs.inspect(id(name), noon()).await.unwrap().unwrap();
            assert_eq!(record.state, State::Done);
        }
        assert_eq!(driver.check().await.unwrap(), []);
        // It has no connection of its own over which wake-ups could come.
        let watch = driver.watch(vec![queue("q")]).await.unwrap();
        assert!(!watch.can_wake());
        driver.close().await.unwrap();
        assert!(matches!(counts(&driver, noon()).await, Err(DriverError::Closed)));
        assert!(pool.get().await.is_ok(), "the pool is the application's to close");
    }
}

#[tokio::test]
async fn the_settings_beside_the_server_are_those_that_were_given() {
    let theirs = named().await;
    let schema = SchemaName::new(theirs.schema()).unwrap();
    let config = Config::from_url("postgres://").unwrap().schema(schema);
    let deadline = Duration::from_secs(2);
    let driver = PostgresDriver::from_pool_with(
        pool(theirs.application()),
        config.call_deadline(deadline).limits(theirs.limits().with_payload_bytes(3).unwrap()),
    );
    let answers = driver.enqueue(Enqueue::new(vec![job("too-large").into()], noon())).await;
    assert!(answers.unwrap()[0].is_err());
    let sql = theirs.sql().await;
    sql.batch_execute("BEGIN; LOCK TABLE th_live, th_job, th_finished").await.unwrap();
    let error = counts(&driver, noon()).await.unwrap_err();
    assert!(matches!(error, DriverError::Unavailable(_)), "{error:?}");
    sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(counts(&driver, noon()).await.unwrap(), []);
}
