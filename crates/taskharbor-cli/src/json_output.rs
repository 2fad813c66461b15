//! The shapes of everything that is written as JSON. They are documented in
//! `docs/guides/command-line.md`, and scripts depend on them: fields are added, never changed.

mod dlq;
mod limit;
mod queue;
mod worker;

pub(crate) use dlq::{DlqGroup, LookedAt};
pub(crate) use limit::{HeldBack, Hold, Lane, Limits};
pub(crate) use queue::{Queue, States};
pub(crate) use worker::{Evicted, Worker};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::value::RawValue;
use taskharbor::{
    Blob, FlowMember, FlowRecord, FlowTree, Headers, JobRecord, JobSummary, Timestamp,
};
use taskharbor_core::{
    State,
    flow::FlowState,
    job::{Condition, JobKind, KeyHold},
};

/// Bytes as JSON if they are, else in base64.
pub(crate) enum Bytes {
    Json(Box<RawValue>),
    Base64(String),
}

impl Bytes {
    pub(crate) fn of(blob: &Blob) -> Self {
        match serde_json::from_slice(blob) {
            Ok(json) => Self::Json(json),
            Err(_) => Self::Base64(BASE64_STANDARD.encode(blob)),
        }
    }

    /// As the value of one of two fields.
    fn split(self) -> (Option<Box<RawValue>>, Option<String>) {
        match self {
            Self::Json(json) => (Some(json), None),
            Self::Base64(text) => (None, Some(text)),
        }
    }
}

fn time(at: Timestamp) -> String {
    at.to_string()
}

/// A job as one line of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    id: &'a str,
    r#type: &'a str,
    queue: &'a str,
    state: &'static str,
    priority: i16,
    run_at: Option<String>,
    due_at: Option<String>,
    created_at: String,
    started_at: Option<String>,
    finished_at: Option<String>,
    attempts: u32,
    max_attempts: Option<u32>,
    deliveries: u32,
    expirations: u32,
    holder: Option<&'a str>,
    lease_expires_at: Option<String>,
    last_error: Option<&'a str>,
    reason: Option<&'a str>,
    flow: Option<&'a str>,
    payload_bytes: usize,
    lane: Option<&'a str>,
}

impl<'a> Line<'a> {
    pub(crate) fn of(job: &'a JobSummary) -> Self {
        let held = job.held.as_ref();
        Self {
            id: job.id.as_str(),
            r#type: job.job_type.as_str(),
            queue: job.queue.as_str(),
            state: job.state.as_str(),
            priority: job.priority,
            run_at: job.run_at.map(time),
            due_at: job.due_at.map(time),
            created_at: time(job.created_at),
            started_at: job.started_at.map(time),
            finished_at: job.finished_at.map(time),
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            deliveries: job.deliveries,
            expirations: job.expirations,
            holder: held.map(|held| held.holder.as_str()),
            lease_expires_at: held.map(|held| time(held.expires_at)),
            last_error: job.last_error.as_ref().map(taskharbor::Text::as_str),
            reason: job.reason.as_ref().map(taskharbor::Text::as_str),
            flow: job.flow.as_ref().map(taskharbor::JobId::as_str),
            payload_bytes: job.payload_bytes,
            lane: job.lane.as_ref().map(taskharbor_core::name::LaneName::as_str),
        }
    }
}

/// A failure of a job.
#[derive(Debug, Serialize)]
struct Error<'a> {
    failed_at: String,
    attempts: u32,
    error: &'a str,
}

/// What a worker noted when it released a job.
#[derive(Debug, Serialize)]
struct Released<'a> {
    reason: &'static str,
    unfit_since: Option<String>,
    text: &'a str,
}

/// All there is to know about a job.
#[derive(Debug, Serialize)]
pub(crate) struct Whole<'a> {
    #[serde(flatten)]
    line: Line<'a>,
    timeout_nanos: Option<u64>,
    idempotency_key: Option<&'a str>,
    key_hold: Option<&'static str>,
    key_held_until: Option<String>,
    headers: std::collections::BTreeMap<&'a str, &'a str>,
    cancel_requested: bool,
    progress: Option<&'a str>,
    released: Option<Released<'a>>,
    errors: Vec<Error<'a>>,
    epoch: u32,
    kind: &'static str,
    join_reading: Option<&'static str>,
    condition: &'static str,
    on_failure: &'static str,
    available_at: Option<String>,
    parents: Vec<&'a str>,
    pending: usize,
    expanded_into: Option<&'a str>,
    held_back: Option<HeldBack>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl<'a> Whole<'a> {
    pub(crate) fn of(record: &'a JobRecord, summary: &'a JobSummary) -> Self {
        let job = &record.job;
        let (payload, payload_base64) = Bytes::of(&job.payload).split();
        let (output, output_base64) =
            record.output.as_ref().map_or((None, None), |output| Bytes::of(output).split());
        let errors = record.errors.iter().map(|failure| Error {
            failed_at: time(failure.failed_at),
            attempts: failure.attempts,
            error: failure.error.as_str(),
        });
        Self {
            line: Line::of(summary),
            timeout_nanos: job.timeout.map(|it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX)),
            idempotency_key: job.idempotency_key.as_ref().map(taskharbor::IdempotencyKey::as_str),
            key_hold: job.idempotency_key.as_ref().map(|_| key_hold(record.key_hold)),
            key_held_until: job
                .idempotency_key
                .as_ref()
                .and_then(|_| record.key_hold.held_until(job.created_at))
                .map(time),
            headers: headers(&job.headers),
            cancel_requested: record.cancel_requested,
            progress: record.progress.as_ref().map(taskharbor::Text::as_str),
            released: job.released.as_ref().map(|note| Released {
                reason: note.reason.as_str(),
                unfit_since: note.unfit_since.map(time),
                text: note.text.as_str(),
            }),
            errors: errors.collect(),
            epoch: record.epoch,
            kind: kind(record.kind),
            join_reading: match record.kind {
                JobKind::Work => None,
                JobKind::Join(reading) => Some(reading.as_str()),
            },
            condition: condition(job.condition),
            on_failure: job.on_failure.as_str(),
            available_at: available_at(record).map(time),
            parents: record.parents.iter().map(taskharbor::JobId::as_str).collect(),
            pending: record.pending,
            expanded_into: record.expanded_into.as_ref().map(taskharbor::JobId::as_str),
            held_back: record.held_back.as_ref().map(HeldBack::of),
            payload,
            payload_base64,
            output,
            output_base64,
        }
    }
}

/// Since when workers could take the job, or from when on they can; nothing once it is terminal.
pub(crate) fn available_at(record: &JobRecord) -> Option<Timestamp> {
    matches!(record.state, State::Ready | State::Scheduled | State::Inflight)
        .then_some(record.job.available_at)
}

fn headers(headers: &Headers) -> std::collections::BTreeMap<&str, &str> {
    headers.iter().collect()
}

const fn kind(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Work => "work",
        JobKind::Join(_) => "join",
    }
}

const fn condition(condition: Condition) -> &'static str {
    match condition {
        Condition::ParentsDone => "parents_done",
        Condition::ParentsFailed => "parents_failed",
    }
}

pub(crate) const fn key_hold(hold: KeyHold) -> &'static str {
    match hold {
        KeyHold::UntilPruned => "until_pruned",
        KeyHold::UntilDone => "until_done",
        KeyHold::UntilTerminal => "until_terminal",
        KeyHold::For(_) => "for",
    }
}

/// A job that was stored, or existed before.
#[derive(Debug, Serialize)]
pub(crate) struct Enqueued<'a> {
    pub(crate) id: &'a str,
    pub(crate) existed: bool,
}

/// The result of a job that was waited for.
#[derive(Debug, Serialize)]
pub(crate) struct Waited<'a> {
    id: &'a str,
    existed: bool,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl<'a> Waited<'a> {
    pub(crate) fn of(id: &'a str, existed: bool, output: Option<&Blob>) -> Self {
        let (output, output_base64) =
            output.map_or((None, None), |output| Bytes::of(output).split());
        Self { id, existed, state: "done", output, output_base64 }
    }
}

/// What was done to a job.
#[derive(Debug, Serialize)]
pub(crate) struct Managed<'a> {
    pub(crate) id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// How many jobs were acted upon.
#[derive(Debug, Serialize)]
pub(crate) struct Bulk {
    pub(crate) action: &'static str,
    pub(crate) dry_run: bool,
    pub(crate) matched: usize,
    pub(crate) done: usize,
    pub(crate) refused: usize,
}

/// A flow.
#[derive(Debug, Serialize)]
pub(crate) struct Flow<'a> {
    id: &'a str,
    name: Option<&'a str>,
    state: &'static str,
    tail: &'a str,
    members: States,
    created_at: String,
    finished_at: Option<String>,
}

impl<'a> Flow<'a> {
    pub(crate) fn of(flow: &'a FlowRecord) -> Self {
        Self {
            id: flow.id.as_str(),
            name: flow.name.as_ref().map(taskharbor::FlowName::as_str),
            state: flow_state(flow.state),
            tail: flow.tail.as_str(),
            members: States::of(&flow.members),
            created_at: time(flow.created_at),
            finished_at: flow.finished_at.map(time),
        }
    }
}

/// A flow with its members.
#[derive(Debug, Serialize)]
pub(crate) struct FlowWhole<'a> {
    #[serde(flatten)]
    flow: Flow<'a>,
    jobs: Vec<Member<'a>>,
    complete: bool,
}

/// A member of a flow.
#[derive(Debug, Serialize)]
struct Member<'a> {
    id: &'a str,
    r#type: &'a str,
    kind: &'static str,
    label: Option<&'a str>,
    queue: &'a str,
    state: &'static str,
    parents: Vec<&'a str>,
    expanded_into: Option<&'a str>,
    attempts: u32,
    created_at: String,
    started_at: Option<String>,
    finished_at: Option<String>,
    last_error: Option<&'a str>,
    reason: Option<&'a str>,
    progress: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl<'a> FlowWhole<'a> {
    pub(crate) fn of(tree: &'a FlowTree) -> Self {
        let jobs = tree.members.iter().map(Member::of).collect();
        Self { flow: Flow::of(&tree.flow), jobs, complete: tree.is_complete }
    }
}

impl<'a> Member<'a> {
    fn of(member: &'a FlowMember) -> Self {
        let (output, output_base64) =
            member.output.as_ref().map_or((None, None), |output| Bytes::of(output).split());
        Self {
            id: member.id.as_str(),
            r#type: member.job_type.as_str(),
            kind: kind(member.kind),
            label: member.label.as_deref(),
            queue: member.queue.as_str(),
            state: member.state.as_str(),
            parents: member.parents.iter().map(taskharbor::JobId::as_str).collect(),
            expanded_into: member.expanded_into.as_ref().map(taskharbor::JobId::as_str),
            attempts: member.attempts,
            created_at: time(member.created_at),
            started_at: member.started_at.map(time),
            finished_at: member.finished_at.map(time),
            last_error: member.last_error.as_ref().map(taskharbor::Text::as_str),
            reason: member.reason.as_ref().map(taskharbor::Text::as_str),
            progress: member.progress.as_ref().map(taskharbor::Text::as_str),
            output,
            output_base64,
        }
    }
}

pub(crate) const fn flow_state(state: FlowState) -> &'static str {
    match state {
        FlowState::Running => "running",
        FlowState::Blocked => "blocked",
        FlowState::Done => "done",
        FlowState::Failed => "failed",
        FlowState::Cancelled => "cancelled",
        _ => "unknown",
    }
}

/// Why a job is where it is.
#[derive(Debug, Serialize)]
pub(crate) struct Why<'a> {
    pub(crate) id: &'a str,
    pub(crate) state: &'static str,
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

/// Written to standard error after a list that goes on.
#[derive(Debug, Serialize)]
pub(crate) struct More<'a> {
    pub(crate) next_cursor: &'a str,
    /// When the last job that was looked at was enqueued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) looked_at: Option<String>,
}

/// Written to standard error when a store was created.
#[derive(Debug, Serialize)]
pub(crate) struct Created<'a> {
    pub(crate) created: &'a str,
}

/// A line of input that was not stored.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedLine<'a> {
    pub(crate) line: usize,
    pub(crate) error: ProblemText<'a>,
}

/// An error, on standard error.
#[derive(Debug, Serialize)]
pub(crate) struct Problem<'a> {
    pub(crate) error: ProblemText<'a>,
}

/// What is wrong.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemText<'a> {
    pub(crate) code: &'a str,
    pub(crate) message: &'a str,
}
