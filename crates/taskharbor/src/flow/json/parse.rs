//! Translates JSON to steps: every field must be known, and every value valid.

use std::time::Duration;

use serde_json::{Map, Value};
use taskharbor_core::{
    Blob, JobType, QueueName, Timestamp,
    driver::Limits,
    job::{FailurePolicy, Headers, JoinReading},
    name::{FlowName, IdempotencyKey, LaneName},
};

use super::{Document, DocumentError, Fault, at, compile, flow};
use crate::{Options, flow::plan::Plan, header::LABEL};

/// How deep steps may be inside one another.
pub(super) const MAX_DEPTH: usize = 50;

const JOB: &str = "a job has type, payload, queue, delay_ms, timeout_ms, max_attempts, priority, \
                   lane, headers, label and on_failure; as a step also on_failure_job; in a list of \
                   nodes also id and after";
const GROUP: &str = "beside its steps it has label, on_failure and on_failure_job";
const DOCUMENT: &str = "a document has name, key, flow or nodes, and on_failure_job";

type Object = Map<String, Value>;
type Parsed<T> = Result<T, DocumentError>;

pub(super) fn document(value: &Value) -> Parsed<Document> {
    let object = object(value, "$")?;
    known(object, "$", &["name", "key", "flow", "nodes", "on_failure_job"], DOCUMENT)?;
    let plan = match (given(object, "flow"), given(object, "nodes")) {
        (Some(value), None) => step(value, "$.flow", 0)?,
        (None, Some(nodes)) => compile::nodes(nodes)?,
        (Some(_), Some(_)) => {
            return Err(at("$", Fault::Expected("either a flow or nodes, and not both")));
        }
        (None, None) => return Err(at("$", Fault::Missing("flow"))),
    };
    let plan = guarded(plan, object, "$")?;
    if plan.len() > Limits::MAX_FLOW_JOBS {
        return Err(at("$", Fault::TooLarge));
    }
    let (name, key) = (text(object, "$", "name")?, text(object, "$", "key")?);
    valid(name.as_deref().map(FlowName::new), "$.name")?;
    valid(key.as_deref().map(IdempotencyKey::new), "$.key")?;
    Ok(Document { flow: flow(plan), name, key })
}

/// One step and all that is in it.
fn step(value: &Value, place: &str, depth: usize) -> Parsed<Plan> {
    let fields = object(value, place)?;
    if depth == MAX_DEPTH {
        return Err(at(place, Fault::TooDeep));
    }
    let kinds = ["chain", "group", "gather", "chord", "type"];
    let mut kinds = kinds.into_iter().filter(|kind| given(fields, kind).is_some());
    let (kind, other) = (kinds.next(), kinds.next());
    if other.is_some() {
        return Err(at(place, Fault::Expected("only one of chain, group, gather, chord and type")));
    }
    let Some(kind) = kind.filter(|kind| *kind != "type") else {
        return guarded(job(fields, place, &["on_failure_job"])?, fields, place);
    };
    let more: &[&str] = if kind == "chord" { &["then"] } else { &[] };
    let names = [kind, "label", "on_failure", "on_failure_job"];
    known(fields, place, &[&names, more].concat(), GROUP)?;
    let steps = steps(fields, place, kind, depth)?;
    let mut plan = match kind {
        "chain" => {
            let chain = steps.into_iter().reduce(Plan::then);
            chain.unwrap_or_else(|| Plan::all([], JoinReading::First))
        }
        "gather" => Plan::gather(steps),
        "chord" => {
            let then = given(fields, "then").ok_or_else(|| at(place, Fault::Missing("then")))?;
            Plan::all(steps, JoinReading::List).then(step(then, &field(place, "then"), depth + 1)?)
        }
        _ => Plan::all(steps, JoinReading::List),
    };
    if let Some(label) = text(fields, place, "label")? {
        valid(Some(Headers::new().with_any(LABEL, &label)), &field(place, "label"))?;
        plan.label_tail(label);
    }
    if let Some(policy) = policy(fields, place)? {
        plan.default_policy(policy);
    }
    guarded(plan, fields, place)
}

/// These jobs, with the one that runs if they fail, if there is one.
fn guarded(plan: Plan, fields: &Object, place: &str) -> Parsed<Plan> {
    let Some(value) = given(fields, "on_failure_job") else { return Ok(plan) };
    let place = field(place, "on_failure_job");
    Ok(plan.on_failure(job(object(value, &place)?, &place, &[])?))
}

fn steps(fields: &Object, place: &str, name: &str, depth: usize) -> Parsed<Vec<Plan>> {
    let place = field(place, name);
    let Some(Value::Array(steps)) = fields.get(name) else {
        return Err(at(&place, Fault::Expected("a list of steps")));
    };
    let one = |(n, value)| step(value, &format!("{place}[{n}]"), depth + 1);
    steps.iter().enumerate().map(one).collect()
}

/// A job, with its options.
pub(super) fn job(fields: &Object, place: &str, more: &[&str]) -> Parsed<Plan> {
    let names = [
        "type",
        "payload",
        "queue",
        "delay_ms",
        "timeout_ms",
        "max_attempts",
        "priority",
        "lane",
        "headers",
        "label",
        "on_failure",
    ];
    known(fields, place, &[&names, more].concat(), JOB)?;
    let job_type = text(fields, place, "type")?;
    let job_type = job_type.ok_or_else(|| at(place, Fault::Missing("type")))?;
    let payload = fields.get("payload").unwrap_or(&Value::Null);
    let payload = serde_json::to_vec(payload).map_err(|it| at(place, Fault::Syntax(it)))?;
    valid(Some(JobType::new(&job_type)), &field(place, "type"))?;
    if payload.len() > Limits::MAX_PAYLOAD_BYTES {
        let rule = "a payload has at most 16 MiB: store it elsewhere and refer to it";
        return Err(at(&field(place, "payload"), Fault::OutOfRange(rule)));
    }
    Ok(Plan::raw(job_type, Blob::from(payload), options(fields, place)?))
}

fn options(fields: &Object, place: &str) -> Parsed<Options> {
    let mut options = Options::new();
    options.queue = text(fields, place, "queue")?;
    options.lane = text(fields, place, "lane")?;
    options.label = text(fields, place, "label")?;
    options.failure_policy = policy(fields, place)?;
    valid(options.queue.as_deref().map(QueueName::new), &field(place, "queue"))?;
    valid(options.lane.as_deref().map(LaneName::new), &field(place, "lane"))?;
    if let Some(millis) = number(fields, place, "delay_ms")? {
        let (delay, rule) = (Duration::from_millis(millis), "the delay ends after the year 9999");
        if Timestamp::EPOCH.checked_add(delay).is_none() {
            return Err(at(&field(place, "delay_ms"), Fault::OutOfRange(rule)));
        }
        options = options.delay(delay);
    }
    if let Some(millis) = number(fields, place, "timeout_ms")? {
        let (timeout, rule) = (Duration::from_millis(millis), "timeout_ms is 1 ms to 292 years");
        if !(1..=Limits::MAX_TIMEOUT_NANOS).contains(&timeout.as_nanos()) {
            return Err(at(&field(place, "timeout_ms"), Fault::OutOfRange(rule)));
        }
        options = options.timeout(timeout);
    }
    if let Some(attempts) = number(fields, place, "max_attempts")? {
        let rule = Fault::OutOfRange("max_attempts is a number from 1 to 2147483647");
        let attempts = u32::try_from(attempts).ok();
        let attempts = attempts.filter(|it| (1..=Limits::MAX_ATTEMPTS).contains(it));
        let attempts = attempts.ok_or_else(|| at(&field(place, "max_attempts"), rule))?;
        options = options.max_attempts(attempts);
    }
    if let Some(priority) = given(fields, "priority") {
        let rule = Fault::OutOfRange("priority is a number from -32768 to 32767");
        let priority = priority.as_i64().and_then(|it| i16::try_from(it).ok());
        options = options.priority(priority.ok_or_else(|| at(&field(place, "priority"), rule))?);
    }
    let label = options.label.as_deref().map(|label| Headers::new().with_any(LABEL, label));
    let mut stored = valid(label, &field(place, "label"))?.unwrap_or_default();
    if let Some(headers) = given(fields, "headers") {
        let place = field(place, "headers");
        for (name, value) in object(headers, &place)? {
            let place = field(&place, name);
            let Value::String(value) = value else {
                return Err(at(&place, Fault::Expected("a text")));
            };
            stored = valid(Some(stored.with(name, value)), &place)?.unwrap_or_default();
            options = options.header(name, value);
        }
    }
    Ok(options)
}

/// What would be refused when it is stored is refused here, where its place is known.
fn valid<T, E: ToString>(value: Option<Result<T, E>>, place: &str) -> Parsed<Option<T>> {
    value.transpose().map_err(|error| at(place, Fault::Refused(error.to_string())))
}

/// A field that says something: one that is `null` is as good as none.
pub(super) fn given<'a>(fields: &'a Object, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

pub(super) fn object<'a>(value: &'a Value, place: &str) -> Parsed<&'a Object> {
    value.as_object().ok_or_else(|| at(place, Fault::Expected("an object")))
}

pub(super) fn field(place: &str, name: &str) -> String {
    format!("{place}.{name}")
}

pub(super) fn text(fields: &Object, place: &str, name: &str) -> Parsed<Option<String>> {
    match given(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(at(&field(place, name), Fault::Expected("a text"))),
    }
}

fn number(fields: &Object, place: &str, name: &str) -> Parsed<Option<u64>> {
    match given(fields, name) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(at(&field(place, name), Fault::Expected("a whole number from 0"))),
        },
    }
}

fn policy(fields: &Object, place: &str) -> Parsed<Option<FailurePolicy>> {
    let Some(word) = text(fields, place, "on_failure")? else { return Ok(None) };
    let policy = FailurePolicy::ALL.iter().find(|policy| policy.as_str() == word);
    let fault = Fault::Expected("block, cancel, fail_fast or continue");
    policy.map(|policy| Some(*policy)).ok_or_else(|| at(&field(place, "on_failure"), fault))
}

fn known(fields: &Object, place: &str, names: &[&str], rule: &'static str) -> Parsed<()> {
    match fields.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(at(place, Fault::UnknownField(name.clone(), rule))),
        None => Ok(()),
    }
}
