//! Announcements of workers and their eviction, as far as they are this driver's own.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, Timestamp,
    admin::{Change, Evict, Evicted, ListWorkers, Prune, QueueLimits},
    driver::{
        Announce, Demand, Enqueue, ExtendLeases, Extension, Incarnation, Leased, Reserve, Reserved,
        Settle, Settled, Settlement, Transaction as _, Transition,
    },
    job::JobSet,
    name::Holder,
};
use taskharbor_postgres::PostgresDriver;
use tokio::time::timeout;
use tokio_postgres::Transaction;

use crate::{
    fixture::{LEASE, after, configure, id, job, noon, queue, store},
    harness::store::{Store, named},
    plan::announce,
};

/// Longer than an eviction takes that leaves a locked job.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

fn seconds(seconds: u64) -> Timestamp {
    after(Duration::from_secs(seconds))
}

fn announcement(name: &str, number: u64, valid_for: Duration, now: Timestamp) -> Announce {
    let info = br#"{"host": "a"}"#.as_slice();
    Announce::new(holder(name), Incarnation::from_bits(number), info.into(), valid_for, now)
}

async fn take(driver: &impl Driver, by: &str, limit: usize, now: Timestamp) -> Reserved {
    let demands = vec![Demand::new(queue("q"), limit)];
    driver.reserve(Reserve::new(demands, holder(by), now, LEASE)).await.unwrap()
}

fn names(jobs: &[Leased]) -> Vec<&str> {
    jobs.iter().map(|it| it.job.id.as_str()).collect()
}

#[tokio::test]
async fn an_announcement_is_a_hot_update_of_its_own_row() {
    let on = named().await;
    // Each page has room for a second version of all its rows, even if open snapshots keep the first.
    for number in 0..50 {
        let info = vec![b'x'; 300].into();
        let (name, start) = (holder("w"), Incarnation::from_bits(number));
        on.announce(Announce::new(name, start, info, LEASE, noon())).await.unwrap();
    }
    let mut sql = on.sql().await;
    for number in 0..50_i64 {
        // The counters are those of the transaction, and perhaps of some before it.
        let call = sql.transaction().await.unwrap();
        let before = updates(&call).await;
        let sql = announce(
            "'w'",
            &format!("lpad(to_hex({number}), 16, '0')"),
            "ARRAY[repeat('x', 300)::bytea]",
        );
        call.execute(&sql, &[]).await.unwrap();
        let now = updates(&call).await;
        assert_eq!((now.0 - before.0, now.1 - before.1), (1, 1), "worker {number}");
        call.commit().await.unwrap();
    }
}

/// How many rows of workers were updated, and how many of them in place.
async fn updates(sql: &Transaction<'_>) -> (i64, i64) {
    let counters = "SELECT pg_stat_get_xact_tuples_updated('th_worker'::regclass), pg_stat_get_xact_tuples_hot_updated('th_worker'::regclass)";
    let row = sql.query_one(counters, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn workers_are_shown_to_people() {
    let on = named().await;
    on.announce(announcement("overdue", 1, LEASE, noon())).await.unwrap();
    let last = Timestamp::MAX.as_micros() - 1_000_000;
    let late = Timestamp::from_micros(last).unwrap();
    let valid = Announce::new(
        holder("valid"),
        Incarnation::from_bits(u64::MAX),
        b"\xff".as_slice().into(),
        Duration::from_secs(1),
        late,
    );
    on.announce(valid).await.unwrap();
    let shown = "SELECT concat_ws(' ', holder, incarnation, status, info->>'host', expires_at - seen_at) FROM th_workers ORDER BY holder";
    let rows = on.sql().await.query(shown, &[]).await.unwrap();
    let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    // The view goes by the server's clock, which is past the one time and before the other.
    let expected =
        ["overdue 0000000000000001 overdue a 00:01:00", "valid ffffffffffffffff valid 00:00:01"];
    let is_past = rows[0].contains(" overdue ");
    assert!(is_past || rows[0].contains(" valid "), "{rows:?}");
    assert_eq!(rows[0].replace(" valid ", " overdue "), expected[0]);
    assert_eq!(rows[1], expected[1]);
}

#[tokio::test]
async fn a_worker_that_announces_itself_at_this_moment_is_not_waited_for_by_prune() {
    let on = named().await;
    on.announce(announcement("old", 1, LEASE, noon())).await.unwrap();
    on.announce(announcement("older", 1, Duration::from_secs(1), noon())).await.unwrap();
    let mut sql = on.sql().await;
    let open = sql.transaction().await.unwrap();
    open.execute("SELECT FROM th_worker WHERE holder = 'old' FOR UPDATE", &[]).await.unwrap();
    let now = seconds(2 * 86_400);
    timeout(WAIT_LIMIT, on.prune(Prune::new(1, now).done_before(now))).await.unwrap().unwrap();
    open.rollback().await.unwrap();
    let left = on.workers(ListWorkers::new(9, now).with_overdue()).await.unwrap().items;
    assert_eq!(left.iter().map(|it| it.holder.as_str()).collect::<Vec<_>>(), ["old"]);
}

#[tokio::test]
async fn jobs_whose_leases_were_extended_are_granted_at_their_old_positions() {
    let on = named().await;
    store(&on, vec![job("a"), job("b")]).await;
    let held = take(&on, "w-1", 2, noon()).await.jobs;
    let items = held.iter().map(|it| Extension::new(it.job.id.clone(), it.lease.token)).collect();
    let extended = on.extend_leases(ExtendLeases::new(items, seconds(30), LEASE)).await.unwrap();
    assert!(extended.iter().all(Result::is_ok));
    on.enqueue(Enqueue::new(vec![job("c").into()], seconds(31))).await.unwrap();

    let evicted = on.evict(Evict::new(holder("w-1"), seconds(40))).await.unwrap();
    assert_eq!(evicted, Evicted::Leases(2));
    assert_eq!(on.check().await.unwrap(), []);
    assert_eq!(names(&take(&on, "w-2", 3, seconds(40)).await.jobs), ["a", "b", "c"]);
    assert_eq!(on.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_job_is_granted_at_once_by_a_clock_that_lies_before_its_position() {
    let on = named().await;
    on.enqueue(Enqueue::new(vec![job("a").into()], seconds(100))).await.unwrap();
    assert_eq!(take(&on, "w-1", 1, seconds(100)).await.jobs.len(), 1);
    let evicted = on.evict(Evict::new(holder("w-1"), seconds(50))).await.unwrap();
    assert_eq!(evicted, Evicted::Leases(1));
    assert_eq!(on.check().await.unwrap(), []);
    let record = on.inspect(id("a"), seconds(50)).await.unwrap().unwrap();
    assert_eq!(record.job.available_at, seconds(100));
    assert_eq!(names(&take(&on, "w-2", 1, seconds(50)).await.jobs), ["a"]);
    assert_eq!(on.check().await.unwrap(), []);
}

/// Reserves nothing until the driver begins behind the jobs that are leased: then it wants to look again
/// long before the first lease ends.
async fn until_it_begins_behind_leases(driver: &PostgresDriver, now: Timestamp) {
    for _ in 0..50 {
        let reserved = take(driver, "idle", 10_000, now).await;
        assert_eq!(reserved.jobs.len(), 0);
        if reserved.next_due.unwrap() < after(LEASE) {
            return;
        }
    }
    panic!("the driver looks at everything each time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_an_evicted_worker_are_granted_although_scans_begin_behind_them() {
    const JOBS: usize = 6_000;
    let on = named().await;
    let (same, other) = (on.another().await, on.another().await);
    let mut watch = other.watch(vec![queue("q")]).await.unwrap();
    for round in [1, 2] {
        let jobs = (0..JOBS).map(|number| job(format!("{round}-{number}"))).collect();
        on.enqueue(Enqueue::new(vec![JobSet::plain(jobs)], noon())).await.unwrap();
        assert_eq!(take(&on, "w-1", JOBS, noon()).await.jobs.len(), JOBS);
        let quiet = Duration::from_millis(200);
        while timeout(quiet, watch.woken()).await.is_ok() {}

        let now = seconds(10);
        let told = if round == 1 { &same } else { &other };
        until_it_begins_behind_leases(told, now).await;
        let evicted = same.evict(Evict::new(holder("w-1"), now)).await.unwrap();
        assert_eq!(evicted, Evicted::Leases(JOBS));
        if round == 2 {
            timeout(WAIT_LIMIT, watch.woken()).await.expect("a wake-up");
        }
        let granted = take(told, "w-2", JOBS, now).await.jobs;
        assert_eq!(granted.len(), JOBS, "round {round}");
        let ack = Transition::Ack { output: None };
        let items = granted
            .iter()
            .map(|it| Settlement::new(it.job.id.clone(), it.lease.token, ack.clone()));
        told.settle(Settle::new(items.collect(), now)).await.unwrap();
    }
}

#[tokio::test]
async fn a_queue_at_its_limit_has_room_after_an_eviction() {
    let on = named().await;
    let change =
        Change::SetLimits { queue: queue("q"), limits: Some(QueueLimits::new().inflight(2)) };
    configure(&on, change, noon()).await.unwrap();
    store(&on, vec![job("a"), job("b"), job("c")]).await;
    assert_eq!(take(&on, "w-1", 3, noon()).await.jobs.len(), 2);
    assert_eq!(take(&on, "w-2", 3, seconds(1)).await.jobs.len(), 0);
    let other = on.another().await;
    let mut watch = other.watch(vec![queue("q")]).await.unwrap();
    while timeout(Duration::from_millis(200), watch.woken()).await.is_ok() {}
    on.evict(Evict::new(holder("w-1"), seconds(2))).await.unwrap();
    timeout(WAIT_LIMIT, watch.woken()).await.expect("a wake-up");
    assert_eq!(take(&other, "w-2", 3, seconds(2)).await.jobs.len(), 2);
    assert_eq!(on.check().await.unwrap(), []);
}

/// A store in which an open transaction has acknowledged the first of two jobs of a worker.
async fn with_two_jobs() -> (Store, Settle) {
    let on = named().await;
    store(&on, vec![job("a"), job("b")]).await;
    let held = take(&on, "w-1", 2, noon()).await.jobs;
    let ack = Transition::Ack { output: None };
    let item = Settlement::new(id("a"), held[0].lease.token, ack);
    (on, Settle::new(vec![item], seconds(1)))
}

#[tokio::test]
async fn a_job_that_an_open_transaction_has_settled_is_left_to_it() {
    for commits in [true, false] {
        let (on, settle) = with_two_jobs().await;
        on.announce(announcement("w-1", 1, LEASE, noon())).await.unwrap();
        let mut sql = on.sql().await;
        let open = sql.transaction().await.unwrap();
        let answers = on.driver().tx(&open).settle(settle).await.unwrap();
        assert_eq!(answers, [Ok(Settled::Applied)]);

        let evict = Evict::new(holder("w-1"), seconds(2));
        let evicted = timeout(WAIT_LIMIT, on.evict(evict.clone())).await.unwrap().unwrap();
        assert_eq!(evicted, Evicted::Leases(1));
        let left = on.workers(ListWorkers::new(9, noon()).with_overdue()).await.unwrap().items;
        assert_eq!(left, []);
        let left = if commits {
            open.commit().await.unwrap();
            0
        } else {
            open.rollback().await.unwrap();
            1
        };
        assert_eq!(on.evict(evict).await.unwrap(), Evicted::Leases(left));
        assert_eq!(take(&on, "w-2", 2, seconds(3)).await.jobs.len(), 1 + left);
        assert_eq!(on.check().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_job_that_is_free_soon_is_waited_for() {
    let (on, settle) = with_two_jobs().await;
    let mut sql = on.sql().await;
    let open = sql.transaction().await.unwrap();
    on.driver().tx(&open).settle(settle).await.unwrap()[0].clone().unwrap();
    let driver = on.driver().clone();
    let evict =
        tokio::spawn(async move { driver.evict(Evict::new(holder("w-1"), seconds(2))).await });
    // The other lease ends in the first attempt, of which there are more.
    let ended = "SELECT count(*) FROM th_live WHERE lease_expires_at = $1";
    let watching = on.sql().await;
    let at = seconds(2).as_micros();
    while watching.query_one(ended, &[&at]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    open.rollback().await.unwrap();
    assert_eq!(evict.await.unwrap().unwrap(), Evicted::Leases(2));
}
