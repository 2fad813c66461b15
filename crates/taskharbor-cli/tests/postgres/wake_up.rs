//! A worker whose store sends no wake-ups for a while.

use serde_json::Value;
use taskharbor_testkit::postgres::{server::Server, store::connect};

use crate::{
    scenario::{answer, program, worker::signal},
    start::worker,
};

/// Refuses new connections to the server's database, and ends the connections on which workers listen.
const DEAF: &str = "ALTER DATABASE postgres ALLOW_CONNECTIONS false;
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE query ~ 'LISTEN|advisory' AND datname = 'postgres'";
const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE query ~ 'LISTEN|advisory' AND datname = 'postgres'";

#[test]
fn a_worker_says_when_wake_ups_do_not_arrive_and_when_they_do() {
    let server = Server::start();
    let url = server.url();
    let migrated = answer(program().args(["migrate", "up", "--url", &url]));
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let elsewhere = url.replace("/postgres", "/template1");
    let sql = runtime.block_on(connect(&elsewhere, "test", "pg_catalog")).unwrap();

    let (mut first, mut said) = worker(&url, &[]);
    let (mut second, mut told) = worker(&url, &["--json"]);
    said.until("started");
    told.until("started");
    runtime.block_on(async {
        while sql.query_one(LISTENERS, &[]).await.unwrap().get::<_, i64>(0) < 2 {
            tokio::task::yield_now().await;
        }
        sql.batch_execute(DEAF).await.unwrap();
    });
    said.until("no wake-ups from the store, jobs are found by polling: ");
    let line: Value = serde_json::from_str(&told.until(r#""event":"no_wake_ups""#)).unwrap();
    assert!(line["message"].as_str().unwrap().contains("found by polling"), "{line}");
    let allow = "ALTER DATABASE postgres ALLOW_CONNECTIONS true";
    runtime.block_on(sql.batch_execute(allow)).unwrap();
    said.until("wake-ups from the store arrive again");
    told.until(r#""event":"wake_ups_back""#);
    for worker in [&mut first, &mut second] {
        signal(worker, "-TERM");
        assert_eq!(worker.wait().unwrap().code(), Some(0));
    }
}
