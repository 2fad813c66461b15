//! The loop that extends leases.
//!
//! Each lease is extended when a heartbeat has passed since it was granted or last extended, and
//! those that are nearly due go in the same call. A lease that the store refuses to extend is
//! lost, and its handler is stopped. A store that does not answer is asked again, and no handler
//! is stopped for it until its lease is nearly over. The same call marks leases, so that the store can
//! tell a crash from a lost answer and from a shutdown.

use std::{collections::HashMap, sync::Arc, time::Duration};

use taskharbor_core::{
    AnyDriver, Driver, DriverError, JobId, Timestamp,
    clock::StoreClock,
    driver::{ExtendLeases, Extended, Extension},
    error::Refusal,
};
use tokio::task::{JoinError, JoinSet};

use super::{
    outage::Part,
    shared::{Phase, Shared},
};
use crate::{CancelReason, Event, LossReason, Operation, inflight::Inflight};

/// No more leases than this are extended in one call.
const BATCH: usize = 10_000;

/// A lease to be extended.
type Item = (Arc<Inflight>, Extension);

/// `driver` is the handle for the runtime that this runs on.
pub(super) async fn run(shared: Arc<Shared>, driver: AnyDriver) {
    let mut keeper = Keeper { calls: JoinSet::new(), failures: 0, resume_at: None, shared, driver };
    while keeper.wait().await {
        keeper.give_up_late_ones();
        keeper.extend_due();
    }
}

struct Keeper {
    shared: Arc<Shared>,
    driver: AnyDriver,
    /// Calls in flight. Several at once, because a lease that comes while one of them hangs
    /// cannot wait for its end. Each answers whether the store did.
    calls: JoinSet<bool>,
    /// Calls in a row that did not get through, and until when to leave the store alone for it.
    failures: u32,
    resume_at: Option<Timestamp>,
}

impl Keeper {
    /// Waits until there may be something to do; `false` ends the loop.
    async fn wait(&mut self) -> bool {
        let wait = self.time_to_next();
        let pause = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                // A worker with nothing to do has nothing to keep.
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.shared.reached(Phase::Ended) => return false,
            Some(call) = self.calls.join_next() => self.take_call(call),
            () = self.shared.registry.keeper_called() => {}
            () = pause => {}
        }
        true
    }

    fn take_call(&mut self, call: Result<bool, JoinError>) {
        self.shared.registry.announce_extended();
        match call {
            Ok(true) => (self.failures, self.resume_at) = (0, None),
            Ok(false) => {
                self.failures = self.failures.saturating_add(1);
                self.resume_at = Some(self.time_to_try_again());
            }
            // A driver that panics ends the worker, which says so.
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    /// When to ask a store again that did not answer: later each time, but once more before the
    /// first handler has to be stopped for it.
    fn time_to_try_again(&self) -> Timestamp {
        let (shared, now) = (&self.shared, self.shared.now());
        let again = now.saturating_add(shared.backoff(self.failures).min(shared.config.heartbeat));
        let running = shared.registry.all().into_iter();
        let running = running.filter(|inflight| !inflight.has_ended() && !inflight.is_lost());
        let end = running.map(|inflight| last_moment(shared, &inflight)).min();
        let last_call = end.map(|end| end.saturating_sub(shared.config.margin() / 4));
        match last_call {
            Some(last_call) if last_call > now => again.min(last_call),
            Some(_) | None => again,
        }
    }

    /// How long until a lease has to be extended, or given up.
    fn time_to_next(&self) -> Option<Duration> {
        let (shared, now) = (&self.shared, self.shared.now());
        let mut next = None::<Timestamp>;
        for inflight in shared.registry.all() {
            let is_free = !inflight.is_being_settled() && !inflight.is_being_extended();
            let due = (inflight.is_kept() && is_free).then(|| {
                let due = due_at(shared, &inflight);
                self.resume_at.map_or(due, |resume_at| due.max(resume_at))
            });
            let is_running = !inflight.has_ended() && !inflight.is_lost();
            let end = is_running.then(|| last_moment(shared, &inflight));
            next = next.into_iter().chain(due).chain(end).min();
        }
        shared.registry.keeper_sleeps_until(next);
        // Never without a pause, however late something is.
        next.map(|at| at.since(now).max(Duration::from_millis(1)))
    }

    /// Sets out to extend the leases that are due, or soon will be.
    fn extend_due(&mut self) {
        let (shared, now) = (&self.shared, self.shared.now());
        if self.resume_at.is_some_and(|resume_at| now < resume_at) {
            return;
        }
        let soon = now.saturating_add(shared.config.heartbeat / 2);
        let newest = newest_of_each(shared, shared.registry.all());
        let due_soon = |inflight: &Arc<Inflight>| {
            let is_due = inflight.is_kept() && due_at(shared, inflight) <= soon;
            is_due && !is_overdue(shared, inflight, now)
        };
        let held: Vec<Arc<Inflight>> = newest.into_iter().filter(due_soon).collect();
        if !held.iter().any(|inflight| due_at(shared, inflight) <= now) {
            return;
        }
        let mut held: Vec<Item> = held.into_iter().filter_map(begin_call).collect();
        while !held.is_empty() {
            let batch = held.drain(..held.len().min(BATCH)).collect();
            self.calls.spawn(extend(Arc::clone(&self.shared), self.driver.clone(), batch));
        }
    }

    fn give_up_late_ones(&self) {
        let (shared, now) = (&self.shared, self.shared.now());
        for inflight in shared.registry.all() {
            if last_moment(shared, &inflight) <= now && !inflight.has_ended() {
                let was_tried = self.failures > 0 || inflight.is_being_extended();
                let why = if was_tried { LossReason::Unreachable } else { LossReason::Stalled };
                shared.lose(&inflight, &why);
            }
        }
    }
}

/// What is sent to the store for a job, unless it is in flight already.
fn begin_call(inflight: Arc<Inflight>) -> Option<Item> {
    let (token, report, mark) = inflight.begin_extending()?;
    let mut extension = Extension::new(inflight.job.id.clone(), token);
    (extension.progress, extension.mark) = (report, mark);
    Some((inflight, extension))
}

/// When a lease is to be extended: a heartbeat after it was granted or extended, or at once if there is
/// a mark to pass on.
fn due_at(shared: &Shared, inflight: &Inflight) -> Timestamp {
    if inflight.needs_mark() && !inflight.has_ended() {
        return Timestamp::EPOCH;
    }
    let config = &shared.config;
    inflight.expires_at().saturating_sub(config.lease_for - config.heartbeat)
}

/// When a handler has to be stopped if its lease is not extended.
fn last_moment(shared: &Shared, inflight: &Inflight) -> Timestamp {
    inflight.expires_at().saturating_sub(shared.config.margin())
}

/// A job may be held twice: once with an outcome that the store has not confirmed, or with a lease
/// that was ended in the store, and once more because the worker has reserved it again since. A call
/// names each job once, and only the newest lease can be valid. The handler of an older one is
/// stopped before the next one starts: that waits until the store knows of its start.
fn newest_of_each(shared: &Shared, held: Vec<Arc<Inflight>>) -> Vec<Arc<Inflight>> {
    let mut newest: HashMap<JobId, Arc<Inflight>> = HashMap::with_capacity(held.len());
    for inflight in held {
        let known = newest.get(&inflight.job.id);
        let is_newer = known.is_none_or(|it| it.job.deliveries < inflight.job.deliveries);
        let older = if is_newer {
            newest.insert(inflight.job.id.clone(), inflight)
        } else {
            Some(inflight)
        };
        if let Some(older) = older {
            older.leave_alone();
            if !older.has_ended() && !older.may_be_acked() {
                shared.lose(&older, &LossReason::Refused(Refusal::LeaseMismatch));
            }
        }
    }
    newest.into_values().collect()
}

/// Whether a handler should have ended long ago: it blocks its thread and cannot be stopped, so
/// its lease is left to run out.
fn is_overdue(shared: &Shared, inflight: &Arc<Inflight>, now: Timestamp) -> bool {
    let limit = inflight.deadline().map(|at| at.saturating_add(shared.config.cancel_wait));
    let overdue = limit.is_some_and(|limit| now > limit) && !inflight.has_ended();
    if overdue {
        shared.lose(inflight, &LossReason::Overdue);
    }
    overdue
}

async fn extend(shared: Arc<Shared>, driver: AnyDriver, batch: Vec<Item>) -> bool {
    let _ = shared.sync_clock(&driver, StoreClock::SYNC_EVERY).await;
    let mut batches = vec![batch];
    let mut answered = true;
    while let Some(mut batch) = batches.pop() {
        match call(&shared, &driver, &batch).await {
            Ok(answers) => {
                for ((inflight, _), answer) in batch.iter().zip(answers) {
                    take_answer(&shared, inflight, answer);
                }
            }
            // One of them may have made the call invalid for all.
            Err(DriverError::Invalid(_) | DriverError::Backend(_)) if batch.len() > 1 => {
                batches.push(batch.split_off(batch.len() / 2));
                batches.push(batch);
            }
            Err(_) => {
                batch.iter().for_each(|(inflight, _)| inflight.end_extending(None));
                answered = false;
            }
        }
    }
    answered
}

async fn call(
    shared: &Arc<Shared>,
    driver: &AnyDriver,
    batch: &[Item],
) -> Result<Vec<Result<Extended, Refusal>>, DriverError> {
    let now = shared.now();
    let items = batch.iter().map(|(_, extension)| extension.clone()).collect();
    let request = ExtendLeases::new(items, now, shared.config.lease_for);
    // However long a call may take, no handler is left running past its lease because of it.
    let ends = batch.iter().map(|(inflight, _)| last_moment(shared, inflight).since(now));
    let remaining = ends.min().unwrap_or_default().max(Duration::from_millis(1));
    let call = async {
        let extended = tokio::time::timeout(remaining, driver.extend_leases(request)).await;
        extended.unwrap_or_else(|_| {
            Err(DriverError::unavailable("no answer before a lease was nearly over"))
        })
    };
    shared.call(Part::Keeper, Operation::ExtendLeases, batch.len(), call).await
}

fn take_answer(shared: &Shared, inflight: &Arc<Inflight>, answer: Result<Extended, Refusal>) {
    match answer {
        Ok(extended) => {
            let lease = extended.lease;
            inflight.end_extending(Some(lease));
            let (job, expires_at) = (&inflight.job, lease.expires_at);
            shared.tell(&Event::LeaseExtended { job, expires_at });
            if extended.cancel_requested {
                inflight.cancellation.raise(CancelReason::Requested);
            }
        }
        Err(refusal) => {
            inflight.end_extending(None);
            if inflight.has_ended() || inflight.may_be_acked() {
                inflight.leave_alone();
            } else {
                shared.lose(inflight, &LossReason::Refused(refusal));
            }
        }
    }
}
