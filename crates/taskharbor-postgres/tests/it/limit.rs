//! `next_due` of queues that hold jobs back: workers poll neither without pause nor too late.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, NewJob, Timestamp,
    admin::{Change, QueueLimits, Rate},
    driver::{Reserved, Settle, Settlement, Transaction},
    name::LaneName,
};

use crate::{
    fixture::{LEASE, ack, after, configure, job, lease, noon, queue, reserve, store, store_at},
    harness::store::{self, Store},
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn in_lane(lane: &str, text: &str) -> NewJob {
    job(text).lane(LaneName::new(lane).unwrap())
}

async fn limit(ours: &Store, limits: QueueLimits) {
    let set = Change::SetLimits { queue: queue("q"), limits: Some(limits) };
    configure(ours, set, noon()).await.unwrap();
}

async fn ask(ours: &Store, limit: usize, now: Timestamp) -> Reserved {
    ours.reserve(reserve(limit, now, LEASE)).await.unwrap()
}

#[tokio::test]
async fn a_closed_queue_of_many_jobs_is_not_asked_before_it_opens() {
    let rate = QueueLimits::new().rate(Rate::per(1, 600 * SECOND));
    for (name, limits, until) in
        [("rate", Some(rate), after(600 * SECOND)), ("hold", None, after(3_600 * SECOND))]
    {
        let ours = store::named().await;
        store(&ours, (0..1_500).map(|n| job(n.to_string())).collect()).await;
        match limits {
            Some(limits) => {
                limit(&ours, limits).await;
                assert_eq!(ask(&ours, 9, noon()).await.jobs.len(), 1, "{name}");
            }
            None => {
                let hold = Change::Hold { queue: queue("q"), lane: None, until: Some(until) };
                configure(&ours, hold, noon()).await.unwrap();
            }
        }
        for seconds in [1, 2, 61] {
            let answer = ask(&ours, 9, after(seconds * SECOND)).await;
            assert_eq!((answer.jobs.len(), answer.next_due), (0, Some(until)), "{name}");
        }
    }
}

/// Two jobs in each of more lanes than a call looks at, of which one is leased.
async fn full_lanes(ours: &Store, priority: i16) {
    limit(ours, QueueLimits::new().per_lane(1)).await;
    let of_lane = |n: usize| {
        ["a", "b"]
            .map(|text| in_lane(&format!("lane {n}"), &format!("{n} {text}")).priority(priority))
    };
    store(ours, (0..1_500).flat_map(of_lane).collect()).await;
    let mut granted = 0;
    while granted < 1_500 {
        granted += ask(ours, 10_000, noon()).await.jobs.len();
    }
}

/// Asks as a worker does that is told when to ask again, from `now` on. Answers how many calls it took until a job was
/// granted or none is to be expected soon, and the last answer.
async fn follow(ours: &Store, mut now: Timestamp) -> (usize, Reserved) {
    for calls in 1..=9 {
        let answer = ask(ours, 9, now).await;
        let next = answer.next_due.expect("jobs wait");
        if !answer.jobs.is_empty() || next > now.saturating_add(20 * MS) {
            return (calls, answer);
        }
        now = next;
    }
    panic!("it is asked again and again");
}

#[tokio::test]
async fn more_full_lanes_than_a_call_looks_at_are_not_asked_without_end() {
    let ours = store::named().await;
    full_lanes(&ours, 0).await;
    // The queue is starved from now on, which the first answer says.
    ask(&ours, 9, after(SECOND)).await;
    for seconds in [2_u32, 30] {
        let (calls, answer) = follow(&ours, after(seconds * SECOND)).await;
        assert!(calls <= 3, "{calls}");
        assert_eq!(answer.jobs, []);
        let next = answer.next_due.unwrap();
        assert!(after((seconds + 1) * SECOND) < next && next <= after(LEASE), "{next}");
    }
    assert_eq!(ask(&ours, 9, after(LEASE)).await.jobs.len(), 9);
}

#[tokio::test]
async fn a_job_that_comes_into_a_lane_behind_the_walk_is_granted_soon() {
    let ours = store::named().await;
    let _watch = ours.watch(vec![queue("q")]).await.unwrap();
    full_lanes(&ours, 0).await;
    ask(&ours, 9, after(SECOND)).await;
    follow(&ours, after(2 * SECOND)).await;
    // A walk has begun, and has passed the place of each of these or will pass it.
    let begun = ask(&ours, 9, after(3 * SECOND)).await;
    assert_eq!(begun.next_due, Some(after(3 * SECOND + 20 * MS)));
    let jobs = ["lane", "lane 5x", "zone"].map(|lane| in_lane(lane, lane));
    for job in jobs {
        store_at(&ours, job, after(3 * SECOND)).await;
    }
    let (mut found, mut now) = (0, after(3 * SECOND + 20 * MS));
    while found < 3 {
        let (_, answer) = follow(&ours, now).await;
        assert_ne!(answer.jobs, [], "{found} were found");
        assert!(now < after(4 * SECOND), "{now}");
        found += answer.jobs.len();
        now = answer.next_due.unwrap();
    }
}

#[tokio::test]
async fn more_full_lanes_than_a_call_looks_at_keep_no_lower_priority_waiting() {
    let ours = store::named().await;
    full_lanes(&ours, 5).await;
    store(&ours, vec![in_lane("lane 7", "held"), job("plain"), in_lane("free", "free")]).await;
    let (mut granted, mut now) = (Vec::new(), after(SECOND));
    while granted.len() < 2 {
        let (_, answer) = follow(&ours, now).await;
        assert_ne!(answer.jobs, [], "{granted:?} were found");
        granted.extend(answer.jobs.into_iter().map(|leased| leased.job.id.to_string()));
        now = answer.next_due.unwrap();
    }
    granted.sort();
    assert_eq!(granted, ["free", "plain"]);
    assert_eq!(ours.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_job_that_another_transaction_has_locked_is_asked_for_after_a_pause() {
    let lanes = || vec![in_lane("a", "1"), in_lane("b", "2")];
    let limits = || Some(QueueLimits::new().inflight(9).per_lane(9));
    for (jobs, limits) in
        [(vec![job("1")], None), (vec![job("1")], limits()), (lanes(), None), (lanes(), limits())]
    {
        let ours = store::named().await;
        if let Some(limits) = limits {
            limit(&ours, limits).await;
        }
        let count = jobs.len();
        store(&ours, jobs).await;
        // Ready, and later with a lease that has ended.
        for start in [noon(), after(2 * LEASE)] {
            let mut sql = ours.sql().await;
            let locked = sql.transaction().await.unwrap();
            locked.execute("SELECT FROM th_live FOR UPDATE", &[]).await.unwrap();
            for now in [start, start.saturating_add(SECOND)] {
                let answer = ask(&ours, 9, now).await;
                let next = answer.next_due.expect("the transaction ends some time");
                assert_eq!(answer.jobs, []);
                assert!(now.saturating_add(10 * MS) <= next && next <= now.saturating_add(SECOND));
            }
            locked.rollback().await.unwrap();
            assert_eq!(ask(&ours, 9, start.saturating_add(SECOND)).await.jobs.len(), count);
        }
    }
}

#[tokio::test]
async fn a_place_that_the_transaction_of_an_application_frees_late_wakes_workers() {
    let ours = store::named().await;
    let mut watch = ours.watch(vec![queue("q")]).await.unwrap();
    limit(&ours, QueueLimits::new().inflight(1)).await;
    store(&ours, vec![job("1"), job("2")]).await;
    let leased = lease(&ours, "q", 1).await.remove(0);
    let mut sql = ours.sql().await;
    let open = sql.transaction().await.unwrap();
    let ack = Settlement::new(leased.job.id, leased.lease.token, ack());
    let settled = ours.driver().tx(&open).settle(Settle::new(vec![ack], noon())).await.unwrap();
    assert!(settled[0].is_ok());
    // The queue is starved from now on, which the transaction could not see.
    for seconds in [1, 2] {
        assert_eq!(ask(&ours, 1, after(seconds * SECOND)).await.jobs, []);
    }
    while tokio::time::timeout(50 * MS, watch.woken()).await.is_ok() {}
    open.commit().await.unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(10), watch.woken()).await;
    assert!(woken.is_ok(), "no watch was woken");
    assert_eq!(ask(&ours, 1, after(2 * SECOND)).await.jobs.len(), 1);
}
