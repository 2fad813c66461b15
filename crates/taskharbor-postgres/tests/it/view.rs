//! The view `th_jobs`: the columns, types and words of its documentation.

use std::time::Duration;

use taskharbor_core::{driver::Transition, job::JobSet, name::IdempotencyKey};
use tokio_postgres::{Client, Row};

use crate::{
    fixture::{
        LEASE, ack, after, fail, failure, id, job, job_in, lease, noon, settle, store, store_at,
        store_set,
    },
    harness::store::named,
};

/// The documented columns in their order.
const COLUMNS: [(&str, &str); 17] = [
    ("id", "text"),
    ("type", "text"),
    ("queue", "text"),
    ("payload", "bytea"),
    ("run_at", "timestamp with time zone"),
    ("timeout_nanos", "bigint"),
    ("created_at", "timestamp with time zone"),
    ("attempts", "integer"),
    ("max_attempts", "integer"),
    ("last_error", "text"),
    ("failed_at", "timestamp with time zone"),
    ("status", "text"),
    ("lease_token", "text"),
    ("lease_expires_at", "timestamp with time zone"),
    ("dlq_reason", "text"),
    ("dlq_failed_at", "timestamp with time zone"),
    ("idempotency_key", "text"),
];

async fn row(client: &Client, id: &str) -> Row {
    let sql = "SELECT *, run_at::text AS at FROM (SELECT status, timeout_nanos, attempts, max_attempts, last_error, dlq_reason,
            idempotency_key, lease_token, (extract(epoch FROM run_at) * 1000000)::bigint AS run_at, dlq_failed_at IS NOT NULL AS is_dlq,
            (extract(epoch FROM lease_expires_at) * 1000000)::bigint AS lease_end, failed_at IS NOT NULL AS has_failed, payload
        FROM th_jobs WHERE id = $1) j";
    client.query_one(sql, &[&id]).await.unwrap()
}

async fn status(client: &Client, id: &str) -> String {
    row(client, id).await.get("status")
}

#[tokio::test]
async fn the_view_has_the_documented_columns_and_types() {
    let on = named().await;
    let client = on.sql().await;
    let sql = "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid = 'th_jobs'::regclass AND attnum BETWEEN 1 AND 17 ORDER BY attnum";
    let rows = client.query(sql, &[]).await.unwrap();
    let found: Vec<(String, String)> = rows.iter().map(|it| (it.get(0), it.get(1))).collect();
    let documented = COLUMNS.map(|(name, kind)| (name.to_owned(), kind.to_owned()));
    assert_eq!(found, documented);
}

#[tokio::test]
async fn a_waiting_job_reads_as_it_was_given() {
    let on = named().await;
    let client = on.sql().await;
    let key = IdempotencyKey::new("key").unwrap();
    let later = after(Duration::from_secs(900));
    let given = job("later").run_at(later).timeout(Duration::from_micros(1_500)).max_attempts(7);
    store(&on, vec![job("now"), given.idempotency_key(key)]).await;
    let now = row(&client, "now").await;
    assert_eq!(now.get::<_, Option<i64>>("run_at"), None, "it is runnable now");
    assert_eq!(now.get::<_, i64>("timeout_nanos"), 0);
    assert_eq!((now.get::<_, i32>("attempts"), now.get::<_, i32>("max_attempts")), (0, 0));
    assert_eq!(now.get::<_, &str>("last_error"), "");
    assert_eq!(now.get::<_, &[u8]>("payload"), b"payload");
    for absent in ["lease_token", "dlq_reason", "idempotency_key"] {
        assert_eq!(now.get::<_, Option<&str>>(absent), None, "{absent}");
    }
    assert_eq!(now.get::<_, Option<i64>>("lease_end"), None);
    assert!(!now.get::<_, bool>("is_dlq") && !now.get::<_, bool>("has_failed"));
    let given = row(&client, "later").await;
    assert_eq!(given.get::<_, Option<i64>>("run_at"), Some(later.as_micros()));
    assert_eq!(given.get::<_, i64>("timeout_nanos"), 1_500_000);
    assert_eq!(given.get::<_, i32>("max_attempts"), 7);
    assert_eq!(given.get::<_, Option<&str>>("idempotency_key"), Some("key"));
}

#[tokio::test]
async fn the_status_follows_the_life_of_a_job() {
    let on = named().await;
    let client = on.sql().await;
    // The view goes by the server's clock, which is past the beginning of time and before its end.
    let (first, last) = (0, 253_402_300_799_000_000);
    for (name, at) in [("ready", first), ("scheduled", last)] {
        let at = taskharbor_core::Timestamp::from_micros(at).unwrap();
        let first = taskharbor_core::Timestamp::from_micros(first).unwrap();
        store_at(&on, job_in(name, name).run_at(at), first).await;
        assert_eq!(status(&client, name).await, name);
    }
    store_set(&on, JobSet::flow(vec![job("parent"), job("blocked").after([id("parent")])])).await;
    assert_eq!(status(&client, "blocked").await, "blocked");

    let parent = lease(&on, "q", 1).await;
    let row_of = row(&client, "parent").await;
    assert_eq!(row_of.get::<_, &str>("status"), "inflight");
    assert!(row_of.get::<_, Option<&str>>("lease_token").is_some());
    assert_eq!(
        row_of.get::<_, Option<i64>>("lease_end"),
        Some(noon().saturating_add(LEASE).as_micros())
    );
    let later = after(Duration::from_secs(1));
    settle(&on, &parent, Transition::Retry { failure: failure(), run_at: Some(later) }).await;
    let row_of = row(&client, "parent").await;
    assert_eq!(row_of.get::<_, Option<&str>>("lease_token"), None);
    assert_eq!(row_of.get::<_, Option<i64>>("lease_end"), None);
    assert_eq!(row_of.get::<_, Option<i64>>("run_at"), Some(later.as_micros()));
    assert_eq!(
        (row_of.get::<_, i32>("attempts"), row_of.get::<_, &str>("last_error")),
        (1, "it broke")
    );
    assert!(row_of.get::<_, bool>("has_failed") && !row_of.get::<_, bool>("is_dlq"));

    store(&on, vec![job_in("ends", "done"), job_in("fails", "dlq")]).await;
    settle(&on, &lease(&on, "ends", 1).await, ack()).await;
    settle(&on, &lease(&on, "fails", 1).await, fail()).await;
    assert_eq!(status(&client, "done").await, "done");
    let dlq = row(&client, "dlq").await;
    assert_eq!(
        (dlq.get::<_, &str>("status"), dlq.get::<_, &str>("dlq_reason")),
        ("dlq", "no more attempts")
    );
    assert!(dlq.get::<_, bool>("is_dlq"));
    assert!(!row(&client, "done").await.get::<_, bool>("is_dlq"));
    let broken = "SELECT id FROM th_jobs WHERE (lease_token IS NULL) <> (lease_expires_at IS NULL)
        OR (status = 'inflight') <> (lease_token IS NOT NULL) OR (status = 'dlq') <> (dlq_failed_at IS NOT NULL)
        OR status <> 'dlq' AND dlq_reason IS NOT NULL OR last_error IS NULL";
    assert!(client.query(broken, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn times_are_exact_to_the_end_of_time() {
    let on = named().await;
    let client = on.sql().await;
    for micros in [0_i64, 1, 1_794_744_000_123_457, 9_007_199_254_740_993, 253_402_300_799_999_999]
    {
        let sql = "SELECT to_char(th_time_v1($1) AT TIME ZONE 'UTC', 'US')::bigint, floor(extract(epoch FROM date_trunc('second', th_time_v1($1))))::bigint";
        let row = client.query_one(sql, &[&micros]).await.unwrap();
        let back = row.get::<_, i64>(1) * 1_000_000 + row.get::<_, i64>(0);
        assert_eq!(back, micros);
    }
}
