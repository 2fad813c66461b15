//! The query plans of the driver's statements on a large store.

use taskharbor_core::{Admin, Driver, NewJob, driver::Enqueue};
use taskharbor_sqlite::{
    Config, SqliteDriver, Synchronous,
    rusqlite::Connection,
    statement::{ALL, Cost},
};

use crate::{
    fixture::{NOON, id, job, lane},
    temp_dir::TempDir,
};

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    // Not bound, so all of them are NULL: the plan does not depend on that.
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}

fn is_cheap(step: &str) -> bool {
    // The numbers that a call names are no rows of the store.
    let is_scan = step.starts_with("SCAN")
        && !step.starts_with("SCAN json_each VIRTUAL TABLE")
        // It has one row.
        && step != "SCAN th_meta";
    !(is_scan || step.contains("TEMP B-TREE") || step.contains("AUTOMATIC"))
}

async fn large(temp: &TempDir) -> SqliteDriver {
    let config: Config = temp.config().synchronous(Synchronous::Normal);
    let driver = SqliteDriver::open_with(config).await.unwrap();
    let plain = (0..100_000_i32).map(|number| {
        let priority = if number % 3 == 0 { 1 } else { 0 };
        let new = job(&format!("job {number}")).priority(priority);
        if number % 10 == 0 { new.lane(lane(&format!("lane {}", number % 1_000))) } else { new }
    });
    driver.enqueue(Enqueue::new(plain.map(Into::into).collect(), NOON)).await.unwrap();
    let parents: Vec<_> = (0..1_000).map(|number| id(&format!("member {number}"))).collect();
    let members = (0..1_000).map(|number| job(&format!("member {number}")));
    let tail = NewJob::join(id("tail"), crate::fixture::queue(), parents);
    let flow = taskharbor_core::job::JobSet::flow(members.chain([tail]).collect());
    driver.enqueue(Enqueue::new(vec![flow], NOON)).await.unwrap();
    let small = (0..200).map(|number| {
        let (first, last) = (format!("first {number}"), format!("last {number}"));
        let last = job(&last).after([id(&first)]);
        taskharbor_core::job::JobSet::flow(vec![job(&first), last])
    });
    driver.enqueue(Enqueue::new(small.collect(), NOON)).await.unwrap();
    driver
}

#[tokio::test]
async fn no_statement_of_a_worker_walks_or_sorts() {
    let temp = TempDir::new();
    let driver = large(&temp).await;
    let conn = Connection::open(temp.file()).unwrap();
    // With and without the statistics of ANALYZE.
    for analyzed in [false, true] {
        if analyzed {
            conn.execute_batch("ANALYZE").unwrap();
        }
        for (name, cost, sql) in ALL {
            let steps = plan(&conn, sql);
            let cheap = steps.iter().all(|step| is_cheap(step));
            assert!(cheap || *cost == Cost::Walk, "{name}, analyzed {analyzed}: {steps:#?}");
        }
    }
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn reserve_goes_by_the_position() {
    let temp = TempDir::new();
    let _driver = large(&temp).await;
    let conn = Connection::open(temp.file()).unwrap();
    for (name, _, sql) in
        ALL.iter().filter(|(name, ..)| ["DUE", "NEXT_PRIORITY", "FIRST_AT"].contains(name))
    {
        let steps = plan(&conn, sql);
        assert!(steps[0].contains("th_state_position"), "{name}: {steps:?}");
    }
}

#[tokio::test]
async fn lanes_and_leases_are_read_from_their_indexes_alone() {
    let temp = TempDir::new();
    let _driver = large(&temp).await;
    let conn = Connection::open(temp.file()).unwrap();
    let of_lanes = ["NEXT_LANED_PRIORITY", "LINE_UP", "NEXT_LINE", "LINE_FROM", "LANED_AFTER"];
    let of_leases = ["LEASES", "LANE_LEASES"];
    let of_jobs = ["NEXT_PRIORITY", "FIRST_AT", "PLAIN_FROM", "PLAIN_AFTER"];
    let expected = [
        (&of_lanes[..], "COVERING INDEX th_state_lane "),
        (&of_leases[..], "COVERING INDEX th_state_lease "),
        (&of_jobs[..], "COVERING INDEX th_state_position "),
    ];
    for (names, index) in expected {
        for name in names {
            let (_, _, sql) = ALL.iter().find(|(found, ..)| found == name).unwrap();
            let steps = plan(&conn, sql);
            assert!(steps.iter().any(|step| step.contains(index)), "{name}: {steps:?}");
        }
    }
}
