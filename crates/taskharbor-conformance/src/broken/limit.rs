//! Mistakes with lanes, limits, rates and holds.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use taskharbor_core::{
    DriverError, QueueName, Timestamp,
    admin::{Change, Configure, LimitsRecord, Rate},
    driver::{Answers, Reserve, Reserved, Settle, Settled},
    error::{Denied, Refusal},
    life::Stage,
};

use crate::{
    model::{Kept, Model, Turn},
    reference::Behaviour,
};

/// Reserves with other limits than those that are stored.
fn reserve_with(
    model: &mut Model,
    request: &Reserve,
    bend: impl Fn(&Model, &mut LimitsRecord),
) -> Result<Reserved, DriverError> {
    let stored = model.queue_limits.clone();
    let mut bent = stored.clone();
    bent.iter_mut().for_each(|record| bend(model, record));
    model.queue_limits = bent;
    let answer = model.reserve(request);
    model.queue_limits = stored;
    answer
}

/// Gives the limit of a queue this many places more.
fn add_places(record: &mut LimitsRecord, places: usize) {
    if let Some(limit) = &mut record.limits.inflight {
        *limit = limit.saturating_add(u32::try_from(places).unwrap_or(u32::MAX));
    }
}

fn of_queue<'a>(model: &'a Model, queue: &'a QueueName) -> impl Iterator<Item = &'a Kept> {
    model.jobs.iter().filter(move |job| job.new.queue == *queue)
}

fn standing(job: &Kept) -> (Reverse<i16>, Timestamp, u64) {
    (Reverse(job.life.priority), job.life.due_at, job.serial)
}

/// A lease counts if its job is among the first of the queue, as many as the limit is.
pub(super) struct CountsByPosition;

impl Behaviour for CountsByPosition {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let now = request.now;
        reserve_with(model, &request, |model, record| {
            let is_there =
                |job: &&Kept| matches!(job.life.stage, Stage::Inflight(_) | Stage::Waiting);
            let mut jobs: Vec<&Kept> = of_queue(model, &record.queue).filter(is_there).collect();
            jobs.retain(|job| job.life.due_at <= now);
            jobs.sort_by_key(|job| standing(job));
            let limit = record.limits.inflight.unwrap_or(0);
            let behind = jobs.iter().skip(usize::try_from(limit).unwrap_or(usize::MAX));
            let leased = |job: &&&Kept| {
                job.life.active_lease().is_some_and(|held| now < held.lease.expires_at)
            };
            add_places(record, behind.filter(leased).count());
        })
    }
}

/// A worker that dies takes its places with it, until its jobs are settled.
pub(super) struct PlaceNotFreedOnExpiry;

impl Behaviour for PlaceNotFreedOnExpiry {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let now = request.now;
        reserve_with(model, &request, |model, record| {
            let expired = of_queue(model, &record.queue).filter(|job| job.life.is_expired(now));
            let lost = u32::try_from(expired.count()).unwrap_or(u32::MAX);
            record.limits.inflight = record.limits.inflight.map(|it| it.saturating_sub(lost));
        })
    }
}

/// A requeued job is granted even if the limit is reached.
pub(super) struct LimitIgnoredOnRequeue;

impl Behaviour for LimitIgnoredOnRequeue {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let now = request.now;
        reserve_with(model, &request, |model, record| {
            let available = model.available(&record.queue, now);
            let requeued = available.filter(|at| model.jobs[*at].life.epoch > 0).count();
            add_places(record, requeued);
        })
    }
}

/// The first job of a queue that a limit holds back keeps all behind it waiting.
pub(super) struct HeadOfLineBlocks;

impl Behaviour for HeadOfLineBlocks {
    fn reserve(&self, model: &mut Model, mut request: Reserve) -> Result<Reserved, DriverError> {
        request.check()?;
        let now = request.now;
        request.demands.retain(|demand| {
            let available = model.available(&demand.queue, now).map(|at| &model.jobs[at]);
            let first = available.min_by_key(|job| standing(job));
            first.is_none_or(|job| model.held_back(&demand.queue, &job.new.lane, now).is_none())
        });
        model.reserve(&request)
    }
}

/// Each call sets out from this turn.
fn reserve_from(
    model: &mut Model,
    request: &Reserve,
    turn: &Turn,
) -> Result<Reserved, DriverError> {
    for demand in &request.demands {
        model.turns.insert(demand.queue.clone(), BTreeSet::from([turn.clone()]));
    }
    model.reserve(request)
}

/// Jobs without a lane come when no lane has a job.
pub(super) struct JobsWithoutLaneStarve;

impl Behaviour for JobsWithoutLaneStarve {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        reserve_from(model, &request, &Some((None, u32::MAX)))
    }
}

/// Each call begins with the first lane.
pub(super) struct TurnsStartOver;

impl Behaviour for TurnsStartOver {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        reserve_from(model, &request, &None)
    }
}

/// Every turn has one job.
pub(super) struct WeightIgnored;

impl Behaviour for WeightIgnored {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        reserve_with(model, &request, |_, record| {
            record.limits.lanes.values_mut().for_each(|lane| lane.weight = None);
        })
    }
}

/// The interval of a rate is rounded down.
pub(super) struct IntervalRoundedDown;

impl Behaviour for IntervalRoundedDown {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let round = |rate: &mut Rate| {
            let micros = u64::try_from(rate.per.as_micros()).unwrap_or(u64::MAX);
            let jobs = u64::from(rate.jobs);
            rate.per = Duration::from_micros(micros / jobs * jobs);
        };
        reserve_with(model, &request, |_, record| {
            let limits = &mut record.limits;
            limits.rate.iter_mut().for_each(round);
            limits.lane_rate.iter_mut().for_each(round);
            limits.lanes.values_mut().flat_map(|lane| &mut lane.rate).for_each(round);
        })
    }
}

/// A hold is kept and shown, and jobs are granted all the same.
pub(super) struct HoldIgnored;

impl Behaviour for HoldIgnored {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let holds = std::mem::take(&mut model.holds);
        let answer = model.reserve(&request);
        model.holds = holds;
        answer
    }
}

/// The last hold counts, even if it is shorter.
pub(super) struct HoldShortened;

impl Behaviour for HoldShortened {
    fn configure(&self, model: &mut Model, request: Configure) -> Answers<(), Denied> {
        for change in &request.changes {
            if let Change::Hold { queue, lane, .. } = change {
                model.holds.remove(&(queue.clone(), lane.clone()));
            }
        }
        model.configure(request)
    }
}

/// A settlement frees a place even if it is refused.
#[derive(Default)]
pub(super) struct RefusedSettlementFreesPlace {
    freed: Mutex<BTreeMap<QueueName, usize>>,
}

impl Behaviour for RefusedSettlementFreesPlace {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let ids: Vec<_> = request.items.iter().map(|item| item.id.clone()).collect();
        let answers = model.settle(request)?;
        let mut freed = self.freed.lock().expect("no panic while it is locked");
        for (id, answer) in ids.iter().zip(&answers) {
            if let (Err(Refusal::LeaseExpired | Refusal::LeaseMismatch), Some(at)) =
                (answer, model.find(id))
            {
                *freed.entry(model.jobs[at].new.queue.clone()).or_default() += 1;
            }
        }
        Ok(answers)
    }

    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let freed = self.freed.lock().expect("no panic while it is locked");
        reserve_with(model, &request, |_, record| {
            add_places(record, freed.get(&record.queue).copied().unwrap_or(0));
        })
    }
}

/// The leases are counted first and jobs are granted a moment later.
pub(super) struct CountsThenGrants;

impl Behaviour for CountsThenGrants {
    fn reserve_looks_first(&self) -> bool {
        true
    }

    fn reserve_after_look(
        &self,
        then: Model,
        model: &mut Model,
        request: Reserve,
    ) -> Result<Reserved, DriverError> {
        let now = request.now;
        reserve_with(model, &request, |model, record| {
            let scope = (record.queue.clone(), None);
            let (seen, valid) = (then.valid_leases(&scope, now), model.valid_leases(&scope, now));
            add_places(record, valid.saturating_sub(seen));
        })
    }
}

/// Workers are told about new jobs, and not about a place that is free.
pub(super) struct FreedPlaceWakesNoWatch;

impl Behaviour for FreedPlaceWakesNoWatch {
    fn has_wakes(&self) -> bool {
        true
    }

    fn wakes(&self, before: &Model, after: &Model) -> Vec<QueueName> {
        let waits = |job: &Kept| matches!(job.life.stage, Stage::Waiting);
        let is_new = |job: &&Kept| {
            let was = before.by_serial(job.serial).map(|at| &before.jobs[at]);
            waits(job) && was.is_none_or(|was| !waits(was) || was.life.due_at != job.life.due_at)
        };
        let jobs = after.jobs.iter().filter(is_new).map(|job| &job.new.queue);
        let resumed = before.paused.keys().filter(|queue| !after.paused.contains_key(*queue));
        let ended = before.holds.keys().filter(|scope| !after.holds.contains_key(*scope));
        let limits = before.queue_limits.iter().chain(&after.queue_limits);
        let is_changed = |record: &&LimitsRecord| {
            !before.queue_limits.contains(record) || !after.queue_limits.contains(record)
        };
        let limits = limits.filter(is_changed).map(|record| &record.queue);
        jobs.chain(resumed).chain(ended.map(|(queue, _)| queue)).chain(limits).cloned().collect()
    }
}

/// Asks its callers to come back at once for a job whose lease has ended, also while a limit holds it back.
pub(super) struct AsksForExpiredLeases;

impl Behaviour for AsksForExpiredLeases {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let reserved = model.reserve(&request)?;
        let is_over = model.jobs.iter().any(|job| job.life.is_expired(request.now));
        let soon = request.now.saturating_add(Duration::from_micros(1));
        let next_due = reserved.next_due.map(|due| if is_over { soon } else { due });
        Ok(Reserved::new(reserved.jobs, next_due))
    }
}
