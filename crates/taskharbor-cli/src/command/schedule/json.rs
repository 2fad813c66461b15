//! The shapes of what is written about schedules. They are documented in
//! `docs/guides/command-line.md`, and scripts depend on them: fields are added, never changed.

use serde::Serialize;
use taskharbor::{Firing, Missed, ScheduleInfo};

#[derive(Debug, Serialize)]
pub(super) struct Schedule<'a> {
    name: &'a str,
    owner: Option<&'a str>,
    when: Option<&'a str>,
    zone: Option<&'a str>,
    r#type: Option<&'a str>,
    queue: Option<&'a str>,
    jobs: Option<usize>,
    missed: Option<String>,
    within_seconds: Option<f64>,
    overlap: Option<&'static str>,
    jitter_seconds: Option<f64>,
    starts_at: Option<String>,
    ends_at: Option<String>,
    problem: Option<&'a str>,
    paused_since: Option<String>,
    next_slot: Option<String>,
    stored: u64,
    skipped: u64,
    missed_slots: u64,
    error: Option<&'a str>,
    firings: Vec<Fired<'a>>,
}

#[derive(Debug, Serialize)]
struct Fired<'a> {
    slot: String,
    fired_at: String,
    job: &'a str,
    is_new: bool,
}

/// A policy as `--missed` takes it.
pub(super) fn missed(policy: Missed) -> String {
    match policy {
        Missed::All { at_most } => format!("all:{at_most}"),
        other => other.as_str().to_owned(),
    }
}

impl<'a> Schedule<'a> {
    pub(super) fn of(info: &'a ScheduleInfo) -> Self {
        let (record, details) = (&info.record, info.details.as_ref());
        let of = details.ok();
        let time = |at: Option<taskharbor::Timestamp>| at.map(|at| at.to_string());
        let fired = |it: &'a Firing| Fired {
            slot: it.slot.to_string(),
            fired_at: it.fired_at.to_string(),
            job: it.job.id().as_str(),
            is_new: it.job.is_new(),
        };
        Self {
            name: record.name.as_str(),
            owner: record.owner.as_ref().map(taskharbor_core::name::OwnerName::as_str),
            when: of.map(|it| it.timing.as_str()),
            zone: of.and_then(|it| it.zone.as_deref()),
            r#type: of.map(|it| it.job_type.as_str()),
            queue: of.map(|it| it.queue.as_str()),
            jobs: of.map(|it| it.jobs),
            missed: of.map(|it| missed(it.missed)),
            within_seconds: of.map(|it| it.within.as_secs_f64()),
            overlap: of.map(|it| it.overlap.as_str()),
            jitter_seconds: of.map(|it| it.jitter.as_secs_f64()),
            starts_at: time(of.and_then(|it| it.starts_at)),
            ends_at: time(of.and_then(|it| it.ends_at)),
            problem: details.err().map(String::as_str),
            paused_since: time(record.paused_since),
            next_slot: time(record.next_slot),
            stored: record.totals.stored,
            skipped: record.totals.skipped,
            missed_slots: record.totals.missed,
            error: record.error.as_ref().map(taskharbor::Text::as_str),
            firings: record.firings.iter().map(fired).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Slot {
    pub(super) slot: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Removed<'a> {
    pub(super) removed: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct Backfilled {
    pub(super) stored: usize,
    pub(super) existing: usize,
}
