//! The timeline of a job: the events that its record has, in order.
//!
//! A store keeps the present of a job and its last failures, not every change. So the timeline has the
//! last start alone, and no requeues.

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor::{JobRecord, State, Timestamp, header};

/// Something that happened to a job, or will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Moment {
    /// When.
    at: Timestamp,
    /// `enqueued`, `started`, `failed`, `lease_ends`, `due`, `expanded`, `done`, `dead_lettered` or
    /// `cancelled`.
    what: &'static str,
    /// The error, the reason, the worker.
    detail: Option<String>,
}

impl Moment {
    fn new(at: Timestamp, what: &'static str, detail: Option<String>) -> Self {
        Self { at, what, detail }
    }
}

/// What is known of the life of this job, the oldest first.
pub(super) fn of(record: &JobRecord) -> Vec<Moment> {
    let mut moments = vec![Moment::new(record.job.created_at, "enqueued", origin(record))];
    let started = record.started_at.map(|at| Moment::new(at, "started", start(record)));
    let mut failures: Vec<_> = record
        .errors
        .iter()
        .map(|it| Moment::new(it.failed_at, "failed", Some(it.error.to_string())))
        .collect();
    // Of two moments at one instant, the one that is added first stays first. A job that is inflight
    // has started after its last failure, any other job before.
    if record.held.is_some() {
        moments.append(&mut failures);
        moments.extend(started);
    } else {
        moments.extend(started);
        moments.append(&mut failures);
    }
    moments.extend(record.finished_at.and_then(|at| end(record, at)));
    moments
        .extend(record.held.as_ref().map(|held| Moment::new(held.expires_at, "lease_ends", None)));
    moments.extend(record.due_at.map(|at| Moment::new(at, "due", None)));
    moments.sort_by_key(|moment| moment.at);
    moments
}

fn origin(record: &JobRecord) -> Option<String> {
    let schedule = record.job.headers.get(header::SCHEDULE)?;
    Some(match record.job.headers.get(header::SLOT) {
        Some(slot) => format!("by schedule {schedule} for its slot at {slot}"),
        None => format!("by schedule {schedule}"),
    })
}

fn start(record: &JobRecord) -> Option<String> {
    let times = match record.job.deliveries {
        0 | 1 => None,
        deliveries => Some(format!("delivery {deliveries}")),
    };
    match (&record.held, times) {
        (Some(held), Some(times)) => Some(format!("by {}, {times}", held.holder)),
        (Some(held), None) => Some(format!("by {}", held.holder)),
        (None, times) => times,
    }
}

fn end(record: &JobRecord, at: Timestamp) -> Option<Moment> {
    let reason = record.reason.as_ref().map(ToString::to_string);
    Some(match (record.state, &record.expanded_into) {
        (State::Done, Some(into)) => Moment::new(at, "expanded", Some(format!("into job {into}"))),
        (State::Done, None) => Moment::new(at, "done", None),
        (State::Dlq, _) => Moment::new(at, "dead_lettered", reason),
        (State::Cancelled, _) => Moment::new(at, "cancelled", reason),
        _ => return None,
    })
}
