//! Actions and reads of an operator in psql.

use taskharbor_core::{Admin, State, job::JobSet};
use tokio_postgres::{Client, error::SqlState};

use crate::{
    fixture::{ack, counts, fail, id, job, job_in, lease, noon, settle, store, store_set},
    guide::Example,
    harness::store::{Store, named},
};

async fn text(sql: &Client, statement: &str) -> String {
    sql.query_one(statement, &[]).await.unwrap_or_else(|it| panic!("{statement}: {it:?}")).get(0)
}

/// What the server says about a statement that it refuses.
async fn refusal(sql: &Client, statement: &str, code: &SqlState) -> String {
    let error = sql.query_one(statement, &[]).await.unwrap_err();
    assert_eq!(error.code(), Some(code), "{statement}: {error:?}");
    error.as_db_error().unwrap().message().to_owned()
}

async fn state(on: &Store, text: &str) -> State {
    on.inspect(id(text), noon()).await.unwrap().unwrap().state
}

#[tokio::test]
async fn a_job_is_cancelled_and_requeued() {
    const REFUSED: &SqlState = &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    let on = named().await;
    let sql = on.sql().await;
    store(&on, vec![job("a"), job_in("runs", "b"), job_in("runs", "c")]).await;
    assert_eq!(text(&sql, "SELECT th_cancel('a')").await, "cancelled");
    assert_eq!(state(&on, "a").await, State::Cancelled);
    let said = refusal(&sql, "SELECT th_cancel('a')", REFUSED).await;
    assert_eq!(said, "cannot cancel job 'a': it is cancelled");
    assert_eq!(text(&sql, "SELECT th_requeue('a')").await, "ready");
    let said = refusal(&sql, "SELECT th_requeue('a')", REFUSED).await;
    assert_eq!(said, "cannot requeue job 'a': it is ready");
    let said = refusal(&sql, "SELECT th_cancel('none')", &SqlState::NO_DATA_FOUND).await;
    assert_eq!(said, "no job has the id 'none'");

    settle(&on, &lease(&on, "runs", 2).await, fail()).await;
    assert_eq!(text(&sql, "SELECT th_requeue('b', reset_attempts => true)").await, "ready");
    let record = on.inspect(id("b"), noon()).await.unwrap().unwrap();
    assert_eq!((record.job.attempts, record.job.max_attempts), (0, None));
    assert_eq!(text(&sql, "SELECT th_requeue('c')").await, "ready");
    let record = on.inspect(id("c"), noon()).await.unwrap().unwrap();
    assert_eq!((record.job.attempts, record.job.max_attempts), (1, Some(2)));
}

#[tokio::test]
async fn a_requeue_says_why_it_is_refused() {
    const REFUSED: &SqlState = &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    let on = named().await;
    let sql = on.sql().await;
    let enqueue = |name: &str| {
        format!(
            "SELECT job_id FROM th_enqueue('t', id => '{name}', queue => 'keys', idempotency_key => 'k', key_hold => 'until_terminal')"
        )
    };
    text(&sql, &enqueue("first")).await;
    text(&sql, "SELECT th_cancel('first')").await;
    assert_eq!(text(&sql, &enqueue("second")).await, "second");
    let said = refusal(&sql, "SELECT th_requeue('first')", REFUSED).await;
    assert_eq!(said, "cannot requeue job 'first': job 'second' holds its idempotency key");

    store_set(&on, JobSet::flow(vec![job("parent"), job("tail").after([id("parent")])])).await;
    text(&sql, "SELECT th_cancel('parent')").await;
    text(&sql, "SELECT th_cancel('tail')").await;
    let said = refusal(&sql, "SELECT th_requeue('parent')", REFUSED).await;
    assert_eq!(said, "cannot requeue job 'parent': its flow has ended");
}

#[tokio::test]
async fn a_job_is_run_now_and_gets_another_priority() {
    const REFUSED: &SqlState = &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    let on = named().await;
    let sql = on.sql().await;
    let later =
        "SELECT job_id FROM th_enqueue('t', id => 'later', run_at => now() + interval '1 day')";
    text(&sql, later).await;
    assert_eq!(text(&sql, "SELECT status FROM th_jobs").await, "scheduled");
    assert_eq!(text(&sql, "SELECT th_run_now('later')").await, "ready");
    assert_eq!(text(&sql, "SELECT th_set_priority('later', -7)").await, "ready");
    assert_eq!(text(&sql, "SELECT status || priority FROM th_jobs").await, "ready-7");
    for priority in ["32768", "-32769", "NULL"] {
        let statement = format!("SELECT th_set_priority('later', {priority})");
        let said = refusal(&sql, &statement, &SqlState::INVALID_PARAMETER_VALUE).await;
        assert_eq!(said, "the priority is out of range: choose -32768 to 32767");
    }
    text(&sql, "SELECT th_cancel('later')").await;
    let said = refusal(&sql, "SELECT th_run_now('later')", REFUSED).await;
    assert_eq!(said, "cannot run_now job 'later': it is cancelled");
    let said = refusal(&sql, "SELECT th_set_priority('later', 1)", REFUSED).await;
    assert_eq!(said, "cannot set_priority job 'later': it is cancelled");
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed() {
    let on = named().await;
    let sql = on.sql().await;
    store(&on, vec![job("a")]).await;
    for _ in 0..2 {
        sql.batch_execute("SELECT th_pause('q')").await.unwrap();
    }
    assert!(lease(&on, "q", 1).await.is_empty());
    assert!(counts(&on, noon()).await.unwrap()[0].paused_since.is_some());
    for _ in 0..2 {
        sql.batch_execute("SELECT th_resume('q')").await.unwrap();
    }
    assert_eq!(lease(&on, "q", 1).await.len(), 1);
    for call in ["th_pause('')", "th_resume(NULL)"] {
        let said =
            refusal(&sql, &format!("SELECT {call}::text"), &SqlState::INVALID_PARAMETER_VALUE)
                .await;
        assert_eq!(said, "queue name is empty: give it at least one visible character");
    }
}

#[tokio::test]
async fn the_statistics_count_every_state() {
    let on = named().await;
    let sql = on.sql().await;
    store(&on, (0..3).map(|it| job(format!("done-{it}"))).collect()).await;
    settle(&on, &lease(&on, "q", 3).await, ack()).await;
    store(&on, (0..2).map(|it| job(format!("dead-{it}"))).collect()).await;
    settle(&on, &lease(&on, "q", 2).await, fail()).await;
    store(&on, vec![job("inflight")]).await;
    lease(&on, "q", 1).await;
    store_set(&on, JobSet::flow(vec![job("ready"), job("blocked").after([id("ready")])])).await;
    let far = "SELECT th_enqueue('t', queue => 'q', run_at => now() + interval '100 years')";
    sql.batch_execute(far).await.unwrap();
    sql.batch_execute("SELECT th_enqueue('t', queue => 'q', id => 'c'); SELECT th_cancel('c')")
        .await
        .unwrap();
    sql.batch_execute("SELECT th_pause('idle')").await.unwrap();
    let rows = sql
        .query(
            "SELECT queue, concat_ws(' ', ready, scheduled, blocked, inflight, done, dlq, cancelled),
                 oldest_ready IS NOT NULL, paused_since IS NOT NULL FROM th_stats ORDER BY queue",
            &[],
        )
        .await
        .unwrap();
    let found: Vec<(&str, &str, bool, bool)> =
        rows.iter().map(|it| (it.get(0), it.get(1), it.get(2), it.get(3))).collect();
    assert_eq!(found[0], ("idle", "0 0 0 0 0 0 0", false, true));
    // What is ready was stored at the noon of the tests, which may be ahead of the server.
    let (queue, states, _, is_paused) = found[1];
    assert_eq!((queue, is_paused, found.len()), ("q", false, 2));
    assert!(["1 1 1 1 3 2 1", "0 2 1 1 3 2 1"].contains(&states), "{states}");
}

#[tokio::test]
async fn a_payload_is_shown_as_json_if_it_is_json() {
    let on = named().await;
    let sql = on.sql().await;
    sql.batch_execute(
        "SELECT th_enqueue('t', '{\"a\": [1, \"ä\"]}', id => 'json');
         SELECT th_enqueue_bytes('t', '\\xff00', 'json', id => 'broken');
         SELECT th_enqueue_bytes('t', '{\"a\": 1}', 'cbor', id => 'other');
         SELECT th_enqueue_bytes('t', '', 'json', id => 'empty')",
    )
    .await
    .unwrap();
    let shown = |name: &str| {
        format!("SELECT coalesce(payload_json::text, 'none') FROM th_jobs WHERE id = '{name}'")
    };
    assert_eq!(text(&sql, &shown("json")).await, "{\"a\": [1, \"ä\"]}");
    for name in ["broken", "other", "empty"] {
        assert_eq!(text(&sql, &shown(name)).await, "none", "{name}");
    }
}

#[tokio::test]
async fn a_trigger_on_a_statement_enqueues_a_job_for_each_row() {
    let example = Example::new().await;
    example.sql.batch_execute(&example.text("statement trigger")).await.unwrap();
    let insert = "INSERT INTO orders (customer) SELECT 'c' || n FROM generate_series(1, 1000) n";
    example.sql.batch_execute(insert).await.unwrap();
    let stored = "SELECT string_agg(payload_json->>'customer', ',' ORDER BY seq) || ' ' || count(DISTINCT id) FROM th_jobs
        WHERE type = 'order:placed' AND queue = 'orders' AND status = 'ready'";
    let customers: Vec<String> = (1..=1000).map(|it| format!("c{it}")).collect();
    assert_eq!(text(&example.sql, stored).await, format!("{} 1000", customers.join(",")));
    // None for a statement without rows, nor for one that is rolled back.
    example
        .sql
        .batch_execute("INSERT INTO orders (customer) SELECT 'c' WHERE false")
        .await
        .unwrap();
    example.sql.batch_execute(&format!("BEGIN; {insert}; ROLLBACK")).await.unwrap();
    assert_eq!(text(&example.sql, stored).await, format!("{} 1000", customers.join(",")));
    assert_eq!(example.driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn many_jobs_are_refused_as_one_is() {
    let on = named().await;
    let sql = on.sql().await;
    for (arguments, said) in [
        ("'', ARRAY['1']::jsonb[]", "job type is empty"),
        ("'t', ARRAY['1']::jsonb[], queue => ''", "queue name is empty"),
        ("'t', ARRAY['1']::jsonb[], lane => ''", "lane name is empty"),
        ("'t', ARRAY['1']::jsonb[], priority => 40000", "the priority is out of range"),
        ("'t', ARRAY['1', NULL]::jsonb[]", "the payload is NULL"),
        ("'t', ARRAY['1']::jsonb[], headers => '[]'", "the headers must be a JSON object"),
    ] {
        let statement = format!("SELECT th_enqueue_many({arguments})");
        let found = refusal(&sql, &statement, &SqlState::INVALID_PARAMETER_VALUE).await;
        assert!(found.contains(said), "{found}");
    }
    let none = sql.query("SELECT th_enqueue_many('t', '{}')", &[]).await.unwrap();
    assert!(none.is_empty() && counts(&on, noon()).await.unwrap().is_empty());
    let statement = "SELECT count(*)::text FROM th_enqueue_many('t', ARRAY['1', '2']::jsonb[], queue => 'q', lane => 'l',
        priority => 3, max_attempts => 2, timeout => '1 s', headers => '{\"a\": \"b\"}')";
    assert_eq!(text(&sql, statement).await, "2");
    let sample = "SELECT concat_ws(' ', lane, priority, max_attempts, timeout_nanos, headers) FROM th_jobs LIMIT 1";
    assert_eq!(text(&sql, sample).await, "l 3 2 1000000000 {\"a\": \"b\"}");
    assert_eq!(on.check().await.unwrap(), []);
}
