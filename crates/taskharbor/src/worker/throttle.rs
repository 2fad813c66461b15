//! Holding the lane of a job that was throttled.

use taskharbor_core::{
    Admin, DriverError, Timestamp,
    admin::{Change, Configure},
};

use super::{outage::Part, resolution::Resolution, shared::Shared};
use crate::{Event, Operation, inflight::Inflight};

/// Holds the lane of this job, or its queue if it has none, for as long as the resolution says. This comes
/// before the job is released: otherwise another job of the lane could start in between. If the store
/// does not do so, the job is released all the same, and the next job that is throttled tries again.
pub(super) async fn hold(
    shared: &Shared,
    inflight: &Inflight,
    resolution: Resolution,
) -> Resolution {
    if let Some(until) = resolution.holds_until {
        hold_until(shared, inflight, until).await;
    }
    resolution
}

async fn hold_until(shared: &Shared, inflight: &Inflight, until: Timestamp) {
    let job = &inflight.job;
    let (queue, lane) = (job.queue.clone(), job.lane.clone());
    let change = Change::Hold { queue, lane, until: Some(until) };
    let request = Configure::new(vec![change], shared.now());
    let call = shared.driver.configure(request);
    let answer = shared.call_or_recover(Part::Hold, Operation::Configure, 1, call).await;
    let not_held = answer.and_then(|answers| match answers.into_iter().next() {
        Some(Ok(())) => Ok(()),
        Some(Err(denied)) => Err(DriverError::ContractViolation(denied.to_string())),
        None => Err(DriverError::ContractViolation("a hold was not answered".to_owned())),
    });
    let not_held = not_held.as_ref().err();
    shared.tell(&Event::Throttled { job, until, not_held });
}
