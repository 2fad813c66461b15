//! Logical replication: a publication of all tables, and sequences that it does not copy.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, NewJob, State,
    admin::{Action, Change, Manage, NewSchedule, Prune, Requeue},
    driver::Enqueue,
    job::{FailurePolicy, JobSet},
    name::{IdempotencyKey, ScheduleName},
};
use taskharbor_postgres::PostgresDriver;

use crate::{
    fixture::{ack, after, configure, fail, flow, id, job, lease, noon, settle, store, store_set},
    harness::{
        server::Server,
        store::{connect, named},
    },
    migration::words,
};

#[tokio::test]
async fn every_table_has_a_replica_identity() {
    let on = named().await;
    let sql = "SELECT relname::text FROM pg_class c WHERE relnamespace = $1::text::regnamespace
        AND relkind IN ('r', 'p') AND relreplident <> 'f' AND NOT EXISTS (
            SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid
            AND CASE WHEN c.relreplident = 'd' THEN i.indisprimary ELSE i.indisreplident END)";
    let rows = on.sql().await.query(sql, &[&on.schema()]).await.unwrap();
    let missing: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(missing.is_empty(), "add a primary key to {missing:?}");
}

#[tokio::test]
async fn everything_works_while_all_tables_are_published() {
    let server = Server::start_with("wal_level = logical");
    let driver = PostgresDriver::connect(&server.url()).await.unwrap();
    driver.migrate().await.unwrap();
    let sql = connect(&server.url(), "test", "taskharbor").await.unwrap();
    sql.batch_execute("CREATE PUBLICATION p FOR ALL TABLES").await.unwrap();
    let key = IdempotencyKey::new("k").unwrap();
    store(&driver, vec![job("a").idempotency_key(key), job("b"), job("c")]).await;
    let members = flow("f", FailurePolicy::Block);
    store_set(&driver, JobSet::flow(members)).await;
    let jobs = lease(&driver, "q", 3).await;
    settle(&driver, &jobs[..1], ack()).await;
    settle(&driver, &jobs[1..], fail()).await;
    let manage = async |name: &str, action: Action| {
        let answers = driver.manage(Manage::new(vec![id(name)], action, noon())).await.unwrap();
        answers.into_iter().next().unwrap().unwrap()
    };
    assert_eq!(manage("b", Action::Requeue(Requeue::new())).await, State::Ready);
    manage("c", Action::Purge).await;
    manage("b", Action::Cancel).await;
    let later = after(Duration::from_secs(7200));
    let prune = Prune::new(100, later).done_before(later).cancelled_before(later);
    assert_eq!(driver.prune(prune).await.unwrap(), 2);
    assert_eq!(driver.check().await.unwrap(), []);
}

/// Enqueues `late` into a store whose sequence was not copied, and does what the error says.
async fn enqueue_with_a_sequence_that_is_behind(late: NewJob) {
    let on = named().await;
    let driver = on.another_with(|config| config.listen(false)).await;
    store(&driver, (0..200).map(|it| job(format!("job-{it}"))).collect()).await;
    for name in ["one", "two"] {
        let new = NewSchedule::new(ScheduleName::new(name).unwrap(), b"x".as_slice(), None);
        configure(&driver, Change::PutSchedule(new), noon()).await.unwrap();
    }
    let sql = on.sql().await;
    let behind = "SELECT setval('th_seq', 1), setval('th_revision', 1)";
    sql.batch_execute(behind).await.unwrap();
    assert_eq!(driver.check().await.unwrap().len(), 1);
    let request = Enqueue::new(vec![late.clone().into()], noon());
    let error = driver.enqueue(request).await.unwrap_err();
    assert!(matches!(error, DriverError::Backend(_)), "{error:?}");
    let said = words(&error);
    let start = said.find("SELECT setval").unwrap_or_else(|| panic!("{said}"));
    let command = said[start..].split('`').next().unwrap();
    assert!(command.contains(on.schema()), "{command}");
    sql.batch_execute(command).await.unwrap();
    store(&driver, vec![late]).await;
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_sequence_that_is_behind_is_named_with_the_command_that_helps() {
    let generated = JobId::generate(noon()).unwrap();
    enqueue_with_a_sequence_that_is_behind(job(generated.as_str())).await;
}

/// A key takes another statement, the function.
#[tokio::test]
async fn a_sequence_that_is_behind_is_named_by_the_function_too() {
    let key = IdempotencyKey::new("k").unwrap();
    enqueue_with_a_sequence_that_is_behind(job("late").idempotency_key(key)).await;
}

#[tokio::test]
async fn a_sequence_that_is_behind_is_named_to_callers_of_sql_too() {
    let on = named().await;
    store(&on, (0..200).map(|it| job(format!("job-{it}"))).collect()).await;
    let sql = on.sql().await;
    for enqueue in [
        "SELECT th_enqueue('work', id => 'late')",
        "SELECT th_enqueue_many('work', ARRAY['1']::jsonb[])",
    ] {
        sql.batch_execute("SELECT setval('th_seq', 1)").await.unwrap();
        let error = sql.batch_execute(enqueue).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.message(), "the sequence th_seq is behind the table th_job");
        let (_, command) = error.hint().unwrap().split_once("run ").unwrap();
        sql.batch_execute(command).await.unwrap();
        sql.batch_execute(enqueue).await.unwrap();
    }
    assert_eq!(on.check().await.unwrap(), []);
}
