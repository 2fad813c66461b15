//! The text of the action log for calls that change something: names and numbers, and no payloads.

use std::any::Any;

use serde_json::{Value, json};
use taskharbor_core::{
    admin::{Change, Configure, Evict, Manage, Prune, QueueLimits},
    wire::Import,
};

use crate::call::{Call, Note};

/// The most changes, and jobs, of one record.
const MAX_NOTED: usize = 100;

/// Tells the action log what is asked for.
pub(super) fn tell(call: &Call, request: &dyn Any) {
    call.note(|note| {
        if let Some(request) = request.downcast_ref() {
            manage(note, request);
        } else if let Some(request) = request.downcast_ref() {
            configure(note, request);
        } else if let Some(Prune { done_before, cancelled_before, dlq_before, .. }) =
            request.downcast_ref()
        {
            note.details = Some(json!({
                "done_before": done_before,
                "cancelled_before": cancelled_before,
                "dlq_before": dlq_before,
            }));
        } else if let Some(request) = request.downcast_ref::<Evict>() {
            note.details = Some(json!({ "worker": request.holder }));
        } else if let Some(request) = request.downcast_ref::<Import>() {
            note.count = Some(request.units.len());
        }
    });
}

fn manage(note: &mut Note, request: &Manage) {
    note.ids = request.ids.iter().take(MAX_NOTED).map(ToString::to_string).collect();
    note.count = Some(request.ids.len());
    note.details = Some(json!({ "action": request.action }));
}

fn configure(note: &mut Note, request: &Configure) {
    let changes: Vec<Value> = request.changes.iter().take(MAX_NOTED).map(change).collect();
    note.count = Some(request.changes.len());
    note.details = Some(json!({ "changes": changes }));
}

/// The limits of a queue, with the number of its lanes in place of the lanes: there may be very many.
pub(crate) fn limits(limits: &QueueLimits) -> serde_json::Result<Value> {
    let QueueLimits { inflight, rate, per_lane, lane_rate, lanes, .. } = limits;
    let (rate, lane_rate) = (serde_json::to_value(rate)?, serde_json::to_value(lane_rate)?);
    Ok(json!({
        "inflight": inflight,
        "rate": rate,
        "per_lane": per_lane,
        "lane_rate": lane_rate,
        "lanes": lanes.len(),
    }))
}

fn change(change: &Change) -> Value {
    match change {
        Change::PauseQueue(queue) => json!({ "pause_queue": queue }),
        Change::ResumeQueue(queue) => json!({ "resume_queue": queue }),
        Change::PutSchedule(schedule) => json!({ "put_schedule": schedule.name }),
        Change::DeclareSchedules(declaration) => json!({ "declare_schedules": declaration.owner }),
        Change::PauseSchedule(name) => json!({ "pause_schedule": name }),
        Change::ResumeSchedule { name, .. } => json!({ "resume_schedule": name }),
        Change::RemoveSchedule(name) => json!({ "remove_schedule": name }),
        Change::ImportSchedule(record) => json!({ "import_schedule": record.name }),
        Change::SetLimits { queue, limits } => {
            // A time can be too long for a number here; then the store refuses it.
            let limits = limits.as_ref().map(self::limits).transpose().unwrap_or_default();
            json!({ "set_limits": { "queue": queue, "limits": limits } })
        }
        Change::DeclareLimits(declaration) => json!({ "declare_limits": declaration.owner }),
        Change::ImportLimits(record) => json!({ "import_limits": record.queue }),
        Change::Hold { queue, lane, until } => {
            json!({ "hold": { "queue": queue, "lane": lane, "until": until } })
        }
        Change::SetOwnerVersion { owner, version } => {
            json!({ "set_owner_version": { "owner": owner, "version": version } })
        }
    }
}
