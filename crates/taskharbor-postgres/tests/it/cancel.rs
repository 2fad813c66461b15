//! Calls of every kind that are dropped at any moment: each happens whole or not at all, and
//! nothing stays behind.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, Timestamp,
    admin::{Action, Change, Filter, List, Manage, Prune, Requeue},
    driver::{
        Enqueue, ExtendLeases, Extension, LeaseToken, OutputQuery, Outputs, Settle, Settlement,
        Transition,
    },
    flow::{Expansion, ListFlows},
    job::{FailedAttempt, FailurePolicy, JobSet},
};
use tokio::time::{sleep, timeout};

use crate::{
    fixture::{configure, counts, flow, id, job, noon, queue, reserve, tokens},
    harness::store::{self, Store},
};

const CALLERS: u64 = 4;
const CALLS: usize = 700;

struct World {
    now: AtomicI64,
    made: AtomicUsize,
    held: Mutex<Vec<(JobId, LeaseToken)>>,
    /// Those whose call has answered.
    stored: Mutex<Vec<JobId>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_every_kind_dropped_at_any_moment_leave_nothing_behind() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let store = store::named().await;
    let world = Arc::new(World {
        now: AtomicI64::new(noon().as_micros()),
        made: AtomicUsize::new(0),
        held: Mutex::default(),
        stored: Mutex::default(),
    });
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let random = fastrand::Rng::with_seed(seed ^ (number << 32));
        let mut caller = Caller { store: store.clone(), world: Arc::clone(&world), random };
        callers.push(tokio::spawn(async move {
            let mut dropped = 0;
            for _ in 0..CALLS {
                let limit = Duration::from_micros(caller.random.u64(..6_000));
                match timeout(limit, caller.call()).await {
                    Ok(answer) => answer.unwrap(),
                    Err(_) => dropped += 1,
                }
            }
            dropped
        }));
    }
    let mut dropped = 0;
    for caller in callers {
        dropped += caller.await.unwrap();
    }
    println!("{dropped} of {} calls were dropped", CALLERS as usize * CALLS);
    assert!(dropped > CALLS, "too few calls were dropped to mean anything");

    let look = store.sql().await;
    let busy = "SELECT count(*), count(*) FILTER (WHERE state <> 'idle') FROM pg_stat_activity \
                WHERE application_name = current_setting('application_name') \
                AND pid <> pg_backend_pid() AND query NOT LIKE '%LISTEN%'";
    let settled = async {
        loop {
            let row = look.query_one(busy, &[]).await.unwrap();
            let (open, busy) = (row.get::<_, i64>(0), row.get::<_, i64>(1));
            if open <= 2 && busy == 0 {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), settled).await.expect("two connections at most, at rest");
    assert_eq!(store.check().await.unwrap(), []);
    let halves = "SELECT count(*) FROM (SELECT split_part(id, '-', 1), count(*) FROM th_job \
                  WHERE id LIKE 'f%' GROUP BY 1 HAVING count(*) % 5 <> 0) f";
    assert_eq!(look.query_one(halves, &[]).await.unwrap().get::<_, i64>(0), 0, "half a flow");
    let stored = std::mem::take(&mut *world.stored.lock().unwrap());
    let now = Timestamp::from_micros(world.now.load(Ordering::Relaxed)).unwrap();
    for id in stored {
        assert!(store.inspect(id.clone(), now).await.unwrap().is_some(), "{id:?} is lost");
    }
    everything_can_still_be_granted(&store, now).await;
}

/// Once all leases have ended, each job that is due is granted, and acknowledged.
async fn everything_can_still_be_granted(store: &Store, now: Timestamp) {
    let later = now.saturating_add(Duration::from_secs(3600));
    configure(store, Change::ResumeQueue(queue("q")), later).await.unwrap();
    for _ in 0..200 {
        let lease = Duration::from_secs(60);
        let granted = store.reserve(reserve(500, later, lease)).await.unwrap();
        if granted.jobs.is_empty() {
            let counts = counts(store, later).await.unwrap();
            assert!(counts.iter().all(|it| it.states.inflight == 0 && it.states.ready == 0));
            assert_eq!(store.check().await.unwrap(), []);
            return;
        }
        let items = tokens(&granted.jobs)
            .into_iter()
            .map(|(id, token)| Settlement::new(id, token, Transition::Ack { output: None }));
        let answers = store.settle(Settle::new(items.collect(), later)).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
    panic!("there is no end of jobs");
}

struct Caller {
    store: Store,
    world: Arc<World>,
    random: fastrand::Rng,
}

impl Caller {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.world.now.fetch_add(1_000, Ordering::Relaxed)).unwrap()
    }

    fn name(&self, start: char) -> String {
        format!("{start}{}", self.world.made.fetch_add(1, Ordering::Relaxed))
    }

    fn some_held(&mut self) -> Vec<(JobId, LeaseToken)> {
        let held = self.world.held.lock().unwrap();
        let start = held.len().saturating_sub(self.random.usize(1..30));
        held[start..].to_vec()
    }

    async fn call(&mut self) -> Result<(), DriverError> {
        let (store, now) = (self.store.clone(), self.now());
        match self.random.u8(..20) {
            0..=2 => {
                let jobs: Vec<_> = (0..5).map(|_| job(self.name('p'))).collect();
                let ids: Vec<_> = jobs.iter().map(|job| job.id.clone()).collect();
                store.enqueue(Enqueue::new(vec![JobSet::plain(jobs)], now)).await?;
                self.world.stored.lock().unwrap().extend(ids);
                Ok(())
            }
            3 | 4 => {
                let policy =
                    [FailurePolicy::FailFast, FailurePolicy::Continue][self.random.usize(..2)];
                let members = flow(&self.name('f'), policy);
                let ids: Vec<_> = members.iter().map(|job| job.id.clone()).collect();
                store.enqueue(Enqueue::new(vec![JobSet::flow(members)], now)).await?;
                self.world.stored.lock().unwrap().extend(ids);
                Ok(())
            }
            5..=7 => {
                let lease = Duration::from_millis(self.random.u64(20..2_000));
                let reserved = store.reserve(reserve(8, now, lease)).await?;
                self.world.held.lock().unwrap().extend(tokens(&reserved.jobs));
                Ok(())
            }
            8 => {
                let items = self.some_held();
                let items = unique(items).map(|(id, token)| Extension::new(id, token));
                let lease = Duration::from_millis(500);
                store.extend_leases(ExtendLeases::new(items.collect(), now, lease)).await.map(drop)
            }
            9..=11 => {
                let items = unique(self.some_held()).map(|(id, token)| {
                    let failure = FailedAttempt::new(1, "failed", now);
                    let transition = match self.random.u8(..6) {
                        0..=2 => Transition::Ack { output: None },
                        3 => Transition::Fail { failure, reason: "failed".into() },
                        4 => Transition::Retry { failure, run_at: None },
                        _ => {
                            let member = format!("g{}", self.random.u64(..));
                            Transition::Expand(Expansion::new(vec![job(member)]))
                        }
                    };
                    Settlement::new(id, token, transition)
                });
                let items = items.collect();
                store.settle(Settle::new(items, now)).await.map(drop)
            }
            12 | 13 => {
                let ids = unique(self.some_held()).map(|(id, _)| id).collect();
                let action = match self.random.u8(..4) {
                    0 => Action::Cancel,
                    1 => Action::SetPriority(self.random.i16(..3)),
                    2 => Action::RunNow,
                    _ => Action::Requeue(Requeue::new().reset_attempts()),
                };
                store.manage(Manage::new(ids, action, now)).await.map(drop)
            }
            // Nothing is old enough, so that what was stored can be looked for.
            14 => store.prune(Prune::new(10, now).done_before(Timestamp::EPOCH)).await.map(drop),
            15 => store.list(List::new(Filter::all(), 50, now)).await.map(drop),
            16 => store.list_flows(ListFlows::new(50, now)).await.map(drop),
            17 => {
                let items = unique(self.some_held()).map(|(id, _)| OutputQuery::parents_of(id));
                store.outputs(Outputs::new(items.collect(), 10)).await.map(drop)
            }
            18 => {
                let change = match self.random.u8(..4) {
                    0 => Change::PauseQueue(queue("q")),
                    _ => Change::ResumeQueue(queue("q")),
                };
                configure(&store, change, now).await
            }
            _ => {
                counts(&store, now).await?;
                store.inspect(id("p1"), now).await?;
                store.flow(id("f1-tail"), now).await?;
                store.store_time().await.map(drop)
            }
        }
    }
}

/// Each job once, with its newest token.
fn unique(held: Vec<(JobId, LeaseToken)>) -> impl Iterator<Item = (JobId, LeaseToken)> {
    held.into_iter().collect::<std::collections::HashMap<_, _>>().into_iter()
}

#[tokio::test]
async fn the_store_does_not_tell_earlier_times() {
    let store = store::named().await;
    let mut last = Timestamp::EPOCH;
    for _ in 0..200 {
        let (one, other) = tokio::join!(store.store_time(), store.store_time());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(one >= last && other >= last);
        last = one.max(other);
    }
}
