//! Money that is moved by jobs while workers die and connections break: no transfer is lost, none happens twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor::{Context, JobResult, Options, Outcome, Running, Worker};
use tokio::time::timeout;

use super::app::{App, Work, handler, work};
use crate::transaction::Library;

const TRANSFERS: usize = 150;
const ACCOUNTS: usize = 4;
/// The number of starts of the handler after which the test causes trouble.
const TROUBLE_EVERY: usize = 12;
const TROUBLES: usize = 12;
/// The whole has to be done in this time.
const LIMIT: Duration = Duration::from_secs(60);

/// Moves one coin and completes the job with it.
async fn transfer<L: Library>(app: &App<L>, job: &Work, cx: &Context) -> JobResult<Outcome<u64>> {
    let number: usize = job.name.parse()?;
    let (from, to) = (number % ACCOUNTS, (number + 1) % ACCOUNTS);
    let mut db = L::connect(&app.pool).await?;
    let mut open = L::begin(&mut db).await?;
    let note = format!("INSERT INTO app_ledger VALUES ('{}', 1)", cx.id());
    L::execute(&mut open, &note).await?;
    // All handlers lock in the same order, so that they cannot deadlock.
    let lock = format!("SELECT FROM app_account WHERE id IN ({from}, {to}) ORDER BY id FOR UPDATE");
    L::execute(&mut open, &lock).await?;
    for (account, by) in [(from, -1), (to, 1)] {
        let change =
            format!("UPDATE app_account SET balance = balance + {by} WHERE id = {account}");
        L::execute(&mut open, &change).await?;
    }
    let done = cx.ack_in(L::tx(&app.pg, &mut open), 0).await?;
    // Some change their minds, in each way there is.
    match (number % 10, cx.attempt()) {
        (3, 1) => return Err("changed its mind".into()),
        (5, 1) => panic!("changed its mind"),
        (7, 1) => L::rollback(open).await?,
        _ => L::commit(open).await?,
    }
    Ok(done)
}

/// A worker that dies with short leases, so that what it held comes back soon.
fn start<L: Library>(app: &App<L>, starts: &Arc<AtomicUsize>) -> Running {
    let (state, starts) = (app.clone(), Arc::clone(starts));
    let handlers = handler(move |job, cx| {
        let app = state.clone();
        starts.fetch_add(1, Ordering::SeqCst);
        app.log.note("start");
        async move { transfer(&app, &job, &cx).await }
    });
    let worker: Worker = app
        .worker(handlers)
        .lease(Duration::from_secs(1))
        .poll(Duration::from_millis(50))
        .crash_limit(1_000)
        .build()
        .unwrap();
    worker.start()
}

/// Ends one connection of this test, the application's or the driver's, but not the one that asks for it.
async fn break_a_connection<L: Library>(app: &App<L>) {
    let asking = app.store.sql().await;
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()
        ORDER BY random() LIMIT 1";
    asking.execute(terminate, &[]).await.unwrap();
}

pub async fn every_transfer_happens_exactly_once_despite_faults<L: Library>() {
    let app = App::<L>::new().await;
    let accounts =
        format!("INSERT INTO app_account SELECT n, 100 FROM generate_series(0, {ACCOUNTS} - 1) n");
    app.store.sql().await.batch_execute(&accounts).await.unwrap();
    let jobs = (0..TRANSFERS).map(|number| work(number.to_string()));
    let options = Options::new().max_attempts(1_000);
    app.client.enqueue_many(jobs).options(options).await.unwrap();

    let starts = Arc::new(AtomicUsize::new(0));
    let running = timeout(LIMIT, async {
        let mut running = start(&app, &starts);
        for trouble in 1..=TROUBLES {
            app.log.until_count("start", trouble * TROUBLE_EVERY).await;
            if trouble % 3 == 0 {
                running.abort();
                running = start(&app, &starts);
            } else {
                break_a_connection(&app).await;
            }
        }
        app.until("SELECT (count(*) = 0)::int::bigint FROM th_live").await;
        running
    });
    let running = running.await.expect("the transfers were made in time");
    running.shutdown().await.unwrap();

    assert_eq!(app.count("app_ledger").await, TRANSFERS as i64);
    let done = "SELECT count(*) FROM th_record r JOIN app_ledger l ON l.job = r.id WHERE r.ended_as = 'done'";
    assert_eq!(app.number(done).await, TRANSFERS as i64);
    assert_eq!(app.number("SELECT sum(balance)::bigint FROM app_account").await, 400);
    // Each account has given and taken exactly its share.
    let moved = |account: usize| {
        (0..TRANSFERS).filter(|number| number % ACCOUNTS == account).count() as i64
    };
    for account in 0..ACCOUNTS {
        let balance = format!("SELECT balance FROM app_account WHERE id = {account}");
        let expected = 100 - moved(account) + moved((account + ACCOUNTS - 1) % ACCOUNTS);
        assert_eq!(app.number(&balance).await, expected, "account {account}");
    }
    // There was trouble indeed.
    assert!(starts.load(Ordering::SeqCst) > TRANSFERS);
    app.check().await;
}
