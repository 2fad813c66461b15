//! The cost of an idle worker for its server.

use std::{sync::Arc, time::Duration};

use taskharbor::{Client, JobId};
use tokio::time::{Instant, sleep};

use crate::{
    harness::server::Server,
    workload::{Chore, Ledger, config, open, sql, until, worker},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_wake_ups_makes_few_calls_and_is_on_time() {
    let server = Server::start_with("autovacuum = off");
    let driver = open(config(&server.url())).await;
    let ledger = Arc::<Ledger>::default();
    let running = worker(&driver, &ledger).build().unwrap().start();
    let elsewhere = open(config(&server.url())).await;
    let client = Client::new(&elsewhere);
    let chore = |name: &str| Chore { name: name.to_owned(), millis: 0 };
    client.enqueue(chore("first")).await.unwrap();
    until("the first is done", 10 * SECOND, async || ledger.done() == 1).await;

    let due = Instant::now() + 18 * SECOND;
    let later = JobId::new("later").unwrap();
    client.enqueue(chore("later")).id(later).delay(18 * SECOND).await.unwrap();
    // A session that is idle reports what it did within ten seconds.
    sleep(11 * SECOND).await;
    let look = sql(&server.url()).await;
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database \
                 WHERE datname = current_database()";
    let before: i64 = look.query_one(count, &[]).await.unwrap().get(0);
    until("the other is begun", 20 * SECOND, async || ledger.begun("later") == 1).await;
    let late = Instant::now().saturating_duration_since(due);
    sleep((due + 11 * SECOND).saturating_duration_since(Instant::now())).await;
    let after: i64 = look.query_one(count, &[]).await.unwrap().get(0);
    println!("{} statements in 18 s, and {late:?} late", after - before);
    // To reserve and to settle the one, a few looks, signs of life, announcements, the time, and what was
    // asked here: 16 in all. Sessions that were used shortly before report that late. Polls would make it
    // 43.
    assert!(after - before <= 32, "{} statements", after - before);
    assert!(late < SECOND / 2, "{late:?}");
    running.shutdown().await.unwrap();
}
