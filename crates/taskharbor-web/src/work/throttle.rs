//! Putting the lanes of jobs that were throttled on hold.
//!
//! Which lane that is stands in the lease that the worker brings back. So that a worker can hold no lane but
//! those of the jobs that it holds, the store is asked about both before.

use taskharbor::Timestamp;
use taskharbor_core::{
    Admin, AnyDriver, DriverError,
    admin::{Change, Configure},
};

use super::{lease, settle::Item};

/// Puts the lanes of jobs that were throttled on hold. This comes before the jobs are released: otherwise
/// another job of the lane could start in between. If the store does not do so, the jobs are released all the
/// same.
pub(super) async fn hold(driver: &AnyDriver, items: &[Item], now: Timestamp) {
    let throttled = items.iter().filter(|item| item.decision.hold.is_some()).collect();
    if let Err(error) = hold_lanes(driver, throttled, now).await {
        tracing::warn!(%error, "the lane of a job that was throttled could not be put on hold");
    }
}

async fn hold_lanes(
    driver: &AnyDriver,
    throttled: Vec<&Item>,
    now: Timestamp,
) -> Result<(), DriverError> {
    let mut changes: Vec<Change> = Vec::new();
    for item in alive(driver, throttled, now).await? {
        let Some(change) = &item.decision.hold else { continue };
        let longer = changes.iter_mut().find(|other| lane_of(other) == lane_of(change));
        match longer {
            Some(longer) if until(longer) >= until(change) => {}
            Some(longer) => *longer = change.clone(),
            None if is_its_own(driver, item, now).await? => changes.push(change.clone()),
            None => {}
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    driver.configure(Configure::new(changes, now)).await.map(drop)
}

/// The jobs that their workers hold.
async fn alive<'a>(
    driver: &AnyDriver,
    items: Vec<&'a Item>,
    now: Timestamp,
) -> Result<Vec<&'a Item>, DriverError> {
    let leases = items.iter().map(|item| (&item.id, &item.ticket));
    let answers = lease::check(driver, leases, now).await?;
    let alive = items.into_iter().zip(answers).filter(|(_, answer)| answer.is_ok());
    Ok(alive.map(|(item, _)| item).collect())
}

/// Whether the job is in the lane that would be held for it.
async fn is_its_own(driver: &AnyDriver, item: &Item, now: Timestamp) -> Result<bool, DriverError> {
    let Some((queue, lane)) = item.decision.hold.as_ref().and_then(lane_of) else {
        return Ok(false);
    };
    let record = driver.inspect(item.id.clone(), now).await?;
    Ok(record.is_some_and(|it| it.job.queue == *queue && it.job.lane.as_ref() == lane))
}

fn lane_of(
    change: &Change,
) -> Option<(&taskharbor::QueueName, Option<&taskharbor_core::name::LaneName>)> {
    match change {
        Change::Hold { queue, lane, .. } => Some((queue, lane.as_ref())),
        _ => None,
    }
}

fn until(change: &Change) -> Option<Timestamp> {
    match change {
        Change::Hold { until, .. } => *until,
        _ => None,
    }
}
