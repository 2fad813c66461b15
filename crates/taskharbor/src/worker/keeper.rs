//! The loop that keeps leases alive.
//!
//! All leases are extended in one call. A lease that the store refuses to extend is lost, and its
//! handler is stopped. A store that does not answer is asked again, and no handler is stopped for
//! it until its lease is nearly over.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{Driver, DriverError, ExtendLeases, Extended, Extension, Refusal, Timestamp};
use tokio::time::{Instant, sleep_until};

use super::{
    outage::Part,
    shared::{Phase, Shared},
};
use crate::{CancelReason, Event, LossReason, inflight::Inflight};

/// No more leases than this are extended in one call.
const BATCH: usize = 10_000;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut failures = 0;
    let mut wait = shared.config.heartbeat;
    loop {
        let next = async {
            // A worker with nothing to do has nothing to keep.
            shared.registry.filled().await;
            sleep_until(Instant::now() + wait).await;
        };
        tokio::select! {
            biased;
            () = shared.reached(Phase::Ended) => return,
            () = next => {}
        }
        let answered = extend_all(&shared).await;
        shared.registry.announce_extended();
        wait = if answered {
            failures = 0;
            shared.config.heartbeat
        } else {
            failures += 1;
            give_up_late_ones(&shared);
            let backoff = shared.backoff(failures).min(shared.config.heartbeat);
            nearest_end(&shared).map_or(backoff, |end| backoff.min(end))
        };
    }
}

/// Extends every lease; whether the store has answered.
async fn extend_all(shared: &Arc<Shared>) -> bool {
    let mut held: Vec<(Arc<Inflight>, Extension)> = Vec::new();
    for inflight in shared.registry.all() {
        if inflight.is_lost() {
            continue;
        }
        if let Some((token, report)) = inflight.begin_extending() {
            let mut extension = Extension::new(inflight.job.id.clone(), token);
            extension.progress = report;
            held.push((inflight, extension));
        }
    }
    if held.is_empty() {
        // Nobody is left for whom a call could fail.
        shared.outage.answered(Part::Keeper, &shared.observers);
    }
    let mut answered = true;
    while !held.is_empty() {
        let batch: Vec<_> = held.drain(..held.len().min(BATCH)).collect();
        answered &= extend(shared, batch).await;
    }
    answered
}

async fn extend(shared: &Arc<Shared>, batch: Vec<(Arc<Inflight>, Extension)>) -> bool {
    let (held, items): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let now = shared.now();
    let request = ExtendLeases::new(items, now, shared.config.lease_for);
    // However long a call may take, no handler is left running past its lease because of it.
    let patience = held.iter().map(|it| time_left(shared, it, now)).min().unwrap_or_default();
    let patience = patience.max(Duration::from_millis(1));
    let call = async {
        let extended = tokio::time::timeout(patience, shared.driver.extend_leases(request)).await;
        extended.unwrap_or_else(|_| {
            Err(DriverError::unavailable("no answer before a lease was nearly over"))
        })
    };
    match shared.call(Part::Keeper, "extend leases", call).await {
        Ok(answers) => {
            for (inflight, answer) in held.iter().zip(answers) {
                take_answer(shared, inflight, answer);
            }
            true
        }
        Err(_) => {
            held.iter().for_each(|inflight| inflight.end_extending(None));
            false
        }
    }
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
            if !inflight.has_ended() {
                shared.lose(inflight, &LossReason::Refused(refusal));
            }
        }
    }
}

/// How long until the handler has to be stopped if its lease is not extended.
fn time_left(shared: &Shared, inflight: &Inflight, now: Timestamp) -> Duration {
    inflight.expires_at().saturating_sub(shared.config.margin()).since(now)
}

fn give_up_late_ones(shared: &Shared) {
    let now = shared.now();
    for inflight in shared.registry.all() {
        if !inflight.has_ended() && time_left(shared, &inflight, now).is_zero() {
            shared.lose(&inflight, &LossReason::Unreachable);
        }
    }
}

fn nearest_end(shared: &Shared) -> Option<Duration> {
    let now = shared.now();
    let held = shared.registry.all().into_iter();
    let held = held.filter(|inflight| !inflight.is_lost() && !inflight.has_ended());
    held.map(|inflight| time_left(shared, &inflight, now)).min()
}
