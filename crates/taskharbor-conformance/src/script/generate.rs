//! Making scripts from seeds.
//!
//! Few ids, keys and queues, so that things meet; times that cluster around the instants at which
//! something changes.

use std::time::Duration;

use fastrand::Rng;
use taskharbor_core::{
    State,
    admin::{LaneLimits, QueueLimits, Rate},
    driver::{Limits, OutputOf},
    job::{FailurePolicy, JoinReading, KeyHold},
};

use super::{
    Act, Deed, FirePlan, JobPlan, LimitPlan, ListPlan, Pick, SchedulePlan, SetPlan, Step, Turn,
    When, Whose, plan::lane_name,
};

/// Some ids come often, so that jobs meet themselves; others seldom, so that expansions find room.
const FREQUENT_IDS: u8 = 12;
const IDS: u8 = 200;
const KEYS: u8 = 3;
pub(super) const QUEUES: u8 = 3;
const LANES: u8 = 3;
const SCHEDULES: u8 = 4;
const OWNERS: u8 = 2;
const HOLDERS: u8 = 3;
const INCARNATIONS: u8 = 3;

pub(super) fn steps(seed: u64, count: usize) -> Vec<Step> {
    // In every other script jobs come and go without limits.
    let mut dice = Dice(Rng::with_seed(seed), seed.is_multiple_of(2));
    (0..count).map(|_| Step { when: dice.when(), act: dice.act() }).collect()
}

/// Whether there are limits is the second.
struct Dice(Rng, bool);

impl Dice {
    /// True once in `n` times.
    fn one_in(&mut self, n: u32) -> bool {
        self.0.u32(..n) == 0
    }

    fn maybe<T>(&mut self, n: u32, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one_in(n).then(|| value(self))
    }

    fn some<T>(&mut self, most: usize, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.0.usize(1..=most)).map(|_| value(self)).collect()
    }

    fn when(&mut self) -> When {
        match self.0.u32(..43) {
            40.. => When::Limit { offset: self.0.i64(-1..=1) },
            0..12 => When::Same,
            12..24 => When::Later(Duration::from_micros(self.0.u64(1..5_000_000))),
            24..27 => When::Earlier(Duration::from_micros(self.0.u64(1..20_000_000))),
            27..36 => When::Lease { grant: self.0.usize(..6), offset: self.0.i64(-1..=1) },
            36..38 => When::Due { offset: self.0.i64(-1..=1) },
            38 => When::Epoch,
            _ => When::End,
        }
    }

    fn act(&mut self) -> Act {
        if self.one_in(12) {
            return self.worker();
        }
        match self.0.u32(..if self.1 { 124 } else { 112 }) {
            112..121 => Act::Limit(self.some(2, Self::limit)),
            121.. => Act::Lanes(self.0.u8(..QUEUES), self.0.usize(1..4)),
            100..104 => Act::Schedule(self.some(2, Self::schedule)),
            104..110 => Act::Fire(self.some(2, Self::fire)),
            110..112 => Act::Due(self.0.usize(1..4)),
            0..22 => Act::Enqueue(self.some(3, Self::set)),
            22..48 => {
                let mut queues: Vec<u8> = (0..QUEUES).collect();
                self.0.shuffle(&mut queues);
                queues.truncate(self.0.usize(1..=usize::from(QUEUES)));
                let demands = queues.into_iter().map(|queue| (queue, self.0.usize(1..6))).collect();
                Act::Reserve { demands, holder: self.0.u8(..HOLDERS), lease_for: self.lease() }
            }
            48..53 => Act::Extend { picks: self.some(3, Self::pick), lease_for: self.lease() },
            53..78 => Act::Settle(self.some(4, |dice| (dice.pick(), dice.turn()))),
            78..88 => Act::Manage { jobs: self.some(3, Self::whose), deed: self.deed() },
            88 => Act::Pause(self.0.u8(..QUEUES)),
            89 => Act::Resume(self.0.u8(..QUEUES)),
            90..92 => Act::Prune {
                done: self.maybe(2, |dice| dice.0.u64(..30)),
                dlq: self.maybe(2, |dice| dice.0.u64(..30)),
                cancelled: self.maybe(2, |dice| dice.0.u64(..30)),
                limit: self.0.usize(1..8),
            },
            92..94 => Act::List(self.list()),
            _ => Act::Read {
                jobs: self.some(3, Self::whose),
                of: match self.0.u32(..3) {
                    0 => OutputOf::Parents,
                    1 => OutputOf::Itself,
                    _ => OutputOf::Input,
                },
                from: self.0.usize(..3),
                limit: self.0.usize(1..6),
            },
        }
    }

    /// What workers say about themselves, and what others do about it.
    fn worker(&mut self) -> Act {
        let (holder, incarnation) = (self.0.u8(..HOLDERS), self.0.u8(..INCARNATIONS));
        match self.0.u32(..10) {
            0..5 => {
                let valid_for = match self.0.u32(..20) {
                    0..4 => Duration::ZERO,
                    4 => Duration::MAX,
                    5..8 => Limits::MAX_ANNOUNCED_FOR,
                    _ => Duration::from_micros(self.0.u64(1..10_000_000)),
                };
                Act::Announce { who: (holder, incarnation), info: self.0.u8(..), valid_for }
            }
            5 => Act::Workers {
                valid: self.0.bool(),
                overdue: self.0.bool(),
                limit: self.0.usize(1..4),
            },
            _ => Act::Evict(holder, self.maybe(2, |_| incarnation)),
        }
    }

    fn limit(&mut self) -> LimitPlan {
        let queue = self.0.u8(..QUEUES);
        match self.0.u32(..16) {
            0..6 => LimitPlan::Set(queue, Some(self.limits())),
            6 | 7 => LimitPlan::Set(queue, None),
            8 | 9 => {
                let mut limits = self.some(2, |dice| (dice.0.u8(..QUEUES), dice.limits()));
                // Seldom two of one queue, and the call fails.
                if !self.one_in(20) {
                    limits.sort_by_key(|it| it.0);
                    limits.dedup_by_key(|it| it.0);
                }
                if self.one_in(3) {
                    limits.clear();
                }
                let version = self.maybe(2, |dice| dice.0.u64(..3));
                LimitPlan::Declare(self.0.u8(..OWNERS), version, limits)
            }
            10 => {
                let owner = self.maybe(2, |dice| dice.0.u8(..OWNERS));
                LimitPlan::Import(queue, owner, self.limits())
            }
            _ => {
                let lane = self.maybe(2, |dice| dice.0.u8(..LANES));
                let until = if self.one_in(3) { None } else { Some(self.0.i64(-1..8)) };
                LimitPlan::Hold(queue, lane, until)
            }
        }
    }

    fn limits(&mut self) -> QueueLimits {
        let mut limits = QueueLimits::new();
        // Seldom zero, and the call fails.
        limits.inflight = self.maybe(2, |dice| dice.0.u32(1..5) * u32::from(!dice.one_in(40)));
        limits.per_lane = self.maybe(3, |dice| dice.0.u32(1..3));
        limits.rate = self.maybe(3, Self::rate);
        limits.lane_rate = self.maybe(4, Self::rate);
        for lane in 0..LANES {
            let mut own = LaneLimits::new();
            own.inflight = self.maybe(6, |dice| dice.0.u32(1..3));
            own.rate = self.maybe(8, Self::rate);
            own.weight = self.maybe(3, |dice| dice.0.u32(1..4));
            if own != LaneLimits::new() || self.one_in(80) {
                limits.lanes.insert(lane_name(lane), own);
            }
        }
        limits
    }

    fn rate(&mut self) -> Rate {
        let per = Duration::from_secs(self.0.u64(1..6));
        Rate::per(self.0.u32(1..4), per).burst(self.0.u32(1..4))
    }

    fn new_schedule(&mut self) -> (u8, u8, Option<i64>) {
        (self.0.u8(..SCHEDULES), self.0.u8(..2), self.next_slot())
    }

    fn next_slot(&mut self) -> Option<i64> {
        if self.one_in(8) { None } else { Some(self.run_at()) }
    }

    fn schedule(&mut self) -> SchedulePlan {
        match self.0.u32(..16) {
            0..7 => {
                let (name, definition, next_slot) = self.new_schedule();
                SchedulePlan::Put(name, definition, next_slot)
            }
            7..10 => {
                let mut schedules = self.some(3, Self::new_schedule);
                // Seldom two of one name, and the call fails.
                if !self.one_in(20) {
                    schedules.sort_by_key(|it| it.0);
                    schedules.dedup_by_key(|it| it.0);
                }
                if self.one_in(6) {
                    schedules.clear();
                }
                let version = self.maybe(2, |dice| dice.0.u64(..3));
                SchedulePlan::Declare(self.0.u8(..OWNERS), version, schedules)
            }
            10 | 11 => SchedulePlan::Pause(self.0.u8(..SCHEDULES)),
            12 | 13 => {
                let is_current = !self.one_in(4);
                SchedulePlan::Resume(self.0.u8(..SCHEDULES), is_current, self.next_slot())
            }
            14 => SchedulePlan::Remove(self.0.u8(..SCHEDULES)),
            _ => {
                let version = self.maybe(2, |dice| dice.0.u64(..3));
                SchedulePlan::SetVersion(self.0.u8(..OWNERS), version)
            }
        }
    }

    fn fire(&mut self) -> FirePlan {
        let mut slots = if self.one_in(6) { Vec::new() } else { self.some(2, Self::set) };
        for slot in slots.iter_mut().filter(|slot| !slot.flow) {
            slot.jobs.truncate(1);
        }
        let waits_for_key = self.one_in(3);
        if waits_for_key && !self.one_in(20) {
            slots.truncate(1);
        }
        FirePlan {
            name: self.0.u8(..SCHEDULES),
            is_current: !self.one_in(5),
            slots,
            next_slot: self.next_slot(),
            missed: self.0.u64(..3),
            failed: self.one_in(6),
            waits_for_key,
        }
    }

    fn list(&mut self) -> ListPlan {
        ListPlan {
            newest_first: self.0.bool(),
            queue: self.maybe(4, |dice| dice.0.u8(..QUEUES)),
            state: self.maybe(3, |dice| State::ALL[dice.0.usize(..State::ALL.len())]),
            key: self.maybe(6, |dice| dice.0.u8(..KEYS)),
            lane: self.maybe(6, |dice| dice.0.u8(..LANES)),
            error: self.one_in(6),
            flow: self.maybe(6, Self::whose),
            created: self.maybe(4, |dice| (dice.0.u64(..60), dice.0.u64(1..60))),
            finished: self.maybe(6, |dice| (dice.0.u64(..60), dice.0.u64(1..60))),
            limit: self.0.usize(1..8),
            scan: self.0.usize(1..40),
        }
    }

    fn lease(&mut self) -> Duration {
        match self.0.u32(..30) {
            0 => Duration::ZERO,
            1 => Duration::MAX,
            2 => Duration::from_micros(1),
            _ => Duration::from_micros(self.0.u64(1_000_000..20_000_000)),
        }
    }

    fn id(&mut self) -> u8 {
        if self.one_in(4) { self.0.u8(..FREQUENT_IDS) } else { self.0.u8(..IDS) }
    }

    fn whose(&mut self) -> Whose {
        if self.one_in(3) { Whose::Number(self.id()) } else { Whose::Grant(self.0.usize(..12)) }
    }

    fn pick(&mut self) -> Pick {
        // The newest grants are the ones that are likely to be alive.
        let grant = if self.one_in(6) { self.0.usize(..40) } else { self.0.usize(..5) };
        let token_of = if self.one_in(8) { self.0.usize(..40) } else { grant };
        Pick { grant, token_of }
    }

    fn turn(&mut self) -> Turn {
        match self.0.u32(..20) {
            0..8 => Turn::Ack(self.maybe(2, |dice| dice.0.u8(..))),
            8..12 => Turn::Expand(self.flow(4)),
            12..15 => Turn::Retry(self.maybe(2, Self::run_at)),
            15..18 => Turn::Fail,
            _ => Turn::Release(self.maybe(2, Self::run_at)),
        }
    }

    fn deed(&mut self) -> Deed {
        match self.0.u32(..20) {
            0..8 => Deed::Requeue {
                reset: self.0.bool(),
                detach: self.one_in(3),
                run_at: self.maybe(3, Self::run_at),
            },
            8..12 => Deed::Cancel,
            12..14 => Deed::RunNow,
            14..16 => Deed::SetPriority(self.priority()),
            16 | 17 => Deed::Purge,
            18 => Deed::CancelFlow,
            _ => Deed::PurgeFlow,
        }
    }

    fn run_at(&mut self) -> i64 {
        self.0.i64(-10..20)
    }

    fn priority(&mut self) -> i16 {
        match self.0.u32(..10) {
            0 => i16::MIN,
            1 => i16::MAX,
            2 | 3 => self.0.i16(-2..3),
            _ => 0,
        }
    }

    fn set(&mut self) -> SetPlan {
        if self.one_in(3) {
            return self.flow(5);
        }
        let mut jobs = self.some(3, Self::job);
        for job in &mut jobs {
            job.join = self.maybe(40, Self::reading);
            job.key = self.maybe(2, Self::key);
        }
        SetPlan { jobs, flow: false }
    }

    fn flow(&mut self, most: usize) -> SetPlan {
        let mut jobs = self.some(most, Self::job);
        let mut is_parent = vec![false; jobs.len()];
        for (at, job) in jobs.iter_mut().enumerate() {
            for (parent, is_parent) in is_parent.iter_mut().enumerate().take(at) {
                if self.one_in(2) {
                    job.parents.push(parent);
                    *is_parent = true;
                }
            }
        }
        let last = jobs.len() - 1;
        // The last waits for all that no other waits for, unless the flow is to be rejected.
        for parent in (0..last).filter(|parent| !is_parent[*parent]) {
            if !self.one_in(30) {
                jobs[last].parents.push(parent);
            }
        }
        if self.one_in(30) {
            let (job, parent) = (self.0.usize(..=last), self.0.usize(..=last));
            jobs[job].parents.push(parent);
        }
        for job in &mut jobs {
            job.join = self.maybe(4, Self::reading);
            job.key = self.maybe(60, Self::key);
        }
        jobs[last].key = self.maybe(4, Self::key);
        while self.one_in(3) {
            let mut job = self.job();
            job.on_failure = true;
            // Seldom a failure job waits for another, or is a join, and the flow is rejected.
            let parents = if self.one_in(30) { jobs.len() } else { last + 1 };
            job.parents = (0..parents).filter(|_| self.one_in(3)).collect();
            if job.parents.is_empty() && !self.one_in(30) {
                job.parents.push(self.0.usize(..=last));
            }
            job.join = self.maybe(60, Self::reading);
            jobs.push(job);
        }
        SetPlan { jobs, flow: true }
    }

    fn job(&mut self) -> JobPlan {
        let policies = [
            FailurePolicy::Block,
            FailurePolicy::Cancel,
            FailurePolicy::FailFast,
            FailurePolicy::Continue,
        ];
        JobPlan {
            id: self.id(),
            queue: self.0.u8(..QUEUES),
            lane: if self.one_in(3) { None } else { Some(self.0.u8(..LANES)) },
            priority: self.priority(),
            run_at: self.maybe(4, Self::run_at),
            key: None,
            join: None,
            on_failure: false,
            parents: Vec::new(),
            policy: policies[self.0.usize(..policies.len())],
        }
    }

    fn key(&mut self) -> (u8, KeyHold) {
        let hold = match self.0.u32(..5) {
            0 => KeyHold::UntilPruned,
            1 => KeyHold::UntilDone,
            2 | 3 => KeyHold::UntilTerminal,
            _ if self.0.bool() => KeyHold::For(Duration::from_secs(self.0.u64(1..40))),
            _ => KeyHold::For(Duration::from_secs(1_000)),
        };
        (self.0.u8(..KEYS), hold)
    }

    fn reading(&mut self) -> JoinReading {
        JoinReading::ALL[self.0.usize(..JoinReading::ALL.len())]
    }
}
