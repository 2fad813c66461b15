//! The permission that each call needs.
//!
//! Most calls always need the same permission. Some calls can do more than one thing: for these, the content
//! of the request decides ([`check`]).

use std::any::Any;

use taskharbor_core::admin::{Action, Change, Configure, ListSettings, Manage, SettingKind};

use crate::{
    access::{Access, Needs, Role},
    problem::Problem,
};

const ADMIN: Needs = Needs { role: Some(Role::Admin), ..Needs::VIEWER };
const OPERATOR: Needs = Needs { role: Some(Role::Operator), ..Needs::VIEWER };
const WORKER: Needs = Needs { workers: true, ..Needs::VIEWER };
const PAYLOADS: Needs = Needs { payloads: true, ..Needs::VIEWER };

/// What a call takes at least.
pub(super) fn needs(face: &str, name: &str) -> Needs {
    match (face, name) {
        // All callers go by the store's time, also those that only read.
        ("driver", "store_time") => Needs::VIEWER,
        // Of any job, and not only of those that the caller holds.
        ("driver", "outputs") => Needs { payloads: true, ..WORKER },
        ("driver", _) => WORKER,
        ("admin", "inspect") => PAYLOADS,
        // It has the tokens of leases, with which a worker's jobs can be settled.
        ("admin", "export") => Needs { payloads: true, ..ADMIN },
        (
            "admin",
            "list" | "counts" | "settings" | "lanes" | "workers" | "flow" | "list_flows"
            | "diagnose" | "check",
        ) => Needs::VIEWER,
        ("admin", "manage" | "configure") => OPERATOR,
        // Also an operation that is new and not listed here.
        _ => ADMIN,
    }
}

/// Whether a call changes what people care about, and goes into the action log. What workers do all the time
/// does not.
pub(super) fn is_action(face: &str, name: &str) -> bool {
    face == "admin" && name != "export" && needs(face, name).role > Some(Role::Viewer)
}

/// Refuses what the caller may not do with a call that it may make.
pub(super) fn check(access: &Access, request: &dyn Any) -> Result<(), Problem> {
    let needs = if let Some(request) = request.downcast_ref::<Manage>() {
        match request.action {
            Action::Purge | Action::PurgeFlow => ADMIN,
            Action::Requeue(_)
            | Action::Cancel
            | Action::RunNow
            | Action::SetPriority(_)
            | Action::CancelFlow => OPERATOR,
        }
    } else if let Some(request) = request.downcast_ref::<Configure>() {
        if request.changes.iter().all(is_for_operators) { OPERATOR } else { ADMIN }
    } else if let Some(request) = request.downcast_ref::<ListSettings>() {
        // The definition of a schedule has the payload of its jobs.
        match request.kind {
            None | Some(SettingKind::Schedule) => PAYLOADS,
            Some(_) => Needs::VIEWER,
        }
    } else {
        return Ok(());
    };
    needs.check(access)
}

const fn is_for_operators(change: &Change) -> bool {
    match change {
        Change::PauseQueue(_)
        | Change::ResumeQueue(_)
        | Change::PauseSchedule(_)
        | Change::ResumeSchedule { .. }
        | Change::Hold { .. } => true,
        Change::PutSchedule(_)
        | Change::DeclareSchedules(_)
        | Change::RemoveSchedule(_)
        | Change::ImportSchedule(_)
        | Change::SetLimits { .. }
        | Change::DeclareLimits(_)
        | Change::ImportLimits(_)
        | Change::SetOwnerVersion { .. } => false,
    }
}
