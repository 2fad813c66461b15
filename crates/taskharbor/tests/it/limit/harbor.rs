//! Limits and rates in the testing kit.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use taskharbor::{
    Context, DeclaredLimits, Handlers, JobResult, Outcome, QueueLimits, Rate, State, Timestamp,
    testing::{Harbor, Time},
};

use super::{Lanes, counting};
use crate::rig::{SECOND, Work, handler, work};

type Starts = Arc<Mutex<Vec<Timestamp>>>;

fn recording(starts: &Starts, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Handlers {
    let (starts, clock) = (Arc::clone(starts), Arc::new(clock));
    handler(move |_, _| {
        starts.lock().unwrap().push(clock());
        async { Ok(Outcome::Done(0)) }
    })
}

#[tokio::test(start_paused = true)]
async fn ninety_calls_in_ten_seconds_for_an_hour() {
    let (starts, began) = (Starts::default(), tokio::time::Instant::now());
    let clock = move || Timestamp::EPOCH.saturating_add(began.elapsed());
    let limits = QueueLimits::new().rate(Rate::per(90, 10 * SECOND).burst(10));
    let ours = DeclaredLimits::owned_by("mail").queue("default", limits);
    let harbor = Harbor::configured(recording(&starts, clock), |worker| worker.limits(ours));
    let jobs = (0..40_000).map(|n| work(n.to_string()));
    for some in jobs.collect::<Vec<_>>().chunks(1_000) {
        harbor.client().enqueue_many(some.to_vec()).await.unwrap();
    }
    harbor.advance(3_600 * SECOND).await;
    let starts = starts.lock().unwrap().clone();
    // Nine in a second, and the burst. The interval is rounded up to whole microseconds.
    assert!((32_399..=32_410).contains(&starts.len()), "{}", starts.len());
    let gap = |jobs: usize| starts.windows(jobs + 1).map(|it| it[jobs].since(it[0])).min().unwrap();
    assert!(gap(90 + 9) >= 9 * SECOND, "{:?}", gap(99));
    assert!(gap(90 + 10) >= 10 * SECOND, "{:?}", gap(100));
}

#[tokio::test(start_paused = true)]
async fn all_that_a_rate_keeps_back_runs_until_idle() {
    let starts = Starts::default();
    let harbor = Harbor::new(recording(&starts, || Timestamp::EPOCH));
    let queue = harbor.client().queue("default");
    queue.limit(QueueLimits::new().lane_rate(Rate::per(1, 60 * SECOND))).await.unwrap();
    queue.hold_lane("b", 600 * SECOND).await.unwrap();
    let start = harbor.now().await;
    for (lane, jobs) in [("a", 5), ("b", 2)] {
        for n in 0..jobs {
            harbor.client().enqueue(work(n.to_string())).lane(lane).await.unwrap();
        }
    }
    harbor.run_until_idle().await;
    assert_eq!(starts.lock().unwrap().len(), 7);
    assert_eq!(harbor.now().await.since(start), 660 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn lanes_share_a_limit_in_virtual_time() {
    let lanes = Arc::new(Lanes::default());
    let limits = QueueLimits::new().per_lane(3).inflight(4);
    let ours = DeclaredLimits::owned_by("mail").queue("default", limits);
    let harbor = Harbor::configured(counting(&lanes), |worker| worker.limits(ours));
    let start = harbor.now().await;
    for n in 0..400 {
        let lane = if n % 4 == 0 { "b" } else { "a" };
        harbor.client().enqueue(work(n.to_string())).lane(lane).await.unwrap();
    }
    harbor.run_until_idle().await;
    // Two of each while both have jobs, which is 50 s for the hundred of one lane, and then three.
    assert_eq!(["a", "b", "*"].map(|lane| lanes.most(lane)), [3, 2, 4]);
    assert_eq!(harbor.now().await.since(start), (50 + 67) * SECOND);
}

#[tokio::test]
async fn on_a_clock_of_the_test_a_rate_lets_jobs_go_when_it_is_advanced() {
    async fn run(_: Work, _: Context) -> JobResult<u64> {
        Ok(0)
    }
    let driver = taskharbor::connect("memory:").await.unwrap();
    let harbor = Harbor::on(&driver, Time::Manual, Handlers::new().on(run));
    let queue = harbor.client().queue("default");
    queue.limit(QueueLimits::new().rate(Rate::per(1, 60 * SECOND))).await.unwrap();
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(harbor.client().enqueue(work(n.to_string())).await.unwrap().id().clone());
    }
    harbor.run_until_idle().await;
    let done = async |harbor: &Harbor| {
        let mut done = 0;
        for id in &ids {
            done += usize::from(harbor.state(id).await == State::Done);
        }
        done
    };
    assert_eq!(done(&harbor).await, 1);
    harbor.advance(Duration::from_secs(121)).await;
    assert_eq!(done(&harbor).await, 3);
    harbor.advance(Duration::from_secs(60)).await;
    assert_eq!(done(&harbor).await, 4);
}
