//! Installing the schema: by many at once, without the rights, over what is there already.

use std::error::Error;

use taskharbor_core::driver::{OutputQuery, Settlement};
use taskharbor_core::{
    Admin, Driver, DriverError,
    admin::{Change, Filter, List, ListSettings, Manage, Prune},
    driver::Outputs,
    flow::ListFlows,
};
use taskharbor_core::{
    admin::Action,
    driver::{Demand, ExtendLeases, Extension, LeaseToken, Reserve, Settle},
    name::Holder,
};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName, migration};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::{
    fixture::{LEASE, ack, configure, counts, id, job, lease, noon, queue, settle, store},
    harness::{
        environment,
        server::Server,
        store::{blank, connect, named},
    },
};

/// Everything that the migration makes, in words that do not name the schema.
const CATALOG: &str = "
SELECT replace(what, quote_ident($1::text) || '.', '') FROM (
    SELECT format('%s %s.%s %s %s %s', c.relkind, c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        a.attnotnull, pg_get_expr(d.adbin, d.adrelid)) || a.attcollation || coalesce(c.reloptions::text, '')
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = $1::regnamespace
    UNION ALL
    SELECT replace(pg_get_indexdef(indexrelid), $1::text || '.', '') FROM pg_index
    JOIN pg_class c ON c.oid = indexrelid AND c.relnamespace = $1::regnamespace
    UNION ALL
    SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = $1::regnamespace
    UNION ALL
    SELECT replace(pg_get_functiondef(oid), $1::text, '') || coalesce(proacl::text, '') FROM pg_proc
    WHERE pronamespace = $1::regnamespace
    UNION ALL
    SELECT relname || pg_get_viewdef(oid) FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'v'
) AS all_of_it (what) ORDER BY 1";

async fn client() -> Client {
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    connect(&url, "th_test_migration", "pg_catalog").await.unwrap()
}

async fn catalog(client: &Client, schema: &str) -> Vec<String> {
    // Names are written with their schema unless it is searched, and the schemas differ.
    client.batch_execute(&format!("SET search_path = {schema}")).await.unwrap();
    let sql = CATALOG.replace("$1", &format!("'{schema}'"));
    let rows = client.query(&sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0).replace(schema, "")).collect()
}

/// The message of an error and of all that caused it.
pub(crate) fn words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words += &format!(": {cause}");
        source = cause.source();
    }
    words
}

#[tokio::test]
async fn ten_processes_that_start_at_once_install_one_schema() {
    let (schema, config) = blank();
    let mut starts = JoinSet::new();
    for _ in 0..10 {
        let config = config.clone();
        starts.spawn(async move {
            let driver = PostgresDriver::open(config).await.unwrap();
            driver.migrate().await.unwrap();
            driver
        });
    }
    let drivers = starts.join_all().await;
    for (number, driver) in drivers.iter().enumerate() {
        store(driver, vec![job(format!("job-{number}"))]).await;
    }
    let found = counts(&drivers[0], noon()).await.unwrap();
    assert_eq!(found[0].states.ready, 10);
    let rows = client().await.query(&format!("SELECT FROM {schema}.th_meta"), &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let (schema, config) = blank();
    let driver = PostgresDriver::open(config).await.unwrap();
    driver.migrate().await.unwrap();
    store(&driver, vec![job("a")]).await;
    let client = client().await;
    let before = catalog(&client, &schema).await;
    let oids = "SELECT array_agg(oid::text ORDER BY oid) FROM pg_proc WHERE pronamespace = $1::text::regnamespace";
    let functions: Vec<String> = client.query_one(oids, &[&schema]).await.unwrap().get(0);
    driver.migrate().await.unwrap();
    assert_eq!(catalog(&client, &schema).await, before);
    let again: Vec<String> = client.query_one(oids, &[&schema]).await.unwrap().get(0);
    assert_eq!(again, functions, "not even made anew");
    assert!(driver.inspect(id("a"), noon()).await.unwrap().is_some());
}

#[tokio::test]
async fn the_printed_sql_installs_what_migrate_does() {
    let ((one, config), (other, _)) = (blank(), blank());
    let driver = PostgresDriver::open(config).await.unwrap();
    driver.migrate().await.unwrap();
    let sql = migration(&SchemaName::new(&other).unwrap());
    assert!(sql.is_ascii(), "it may be printed and sent in any encoding");
    let client = client().await;
    for _ in 0..2 {
        client.batch_execute(&sql).await.unwrap();
    }
    let (migrated, printed) = (catalog(&client, &one).await, catalog(&client, &other).await);
    assert!(migrated.len() > 150, "{}", migrated.len());
    assert_eq!(migrated, printed);
}

#[tokio::test]
async fn what_others_have_in_the_schema_stays_as_it_is() {
    let (schema, config) = blank();
    // The store that was lent has the roles.
    drop(named().await);
    let client = client().await;
    let theirs = format!(
        "CREATE SCHEMA {schema}; CREATE FUNCTION {schema}.theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    );
    client.batch_execute(&theirs).await.unwrap();
    let driver = PostgresDriver::open(config).await.unwrap();
    driver.migrate().await.unwrap();
    let granted = format!("SELECT {schema}.th_grant('worker', 'th_test_worker')");
    client.query_one(&granted, &[]).await.unwrap();
    let may = "SELECT has_function_privilege($1, $2 || '.' || $3, 'EXECUTE')";
    for (role, function, allowed) in [
        ("public", "theirs()", true),
        ("public", "th_now_v1()", false),
        ("th_test_worker", "th_now_v1()", true),
        ("th_test_worker", "th_grant(text, text)", false),
    ] {
        let may: bool = client.query_one(may, &[&role, &schema, &function]).await.unwrap().get(0);
        assert_eq!(may, allowed, "{role} {function}");
    }
}

#[tokio::test]
async fn installations_side_by_side_do_not_see_each_other() {
    let ((_, one), (_, other)) = (blank(), blank());
    let one = PostgresDriver::open(one).await.unwrap();
    let other = PostgresDriver::open(other).await.unwrap();
    one.migrate().await.unwrap();
    other.migrate().await.unwrap();
    store(&one, vec![job("a")]).await;
    assert!(lease(&other, "q", 1).await.is_empty());
    assert!(counts(&other, noon()).await.unwrap().is_empty());
    store(&other, vec![job("a")]).await;
    configure(&other, Change::PauseQueue(queue("q")), noon()).await.unwrap();
    settle(&one, &lease(&one, "q", 1).await, ack()).await;
    assert_eq!(counts(&other, noon()).await.unwrap()[0].states.ready, 1);
}

#[tokio::test]
async fn a_schema_may_have_the_name_of_a_keyword() {
    let client = client().await;
    client.batch_execute("DROP SCHEMA IF EXISTS \"select\" CASCADE").await.unwrap();
    let (_, config) = blank();
    let driver =
        PostgresDriver::open(config.schema(SchemaName::new("select").unwrap())).await.unwrap();
    driver.migrate().await.unwrap();
    store(&driver, vec![job("a")]).await;
    settle(&driver, &lease(&driver, "q", 1).await, ack()).await;
    assert!(driver.check().await.unwrap().is_empty());
    client.query("SELECT * FROM \"select\".th_enqueue('work')", &[]).await.unwrap();
    client.batch_execute("DROP SCHEMA \"select\" CASCADE").await.unwrap();
}

/// Calls everything that needs the schema, and answers what each says.
async fn call_everything(driver: &PostgresDriver) -> Vec<(&'static str, Option<DriverError>)> {
    let token = LeaseToken::random().unwrap();
    let holder = Holder::new("worker").unwrap();
    let demands = vec![Demand::new(queue("q"), 1)];
    let extensions = vec![Extension::new(id("a"), token)];
    let settlements = vec![Settlement::new(id("a"), token, ack())];
    let outputs = vec![OutputQuery::of(id("a"))];
    vec![
        (
            "enqueue",
            driver
                .enqueue(taskharbor_core::driver::Enqueue::new(vec![job("a").into()], noon()))
                .await
                .err(),
        ),
        ("reserve", driver.reserve(Reserve::new(demands, holder, noon(), LEASE)).await.err()),
        ("extend", driver.extend_leases(ExtendLeases::new(extensions, noon(), LEASE)).await.err()),
        ("settle", driver.settle(Settle::new(settlements, noon())).await.err()),
        ("outputs", driver.outputs(Outputs::new(outputs, 1)).await.err()),
        ("inspect", driver.inspect(id("a"), noon()).await.err()),
        ("list", driver.list(List::new(Filter::all(), 1, noon())).await.err()),
        ("counts", counts(driver, noon()).await.err()),
        ("manage", driver.manage(Manage::new(vec![id("a")], Action::Cancel, noon())).await.err()),
        ("configure", configure(driver, Change::PauseQueue(queue("q")), noon()).await.err()),
        ("settings", driver.settings(ListSettings::new(1)).await.err()),
        ("prune", driver.prune(Prune::new(1, noon()).done_before(noon())).await.err()),
        ("flow", driver.flow(id("a"), noon()).await.err()),
        ("list_flows", driver.list_flows(ListFlows::new(1, noon())).await.err()),
        ("check", driver.check().await.err()),
        ("store_time", driver.store_time().await.err()),
    ]
}

async fn everything_says(driver: &PostgresDriver, expected: &[&str]) {
    for (call, error) in call_everything(driver).await {
        let error = error.unwrap_or_else(|| panic!("{call} did not fail"));
        assert!(matches!(error, DriverError::Backend(_)), "{call}: {error:?}");
        let said = words(&error);
        assert!(expected.iter().all(|it| said.contains(it)), "{call}: {said}");
    }
}

#[tokio::test]
async fn every_call_without_a_schema_names_the_migration() {
    let (schema, config) = blank();
    let driver = PostgresDriver::open(config).await.unwrap();
    everything_says(&driver, &[&schema, "is not installed", "`taskharbor migrate up`"]).await;
}

#[tokio::test]
async fn a_schema_that_is_too_old_names_the_migration_and_one_too_new_the_program() {
    let (schema, config) = blank();
    let driver = PostgresDriver::open(config.clone()).await.unwrap();
    driver.migrate().await.unwrap();
    let client = client().await;
    let set = async |version: i32, min_compatible: i32| {
        let sql = format!(
            "UPDATE {schema}.th_meta SET version = {version}, min_compatible = {min_compatible}"
        );
        client.batch_execute(&sql).await.unwrap();
    };
    set(0, 0).await;
    let older = PostgresDriver::open(config.clone()).await.unwrap();
    everything_says(&older, &[&schema, "is not installed", "migrate()"]).await;
    set(2, 2).await;
    everything_says(&older, &[&schema, "version 2", "newer"]).await;
    let newer = "version 2 and needs a program that knows version 2, newer than this program knows";
    let refused = PostgresDriver::open(config.clone()).await.unwrap_err();
    assert!(words(&refused).contains(newer), "{refused}");
    let refused = words(&older.migrate().await.unwrap_err());
    assert!(refused.contains(newer), "{refused}");
    // A program that has begun works on: the functions that it calls stay.
    store(&driver, vec![job("a")]).await;
    // A newer schema that this program can use is used.
    set(2, 1).await;
    let compatible = PostgresDriver::open(config).await.unwrap();
    compatible.migrate().await.unwrap();
    store(&compatible, vec![job("b")]).await;
}

/// A role on the server of a test that may connect, with a driver of its own.
async fn stranger(server: &Server, schema: &str) -> (Client, PostgresDriver) {
    let client = connect(&server.url(), "owner", "pg_catalog").await.unwrap();
    client.batch_execute("CREATE ROLE stranger LOGIN").await.unwrap();
    let url = server.url().replace("taskharbor@", "stranger@");
    let config = Config::from_url(&url).unwrap().schema(SchemaName::new(schema).unwrap());
    (client, PostgresDriver::open(config).await.unwrap())
}

#[tokio::test]
async fn without_the_right_to_create_a_schema_only_an_installed_one_is_migrated() {
    let server = Server::start();
    let (client, driver) = stranger(&server, "jobs").await;
    let refused = driver.migrate().await.unwrap_err();
    assert!(matches!(refused, DriverError::Backend(_)), "{refused:?}");
    let said = words(&refused);
    assert!(said.contains("may not") && said.contains("permission denied for database"), "{said}");
    // The owner of the database installs the schema; now the missing privilege is one on the schema.
    client.batch_execute(&migration(&SchemaName::new("jobs").unwrap())).await.unwrap();
    let said = words(&driver.migrate().await.unwrap_err());
    assert!(said.contains("permission denied for schema jobs"), "{said}");
    client.batch_execute("SELECT jobs.th_grant('worker', 'stranger')").await.unwrap();
    driver.migrate().await.unwrap();
    settle(
        &driver,
        &{
            store(&driver, vec![job("a")]).await;
            lease(&driver, "q", 1).await
        },
        ack(),
    )
    .await;
    // A schema of one's own needs no right on the database.
    client.batch_execute("CREATE SCHEMA mine AUTHORIZATION stranger").await.unwrap();
    let url = server.url().replace("taskharbor@", "stranger@");
    let config = Config::from_url(&url).unwrap().schema(SchemaName::new("mine").unwrap());
    PostgresDriver::open(config).await.unwrap().migrate().await.unwrap();
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let server = Server::start();
    let client = connect(&server.url(), "owner", "pg_catalog").await.unwrap();
    for encoding in ["LATIN1", "SQL_ASCII", "EUC_JP"] {
        let create = format!(
            "CREATE DATABASE x{encoding} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        );
        client.batch_execute(&create).await.unwrap();
        let (server_part, _) =
            server.url().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let url = format!("{server_part}/x{}", encoding.to_lowercase());
        let driver = PostgresDriver::connect(&url).await.unwrap();
        let refused = driver.migrate().await.unwrap_err();
        assert!(matches!(refused, DriverError::Backend(_)), "{encoding}: {refused:?}");
        let said = words(&refused);
        assert!(said.contains("not encoded in UTF8"), "{encoding}: {said}");
    }
}

#[tokio::test]
async fn migrating_again_does_not_disturb_workers() {
    let store_of = named().await;
    store(&store_of, (0..200).map(|it| job(format!("job-{it}"))).collect()).await;
    let another = store_of.another().await;
    let migrating = async {
        for _ in 0..50 {
            another.migrate().await.unwrap();
        }
    };
    let working = async {
        for _ in 0..50 {
            let jobs = lease(&store_of, "q", 4).await;
            assert_eq!(jobs.len(), 4);
            settle(&store_of, &jobs, ack()).await;
        }
    };
    // A transaction that has locks on everything holds up neither.
    let mut client = store_of.sql().await;
    let reader = client.transaction().await.unwrap();
    reader.batch_execute("SELECT FROM th_jobs; SELECT FROM th_meta FOR UPDATE").await.unwrap();
    tokio::join!(migrating, working);
    reader.rollback().await.unwrap();
    assert!(store_of.check().await.unwrap().is_empty());
}
