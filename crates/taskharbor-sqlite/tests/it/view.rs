//! The views, read with another tool.

use taskharbor_core::{
    Admin, Text,
    admin::{Action, Manage},
    job::{FailedAttempt, Headers},
};
use taskharbor_sqlite::{
    SqliteDriver,
    rusqlite::{self, Connection},
};

use crate::{
    fixture::{NOON, id, job, put, single, take},
    temp_dir::TempDir,
};

fn column(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
    rows.map(|text| text.unwrap().unwrap_or_default()).collect::<Vec<_>>()
}

#[tokio::test]
async fn every_job_is_in_the_view_with_the_documented_columns() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    let headers = Headers::new().with("tenant", "blue").unwrap();
    single(&driver).enqueue_job(job("a").headers(headers).max_attempts(3), NOON).await.unwrap();
    put(&driver, "b").await;
    put(&driver, "c").await;
    let leased = take(&driver).await.unwrap();
    let failure = FailedAttempt::new(1, "no such address", NOON);
    let reason = Text::new("it never will be");
    single(&driver).fail(&leased, failure, reason, NOON).await.unwrap();
    take(&driver).await.unwrap();
    driver
        .manage(Manage::new(vec![id("c")], Action::Cancel, NOON))
        .await
        .unwrap()
        .remove(0)
        .unwrap();

    let conn = Connection::open(temp.file()).unwrap();
    let of = |what: &str| column(&conn, &format!("SELECT {what} FROM th_jobs ORDER BY seq"));
    assert_eq!(of("status"), ["dlq", "inflight", "cancelled"]);
    assert_eq!(
        of("id || type || queue || CAST(payload AS TEXT)"),
        ["aworkqpayload", "bworkqpayload", "cworkqpayload"]
    );
    assert_eq!(of("last_error"), ["no such address", "", ""]);
    assert_eq!(of("dlq_reason"), ["it never will be", "", ""]);
    let noon = "2026-11-15T12:00:00.000000Z";
    assert_eq!(of("created_at"), [noon; 3]);
    assert_eq!(of("failed_at"), [noon, "", ""]);
    assert_eq!(of("lease_expires_at"), ["", "2026-11-15T12:01:00.000000Z", ""]);
    assert_eq!(of("headers ->> 'tenant'"), ["blue", "", ""]);
    assert_eq!(
        of("max_attempts || ' ' || attempts || ' ' || timeout_nanos"),
        ["3 1 0", "0 0 0", "0 0 0"]
    );
}

#[tokio::test]
async fn what_people_break_is_found() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    let breaks = [
        ("DELETE FROM th_job WHERE seq = 1", "job a has no row in th_job"),
        (
            "UPDATE th_state SET pending = 2, available_at = NULL, state = 1 WHERE seq = 2",
            "waits for 2 of 0 parents",
        ),
        (
            "UPDATE th_state SET due_at = 5 WHERE seq = 3",
            "available at another time than it is due",
        ),
        (
            "INSERT INTO th_count VALUES ('x', 0, 0, 1, 0, 0)",
            "queue x counts other jobs in state 3",
        ),
        (
            "INSERT INTO th_key VALUES ('q', 'k', 'a', 99, NULL)",
            "key k of queue q is held by no job",
        ),
        ("UPDATE th_state SET line = 'x' WHERE seq = 1", "a line that is not its lane's"),
        ("UPDATE th_state SET counted = 1 WHERE seq = 1", "is not counted as it should be"),
        ("UPDATE th_meta SET seq = 0", "a number that was not given yet"),
    ];
    for text in ["a", "b", "c"] {
        put(&driver, text).await;
    }
    let conn = Connection::open(temp.file()).unwrap();
    for (sql, finding) in breaks {
        conn.execute(sql, []).unwrap();
        let found: Vec<_> = driver.check().await.unwrap().iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|it| it.contains(finding)), "{finding}: {found:?}");
    }
}

#[tokio::test]
async fn an_invalid_row_does_not_keep_other_jobs_from_being_granted() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    for text in ["a", "b", "c"] {
        put(&driver, text).await;
    }
    let conn = Connection::open(temp.file()).unwrap();
    conn.execute("UPDATE th_state SET on_failure = 77 WHERE id = 'a'", []).unwrap();
    conn.execute("UPDATE th_job SET headers = 'what?' WHERE seq = 2", []).unwrap();
    assert_eq!(take(&driver).await.unwrap().job.id, id("c"));
    assert!(take(&driver).await.is_none());
}

#[test]
fn the_library_is_new_enough() {
    assert!(rusqlite::version_number() >= 3_051_003);
}
