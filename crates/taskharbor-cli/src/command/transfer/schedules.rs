//! Moving schedules, so that each fires in one store at a time.
//!
//! All schedules of the source are paused before jobs are copied. At the end each is stored in the
//! destination, and then removed from the source. A move that is interrupted between the two finds it
//! in the destination, where it may have fired since.

use taskharbor::{ScheduleRecord, Timestamp};
use taskharbor_core::{
    admin::{Change, Setting, SettingKind},
    error::Denied,
};

use super::{limits, side::Side};
use crate::failure::{Failure, Outcome};

/// The schedules of a store.
async fn all(store: &Side) -> Outcome<Vec<ScheduleRecord>> {
    let settings = store.settings(SettingKind::Schedule).await?;
    let record = |setting| match setting {
        Setting::Schedule(record) => Some(*record),
        _ => None,
    };
    Ok(settings.into_iter().filter_map(record).collect())
}

/// Pauses the schedules of the source that are not paused. `since` tells them from those that an
/// operator paused.
pub(super) async fn pause(source: &Side, since: Timestamp) -> Outcome {
    for record in all(source).await?.into_iter().filter(|it| it.paused_since.is_none()) {
        source.configure(Change::PauseSchedule(record.name), since).await?.map_err(denied)?;
    }
    Ok(())
}

/// Resumes what was paused for the move, where it stood.
pub(super) async fn undo(source: &Side, since: Timestamp) -> Outcome {
    let now = source.now().await?;
    for record in all(source).await?.into_iter().filter(|it| it.paused_since == Some(since)) {
        let ScheduleRecord { name, revision, next_slot, .. } = record;
        let resume = Change::ResumeSchedule { name, revision, next_slot };
        source.configure(resume, now).await?.map_err(denied)?;
    }
    Ok(())
}

/// Moves the schedules, and the versions of their owners; answers how many schedules.
pub(super) async fn hand_over(
    source: &Side,
    destination: &Side,
    since: Timestamp,
) -> Outcome<usize> {
    let now = source.now().await?;
    let declared = limits::versions(destination).await?;
    for (owner, version) in limits::versions(source).await? {
        // A newer version of the service may run with the destination already.
        if declared.get(&owner).is_none_or(|declared| *declared < version) {
            let set = Change::SetOwnerVersion { owner, version: Some(version) };
            destination.configure(set, now).await?.map_err(denied)?;
        }
    }
    let there = all(destination).await?;
    let records = all(source).await?;
    let count = records.len();
    for mut record in records {
        let name = record.name.clone();
        if record.paused_since == Some(since) {
            record.paused_since = None;
        }
        match there.iter().find(|it| it.name == name) {
            // An earlier run has moved it.
            Some(twin) if twin.definition == record.definition && twin.owner == record.owner => {}
            Some(_) => {
                let text = format!(
                    "cannot move schedule {name}: the destination has another of that name; remove one of them with `taskharbor schedule remove`"
                );
                return Err(Failure::refused("schedule_exists", text));
            }
            None => {
                let import = Change::ImportSchedule(Box::new(record));
                destination.configure(import, now).await?.map_err(denied)?;
            }
        }
        source.configure(Change::RemoveSchedule(name), now).await?.map_err(denied)?;
    }
    Ok(count)
}

#[expect(clippy::needless_pass_by_value, reason = "an error is turned into another")]
fn denied(denied: Denied) -> Failure {
    Failure::refused("schedule", denied.to_string())
}
