//! Putting the lanes of jobs that were throttled on hold.
//!
//! Which lane that is stands in the lease that the worker brings back. So that a worker can hold no lane but
//! those of the jobs that it holds, the store is asked about both before.

use std::collections::BTreeMap;

use serde_json::json;
use taskharbor::Timestamp;
use taskharbor_core::{
    Admin, AnyDriver, DriverError,
    admin::{Change, Configure},
};

use super::{lease, settle::Item};
use crate::{action_log::ActionRecord, app::Store, call::Call};

/// The most holds of one record.
const MAX_SHOWN: usize = 100;

/// Puts the lanes of jobs that were throttled on hold. This comes before the jobs are released: otherwise
/// another job of the lane could start in between. If the store does not do so, the jobs are released all the
/// same.
pub(super) async fn hold(call: &Call, store: &Store, items: &[Item], now: Timestamp) {
    let throttled = items.iter().filter(|item| item.decision.hold.is_some()).collect();
    match hold_lanes(&store.driver, throttled, now).await {
        Ok(holds) if holds.is_empty() => {}
        Ok(holds) => record(call, store, &holds, now).await,
        Err(error) => {
            tracing::warn!(%error, "the lane of a job that was throttled could not be put on hold");
        }
    }
}

/// Other jobs wait for a hold, so operators find it in the action log: one record for each call of a worker.
async fn record(call: &Call, store: &Store, holds: &[(&Item, Change)], now: Timestamp) {
    let shown = holds.iter().take(MAX_SHOWN).map(|(_, change)| {
        let (queue, lane) = lane_of(change).unzip();
        let until = until(change).map(|until| until.to_string());
        json!({ "queue": queue, "lane": lane.flatten(), "until": until })
    });
    let shown: Vec<_> = shown.collect();
    let record = ActionRecord {
        at: Some(now),
        who: call.access.name.clone(),
        role: call.access.role,
        store: store.name.clone(),
        action: "queue.hold".to_owned(),
        target: BTreeMap::new(),
        ids: holds.iter().take(MAX_SHOWN).map(|(item, _)| item.id.to_string()).collect(),
        details: Some(json!({ "throttled": shown })),
        count: Some(holds.len()),
        result: "ok".to_owned(),
    };
    call.app.actions.add(record).await;
}

/// The holds that were made, each with a job that asked for it.
async fn hold_lanes<'a>(
    driver: &AnyDriver,
    throttled: Vec<&'a Item>,
    now: Timestamp,
) -> Result<Vec<(&'a Item, Change)>, DriverError> {
    let mut changes: Vec<(&Item, Change)> = Vec::new();
    for item in alive(driver, throttled, now).await? {
        let Some(change) = &item.decision.hold else { continue };
        let longer = changes.iter_mut().find(|(_, other)| lane_of(other) == lane_of(change));
        match longer {
            Some((_, longer)) if until(longer) >= until(change) => {}
            Some(longer) => *longer = (item, change.clone()),
            None if is_its_own(driver, item, now).await? => changes.push((item, change.clone())),
            None => {}
        }
    }
    if !changes.is_empty() {
        let all = changes.iter().map(|(_, change)| change.clone()).collect();
        driver.configure(Configure::new(all, now)).await?;
    }
    Ok(changes)
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
