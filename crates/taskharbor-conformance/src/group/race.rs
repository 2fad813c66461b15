//! Many tasks on one store at once; what they saw is checked against the invariants.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use taskharbor_core::{
    Admin, Driver, JobId, NewJob, Text, Timestamp,
    admin::{Evict, Evicted, Filter},
    driver::{Demand, Enqueue, ExtendLeases, LeaseToken, Leased, Reserve, Settle, Transition},
    job::{FailedAttempt, JobRecord, JobSet, SetKind},
    name::Holder,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, child, extension, job, key, queue, settlement},
    history::{History, What},
};

group! {
    race {
        many_tasks_on_one_queue_keep_every_invariant
            ["RES-4" "RES-8" "RES-9" "LEA-1" "LEA-10" "SET-5" "SET-10" "KEY-6" "ENQ-7"]
        evictions_beside_everything_else_keep_every_invariant
            ["EVI-1" "EVI-2" "RES-4" "RES-9" "LEA-10" "SET-5" "SET-10"]
    }
    flows {
        many_tasks_on_many_flows_keep_every_invariant ["FLO-1" "FLO-2" "FLO-8" "RES-9"]
    }
}

/// How long leases last: short beside the steps that the clock takes, so that many run out.
const LEASE: Duration = Duration::from_secs(5);

const TASKS: usize = 8;
const ROUNDS: usize = 150;

async fn many_tasks_on_one_queue_keep_every_invariant(t: DriverUnderTest) {
    let plain = |dice: &mut Rng, task: usize, round: usize| {
        let mut new = match dice.u32(..4) {
            0 => job(&format!("shared-{}", dice.u32(..60))),
            1 => {
                let shared = key(&format!("key-{}", dice.u32(..60)));
                job(&format!("keyed-{task}-{round}")).idempotency_key(shared)
            }
            _ => job(&format!("own-{task}-{round}")),
        };
        new = new.priority(dice.i16(-1..2));
        if dice.u32(..4) == 0 {
            new = new.run_at(T0.saturating_add(Duration::from_secs(dice.u64(..60))));
        }
        if dice.u32(..12) == 0 {
            // A set that is rejected, with a job in it that alone would not be.
            let fine = job(&format!("fine-{task}-{round}"));
            let bad = job(&format!("bad-{task}-{round}")).max_attempts(0);
            return JobSet::plain(vec![fine, bad]);
        }
        JobSet::from(new)
    };
    Race::new(t).run(plain, 1).await;
}

async fn many_tasks_on_many_flows_keep_every_invariant(t: DriverUnderTest) {
    let chord = |dice: &mut Rng, task: usize, round: usize| {
        let name = match dice.u32(..3) {
            0 => format!("shared-{}", dice.u32(..20)),
            _ => format!("own-{task}-{round}"),
        };
        let members: Vec<String> = (0..4).map(|n| format!("{name}-{n}")).collect();
        let texts: Vec<&str> = members.iter().map(String::as_str).collect();
        let mut jobs: Vec<NewJob> = texts.iter().map(|text| job(text)).collect();
        jobs.push(child(&name, &texts));
        JobSet::flow(jobs)
    };
    Race::new(t).run(chord, 3).await;
}

async fn evictions_beside_everything_else_keep_every_invariant(t: DriverUnderTest) {
    let plain = |dice: &mut Rng, task: usize, round: usize| {
        JobSet::from(job(&format!("{task}-{round}")).priority(dice.i16(-1..2)))
    };
    let mut race = Race::new(t);
    Arc::get_mut(&mut race).expect("not shared yet").evicts = true;
    race.run(plain, 1).await;
}

/// Tasks that share a store, a clock and a history.
struct Race {
    under_test: DriverUnderTest,
    /// Whether tasks evict each other.
    evicts: bool,
    clock: AtomicI64,
    history: History,
}

impl Race {
    fn new(under_test: DriverUnderTest) -> Arc<Self> {
        let clock = AtomicI64::new(T0.as_micros());
        Arc::new(Self { under_test, evicts: false, clock, history: History::default() })
    }

    /// The time, which moves on with every look; sometimes that of a clock that is slow.
    fn now(&self, dice: &mut Rng) -> Timestamp {
        let step = dice.i64(0..40_000);
        let slow = if dice.u32(..8) == 0 { dice.i64(0..500_000) } else { 0 };
        let micros = self.clock.fetch_add(step, Ordering::SeqCst) + step - slow;
        Timestamp::from_micros(micros).expect("a time in this century")
    }

    async fn run(
        self: Arc<Self>,
        make: impl Fn(&mut Rng, usize, usize) -> JobSet + Clone + Send + Sync + 'static,
        enqueue_one_in: u32,
    ) {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (race, make) = (Arc::clone(&self), make.clone());
                tokio::spawn(async move {
                    let mut dice = Rng::with_seed(task as u64);
                    let mut worker = Worker::new(&race, task);
                    for round in 0..ROUNDS {
                        if dice.u32(..2 * enqueue_one_in) == 0 {
                            worker.enqueue(vec![make(&mut dice, task, round)], &mut dice).await;
                        } else {
                            worker.work(&mut dice).await;
                        }
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        // S11: the store is consistent at any moment, not only when all is quiet.
        for _ in 0..20 {
            let found = self.under_test.driver.check().await.expect("check");
            assert!(found.is_empty(), "S11: in the middle of the race: {found:?}");
            tokio::task::yield_now().await;
        }
        for task in tasks {
            task.await.expect("no task panics");
        }
        self.drain().await;
        let end = Timestamp::MAX;
        let stored: HashMap<JobId, JobRecord> = {
            let mut stored = HashMap::new();
            for listed in self.under_test.list(Filter::all(), 1_000, end).await {
                let record = self.under_test.record(listed.id.as_str(), end).await;
                stored.insert(listed.id, record);
            }
            stored
        };
        let race = Arc::into_inner(self).expect("the tasks are gone");
        assert!(stored.len() > TASKS, "the race stored next to nothing");
        let found = race.history.contradictions(&stored);
        assert!(found.is_empty(), "{} contradictions: {found:#?}", found.len());
        assert_eq!(race.under_test.driver.check().await.expect("check"), Vec::new());
    }

    /// Finishes all that is left, long after every lease has run out.
    async fn drain(&self) {
        let mut dice = Rng::with_seed(u64::MAX);
        let mut worker = Worker::new(self, TASKS);
        for _ in 0..100 {
            self.clock.fetch_add(120_000_000, Ordering::SeqCst);
            worker.reserve(100, &mut dice).await;
            if worker.live.is_empty() {
                return;
            }
            worker.settle(usize::MAX, ACK, &mut dice).await;
        }
        panic!("the work does not come to an end");
    }
}

struct Worker<'a> {
    race: &'a Race,
    holder: Holder,
    /// What it believes to hold.
    live: Vec<Mine>,
    /// What it has settled or forgotten, and may try to use once more.
    old: Vec<Mine>,
}

/// A job, with the token it was granted with and the one that counts now.
#[derive(Clone)]
struct Mine {
    granted: LeaseToken,
    leased: Leased,
}

fn holder_of(task: usize) -> Holder {
    Holder::new(format!("racer-{task}")).expect("a valid holder")
}

impl<'a> Worker<'a> {
    fn new(race: &'a Race, task: usize) -> Self {
        Self { race, holder: holder_of(task), live: Vec::new(), old: Vec::new() }
    }

    async fn work(&mut self, dice: &mut Rng) {
        if self.race.evicts && dice.u32(..8) == 0 {
            return self.evict(dice).await;
        }
        match dice.u32(..10) {
            0..4 => self.reserve(dice.usize(1..4), dice).await,
            4 => self.extend(dice).await,
            5..8 => {
                let kind = dice.u32(..8);
                self.settle(dice.usize(1..4), kind, dice).await;
            }
            8 => self.try_old(dice).await,
            _ => self.old.append(&mut self.live), // a crash: its leases run out
        }
    }

    async fn enqueue(&mut self, sets: Vec<JobSet>, dice: &mut Rng) {
        let now = self.race.now(dice);
        let began = self.race.history.begin();
        let request = Enqueue::new(sets.clone(), now);
        let answers = self.race.under_test.driver.enqueue(request).await.expect("enqueue");
        let mut what = Vec::new();
        for (set, answer) in sets.into_iter().zip(answers) {
            assert!(set.kind == SetKind::Plain || answer.is_ok(), "{answer:?}");
            for (position, job) in set.jobs.into_iter().enumerate() {
                let answer = answer.as_ref().map(|answers| answers[position].clone());
                what.push(What::Enqueue { job, answer: answer.map_err(Clone::clone) });
            }
        }
        self.race.history.end(began, now, what);
    }

    async fn reserve(&mut self, limit: usize, dice: &mut Rng) {
        let now = self.race.now(dice);
        let demands = vec![Demand::new(queue("q"), limit)];
        let holder = self.holder.clone();
        let began = self.race.history.begin();
        let request = Reserve::new(demands, holder.clone(), now, LEASE);
        let jobs = self.race.under_test.driver.reserve(request).await.expect("reserve").jobs;
        let grant =
            |leased: &Leased| What::Grant { holder: holder.clone(), leased: leased.clone() };
        self.race.history.end(began, now, jobs.iter().map(grant));
        for leased in jobs {
            // A job that ran out of its lease may come back to the very worker that had it.
            let again = |mine: &mut Mine| mine.leased.job.id == leased.job.id;
            self.old.extend(self.live.extract_if(.., again));
            self.live.push(Mine { granted: leased.lease.token, leased });
        }
    }

    /// Evicts a worker, which may be itself.
    async fn evict(&self, dice: &mut Rng) {
        let (now, holder) = (self.race.now(dice), holder_of(dice.usize(..TASKS)));
        let began = self.race.history.begin();
        let request = Evict::new(holder.clone(), now);
        let evicted = self.race.under_test.driver.evict(request).await.expect("evict");
        assert!(matches!(evicted, Evicted::Leases(_)), "no start was named");
        self.race.history.end(began, now, [What::Evict(holder)]);
    }

    async fn extend(&mut self, dice: &mut Rng) {
        let now = self.race.now(dice);
        let items = self.live.iter().map(|mine| extension(&mine.leased)).collect();
        let lease_for = Duration::from_micros(dice.u64(1..8_000_000));
        let began = self.race.history.begin();
        let request = ExtendLeases::new(items, now, lease_for);
        let answers = self.race.under_test.driver.extend_leases(request).await.expect("extend");
        let mut what = Vec::new();
        for (mine, answer) in self.live.iter_mut().zip(answers) {
            if let Ok(extended) = &answer {
                mine.leased.lease = extended.lease;
            }
            let (id, token) = (mine.leased.job.id.clone(), mine.granted);
            what.push(What::Extend { id, token, answer });
        }
        self.race.history.end(began, now, what);
    }

    async fn settle(&mut self, count: usize, kind: u32, dice: &mut Rng) {
        let count = count.min(self.live.len());
        let jobs: Vec<Mine> = self.live.drain(..count).collect();
        let now = self.race.now(dice);
        self.settle_these(&jobs, kind, now).await;
        self.old.extend(jobs);
    }

    async fn try_old(&mut self, dice: &mut Rng) {
        if let Some(mine) = dice.choice(&self.old).cloned() {
            let now = self.race.now(dice);
            self.settle_these(&[mine], dice.u32(..8), now).await;
        }
    }

    async fn settle_these(&self, jobs: &[Mine], kind: u32, now: Timestamp) {
        let settlement =
            |mine: &Mine| settlement(&mine.leased, transition(kind, &mine.leased, now));
        let items: Vec<_> = jobs.iter().map(settlement).collect();
        let began = self.race.history.begin();
        let request = Settle::new(items, now);
        let answers = self.race.under_test.driver.settle(request).await.expect("settle");
        assert_eq!(answers.len(), jobs.len(), "S13: one answer for each item");
        let what = jobs.iter().zip(answers).map(|(mine, answer)| What::Settle {
            id: mine.leased.job.id.clone(),
            token: mine.granted,
            step: transition(kind, &mine.leased, now).step(),
            answer,
        });
        self.race.history.end(began, now, what);
    }
}

/// The kind of transition that is an ack.
const ACK: u32 = 7;

fn transition(kind: u32, leased: &Leased, now: Timestamp) -> Transition {
    let failure = FailedAttempt::new(leased.job.attempts + 1, "it failed", now);
    match kind {
        0 => Transition::Retry { failure, run_at: None },
        1 => Transition::Release { run_at: None, started: false, note: None },
        2 => Transition::Retry { failure, run_at: now.checked_add(LEASE) },
        3 => Transition::Fail { failure, reason: Text::new("gave up") },
        _ => Transition::Ack { output: None },
    }
}
