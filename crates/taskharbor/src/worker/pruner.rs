//! The loop that removes terminal jobs and flows that have been kept for long enough.
//!
//! Every worker has one, and there is no leader: the first one removes the old records, and the
//! next one finds fewer. Each runs at random times, so that the calls of a fleet are spread. No
//! other part of the worker waits for it.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{Admin, DriverError};
use tokio::time::sleep;

use super::{
    outage::Part,
    shared::{Phase, Shared},
};
use crate::Operation;

/// One call removes no more than this, so that none takes long.
const BATCH: usize = 1_000;
/// How often to look: as often as the shortest time for which anything is kept, within these
/// bounds, and up to half as long again, at random.
const OFTEN: Duration = Duration::from_secs(5);
const RARELY: Duration = Duration::from_secs(30);
/// Old records do no harm, so after a failure it waits longer than the other loops.
pub(super) const BACKOFF_FACTOR: u32 = 6;

pub(super) async fn run(shared: Arc<Shared>) {
    tokio::select! {
        biased;
        () = shared.reached(Phase::Draining) => {}
        () = prune(&shared) => {}
    }
}

async fn prune(shared: &Shared) {
    // With nothing to remove there is nothing to do.
    let Some(shortest) = shared.config.retention.shortest() else { return };
    let period = shortest.clamp(OFTEN, RARELY);
    // Workers that were started together do not go together.
    sleep(period.mul_f64(shared.chance())).await;
    let mut failures = 0;
    loop {
        let pause = match remove(shared).await {
            Ok(count) if count >= BATCH => {
                failures = 0;
                tokio::task::yield_now().await;
                continue;
            }
            Ok(_) => {
                failures = 0;
                period + period.mul_f64(shared.chance() / 2.0)
            }
            Err(_) => {
                failures = u32::saturating_add(failures, 1);
                shared.backoff(failures) * BACKOFF_FACTOR
            }
        };
        sleep(pause).await;
    }
}

async fn remove(shared: &Shared) -> Result<usize, DriverError> {
    let request = shared.config.retention.request(BATCH, shared.now());
    let call = shared.driver.prune(request);
    shared.call_or_recover(Part::Pruner, Operation::Prune, 0, call).await
}
