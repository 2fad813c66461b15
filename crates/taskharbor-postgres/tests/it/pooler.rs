//! A pooler in transaction mode, without a setting for it in the URL.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use deadpool_postgres::{Manager, Pool, Runtime};
use taskharbor_core::Admin;
use taskharbor_postgres::{Config, PostgresDriver, SchemaName, StatementMode};
use tokio_postgres::NoTls;
use tracing::{Event, Level, Metadata, Subscriber, field, span};

use crate::{
    fixture::{ack, id, job, lease, noon, settle, store},
    harness::{bouncer, store::blank},
};

/// Counts the warnings that name a setting of the URL.
#[derive(Clone, Default)]
struct Warnings {
    count: Arc<AtomicUsize>,
    spans: Arc<AtomicU64>,
}

impl field::Visit for &Warnings {
    fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" && format!("{value:?}").contains("statements=unnamed") {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.spans.fetch_add(1, Ordering::SeqCst) + 1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut &*self);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Works with several drivers on one schema, as several processes would.
async fn work(drivers: &[PostgresDriver]) {
    for turn in 0..5 {
        for (number, driver) in drivers.iter().enumerate() {
            store(driver, (0..3).map(|it| job(format!("{turn}-{number}-{it}"))).collect()).await;
            let calls = (
                lease(driver, "q", 2),
                lease(driver, "q", 1),
                driver.inspect(id("nothing"), noon()),
            );
            let (some, more, _) = tokio::join!(calls.0, calls.1, calls.2);
            settle(driver, &[some, more].concat(), ack()).await;
        }
    }
    assert_eq!(drivers[0].check().await.unwrap(), []);
}

#[tokio::test]
async fn a_plain_url_works_and_says_once_what_to_add() {
    for bouncer in [bouncer::shared(), bouncer::dropping_options()] {
        work_with_a_plain_url(&bouncer.url()).await;
    }
}

async fn work_with_a_plain_url(url: &str) {
    let (schema, _) = blank();
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let config = Config::from_url(url).unwrap();
    let config = config.schema(SchemaName::new(schema).unwrap()).pool_size(3).listen(false);
    let mut drivers = Vec::new();
    for number in 1..=4 {
        let driver = PostgresDriver::open(config.clone()).await.unwrap();
        driver.migrate().await.unwrap();
        assert_eq!(warnings.count.load(Ordering::SeqCst), number, "each driver says it once");
        drivers.push(driver);
    }
    work(&drivers).await;
    assert_eq!(warnings.count.load(Ordering::SeqCst), 4);
    // What the URL says is not repeated.
    let unnamed = config.statements(StatementMode::Unnamed);
    let driver = PostgresDriver::open(unnamed).await.unwrap();
    driver.inspect(id("nothing"), noon()).await.unwrap();
    assert_eq!(warnings.count.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_pool_of_the_application_that_leads_through_a_pooler_works() {
    let (schema, config) = blank();
    PostgresDriver::open(config).await.unwrap().migrate().await.unwrap();
    let mut drivers = Vec::new();
    for _ in 0..3 {
        let server: tokio_postgres::Config = bouncer::shared().url().parse().unwrap();
        let pool = Pool::builder(Manager::new(server, NoTls)).max_size(3);
        let pool = pool.runtime(Runtime::Tokio1).build().unwrap();
        drivers.push(PostgresDriver::from_pool(pool, SchemaName::new(&schema).unwrap()));
    }
    work(&drivers).await;
}
