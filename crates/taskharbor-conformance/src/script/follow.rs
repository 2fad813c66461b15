//! Following a driver where the contract leaves it a choice.
//!
//! A reclaimed job may stand anywhere from its old position to the end of its lease (LEA-2), so
//! there is more than one right answer to a reserve. Here every way in which the model could have
//! come to the driver's answer is tried, and every state that it could be in then is kept.

use std::cmp::Reverse;

use taskharbor_core::{
    JobId, Timestamp,
    driver::{Lease, Leased, Reserve, Reserved},
    life::Consequence,
};

use super::compare::same;
use crate::model::Model;

/// How many states are kept at most; a script has few marked jobs whose leases end together.
const MOST: usize = 64;

/// Where a job stands: by priority, position and insertion.
type Standing = (Reverse<i16>, Timestamp, u64);

/// Every state that the model may be in after the driver gave this answer and cancelled these
/// marked jobs whose leases were over.
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

impl Search<'_> {
    /// Goes on with the demand at this position of the request.
    fn demand(&mut self, path: Path, at: usize) -> Result<(), String> {
        let Some(demand) = self.request.demands.get(at) else { return self.end(path) };
        if path.model.paused.contains_key(&demand.queue) {
            return self.demand(path, at + 1);
        }
        self.step(path, at, demand.limit)
    }

    /// Takes one of the ways in which the demand can go on that has so many jobs left to grant.
    fn step(&mut self, path: Path, at: usize, left: usize) -> Result<(), String> {
        if self.found.len() >= MOST {
            return Ok(());
        }
        let queue = &self.request.demands[at].queue;
        let now = self.request.now;
        let of_queue = self.answer.jobs.iter().filter(|it| it.job.queue == *queue);
        let missing: Vec<&Leased> =
            of_queue.filter(|it| !path.granted.contains(&it.job.id)).collect();
        let is_marked = |job: &usize| {
            let life = &path.model.jobs[*job].life;
            life.is_expired(now) && life.active_lease().is_some_and(|it| it.cancel_requested)
        };
        let available: Vec<usize> = path.model.available(queue, now).collect();
        let to_cancel: Vec<usize> = available
            .iter()
            .copied()
            .filter(|job| is_marked(job) && self.cancelled.contains(&path.model.jobs[*job].new.id))
            .collect();
        let mut outcome = Err("reserve: no order of the grants is allowed".to_owned());
        if left > 0 {
            let candidates = missing.iter().filter_map(|leased| {
                let job = path.model.find(&leased.job.id).filter(|job| available.contains(job))?;
                Some((self.standing(&path.model, job, leased.job.available_at), job, *leased))
            });
            if let Some((standing, job, leased)) = candidates.min_by_key(|it| it.0) {
                outcome = self
                    .is_first(&path.model, &available, job, standing)
                    .and_then(|()| self.grant(path.clone(), job, leased))
                    .and_then(|path| self.step(path, at, left - 1));
            }
            for job in to_cancel.clone() {
                let earliest = path.model.jobs[job].life.due_at;
                let standing = self.standing(&path.model, job, earliest);
                if self.is_first(&path.model, &available, job, standing).is_ok() {
                    let mut path = path.clone();
                    path.model.jobs[job].life.reclaim(now);
                    path.model.failed(path.model.jobs[job].serial, now);
                    let other = self.step(path, at, left);
                    outcome = outcome.or(other);
                }
            }
        }
        if let [leased, ..] = missing.as_slice() {
            return outcome.map_err(|reason| {
                let id = &leased.job.id;
                let why = if left == 0 { "more than was demanded" } else { &reason };
                format!("reserve: {id} must not be granted: {why}")
            });
        }
        if !to_cancel.is_empty() {
            let id = &path.model.jobs[to_cancel[0]].new.id;
            return outcome.map_err(|_| format!("reserve: {id} must not be cancelled yet"));
        }
        let mut path = path;
        if left > 0 {
            if let Some(&job) = available.first() {
                let id = &path.model.jobs[job].new.id;
                return Err(format!("reserve: {id} is available and was not reached"));
            }
            path.waits.extend(path.model.next_due(queue));
        }
        self.demand(path, at + 1)
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
    fn grant(&self, mut path: Path, at: usize, leased: &Leased) -> Result<Path, String> {
        let now = self.request.now;
        let job = &mut path.model.jobs[at];
        let position = leased.job.available_at;
        let (earliest, latest) = (job.life.due_at, job.life.grantable_at());
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
        path.granted.push(leased.job.id.clone());
        Ok(path)
    }

    /// All demands are answered: the order of the jobs and the time to ask again must be right too.
    fn end(&mut self, path: Path) -> Result<(), String> {
        let answered: Vec<JobId> = self.answer.jobs.iter().map(|it| it.job.id.clone()).collect();
        if answered != path.granted && answered != self.sorted(&path.model) {
            same("reserve: order", &answered, &path.granted)?;
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

    /// The granted jobs queue by queue, each in the order of ORD-1. It differs from the order of the
    /// grants where a job was unblocked by a reclaim during the call.
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
