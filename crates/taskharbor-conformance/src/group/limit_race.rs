//! Many tasks under limits: no more leases than there are places, no lane that starves, and no place
//! that is lost.
//!
//! A task counts a job after its grant was answered and until its settlement is asked for. So there are
//! at least as many valid leases as are counted, and the count must never exceed a limit.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use taskharbor_core::{
    Timestamp,
    admin::{LaneLimits, QueueLimits},
    driver::Leased,
    error::Refusal,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, ack, at, fail, job, release},
    limits_under_test::{in_lane, jobs_of},
};

group! {
    limit_race {
        racing_calls_keep_the_limit_of_a_queue ["LIM-2" "LIM-1"]
        racing_calls_keep_the_limits_of_lanes ["LIM-2" "LIM-3"]
        racing_calls_keep_a_rate ["RAT-1" "RAT-2" "LIM-2"]
        crashes_and_late_settlements_keep_the_limit ["LIM-2" "LIM-5" "LEA-10"]
        no_job_is_left_behind_when_places_are_freed_in_a_race ["LIM-5" "LAN-4"]
        no_lane_starves_in_a_race ["LAN-2" "LAN-5"]
        limits_that_change_in_a_race_lose_no_place ["LIM-6" "LIM-5"]
    }
    flows {}
}

const TASKS: usize = 8;

/// What the tasks hold at this moment.
#[derive(Default)]
struct Held {
    by_lane: Mutex<HashMap<String, usize>>,
    done: AtomicUsize,
}

impl Held {
    /// Counts jobs that were granted; how many are held now in all, and in the lane that has most.
    fn take(&self, jobs: &[Leased]) -> (usize, HashMap<String, usize>) {
        let mut held = self.by_lane.lock().expect("no panic while it is locked");
        for leased in jobs {
            *held.entry(lane_of(leased)).or_default() += 1;
        }
        (held.values().sum(), held.clone())
    }

    fn free(&self, leased: &Leased) {
        let mut held = self.by_lane.lock().expect("no panic while it is locked");
        *held.entry(lane_of(leased)).or_default() -= 1;
    }
}

fn lane_of(leased: &Leased) -> String {
    leased.job.lane.as_ref().map_or_else(String::new, ToString::to_string)
}

/// Runs tasks that take and settle jobs until all that were enqueued are done. `check` sees what is
/// held after each grant.
async fn drain(
    t: &DriverUnderTest,
    count: usize,
    check: impl Fn(usize, &HashMap<String, usize>) + Clone + Send + Sync + 'static,
) {
    let held = Arc::new(Held::default());
    let racing = (0..TASKS).map(|task| {
        let (t, held, check) = (t.clone(), Arc::clone(&held), check.clone());
        async move {
            // A bound on what a broken driver can cost.
            for round in 0..count * 40 {
                if held.done.load(Ordering::SeqCst) == count {
                    return;
                }
                let jobs = t.take_many(1 + task % 3, T0).await;
                let (all, by_lane) = held.take(&jobs);
                check(all, &by_lane);
                tokio::task::yield_now().await;
                for (n, leased) in jobs.iter().enumerate() {
                    held.free(leased);
                    let is_last = leased.job.deliveries > 1;
                    let transition = match (round + n) % 4 {
                        0 if !is_last => release(None),
                        1 => fail(T0),
                        _ => ack(),
                    };
                    let goes_on = matches!((round + n) % 4, 0 if !is_last);
                    t.apply(leased, transition, T0).await;
                    held.done.fetch_add(usize::from(!goes_on), Ordering::SeqCst);
                }
            }
            panic!("{:?} of {count} jobs were done", held.done);
        }
    });
    at_once(racing).await;
}

async fn racing_calls_keep_the_limit_of_a_queue(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(3)).await;
    t.put_all(jobs_of("", 150).into_iter().chain(jobs_of("a", 50)), T0).await;
    drain(&t, 200, |all, _| assert!(all <= 3, "{all} jobs are inflight")).await;
}

async fn racing_calls_keep_the_limits_of_lanes(t: DriverUnderTest) {
    let limits = QueueLimits::new().inflight(6).per_lane(1);
    t.limit(limits.lane("wide", LaneLimits::new().inflight(3).weight(2))).await;
    let lanes = ["", "a", "b", "wide"];
    t.put_all(lanes.iter().flat_map(|name| jobs_of(name, 50)), T0).await;
    drain(&t, 200, |all, by_lane| {
        let most = |name: &str| match name {
            "" => 6,
            "wide" => 3,
            _ => 1,
        };
        assert!(all <= 6, "{by_lane:?}");
        assert!(by_lane.iter().all(|(name, held)| *held <= most(name)), "{by_lane:?}");
    })
    .await;
}

async fn racing_calls_keep_a_rate(t: DriverUnderTest) {
    use taskharbor_core::admin::Rate;
    let rate = Rate::per(1, std::time::Duration::from_secs(1)).burst(7);
    t.limit(QueueLimits::new().rate(rate)).await;
    t.put_all(jobs_of("a", 40).into_iter().chain(jobs_of("", 40)), T0).await;
    for (now, expected) in [(T0, 7), (at(3), 3), (at(30), 7)] {
        let racing = (0..TASKS).map(|_| {
            let t = t.clone();
            async move { t.take_many(2, now).await.len() }
        });
        let granted: usize = at_once(racing).await.into_iter().sum();
        // A call that meets others may give less than it could, and never more.
        let rest = t.take_many(100, now).await.len();
        assert!(granted <= expected, "{granted} of {expected}");
        assert_eq!(granted + rest, expected, "at {now}");
    }
}

async fn crashes_and_late_settlements_keep_the_limit(t: DriverUnderTest) {
    const LIMIT: usize = 3;
    t.limit(QueueLimits::new().inflight(3)).await;
    t.put_all(jobs_of("a", 30).into_iter().chain(jobs_of("b", 30)), T0).await;
    let late: Arc<Mutex<Vec<Leased>>> = Arc::default();
    for round in 0..10_u64 {
        let now = at(60 * round);
        let held = Arc::new(AtomicUsize::new(0));
        let racing = (0..TASKS).map(|task| {
            let (t, held, late) = (t.clone(), Arc::clone(&held), Arc::clone(&late));
            async move { crash(&t, task, now, &held, &late, LIMIT).await }
        });
        at_once(racing).await;
    }
    // In the end no place is lost: all can be taken again.
    let jobs = t.take_many(100, at(600)).await;
    assert_eq!(jobs.len(), LIMIT);
}

/// Takes jobs and keeps some for ever; settles what was kept in earlier rounds, in vain.
async fn crash(
    t: &DriverUnderTest,
    task: usize,
    now: Timestamp,
    held: &AtomicUsize,
    late: &Mutex<Vec<Leased>>,
    limit: usize,
) {
    for step in 0..6 {
        let stale = late.lock().expect("no panic while it is locked").pop();
        if let Some(stale) = stale.filter(|stale| stale.lease.expires_at <= now) {
            let refused = t.settle(&stale, ack(), now).await.expect_err("the lease has ended");
            let is_right = matches!(
                refused,
                Refusal::LeaseExpired | Refusal::LeaseMismatch | Refusal::JobNotInflight
            );
            assert!(is_right, "{refused:?}");
        }
        for leased in t.take_many(1, now).await {
            let all = held.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(all <= limit, "{all} jobs are inflight at {now}");
            tokio::task::yield_now().await;
            if (task + step).is_multiple_of(3) {
                late.lock().expect("no panic while it is locked").push(leased);
            } else {
                held.fetch_sub(1, Ordering::SeqCst);
                t.apply(&leased, release(None), now).await;
            }
        }
    }
}

async fn no_job_is_left_behind_when_places_are_freed_in_a_race(t: DriverUnderTest) {
    // A job is enqueued while another frees the only place of its lane.
    t.limit(QueueLimits::new().per_lane(1)).await;
    for round in 0..100 {
        let name = |n: usize| format!("{round} {n}");
        t.put(in_lane("a", &name(0)), T0).await;
        let first = t.take_the(&name(0), T0).await;
        let (acking, putting, asking) = (t.clone(), t.clone(), t.clone());
        let next = name(1);
        let steps: [crate::case::BoxFuture<Vec<Leased>>; 3] = [
            Box::pin(async move {
                acking.apply(&first, ack(), T0).await;
                Vec::new()
            }),
            Box::pin(async move {
                putting.put(in_lane("a", &next), T0).await;
                Vec::new()
            }),
            Box::pin(async move { asking.take_many(1, T0).await }),
        ];
        let mut jobs: Vec<Leased> = at_once(steps).await.into_iter().flatten().collect();
        if jobs.is_empty() {
            jobs = t.take_many(2, T0).await;
        }
        assert_eq!(jobs.len(), 1, "in round {round}");
        t.apply(&jobs[0], ack(), T0).await;
    }
}

async fn no_lane_starves_in_a_race(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(20)).await;
    t.put_all(jobs_of("big", 400), T0).await;
    let small = ["a", "z"].iter().flat_map(|name| jobs_of(name, 10));
    t.put_all(small.chain((0..10).map(|n| job(&format!("plain {n}")))), at(1)).await;
    let granted: Arc<Mutex<Vec<String>>> = Arc::default();
    let racing = (0..TASKS).map(|_| {
        let (t, granted) = (t.clone(), Arc::clone(&granted));
        async move {
            for _ in 0..20 {
                for leased in t.take_many(1, at(2)).await {
                    let lane = lane_of(&leased);
                    granted.lock().expect("no panic while it is locked").push(lane);
                    t.apply(&leased, ack(), at(2)).await;
                }
            }
        }
    });
    at_once(racing).await;
    let granted = granted.lock().expect("no panic while it is locked");
    for name in ["", "a", "z"] {
        let of_lane = granted.iter().filter(|lane| *lane == name).count();
        assert_eq!(of_lane, 10, "of lane {name:?} in {} grants", granted.len());
    }
}

async fn limits_that_change_in_a_race_lose_no_place(t: DriverUnderTest) {
    t.limit(QueueLimits::new().inflight(4)).await;
    t.put_all(jobs_of("a", 60).into_iter().chain(jobs_of("b", 60)), T0).await;
    let racing = (0..TASKS).map(|task| {
        let t = t.clone();
        async move {
            for round in 0..15_u32 {
                if task == 0 {
                    let limits = QueueLimits::new().inflight(1 + round % 4);
                    t.limit(limits.per_lane(1 + round % 2)).await;
                }
                for leased in t.take_many(1, T0).await {
                    t.apply(&leased, if task % 2 == 0 { ack() } else { release(None) }, T0).await;
                }
            }
        }
    });
    at_once(racing).await;
    t.limit(QueueLimits::new().inflight(3).per_lane(2)).await;
    assert_eq!(t.take_many(100, T0).await.len(), 3, "no lease is left");
    assert_eq!(t.take_many(100, T0).await.len(), 0);
}
