//! Moving limits.
//!
//! They are stored in the destination when all jobs have arrived and before its queues are resumed, so
//! that no worker there starts more jobs than they allow. Jobs are moved without valid leases, so
//! nothing of a limit is in use on the way. The limits of the source are removed last: until then a
//! move that is given up leaves a source with its limits. Holds and what rates are charged are states
//! of a moment and stay behind.

use std::collections::HashMap;

use taskharbor::QueueName;
use taskharbor_core::{
    admin::{Change, LimitsDeclaration, LimitsRecord, Setting, SettingKind},
    error::Denied,
    name::OwnerName,
};

use super::side::Side;
use crate::{
    clean,
    failure::{Failure, Outcome},
};

/// The limits of a store, by queue.
async fn all(store: &Side) -> Outcome<HashMap<QueueName, LimitsRecord>> {
    let record = |setting| match setting {
        Setting::Limits(record) => Some((record.queue.clone(), *record)),
        _ => None,
    };
    let settings = store.settings(SettingKind::Limits).await?;
    Ok(settings.into_iter().filter_map(record).collect())
}

/// Whether the destination has these limits, or others that their service has declared there.
fn is_same(record: &LimitsRecord, twin: &LimitsRecord) -> bool {
    twin == record || (record.owner.is_some() && twin.owner == record.owner)
}

/// Fails if the destination has other limits for a queue. It is called before anything is moved.
pub(super) async fn check(source: &Side, destination: &Side) -> Outcome {
    let there = all(destination).await?;
    let differs =
        |record: &LimitsRecord| there.get(&record.queue).is_some_and(|twin| !is_same(record, twin));
    match all(source).await?.into_values().find(differs) {
        Some(record) => Err(different(&record.queue)),
        None => Ok(()),
    }
}

fn different(queue: &QueueName) -> Failure {
    let queue = clean::line(queue.as_str());
    let text = format!(
        "cannot move the limits of queue {queue}: the destination has others; remove them in one of the stores with `taskharbor queue limit {queue} --remove`, or in the service that declares them"
    );
    Failure::refused("limits_exist", text)
}

/// Stores the limits in the destination, and reads them back; answers how many queues have some.
pub(super) async fn copy(source: &Side, destination: &Side) -> Outcome<usize> {
    let now = source.now().await?;
    let (records, there) = (all(source).await?, all(destination).await?);
    for (queue, record) in &records {
        // Limits of a service that runs with the destination already stay as they were declared there.
        if there.get(queue).is_some_and(|twin| is_same(record, twin)) {
            continue;
        }
        let import = Change::ImportLimits(Box::new(record.clone()));
        destination.configure(import, now).await?.map_err(|denied| match denied {
            Denied::LimitsExist(queue) => different(&queue),
            denied => Failure::refused("limits", denied.to_string()),
        })?;
    }
    let there = all(destination).await?;
    let is_missing = |(queue, record): &(&QueueName, &LimitsRecord)| {
        there.get(*queue).is_none_or(|twin| !is_same(record, twin))
    };
    match records.iter().find(is_missing) {
        Some((queue, _)) => Err(Failure::error(
            "different",
            format!(
                "the limits of queue {} are not the same in both stores: they were changed meanwhile; compare them with `taskharbor queue limit {0}`",
                clean::line(queue.as_str())
            ),
        )),
        None => Ok(records.len()),
    }
}

/// Removes the limits of the source.
pub(super) async fn remove(source: &Side) -> Outcome {
    let now = source.now().await?;
    let versions = versions(source).await?;
    for (queue, record) in all(source).await? {
        let change = match record.owner {
            None => Change::SetLimits { queue, limits: None },
            // Limits that have an owner are changed by their owner alone.
            Some(owner) => {
                let version = versions.get(&owner).copied();
                Change::DeclareLimits(LimitsDeclaration::new(owner, version, Vec::new()))
            }
        };
        let denied = |denied: Denied| Failure::refused("limits", denied.to_string());
        source.configure(change, now).await?.map_err(denied)?;
    }
    Ok(())
}

/// The versions that owners have declared.
pub(super) async fn versions(store: &Side) -> Outcome<HashMap<OwnerName, u64>> {
    let version = |setting| match setting {
        Setting::Owner { owner, version } => Some((owner, version)),
        _ => None,
    };
    let settings = store.settings(SettingKind::Owner).await?;
    Ok(settings.into_iter().filter_map(version).collect())
}
