//! Servers and roles whose defaults are not what the driver's calls need.

use std::time::Duration;

use taskharbor_core::{Admin, Driver};
use taskharbor_postgres::{Config, PostgresDriver};
use tokio::{task::JoinSet, time::timeout};
use tokio_postgres::{Client, NoTls};

use crate::{
    fixture::{ack, counts, job, lease, noon, queue, settle, store},
    harness::server::Server,
};

/// A connection that no default of the server applies to.
async fn sql(server: &Server) -> Client {
    let mut config: tokio_postgres::Config = server.url().parse().unwrap();
    config.application_name("test").options(
        "-c idle_session_timeout=0 -c default_transaction_read_only=off \
         -c default_transaction_isolation=read\\ committed",
    );
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Stores, reserves and acks jobs in many tasks at once. Every call has to succeed.
async fn work(driver: &PostgresDriver, round: &str) {
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (driver, round) = (driver.clone(), round.to_owned());
        tasks.spawn(async move {
            for turn in 0..20 {
                let name = |it| job(format!("{round}-{task}-{turn}-{it}"));
                store(&driver, (0..4).map(name).collect()).await;
                let jobs = lease(&driver, "q", 4).await;
                settle(&driver, &jobs, ack()).await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_succeed_under_every_default_isolation() {
    let server = Server::start_with(
        "default_transaction_isolation = 'serializable'\ndefault_transaction_read_only = on",
    );
    let driver = PostgresDriver::connect(&server.url()).await.unwrap();
    driver.migrate().await.unwrap();
    work(&driver, "server").await;
    let role = "ALTER ROLE taskharbor SET default_transaction_isolation = 'repeatable read'; \
                ALTER ROLE taskharbor SET default_transaction_read_only = on";
    sql(&server).await.batch_execute(role).await.unwrap();
    let driver = PostgresDriver::connect(&server.url()).await.unwrap();
    work(&driver, "role").await;
    // What the URL says counts more than what the driver asks for.
    let url = format!("{}?options=-c%20default_transaction_read_only=on", server.url());
    let reader = PostgresDriver::connect(&url).await.unwrap();
    counts(&reader, noon()).await.unwrap();
    assert!(reader.prune(taskharbor_core::admin::Prune::new(1, noon())).await.is_err());
}

#[tokio::test]
async fn connections_that_the_server_closes_when_they_are_idle_are_replaced() {
    let server = Server::start_with("idle_session_timeout = '100ms'");
    let config = Config::from_url(&server.url()).unwrap().pool_size(4);
    let driver = PostgresDriver::open(config).await.unwrap();
    driver.migrate().await.unwrap();
    let watch = driver.watch(vec![queue("q")]).await.unwrap();
    let sql = sql(&server).await;
    let idle = "SELECT count(*) FILTER (WHERE query NOT LIKE '%LISTEN%'), \
                count(*) FILTER (WHERE query LIKE '%LISTEN%') \
                FROM pg_stat_activity WHERE application_name = 'taskharbor'";
    for round in 0..4 {
        let gone = async {
            loop {
                let row = sql.query_one(idle, &[]).await.unwrap();
                if row.get::<_, i64>(0) == 0 {
                    return row.get::<_, i64>(1);
                }
            }
        };
        let listeners = timeout(Duration::from_secs(20), gone).await.expect("the server cuts");
        // The one that listens is idle by nature, and stays.
        assert_eq!((listeners, watch.can_wake()), (1, true), "{round}");
        let calls = [(); 4].map(|()| counts(&driver, noon()));
        for answer in futures(calls).await {
            answer.unwrap();
        }
    }
}

/// The answers of calls that are made at once.
async fn futures<T: Send + 'static>(calls: [impl Future<Output = T> + Send; 4]) -> [T; 4] {
    let [a, b, c, d] = calls;
    tokio::join!(a, b, c, d).into()
}
