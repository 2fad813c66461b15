//! Releasing jobs that were reserved ahead and could not start in time.
//!
//! They are released: nothing is charged, and another worker can have them. This happens when no job
//! of their queue has ended for a while, when the first of them has waited for too long, and when the
//! worker shuts down or is quiet.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    pool::WaitLimits,
    resolution,
    settler::Finished,
    shared::{Config, Phase, Shared},
};
use crate::{CancelReason, ReleaseReason, inflight::Inflight};

/// How long jobs may wait, for the default of [`crate::WorkerBuilder::ahead`] and for less.
const STALLED: Duration = Duration::from_millis(25);
const LONGEST_WAIT: Duration = Duration::from_millis(100);
const A_MOMENT: Duration = Duration::from_millis(1);

impl WaitLimits {
    /// Jobs that are reserved further ahead may wait for longer, but always a fraction of the lease.
    pub(super) fn new(config: &Config) -> Self {
        let lease_allows = config.lease_for / 8;
        Self {
            stalled: (config.ahead * 5 / 4).max(STALLED).min(lease_allows),
            longest: (config.ahead * 5).max(LONGEST_WAIT).min(lease_allows),
        }
    }
}

/// Releases jobs that have waited for too long, until the worker reserves nothing more, and then all.
pub(super) async fn sweep(shared: &Arc<Shared>) {
    let limits = WaitLimits::new(&shared.config);
    let mut not_before = Instant::now();
    loop {
        let next = shared.pools.iter().filter_map(|pool| pool.stalls_at(limits)).min();
        // However late it is, other tasks get their turn in between.
        let next = next.map(|at| at.max(not_before).max(Instant::now() + A_MOMENT));
        let stalled = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => shared.buffered.notified().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.reached(Phase::Quiet) => break,
            () = stalled => {}
        }
        // While outcomes cannot be handed over, handlers end and their slots do not: the store is
        // slow, and giving jobs back would not help it.
        if shared.outcomes.capacity() == 0 {
            continue;
        }
        let now = Instant::now();
        if next.is_some_and(|at| now > at + limits.stalled / 4) {
            // This task has not had its turn, so the handlers have not had theirs either: that no job
            // has ended says nothing.
            not_before = now + limits.stalled;
            continue;
        }
        for pool in shared.pools.iter() {
            if pool.stalls_at(limits).is_some_and(|at| at <= now) {
                release(shared, pool.take_waiting(), ReleaseReason::Waited).await;
            }
        }
    }
    release_all(shared, ReleaseReason::Shutdown).await;
}

/// Releases all jobs that wait for a slot.
pub(super) async fn release_all(shared: &Arc<Shared>, why: ReleaseReason) {
    for pool in shared.pools.iter() {
        release(shared, pool.take_waiting(), why).await;
    }
}

async fn release(shared: &Arc<Shared>, jobs: Vec<Arc<Inflight>>, why: ReleaseReason) {
    for inflight in jobs {
        let why = match inflight.cancellation.reason() {
            Some(CancelReason::LeaseLost) => {
                shared.registry.remove([&inflight]);
                continue;
            }
            Some(reason) => reason.as_release(),
            None => why,
        };
        // The settler has gone only if the worker has ended.
        let released = resolution::release(why);
        let _ = shared.outcomes.send(Finished::new(inflight, released)).await;
    }
}
