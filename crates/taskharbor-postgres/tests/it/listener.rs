//! The connection over which wake-ups come: cut, silent, behind a pooler, and back again.

use std::time::Duration;

use taskharbor_core::{Admin, Driver, QueueName, driver::Watch};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    fixture::{id, job, noon, queue, store_at},
    harness::{
        proxy::Proxy,
        server::{Server, Stop},
        store,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// Waits until wake-ups come, or until they do not.
async fn until(watch: &Watch, reaching: bool, limit: Duration) -> Duration {
    let start = Instant::now();
    let wait = async {
        while watch.can_wake() != reaching {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(limit, wait).await.unwrap_or_else(|_| panic!("wake-ups: still not {reaching}"));
    start.elapsed()
}

/// Whether a job that another enqueues wakes the watch.
async fn is_woken_by(watch: &mut Watch, other: &PostgresDriver, id: &str) {
    // What else there was to tell does not count.
    while timeout(Duration::from_millis(200), watch.woken()).await.is_ok() {}
    store_at(other, job(id), noon()).await;
    assert!(timeout(5 * SECOND, watch.woken()).await.expect("a wake-up").is_some());
}

#[tokio::test]
async fn wake_ups_resume_each_time_that_the_connection_is_cut() {
    let store = store::named().await;
    let other = store.another().await;
    let mut watch = store.watch(vec![queue("q")]).await.unwrap();
    let sql = store.sql().await;
    let listeners = "FROM pg_stat_activity WHERE query ~ 'LISTEN|advisory' \
                     AND pid <> pg_backend_pid() \
                     AND application_name = current_setting('application_name')";
    for _ in 0..15 {
        until(&watch, true, 5 * SECOND).await;
        let kill = format!("SELECT pg_terminate_backend(pid) {listeners}");
        assert_eq!(sql.query(&kill, &[]).await.unwrap().len(), 1);
        until(&watch, false, 5 * SECOND).await;
    }
    let took = until(&watch, true, 5 * SECOND).await;
    println!("the last time took {took:?}");
    let count = format!("SELECT count(*) {listeners}");
    assert_eq!(sql.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 1);
    is_woken_by(&mut watch, &other, "a").await;
}

/// Servers of version 17 and newer can be told to keep few notifications.
#[tokio::test]
async fn a_server_that_takes_no_more_notifications_still_takes_jobs() {
    let version = "SELECT current_setting('server_version_num')::int";
    let shared = store::named().await.sql().await;
    if shared.query_one(version, &[]).await.unwrap().get::<_, i32>(0) < 170_000 {
        return;
    }
    let server = Server::start_with("max_notify_queue_pages = 64");
    let driver = PostgresDriver::open(Config::from_url(&server.url()).unwrap()).await.unwrap();
    driver.migrate().await.unwrap();
    let connect = async || store::connect(&server.url(), "full", "pg_catalog").await.unwrap();
    // One session listens but reads nothing, so the server has to keep all notifications.
    let (deaf, loud) = (connect().await, connect().await);
    deaf.batch_execute("LISTEN x").await.unwrap();
    deaf.batch_execute("BEGIN; SELECT 1").await.unwrap();
    let fill = "SELECT pg_notify('x', repeat('x', 7000) || $1::text)";
    let mut told = 0;
    while loud.query(fill, &[&told.to_string()]).await.is_ok() {
        told += 1;
        assert!(told < 10_000, "it is never full");
    }
    assert!(told > 10, "{told}");
    for number in 0..5 {
        // After a while of silence a call tells others itself.
        sleep(Duration::from_millis(20)).await;
        store_at(&driver, job(format!("a{number}")), noon()).await;
    }
    deaf.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn the_longest_name_of_a_schema_leaves_room_for_listening() {
    let (schema, config) = store::blank();
    let name = format!("{schema}_{}", "x".repeat(SchemaName::MAX_BYTES - schema.len() - 1));
    let driver = PostgresDriver::open(config.schema(SchemaName::new(name).unwrap())).await.unwrap();
    driver.migrate().await.unwrap();
    let watch = driver.watch(vec![queue("q")]).await.unwrap();
    until(&watch, true, 5 * SECOND).await;
}

#[tokio::test]
async fn wake_ups_resume_after_a_restart() {
    let server = Server::start();
    let open = async || {
        PostgresDriver::open(Config::from_url(&server.url()).unwrap().pool_size(2)).await.unwrap()
    };
    let (driver, other) = (open().await, open().await);
    driver.migrate().await.unwrap();
    let mut watch = driver.watch(vec![queue("q")]).await.unwrap();
    until(&watch, true, 5 * SECOND).await;
    server.stop(Stop::Immediate);
    until(&watch, false, 5 * SECOND).await;
    server.start_again();
    let took = until(&watch, true, 10 * SECOND).await;
    println!("{took:?} after the restart");
    // The first caller that uses a connection from before finds that it is dead.
    let _ = other.store_time().await;
    let _ = other.store_time().await;
    is_woken_by(&mut watch, &other, "a").await;
}

#[tokio::test]
async fn a_connection_that_went_silent_is_found_out_and_replaced() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let url = server.url().replace(&server.port().to_string(), &proxy.port().to_string());
    let config = Config::from_url(&url).unwrap().pool_size(2).call_deadline(2 * SECOND);
    let driver = PostgresDriver::open(config).await.unwrap();
    driver.migrate().await.unwrap();
    let mut watch = driver.watch(vec![queue("q")]).await.unwrap();
    until(&watch, true, 5 * SECOND).await;
    proxy.swallow();
    let start = Instant::now();
    until(&watch, false, 30 * SECOND).await;
    until(&watch, true, 10 * SECOND).await;
    println!("healed after {:?}", start.elapsed());
    assert!(start.elapsed() < 35 * SECOND);
    let other = PostgresDriver::open(Config::from_url(&server.url()).unwrap()).await.unwrap();
    is_woken_by(&mut watch, &other, "a").await;
}

#[tokio::test]
async fn behind_a_pooler_no_watch_waits_for_wake_ups() {
    let store = store::pooled().await;
    let watch = store.watch(vec![QueueName::new("q").unwrap()]).await.unwrap();
    // For longer than it takes to find out.
    let end = Instant::now() + 7 * SECOND;
    while Instant::now() < end {
        assert!(!watch.can_wake());
        sleep(SECOND / 10).await;
    }
}

/// It is not known whether such a call happened. If it did, watches are woken as by any other.
#[tokio::test]
async fn jobs_of_dropped_calls_send_wake_ups_too() {
    let store = store::named().await;
    let other = store.another().await;
    let mut watch = other.watch(vec![queue("q")]).await.unwrap();
    until(&watch, true, 5 * SECOND).await;
    let mut stored = 0;
    for round in 0..40 {
        while timeout(Duration::from_millis(120), watch.woken()).await.is_ok() {}
        // This one tells so itself; so the next, a moment later, does not.
        store_at(&store, job(format!("{round}-a")), noon()).await;
        assert!(watch.woken().await.is_some());
        let call = store_at(&store, job(format!("{round}-b")), noon());
        let limit = Duration::from_micros(200 + 50 * round);
        if timeout(limit, call).await.is_ok() {
            continue;
        }
        let woken = timeout(SECOND, watch.woken()).await;
        let found = store.inspect(id(format!("{round}-b")), noon()).await.unwrap();
        if found.is_some() {
            stored += 1;
            assert!(woken.is_ok(), "no wake-up arrived for {round}-b");
        }
    }
    println!("{stored} of them were stored");
}
