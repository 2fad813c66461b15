//! How far a reserve walks through the index at the edges: behind dead and leased rows, over expired leases, over jobs that are
//! to be cancelled, over many priorities and many queues.
//!
//! The server counts what it walks through, so these tests measure no time.

use tokio_postgres::Client;

use crate::harness::store::{Store, named};

/// Entries of an index that are walked through, and 20 for each page. A look at one queue is worth about 100.
const ENTRIES_OF_A_LOOK: i64 = 150;

const NOW: i64 = 50_000_000;

/// A store whose tables are not vacuumed.
async fn filled(fill: &str) -> (Store, Client) {
    let store = named().await;
    let sql = store.sql().await;
    sql.batch_execute("ALTER TABLE th_live SET (autovacuum_enabled = off); ALTER TABLE th_job SET (autovacuum_enabled = off)")
        .await
        .unwrap();
    sql.batch_execute(fill).await.unwrap_or_else(|error| panic!("{error:?}"));
    (store, sql)
}

/// Stores `count` jobs of a queue, from a number on, that have been due since the time that is their number.
fn jobs(queue: &str, from: i64, count: i64) -> String {
    format!(
        "INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload)
             SELECT n, 1, 0, 'j' || n, '{queue}', 't', 'x' FROM generate_series({from}::bigint, {from} + {count} - 1) n;
         INSERT INTO th_live (seq, available_at, priority, queue)
             SELECT seq, seq, priority, queue FROM th_job WHERE seq >= {from};"
    )
}

/// Reserves 10 of each of the queues, behind a start in each if one is given; the change is not kept.
async fn walked(sql: &Client, queues: &[String], start: Option<i64>) -> (i64, i64) {
    let count = queues.len();
    let starts = if start.is_some() {
        format!("ARRAY(SELECT generate_series(1, {count}))")
    } else {
        "'{}'".to_owned()
    };
    let all = |value: i64| {
        start.map_or("'{}'".to_owned(), |_| format!("array_fill({value}::bigint, '{{{count}}}')"))
    };
    let call = format!(
        "SELECT count(id) FROM th_reserve_v1('{{{}}}', array_fill(10::bigint, '{{{count}}}'), 'w', {NOW}, 60000000, 7, 0, {starts}::bigint[], {}, {}, {}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')",
        queues.join(","),
        all(0),
        all(start.unwrap_or(0)),
        all(0),
    );
    let walk = "SELECT th_walk_count_v1()";
    sql.batch_execute("BEGIN").await.unwrap();
    let before: i64 = sql.query_one(walk, &[]).await.unwrap().get(0);
    let granted: i64 = sql.query_one(&call, &[]).await.unwrap().get(0);
    let after: i64 = sql.query_one(walk, &[]).await.unwrap().get(0);
    sql.batch_execute("ROLLBACK").await.unwrap();
    (granted, after - before)
}

fn named_queues(count: usize) -> Vec<String> {
    (1..=count).map(|it| format!("q{it}")).collect()
}

#[tokio::test]
async fn eight_queues_of_dead_rows_are_begun_behind_them() {
    const DEAD: i64 = 5_000;
    let (store, sql) = filled("").await;
    let mut reader = store.sql().await;
    // The dead rows stay where they are while a snapshot can see them.
    let snapshot = reader
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    for queue in 1..=8 {
        sql.batch_execute(&jobs(&format!("q{queue}"), queue * 100_000, DEAD)).await.unwrap();
    }
    snapshot.query("SELECT count(*) FROM th_live", &[]).await.unwrap();
    sql.batch_execute("DELETE FROM th_live; DELETE FROM th_job").await.unwrap();
    let (granted, far) = walked(&sql, &named_queues(8), None).await;
    assert!(granted == 0 && far >= 8 * DEAD, "{far}");
    for queues in [7, 8] {
        let (granted, near) = walked(&sql, &named_queues(queues), Some(2_000_000)).await;
        assert!(granted == 0 && near < 8 * 4 * ENTRIES_OF_A_LOOK, "{queues} queues: {near}");
    }
    drop(snapshot);
}

#[tokio::test]
async fn leased_rows_in_front_are_begun_behind() {
    let fill = jobs("q1", 1, 25_000)
        + "UPDATE th_live SET lease_expires_at = 60000000, lease_token = 1, holder = 'w';"
        + &jobs("q1", 30_000, 100);
    let (_store, sql) = filled(&fill).await;
    let (granted, far) = walked(&sql, &named_queues(1), None).await;
    assert!(granted == 10 && far >= 25_000, "{far}");
    let (granted, near) = walked(&sql, &named_queues(1), Some(29_000)).await;
    assert!(granted == 10 && near < 4 * ENTRIES_OF_A_LOOK, "{near}");
}

#[tokio::test]
async fn expired_leases_are_taken_where_they_stand() {
    let fill = jobs("q1", 1, 25_000)
        + "UPDATE th_live SET lease_expires_at = 1000000, lease_token = 1, holder = 'w'; VACUUM ANALYZE th_live";
    let store = named().await;
    let sql = store.sql().await;
    for statement in fill.split(';') {
        sql.batch_execute(statement).await.unwrap();
    }
    let (granted, near) = walked(&sql, &named_queues(1), None).await;
    assert!(granted == 10 && near < 4 * ENTRIES_OF_A_LOOK, "{near}");
}

#[tokio::test]
async fn jobs_that_are_to_be_cancelled_are_walked_through_once() {
    let marked =
        "lease_expires_at = 1000000, lease_token = 1, holder = 'w', cancel_requested = true";
    // None of another kind, and each second one.
    for (which, granted_is) in [("true", 0), ("seq % 2 = 0", 10)] {
        let fill = jobs("q1", 1, 20_000)
            + &format!("UPDATE th_live SET {marked} WHERE {which}; VACUUM ANALYZE th_live");
        let store = named().await;
        let sql = store.sql().await;
        for statement in fill.split(';') {
            sql.batch_execute(statement).await.unwrap();
        }
        let (granted, walk) = walked(&sql, &named_queues(1), None).await;
        assert_eq!(granted, granted_is);
        // About 500 of them are ended, and a call that has found some looks at 500 rows at once. Old versions of
        // rows count as well, while the snapshot of another test keeps VACUUM from removing them.
        assert!(walk < 10_000, "{which}: {walk}");
    }
}

#[tokio::test]
async fn only_the_priorities_that_are_needed_are_looked_at() {
    let priorities = "UPDATE th_live SET priority = seq % 2000; UPDATE th_job SET priority = seq % 2000; VACUUM ANALYZE th_live";
    let store = named().await;
    let sql = store.sql().await;
    for statement in (jobs("q1", 1, 20_000) + priorities).split(';') {
        sql.batch_execute(statement).await.unwrap();
    }
    // Ten jobs of the highest priority.
    let (granted, near) = walked(&sql, &named_queues(1), None).await;
    assert!(granted == 10 && near < 4 * ENTRIES_OF_A_LOOK, "{near}");
    // Nothing is due: the documented bound is a few looks for each priority.
    sql.batch_execute(
        "UPDATE th_live SET lease_expires_at = 60000000, lease_token = 1, holder = 'w'",
    )
    .await
    .unwrap();
    let (granted, all) = walked(&sql, &named_queues(1), None).await;
    assert!(granted == 0 && all < 2_000 * 4 * ENTRIES_OF_A_LOOK, "{all}");
}

#[tokio::test]
async fn an_empty_queue_among_many_is_one_look() {
    let (_store, sql) = filled(&jobs("q77", 1, 100)).await;
    let (granted, walk) = walked(&sql, &named_queues(5_000), None).await;
    assert!(granted == 10 && walk < 5_000 * ENTRIES_OF_A_LOOK, "{walk}");
    // Lanes are not looked for in a store that has none.
    let scans = "SELECT coalesce(sum(pg_stat_get_xact_numscans(i::regclass)), 0)::bigint FROM unnest('{th_live_lane,th_live_before_lane}'::text[]) i";
    sql.batch_execute("BEGIN").await.unwrap();
    let call = "SELECT count(*) FROM th_reserve_v1(ARRAY(SELECT 'q' || n FROM generate_series(1, 1000) n), array_fill(1::bigint, '{1000}'), 'w', 50000000, 60000000, 7, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')";
    sql.query_one(call, &[]).await.unwrap();
    assert_eq!(sql.query_one(scans, &[]).await.unwrap().get::<_, i64>(0), 0);
    sql.batch_execute("ROLLBACK; SELECT setval('th_seq', 1000); SELECT th_enqueue('t', queue => 'q5', lane => 'l')")
        .await
        .unwrap();
    sql.batch_execute("BEGIN").await.unwrap();
    let granted: i64 = sql.query_one(call, &[]).await.unwrap().get(0);
    assert!(sql.query_one(scans, &[]).await.unwrap().get::<_, i64>(0) > 0);
    // Two jobs, and the rows without a job of the queue with lanes and of all others.
    assert!(granted >= 2, "{granted}");
    sql.batch_execute("ROLLBACK").await.unwrap();
}
