//! Many at once who settle, extend, manage and remove the same jobs and flows: they may wait for
//! each other, but never in a circle.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, Timestamp,
    admin::{Action, Evict, Manage, Prune, Requeue},
    driver::{
        Announce, Enqueue, ExtendLeases, Extension, Incarnation, LeaseToken, Settle, Settlement,
        Transition,
    },
    flow::Expansion,
    job::{FailedAttempt, FailurePolicy, JobSet},
    name::Holder,
};
use taskharbor_postgres::PostgresDriver;

use crate::{
    fixture::{flow, id, job, noon, reserve, tokens},
    harness::store,
};

const CALLERS: u64 = 8;
const CALLS: usize = 400;
const JOBS: usize = 8;
const FLOWS: usize = 3;
const POLICIES: [FailurePolicy; 4] =
    [FailurePolicy::Block, FailurePolicy::Cancel, FailurePolicy::FailFast, FailurePolicy::Continue];

/// What all callers know.
struct World {
    /// Moves on with every call, so that leases end while others are at it.
    now: AtomicI64,
    held: Mutex<HashMap<JobId, LeaseToken>>,
    expanded: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

struct Caller {
    driver: PostgresDriver,
    world: Arc<World>,
    random: fastrand::Rng,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_changes_of_the_same_jobs_cannot_deadlock() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let store = store::named().await;
    let world = Arc::new(World {
        now: AtomicI64::new(noon().as_micros()),
        held: Mutex::default(),
        expanded: AtomicUsize::new(0),
        failed: Mutex::default(),
    });
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let driver = store.another().await;
        let random = fastrand::Rng::with_seed(seed ^ (number << 32));
        let mut caller = Caller { driver, world: Arc::clone(&world), random };
        callers.push(tokio::spawn(async move {
            for _ in 0..CALLS {
                caller.call().await;
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let failed = std::mem::take(&mut *world.failed.lock().unwrap());
    assert!(failed.is_empty(), "{} calls failed, such as {:#?}", failed.len(), failed.first());
    assert_eq!(store.check().await.unwrap(), []);
}

impl Caller {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.world.now.fetch_add(1_000, Ordering::Relaxed)).unwrap()
    }

    async fn call(&mut self) {
        let done = match self.random.u8(..22) {
            0..=4 => self.reserve().await,
            5..=9 => self.settle().await,
            10..=11 => self.extend().await,
            12..=14 => self.manage().await,
            15..=16 => self.manage_flows().await,
            17 => self.prune().await,
            18 => self.evict().await,
            19 => self.announce().await,
            _ => self.enqueue().await,
        };
        if let Err(error) = done {
            self.world.failed.lock().unwrap().push(format!("{error:?}"));
        }
    }

    /// Some of all jobs, in any order.
    fn some_jobs(&mut self) -> Vec<JobId> {
        let plain = (0..JOBS).map(|number| id(format!("p{number}")));
        let members = (0..FLOWS).flat_map(|number| flow(&format!("f{number}"), POLICIES[0]));
        let mut all: Vec<JobId> = plain.chain(members.map(|member| member.id)).collect();
        self.random.shuffle(&mut all);
        all.truncate(self.random.usize(1..16));
        all
    }

    async fn reserve(&mut self) -> Result<(), DriverError> {
        let lease = Duration::from_millis(self.random.u64(5..400));
        let limit = self.random.usize(1..8);
        let reserved = self.driver.reserve(reserve(limit, self.now(), lease)).await?;
        self.world.held.lock().unwrap().extend(tokens(&reserved.jobs));
        Ok(())
    }

    /// Tokens that are held, or were.
    fn some_held(&mut self) -> Vec<(JobId, LeaseToken)> {
        let some = self.some_jobs();
        let held = self.world.held.lock().unwrap();
        some.into_iter().filter_map(|id| held.get(&id).map(|token| (id, *token))).collect()
    }

    async fn settle(&mut self) -> Result<(), DriverError> {
        let now = self.now();
        let held = self.some_held();
        let items = held.into_iter().map(|(id, token)| {
            let failure = FailedAttempt::new(1, "failed", now);
            let transition = match self.random.u8(..9) {
                0..=2 => Transition::Ack { output: None },
                3 => Transition::Fail { failure, reason: "failed".into() },
                4 | 5 => Transition::Retry { failure, run_at: None },
                6 | 7 => Transition::Release { run_at: None, started: false, note: None },
                _ => {
                    let number = self.world.expanded.fetch_add(1, Ordering::Relaxed);
                    Transition::Expand(Expansion::new(vec![job(format!("g{number}"))]))
                }
            };
            Settlement::new(id, token, transition)
        });
        let items = items.collect();
        self.driver.settle(Settle::new(items, now)).await.map(drop)
    }

    async fn extend(&mut self) -> Result<(), DriverError> {
        let items = self.some_held().into_iter().map(|(id, token)| Extension::new(id, token));
        let request = ExtendLeases::new(items.collect(), self.now(), Duration::from_millis(50));
        self.driver.extend_leases(request).await.map(drop)
    }

    async fn manage(&mut self) -> Result<(), DriverError> {
        let action = match self.random.u8(..8) {
            0..=2 => Action::Requeue(Requeue::new().reset_attempts()),
            3 => Action::Requeue(Requeue::new().detach()),
            4 | 5 => Action::Cancel,
            6 => Action::SetPriority(self.random.i16(0..3)),
            _ => [Action::RunNow, Action::Purge][self.random.usize(..2)].clone(),
        };
        let request = Manage::new(self.some_jobs(), action, self.now());
        self.driver.manage(request).await.map(drop)
    }

    async fn manage_flows(&mut self) -> Result<(), DriverError> {
        let mut flows: Vec<usize> = (0..FLOWS).collect();
        self.random.shuffle(&mut flows);
        flows.truncate(self.random.usize(1..4));
        let flows = flows.into_iter().map(|number| id(format!("f{number}-tail"))).collect();
        let action = [Action::CancelFlow, Action::PurgeFlow][self.random.usize(..2)].clone();
        self.driver.manage(Manage::new(flows, action, self.now())).await.map(drop)
    }

    async fn prune(&mut self) -> Result<(), DriverError> {
        let now = self.now();
        let request = Prune::new(self.random.usize(1..20), now);
        let request = request.done_before(now).cancelled_before(now).dlq_before(now);
        self.driver.prune(request).await.map(drop)
    }

    async fn evict(&mut self) -> Result<(), DriverError> {
        let request = Evict::new(Holder::new("worker").unwrap(), self.now());
        self.driver.evict(request).await.map(drop)
    }

    async fn announce(&mut self) -> Result<(), DriverError> {
        let incarnation = Incarnation::from_bits(self.random.u64(..4));
        let valid_for = Duration::from_millis(self.random.u64(..20));
        let holder = Holder::new("worker").unwrap();
        let request = Announce::new(holder, incarnation, (&[]).into(), valid_for, self.now());
        self.driver.announce(request).await
    }

    /// What is missing comes back, by as many as notice it.
    async fn enqueue(&mut self) -> Result<(), DriverError> {
        let plain = self.some_jobs().into_iter().filter(|id| id.as_str().starts_with('p'));
        let mut plain: Vec<_> = plain.map(|id| job(id.as_str())).collect();
        if self.random.u8(..4) == 0 {
            plain.extend(plain.clone());
        }
        let number = self.random.usize(..FLOWS);
        let members = flow(&format!("f{number}"), POLICIES[number % POLICIES.len()]);
        let sets = vec![JobSet::plain(plain), JobSet::flow(members)];
        self.driver.enqueue(Enqueue::new(sets, self.now())).await.map(drop)
    }
}

/// Two workers, each of which still believes to hold what the other has got since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_lost_a_lease_to_each_other_settle_side_by_side() {
    let store = store::named().await;
    let (one, other) = (store.another().await, store.another().await);
    for round in 0..150 {
        let now = noon().saturating_add(Duration::from_secs(60 * round));
        let jobs = (0..6).map(|number| job(format!("{round}-{number}"))).collect();
        store.enqueue(Enqueue::new(vec![JobSet::plain(jobs)], now)).await.unwrap();
        let long = Duration::from_secs(30);
        let all = tokens(&store.reserve(reserve(6, now, long)).await.unwrap().jobs);
        let stale = LeaseToken::random().unwrap();
        let settle = |driver: PostgresDriver, of: usize| {
            let items = all.iter().enumerate().map(|(at, (id, token))| {
                let token = if at % 2 == of { *token } else { stale };
                Settlement::new(id.clone(), token, Transition::Ack { output: None })
            });
            let request = Settle::new(items.collect(), now);
            tokio::spawn(async move { driver.settle(request).await })
        };
        let (one, other) = tokio::join!(settle(one.clone(), 0), settle(other.clone(), 1));
        for answers in [one, other] {
            let applied = answers.unwrap().unwrap().iter().filter(|it| it.is_ok()).count();
            assert_eq!(applied, 3);
        }
    }
    assert_eq!(store.check().await.unwrap(), []);
}

/// A worker that gives some jobs back and ends others, while people cancel all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_while_it_is_settled_in_several_ways_is_waited_for_in_order() {
    let store = store::named().await;
    let other = store.another().await;
    for round in 0..150 {
        let now = noon().saturating_add(Duration::from_secs(60 * round));
        let jobs = (0..6).map(|number| job(format!("{round}-{number}"))).collect();
        store.enqueue(Enqueue::new(vec![JobSet::plain(jobs)], now)).await.unwrap();
        let long = Duration::from_secs(30);
        let all = tokens(&store.reserve(reserve(6, now, long)).await.unwrap().jobs);
        let ids = all.iter().map(|(id, _)| id.clone()).collect();
        let manage = Manage::new(ids, Action::Cancel, now);
        let items = all.into_iter().enumerate().map(|(at, (id, token))| {
            let transition = match at {
                0 | 1 => Transition::Release { run_at: None, started: false, note: None },
                2 => Transition::Expand(Expansion::new(vec![job(format!("{round}-member"))])),
                _ => Transition::Ack { output: None },
            };
            Settlement::new(id, token, transition)
        });
        let settle = Settle::new(items.collect(), now);
        let (driver, manager) = (store.driver().clone(), other.clone());
        let settling = tokio::spawn(async move { driver.settle(settle).await });
        let managing = tokio::spawn(async move { manager.manage(manage).await });
        assert!(settling.await.unwrap().unwrap().iter().all(Result::is_ok));
        managing.await.unwrap().unwrap();
        let (id, end) = (id(format!("{round}-0")), Action::Cancel);
        store.manage(Manage::new(vec![id], end, now)).await.unwrap();
    }
    assert_eq!(store.check().await.unwrap(), []);
}
