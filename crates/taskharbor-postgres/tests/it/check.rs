//! `th_check()` has to find what is wrong: the store is corrupted in every way that it looks for,
//! and once in each.
//!
//! And the constraints have to refuse what no program may write.

use taskharbor_core::{
    Admin,
    admin::{Change, NewSchedule},
    job::{FailurePolicy, JobSet, KeyHold},
    name::{IdempotencyKey, ScheduleName},
};
use tokio_postgres::Client;

use crate::{
    fixture::{ack, configure, fail, id, job, job_in, lease, noon, settle, store, store_set},
    harness::store::{Store, named},
};

/// A store with a job in every state, keys, failures, and a running and a terminal flow.
async fn populated() -> Store {
    let on = named().await;
    let key = |key: &str| IdempotencyKey::new(key).unwrap();
    store(&on, vec![job("held").idempotency_key(key("k")), job_in("r", "waiting")]).await;
    store(&on, vec![job("freed").idempotency_key(key("d")).key_hold(KeyHold::UntilDone)]).await;
    let timed = KeyHold::For(std::time::Duration::from_secs(1));
    store(&on, vec![job("timed").idempotency_key(key("t")).key_hold(timed)]).await;
    let ended = job_in("e", "ended").idempotency_key(key("e")).key_hold(KeyHold::UntilTerminal);
    store(&on, vec![ended]).await;
    settle(&on, &lease(&on, "e", 1).await, fail()).await;
    store(&on, vec![job_in("a", "done"), job_in("a", "also-done"), job_in("f", "failed")]).await;
    store(&on, vec![job_in("i", "inflight")]).await;
    settle(&on, &lease(&on, "a", 2).await, ack()).await;
    settle(&on, &lease(&on, "f", 1).await, fail()).await;
    assert_eq!(lease(&on, "i", 1).await.len(), 1);
    let child = job_in("o", "child").after([id("parent")]).on_failure(FailurePolicy::Cancel);
    let handler = job_in("o", "handler").after_failure_of([id("parent")]);
    store_set(&on, JobSet::flow(vec![job_in("o", "parent"), child, handler])).await;
    let over = job_in("x", "over-tail").after([id("over-parent")]);
    store_set(&on, JobSet::flow(vec![job_in("x", "over-parent"), over])).await;
    for _ in 0..2 {
        settle(&on, &lease(&on, "x", 1).await, ack()).await;
    }
    for name in ["one", "two"] {
        let name = ScheduleName::new(name).unwrap();
        let new = NewSchedule::new(name, b"x".as_slice(), None);
        configure(&on, Change::PutSchedule(new), noon()).await.unwrap();
    }
    assert_eq!(on.check().await.unwrap(), []);
    on
}

/// What the checker says after `sql` was run, of which nothing is left. `#name` stands for the
/// number of a job.
async fn found(client: &mut Client, sql: &str) -> Vec<String> {
    let transaction = client.transaction().await.unwrap();
    transaction
        .batch_execute(&numbered(sql))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let rows = transaction.query("SELECT th_check()", &[]).await.unwrap();
    transaction.rollback().await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn numbered(sql: &str) -> String {
    let mut parts = sql.split('#');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end =
            part.find(|it: char| !(it.is_ascii_alphabetic() || it == '-')).unwrap_or(part.len());
        text += &format!("(SELECT seq FROM th_job WHERE id = '{}'){}", &part[..end], &part[end..]);
    }
    text
}

#[tokio::test]
async fn every_contradiction_is_found_and_named() {
    let on = populated().await;
    let mut client = on.sql().await;
    for (sql, expected) in [
        ("DELETE FROM th_live WHERE seq = #waiting", "job waiting is neither live nor terminal"),
        (
            "INSERT INTO th_live (seq, available_at, priority, queue) VALUES (#done, 1, 0, 'a')",
            "job done is live and terminal",
        ),
        (
            "INSERT INTO th_live (seq, available_at, priority, queue) VALUES (987654, 1, 0, 'a')",
            "there is a live row 987654 without a job",
        ),
        (
            "UPDATE th_live SET queue = 'other' WHERE seq = #waiting",
            "job waiting and its live row differ in queue, lane or flow",
        ),
        (
            "UPDATE th_live SET available_at = lease_expires_at + 1 WHERE seq = #inflight",
            "job inflight has a position behind the end of its lease",
        ),
        (
            "DELETE FROM th_finished WHERE first = #failed",
            "job failed is neither live nor terminal",
        ),
        (
            "UPDATE th_finished SET offsets = offsets || offsets WHERE first = #failed",
            "job failed is terminal 2 times",
        ),
        ("UPDATE th_finished SET offsets = offsets || offsets WHERE first = #failed", "row "),
        (
            "UPDATE th_finished SET queue = 'other' WHERE first = #failed",
            "job failed and its row among the terminal ones differ in queue or flow",
        ),
        (
            "UPDATE th_finished SET offsets = offsets || (#waiting & 511)::smallint WHERE first = #failed",
            "job waiting is live and terminal",
        ),
        (
            "UPDATE th_finished SET offsets = offsets || 511::smallint WHERE first = #failed",
            "number ",
        ),
        (
            "INSERT INTO th_outcome (seq, priority) VALUES (#waiting, 0)",
            "there is an outcome of job waiting, which is not terminal",
        ),
        (
            "UPDATE th_finished SET has_outcomes = NULL WHERE first = #failed",
            "there is an outcome of job failed, which is not terminal",
        ),
        (
            "INSERT INTO th_imported_token VALUES (987654, 1, md5('x')::uuid)",
            "there is a token of job 987654, which is not stored",
        ),
        (
            "UPDATE th_live SET waits_for = 2 WHERE seq = #child",
            "job child waits for 2 of 1 parents",
        ),
        (
            "UPDATE th_live SET waits_for = NULL WHERE seq = #child",
            "job child waits for 0 of 1 parents",
        ),
        ("DELETE FROM th_edge WHERE child = #child", "job child has 0 edges and reads 1"),
        (
            "UPDATE th_edge SET parent = #waiting WHERE child = #child",
            "job child waits for parent, which is done or in another flow",
        ),
        (
            "INSERT INTO th_edge (child, ord, parent, parent_id, status) VALUES (987654, 1, #parent, 'parent', 'satisfied')",
            "there is an edge of job 987654, which is not stored",
        ),
        (
            "INSERT INTO th_key VALUES ('q', 'stray', 987654, 'stray')",
            "key stray of queue q is held by no job that has it",
        ),
        (
            "UPDATE th_key SET seq = #waiting WHERE key = 'k'",
            "key k of queue q is held by no job that has it",
        ),
        ("DELETE FROM th_key WHERE key = 'k'", "job held does not hold its key"),
        ("DELETE FROM th_key WHERE key = 'd'", "job freed does not hold its key"),
        (
            "UPDATE th_key SET job = 'waiting' WHERE key = 'k'",
            "key k of queue q is held by no job that has it",
        ),
        (
            "UPDATE th_key SET held_until = 1 WHERE key = 'k'",
            "key k of queue q is held until another time than job held says",
        ),
        (
            "UPDATE th_key SET held_until = held_until + 1 WHERE key = 't'",
            "key t of queue q is held until another time than job timed says",
        ),
        (
            "UPDATE th_job SET key_time_us = NULL WHERE id = 'timed'",
            "job timed says for how long its key is held",
        ),
        (
            "INSERT INTO th_key SELECT queue, idempotency_key, seq, id FROM th_job WHERE id = 'ended'",
            "job ended still holds its key",
        ),
        (
            "UPDATE th_edge SET status = 'waits_for_success' WHERE child = #handler",
            "job handler waits for success and failure",
        ),
        (
            "UPDATE th_edge SET status = 'not_needed' WHERE child = #handler",
            "job handler waits, but is not needed since parent is done",
        ),
        ("DELETE FROM th_error WHERE seq = #failed", "job failed has 0 failures of 1"),
        ("UPDATE th_error SET failure = 2 WHERE seq = #failed", "job failed has 1 failures of 1"),
        (
            "INSERT INTO th_error VALUES (987654, 1, 1, 1, 'e')",
            "failures are kept of job 987654, which is not stored",
        ),
        ("DELETE FROM th_flow WHERE id = 'child'", "job parent is in a flow that is not stored"),
        (
            "UPDATE th_flow SET tail = #waiting WHERE id = 'child'",
            "flow child has no tail of its own",
        ),
        (
            "UPDATE th_flow SET state = 'done', kept_until = 1 WHERE id = 'child'",
            "flow child is stored as done",
        ),
        (
            "UPDATE th_flow SET state = NULL, kept_until = NULL WHERE id = 'over-tail'",
            "flow over-tail is stored as live",
        ),
        (
            "UPDATE th_flow SET kept_until = kept_until - 1 WHERE id = 'over-tail'",
            "flow over-tail is stored as done",
        ),
        (
            "UPDATE th_schedule SET revision = 987654 WHERE name = 'one'",
            "schedule one has revision 987654, which the sequence th_revision has not given yet",
        ),
        ("UPDATE th_schedule SET revision = 1", "schedules one and two have the same revision 1"),
        (
            "UPDATE th_schedule SET missed = -1 WHERE name = 'two'",
            "schedule two has counts below zero",
        ),
    ] {
        let found = found(&mut client, sql).await;
        assert!(found.iter().any(|it| it.starts_with(expected)), "{sql}: {found:?}");
    }
    assert_eq!(on.check().await.unwrap(), []);
}

#[tokio::test]
async fn what_no_program_may_write_is_refused() {
    let on = populated().await;
    let client = on.sql().await;
    for (sql, constraint) in [
        // A lease is whole or not there, and an inflight job has one.
        ("UPDATE th_live SET lease_token = NULL WHERE seq = #inflight", "th_live_lease_chk"),
        ("UPDATE th_live SET lease_expires_at = NULL WHERE seq = #inflight", "th_live_lease_chk"),
        ("UPDATE th_live SET lease_token = 7 WHERE seq = #waiting", "th_live_lease_chk"),
        ("UPDATE th_live SET cancel_requested = true WHERE seq = #waiting", "th_live_lease_chk"),
        (
            "UPDATE th_live SET lease_expires_at = 1, lease_token = 7, holder = 'w' WHERE seq = #child",
            "th_live_lease_chk",
        ),
        ("UPDATE th_live SET waits_for = 0 WHERE seq = #child", "th_live_waits_for_check"),
        // Every terminal job has a time at which it ended.
        (
            "UPDATE th_finished SET kept_until = finished_at - 1 WHERE first = #failed",
            "th_finished_chk",
        ),
        ("UPDATE th_finished SET offsets = '{}' WHERE first = #failed", "th_finished_chk"),
        ("UPDATE th_finished SET first = first + 1 WHERE first = #failed", "th_finished_chk"),
        ("UPDATE th_job SET timeout_us = 0 WHERE id = 'waiting'", "th_job_timeout_us_check"),
        ("UPDATE th_job SET max_attempts = 0 WHERE id = 'waiting'", "th_job_max_attempts_check"),
        ("UPDATE th_job SET id = 'held' WHERE id = 'waiting'", "th_job_id"),
        ("UPDATE th_flow SET kept_until = NULL WHERE id = 'over-tail'", "th_flow_end_chk"),
        // A run is of two parents at least in one span, which have no ids beside their own.
        ("UPDATE th_edge SET parent_id = NULL WHERE child = #child", "th_edge_run_chk"),
        ("UPDATE th_edge SET run = 2 WHERE child = #child", "th_edge_run_chk"),
        ("UPDATE th_edge SET run = 1, parent_id = NULL WHERE child = #child", "th_edge_run_chk"),
        ("UPDATE th_edge SET run = 513, parent_id = NULL WHERE child = #child", "th_edge_run_chk"),
        ("INSERT INTO th_key VALUES ('q', 'k', 1, 'held')", "th_key_pkey"),
        ("UPDATE th_key SET seq = NULL WHERE key = 'k'", "th_key_left_chk"),
        ("INSERT INTO th_meta (only_row, version) VALUES (true, 1)", "th_meta_pkey"),
        ("INSERT INTO th_meta (only_row, version) VALUES (false, 1)", "th_meta_only_row_check"),
    ] {
        let refused = client.batch_execute(&numbered(sql)).await.unwrap_err();
        let refused = refused.as_db_error().unwrap_or_else(|| panic!("{sql}"));
        assert_eq!(refused.constraint(), Some(constraint), "{sql}: {refused}");
    }
    for sql in ["UPDATE th_job SET payload = NULL", "UPDATE th_job SET queue = NULL"] {
        let refused = client.batch_execute(sql).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "23502", "{sql}");
    }
}
