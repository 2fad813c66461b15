//! Following a driver where the contract leaves it a choice.
//!
//! A reclaimed job may stand anywhere from its old position to the end of its lease (LEA-2), so
//! there is more than one right answer to a reserve. Here every way in which the model could have
//! come to the driver's answer is tried, and every state that it could be in then is kept. The answer
//! is in the order of ORD-1, so the order of the grants is found by the turns of the lanes (LAN-2).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use taskharbor_core::{
    JobId, QueueName, Timestamp,
    driver::{Lease, Leased, Reserve, Reserved},
    life::{Consequence, Life},
};

use super::compare::same;
use crate::model::{Lane, Model, Turn};

/// How many states are kept at most; a script has few marked jobs whose leases end together.
const MOST: usize = 64;

/// Where a job stands: by priority, position and insertion.
type Standing = (Reverse<i16>, Timestamp, u64);

/// Every state that the model may be in after the driver gave this answer and cancelled these
/// marked jobs whose leases had ended.
pub(super) fn follow(
    model: &Model,
    request: &Reserve,
    expires_at: Timestamp,
    answer: &Reserved,
    cancelled: &[JobId],
) -> Result<Vec<Model>, String> {
    let mut search = Search { request, expires_at, answer, cancelled, found: Vec::new() };
    let start = Path { model: model.clone(), granted: Vec::new(), waits: Vec::new() };
    let outcome = search.demand(start, 0);
    match outcome {
        _ if !search.found.is_empty() => Ok(search.found),
        Err(reason) => Err(reason),
        Ok(()) => Err("reserve: no order of the grants is allowed".to_owned()),
    }
}

struct Search<'a> {
    request: &'a Reserve,
    expires_at: Timestamp,
    answer: &'a Reserved,
    cancelled: &'a [JobId],
    found: Vec<Model>,
}

/// One way to a part of the answer.
#[derive(Clone)]
struct Path {
    model: Model,
    granted: Vec<JobId>,
    waits: Vec<Timestamp>,
}

/// What there is to grant in one queue.
struct View<'a> {
    queue: &'a QueueName,
    missing: Vec<&'a Leased>,
    available: &'a [usize],
}

/// The earliest position of a job: an eviction by a clock that is slow may end its lease before the
/// position at which it was granted.
fn earliest(life: &Life) -> Timestamp {
    life.grantable_at().map_or(life.due_at, |ends_at| ends_at.min(life.due_at))
}

/// The lanes that may come next, each with its priority and the turns that lead to it.
fn next_lanes(
    model: &Model,
    view: &View<'_>,
    now: Timestamp,
) -> BTreeMap<(i16, Lane), BTreeSet<Turn>> {
    let mut next: BTreeMap<_, BTreeSet<Turn>> = BTreeMap::new();
    for turn in model.turns_of(view.queue) {
        if let Some(lane) = model.next_lane(view.queue, &turn, view.available, now) {
            next.entry(lane).or_default().insert(turn);
        }
    }
    next
}

impl<'a> Search<'a> {
    /// Goes on with the demand at this position of the request.
    fn demand(&mut self, path: Path, at: usize) -> Result<(), String> {
        let Some(demand) = self.request.demands.get(at) else { return self.end(path) };
        if path.model.paused.contains_key(&demand.queue) {
            return self.demand(path, at + 1);
        }
        self.step(path, at, demand.limit)
    }

    /// Takes one of the ways in which the demand can go on that has this many jobs left to grant.
    fn step(&mut self, path: Path, at: usize, left: usize) -> Result<(), String> {
        if self.found.len() >= MOST {
            return Ok(());
        }
        let request = self.request;
        let (queue, now) = (&request.demands[at].queue, request.now);
        let available: Vec<usize> = path.model.available(queue, now).collect();
        let view = View { queue, missing: self.missing(&path, queue), available: &available };
        let to_cancel = self.to_cancel(&path, &available);
        let mut outcome = Err("no order of the grants is allowed".to_owned());
        let next = if left > 0 { next_lanes(&path.model, &view, now) } else { BTreeMap::new() };
        for ((priority, lane), turns) in &next {
            let in_lane = path.model.of_lane(&available, *priority, lane);
            let granted = self
                .first_missing(&path, &view, &in_lane)
                .and_then(|(job, leased)| self.grant(path.clone(), job, leased, turns))
                .and_then(|path| self.step(path, at, left - 1));
            outcome = outcome.or(granted);
            // A job that is cancelled takes no part of the turn.
            for &job in to_cancel.iter().filter(|job| in_lane.contains(job)) {
                if let Ok(mut path) = self.cancel(&path, &in_lane, job) {
                    path.model.turns.insert(queue.clone(), turns.clone());
                    let other = self.step(path, at, left);
                    outcome = outcome.or(other);
                }
            }
        }
        // Whether a driver looks at lanes from which nothing can be granted is its own affair.
        let is_held = |job: &&usize| {
            let lane = &path.model.jobs[**job].new.lane;
            path.model.held_back(queue, lane, now).is_some()
        };
        for &job in to_cancel.iter().filter(|_| left > 0).filter(is_held) {
            if let Ok(path) = self.cancel(&path, &[job], job) {
                let other = self.step(path, at, left);
                outcome = outcome.or(other);
            }
        }
        if let [leased, ..] = view.missing.as_slice() {
            return outcome.map_err(|reason| {
                let id = &leased.job.id;
                let why = if left == 0 { "more than was demanded" } else { &reason };
                format!("reserve: {id} must not be granted: {why}")
            });
        }
        if let [job, ..] = to_cancel.as_slice() {
            let id = &path.model.jobs[*job].new.id;
            return outcome.map_err(|_| format!("reserve: {id} must not be cancelled yet"));
        }
        if let Some(((_, lane), _)) = next.first_key_value() {
            return Err(format!(
                "reserve: a job of lane {lane:?} is available and was not reached"
            ));
        }
        let mut path = path;
        if left > 0 {
            path.waits.extend(path.model.latest_due(queue, now));
        }
        self.demand(path, at + 1)
    }

    /// The jobs of a queue that the driver granted, without those granted on this path.
    fn missing(&self, path: &Path, queue: &QueueName) -> Vec<&'a Leased> {
        let answer = self.answer;
        let of_queue = answer.jobs.iter().filter(|it| it.job.queue == *queue);
        of_queue.filter(|it| !path.granted.contains(&it.job.id)).collect()
    }

    /// The available jobs that the driver cancelled because they were marked.
    fn to_cancel(&self, path: &Path, available: &[usize]) -> Vec<usize> {
        let is_marked = |job: &usize| {
            let life = &path.model.jobs[*job].life;
            let is_expired = life.is_expired(self.request.now);
            is_expired && life.active_lease().is_some_and(|it| it.cancel_requested)
        };
        let is_cancelled = |job: &usize| self.cancelled.contains(&path.model.jobs[*job].new.id);
        available.iter().copied().filter(|job| is_marked(job) && is_cancelled(job)).collect()
    }

    /// The first of the granted jobs that are in the lane that has its turn. No other job of the
    /// lane may have to stand before it.
    fn first_missing<'b>(
        &self,
        path: &Path,
        view: &View<'b>,
        in_lane: &[usize],
    ) -> Result<(usize, &'b Leased), String> {
        let candidates = view.missing.iter().filter_map(|leased| {
            let job = path.model.find(&leased.job.id).filter(|job| in_lane.contains(job))?;
            Some((self.standing(&path.model, job, leased.job.available_at), job, *leased))
        });
        let first = candidates.min_by_key(|it| it.0);
        let (standing, job, leased) = first.ok_or_else(|| {
            let other = in_lane.first().map(|job| &path.model.jobs[*job].new);
            format!("it is the turn of lane {:?}", other.map(|new| &new.lane))
        })?;
        self.is_first(&path.model, in_lane, job, standing).map(|()| (job, leased))
    }

    /// The model cancels a marked job, if no other of these must stand before it.
    fn cancel(&self, path: &Path, among: &[usize], job: usize) -> Result<Path, String> {
        let earliest = earliest(&path.model.jobs[job].life);
        let standing = self.standing(&path.model, job, earliest);
        self.is_first(&path.model, among, job, standing)?;
        let (mut path, now) = (path.clone(), self.request.now);
        path.model.jobs[job].life.reclaim(now);
        path.model.failed(path.model.jobs[job].serial, now);
        Ok(path)
    }

    fn standing(&self, model: &Model, job: usize, position: Timestamp) -> Standing {
        let job = &model.jobs[job];
        (Reverse(job.life.priority), position, job.serial)
    }

    /// Whether no other available job must stand before this one, however late its position is.
    fn is_first(
        &self,
        model: &Model,
        available: &[usize],
        job: usize,
        standing: Standing,
    ) -> Result<(), String> {
        let before = available.iter().filter(|other| **other != job).find(|other| {
            let latest = model.jobs[**other].life.grantable_at();
            latest.is_some_and(|latest| self.standing(model, **other, latest) < standing)
        });
        match before {
            Some(&other) => Err(format!("{} stands before it", model.jobs[other].new.id)),
            None => Ok(()),
        }
    }

    /// The model grants what the driver granted, in the position that the driver chose.
    fn grant(
        &self,
        mut path: Path,
        at: usize,
        leased: &Leased,
        turns: &BTreeSet<Turn>,
    ) -> Result<Path, String> {
        let now = self.request.now;
        let job = &mut path.model.jobs[at];
        let position = leased.job.available_at;
        let (earliest, latest) = (earliest(&job.life), job.life.grantable_at());
        match job.life.reclaim(now) {
            Consequence::Waits => {
                if position < earliest || latest.is_none_or(|latest| latest < position) {
                    return Err(format!(
                        "its position is {position}, which is not from {earliest} to {latest:?}"
                    ));
                }
                job.life.due_at = position;
            }
            Consequence::Failed => return Err("its cancellation was asked for".to_owned()),
            Consequence::None | Consequence::Done | Consequence::Expanded => {}
        }
        let lease = Lease::new(leased.lease.token, self.expires_at);
        if !job.life.grant(lease, self.request.holder.clone(), now) {
            return Err("it is not due".to_owned());
        }
        same("a granted job", &leased.job, &job.job())?;
        same("a lease", &leased.lease, &lease)?;
        let (queue, lane) = (job.new.queue.clone(), job.new.lane.clone());
        let turns = turns.iter().map(|turn| path.model.turn_after(&queue, turn, &lane)).collect();
        path.model.turns.insert(queue.clone(), turns);
        path.model.charge(&queue, &lane, now);
        path.granted.push(leased.job.id.clone());
        Ok(path)
    }

    /// All demands are answered: the order of the jobs and the time to ask again must be right too.
    fn end(&mut self, path: Path) -> Result<(), String> {
        let answered: Vec<JobId> = self.answer.jobs.iter().map(|it| it.job.id.clone()).collect();
        // A job that was unblocked by a reclaim during the call may come after those before it.
        if self.cancelled.is_empty() {
            same("reserve: order", &answered, &self.sorted(&path.model))?;
        }
        let exact = path.waits.iter().min().copied();
        let may_be = match (self.answer.next_due, exact) {
            (None, None) => true,
            (Some(answered), Some(exact)) => self.request.now < answered && answered <= exact,
            _ => false,
        };
        if !may_be {
            same("reserve: next_due", &self.answer.next_due, &exact)?;
        }
        self.found.push(path.model);
        Ok(())
    }

    /// The granted jobs queue by queue, each in the order of ORD-1.
    fn sorted(&self, model: &Model) -> Vec<JobId> {
        let mut sorted = Vec::new();
        for demand in &self.request.demands {
            let of_queue = self.answer.jobs.iter().filter(|it| it.job.queue == demand.queue);
            let mut of_queue: Vec<_> = of_queue
                .filter_map(|it| {
                    let job = model.find(&it.job.id)?;
                    Some((self.standing(model, job, it.job.available_at), it.job.id.clone()))
                })
                .collect();
            of_queue.sort();
            sorted.extend(of_queue.into_iter().map(|(_, id)| id));
        }
        sorted
    }
}
