//! Storing jobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskharbor::{Blob, JobId, JobType, QueueName, Timestamp};
use taskharbor_core::{
    Driver, NewJob,
    driver::Enqueue,
    job::{Headers, JobSet},
    name::{IdempotencyKey, LaneName},
};

use super::{
    MAX_JOBS, Refused,
    value::{MAX_SECONDS, bytes, given, seconds},
};
use crate::{call::Call, problem::Problem};

/// The queue of a job that names none.
const DEFAULT_QUEUE: &str = "default";

/// Jobs to store.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkEnqueue")]
pub(super) struct Request {
    /// 1 to 1,000 jobs.
    jobs: Vec<Given>,
}

/// A job to store.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkNewJob")]
pub(crate) struct Given {
    /// What kind of work it is.
    r#type: String,
    /// The queue it waits in. Defaults to `default`.
    queue: Option<String>,
    /// What the handler receives, as JSON. Defaults to null.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
    /// What the handler receives, as bytes.
    payload_base64: Option<String>,
    /// Its id. Defaults to a new one; an id that is stored already is left as it is.
    id: Option<String>,
    /// Keeps a second job with this key from being stored in the same queue.
    idempotency_key: Option<String>,
    /// Not before this time, in RFC 3339.
    run_at: Option<String>,
    /// Not before this many seconds have passed.
    delay_seconds: Option<f64>,
    /// Higher runs first.
    priority: Option<i16>,
    /// The lane of its queue.
    lane: Option<String>,
    /// How many executions may fail.
    max_attempts: Option<u32>,
    /// How long one execution may take.
    timeout_seconds: Option<f64>,
    /// Small texts that travel with the job.
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Given {
    /// The job as a store takes it, with the payload byte for byte.
    pub(crate) fn into_job(self, now: Timestamp) -> Result<NewJob, Problem> {
        job(self, now).map_err(|refused| Problem::invalid(refused.message))
    }
}

/// The result for each job, in the order of the request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkEnqueued")]
pub(super) struct Answer {
    jobs: Vec<Stored>,
}

/// The result for one job.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "WorkStored")]
struct Stored {
    /// The job that now stands for the one that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Whether it was stored before: it has the same id, or holds the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    existed: Option<bool>,
    /// Why it was not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

impl Stored {
    fn refused(error: Refused) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

pub(super) async fn enqueue(call: Call, request: Request) -> Result<Answer, Problem> {
    if request.jobs.is_empty() || request.jobs.len() > MAX_JOBS {
        return Err(Problem::out_of_range("the number of jobs", 1, MAX_JOBS));
    }
    let (store, now) = call.store_now().await?;
    let (mut stored, mut sets, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for given in request.jobs {
        match job(given, now) {
            Ok(job) => {
                places.push(stored.len());
                sets.push(JobSet::from(job));
                stored.push(Stored::default());
            }
            Err(refused) => stored.push(Stored::refused(refused)),
        }
    }
    let answers = match sets.len() {
        0 => Vec::new(),
        _ => store.driver.enqueue(Enqueue::new(sets, now)).await?,
    };
    for (place, answer) in places.into_iter().zip(answers) {
        stored[place] = match answer {
            Ok(jobs) => jobs.first().map_or_else(Stored::default, |job| Stored {
                id: Some(job.id().to_string()),
                existed: Some(!job.is_new()),
                error: None,
            }),
            Err(rejected) => Stored::refused(Refused::new("rejected", rejected.to_string())),
        };
    }
    Ok(Answer { jobs: stored })
}

fn job(given: Given, now: Timestamp) -> Result<NewJob, Refused> {
    let invalid =
        |error: &dyn std::fmt::Display| Refused::new("invalid_request", error.to_string());
    let payload = bytes("payload", given.payload, given.payload_base64.as_deref());
    let payload = payload.map_err(|error| invalid(&error))?;
    let payload = payload.unwrap_or_else(|| Blob::from(b"null"));
    let id = match given.id {
        Some(id) => JobId::new(id).map_err(|error| invalid(&error))?,
        None => JobId::generate(now).map_err(|error| invalid(&error))?,
    };
    let queue = given.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
    let queue = QueueName::new(queue).map_err(|error| invalid(&error))?;
    let job_type = JobType::new(given.r#type).map_err(|error| invalid(&error))?;
    let mut job = NewJob::new(id, queue, job_type, payload);
    let headers = given.headers.iter();
    let headers =
        headers.into_iter().try_fold(Headers::new(), |all, (name, value)| all.with(name, value));
    job.headers = headers.map_err(|error| invalid(&error))?;
    job.run_at = run_at(given.run_at.as_deref(), given.delay_seconds, now)?;
    if let Some(timeout) = given.timeout_seconds {
        let timeout = seconds("timeout_seconds", timeout, 0.000_001, MAX_SECONDS);
        job = job.timeout(timeout.map_err(|problem| invalid(&problem.detail))?);
    }
    job.max_attempts = given.max_attempts;
    job.priority = given.priority.unwrap_or_default();
    job.lane = given.lane.map(LaneName::new).transpose().map_err(|error| invalid(&error))?;
    let key = given.idempotency_key.map(IdempotencyKey::new).transpose();
    job.idempotency_key = key.map_err(|error| invalid(&error))?;
    Ok(job)
}

fn run_at(
    at: Option<&str>,
    delay: Option<f64>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Refused> {
    let invalid =
        |error: &dyn std::fmt::Display| Refused::new("invalid_request", error.to_string());
    match (at, delay) {
        (Some(_), Some(_)) => Err(invalid(&"both run_at and delay_seconds are given: give one")),
        (Some(at), None) => at.parse().map(Some).map_err(|error| invalid(&error)),
        (None, Some(delay)) => {
            let delay = seconds("delay_seconds", delay, 0.0, MAX_SECONDS);
            let delay = delay.map_err(|problem| invalid(&problem.detail))?;
            Ok(Some(now.saturating_add(delay)))
        }
        (None, None) => Ok(None),
    }
}
