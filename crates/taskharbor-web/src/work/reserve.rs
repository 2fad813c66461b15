//! Handing jobs to a worker, which waits for some if there are none.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskharbor::{
    Exponential, JobType, QueueName,
    remote::{RemoteType, RemoteWorker},
};
use taskharbor_core::{
    AnyDriver, Driver, DriverError,
    driver::{Demand, Watch},
    name::Holder,
};
use tokio::time::{Instant, sleep_until};

use super::{
    MAX_JOBS,
    grant::{Grant, Granted},
    value::{MAX_SECONDS, seconds, written},
};
use crate::{call::Call, problem::Problem};

/// The longest time that a request waits for jobs.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(30);
/// How often to look for jobs if the store sends no wake-ups.
const POLL: Duration = Duration::from_secs(1);
/// The shortest time between two looks: a job that is due but cannot be reserved must not make a request
/// spin.
const BREATH: Duration = Duration::from_millis(20);
const MAX_QUEUES: usize = 100;
const MAX_TYPES: usize = 1_000;
const MIN_LEASE: f64 = 1.0;
const MAX_LEASE: f64 = 86_400.0;

/// What a worker can take.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkReserve")]
pub(super) struct Request {
    /// From which queues, and how many jobs of each at most: 1 to 1,000 in all.
    queues: BTreeMap<String, usize>,
    /// The name under which it holds leases, for people.
    worker: String,
    /// How long the leases last, from 1 s to a day. Defaults to 30 s.
    lease_seconds: Option<f64>,
    /// How long to wait for a job if there is none, up to 30 s. Defaults to 0.
    wait_seconds: Option<f64>,
    /// The types it has handlers for. Jobs of others are released for other workers, and dead-lettered
    /// after 10 minutes. Defaults to all types.
    types: Option<Vec<Taken>>,
    /// How many executions may fail of a job that does not say so itself. Defaults to 20.
    max_attempts: Option<u32>,
    /// How long one execution may take of a job that does not say so itself. Defaults to no limit.
    timeout_seconds: Option<f64>,
    /// How often the lease of a job may run out in a row before it is dead-lettered. Defaults to 5.
    crash_limit: Option<u32>,
    /// The delays after failures. Defaults to 2 s, doubled each time up to an hour, a quarter of it random.
    retry: Option<Retry>,
}

/// A type that a worker takes: its name, or what it says about its jobs as well.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "WorkType")]
enum Taken {
    Name(String),
    Says(TypeSays),
}

/// A type, and what holds for jobs of it that do not say so themselves.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkTypeDefaults")]
struct TypeSays {
    /// Its name.
    r#type: String,
    /// How many executions may fail.
    max_attempts: Option<u32>,
    /// How long one execution may take.
    timeout_seconds: Option<f64>,
}

/// The delays after failures.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkRetry")]
struct Retry {
    /// The first delay.
    base_seconds: Option<f64>,
    /// The longest delay.
    cap_seconds: Option<f64>,
    /// How much longer each delay is than the one before.
    multiplier: Option<f64>,
    /// Which part of each delay is random, from 0 to 1.
    jitter: Option<f64>,
}

/// The jobs that were leased.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkReserved")]
pub(super) struct Answer {
    jobs: Vec<Job>,
    /// How long after the request arrived they were leased, in milliseconds.
    granted_after_ms: u64,
}

/// A job under a lease.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkJob")]
struct Job {
    /// Identifies it.
    id: String,
    /// What `extend` and `settle` take. It is opaque.
    lease: String,
    /// What kind of work it is.
    r#type: String,
    /// The queue it came from.
    queue: String,
    /// What was enqueued, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
    /// What was enqueued, if that is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// Small texts that travel with it.
    headers: BTreeMap<String, String>,
    /// Which execution this is, from 1. Executions that were not charged do not count.
    attempt: u32,
    /// How many executions may fail.
    max_attempts: u32,
    /// How often it was leased to a worker, this time included.
    deliveries: u32,
    /// The lane of its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<String>,
    /// Higher runs first.
    priority: i16,
    /// When it was enqueued.
    created_at: String,
    /// How long this execution may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<f64>,
    /// When the lease ends unless it is extended, by the clock of the store.
    lease_expires_at: String,
    /// The error of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Whether it reads what the steps before it have produced: ask `inputs`.
    inputs: bool,
    /// How long it had been available when it was leased, in milliseconds.
    waited_ms: u64,
    /// While the job runs, but no longer than this, its worker should reserve nothing: the job may have
    /// killed its process before.
    #[serde(skip_serializing_if = "Option::is_none")]
    alone_seconds: Option<u64>,
}

pub(super) async fn reserve(call: Call, request: Request) -> Result<Answer, Problem> {
    let arrived = Instant::now();
    let (grant, wait) = read(request)?;
    let (store, grant) = (Arc::clone(call.store()?), Arc::new(grant));
    let end = arrived + wait;
    let ended = call.app.ended();
    tokio::pin!(ended);
    // Before looking, so that no wake-up falls between the two.
    let mut watch = if wait.is_zero() { None } else { Some(watch(&store.driver, &grant).await?) };
    loop {
        let granted = grant_whole(&store.driver, &grant).await?;
        let now = Instant::now();
        if !granted.jobs().is_empty() || now >= end {
            return Ok(answer(granted, now - arrived));
        }
        if granted.was_refused() {
            // Behind jobs that this worker cannot run there may be others.
            continue;
        }
        call.permit.wait()?;
        let can_wake = watch.as_ref().is_some_and(Watch::can_wake);
        let due = granted.next_due().map(|due| now + due.max(BREATH));
        let poll = if can_wake { end } else { now + POLL };
        let look = due.into_iter().chain([poll, end]).min().unwrap_or(end);
        let woken = async {
            match &mut watch {
                Some(watch) => watch.woken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = &mut ended => return Ok(answer(granted, now - arrived)),
            woken = woken => if woken.is_none() {
                // The driver is closed, and the next call says so.
                watch = None;
            },
            () = sleep_until(look) => {}
        }
    }
}

async fn watch(driver: &AnyDriver, grant: &Grant) -> Result<Watch, DriverError> {
    driver.watch(grant.demands.iter().map(|demand| demand.queue.clone()).collect()).await
}

/// Reserves jobs on a task of its own. A request that is dropped meanwhile leaves no job behind: they are
/// released when the task ends.
async fn grant_whole(driver: &AnyDriver, grant: &Arc<Grant>) -> Result<Granted, Problem> {
    let (driver, grant) = (driver.clone(), Arc::clone(grant));
    let task = tokio::spawn(async move { grant.reserve(&driver).await });
    let granted = task.await.map_err(|error| Problem::internal(&error))?;
    Ok(granted?)
}

fn answer(granted: Granted, after: Duration) -> Answer {
    let jobs = granted.hand_over().into_iter().map(|handed| {
        let (job, ticket) = (&handed.leased.job, &handed.ticket);
        let (payload, payload_base64) = written(&job.payload, ticket.is_json());
        let headers = job.headers.iter();
        Job {
            id: job.id.to_string(),
            lease: ticket.to_text(),
            r#type: job.job_type.to_string(),
            queue: job.queue.to_string(),
            payload,
            payload_base64,
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            attempt: job.attempts.saturating_add(1),
            max_attempts: ticket.max_attempts(),
            deliveries: job.deliveries,
            lane: job.lane.as_ref().map(ToString::to_string),
            priority: job.priority,
            created_at: job.created_at.to_string(),
            timeout_seconds: ticket.timeout().map(|timeout| timeout.as_secs_f64()),
            lease_expires_at: handed.leased.lease.expires_at.to_string(),
            last_error: job.last_error.as_ref().map(ToString::to_string),
            inputs: job.parent_count > 0,
            waited_ms: millis(handed.waited),
            alone_seconds: handed.alone.map(|time| time.as_secs()),
        }
    });
    Answer { jobs: jobs.collect(), granted_after_ms: millis(after) }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Checks a request; answers what is to be reserved, and how long to wait for it.
fn read(request: Request) -> Result<(Grant, Duration), Problem> {
    let count = request.queues.len();
    if count == 0 || count > MAX_QUEUES {
        return Err(Problem::out_of_range("the number of queues", 1, MAX_QUEUES));
    }
    let mut demands = Vec::with_capacity(count);
    let mut left = MAX_JOBS;
    for (queue, limit) in &request.queues {
        let is_in = *limit > 0 && *limit <= left;
        if !is_in {
            return Err(Problem::out_of_range("the number of jobs", 1, MAX_JOBS));
        }
        left -= limit;
        demands.push(Demand::new(QueueName::new(queue)?, *limit));
    }
    let lease = request.lease_seconds.unwrap_or(30.0);
    let lease_for = seconds("lease_seconds", lease, MIN_LEASE, MAX_LEASE)?;
    let wait = request.wait_seconds.unwrap_or_default();
    let wait = seconds("wait_seconds", wait, 0.0, MAX_WAIT.as_secs_f64())?;
    let holder = Holder::new(&request.worker)?;
    let worker = worker(request, holder.clone())?;
    Ok((Grant { demands, holder, worker, lease_for }, wait))
}

fn worker(request: Request, holder: Holder) -> Result<RemoteWorker, Problem> {
    let timeout = |value| seconds("timeout_seconds", value, 0.001, MAX_SECONDS);
    let mut worker = RemoteWorker::new(holder).retry(retry(&request)?);
    if let Some(limit) = request.crash_limit {
        worker = worker.crash_limit(limit);
    }
    if let Some(value) = request.timeout_seconds {
        worker = worker.timeout(timeout(value)?);
    }
    if let Some(types) = request.types {
        if types.len() > MAX_TYPES {
            return Err(Problem::out_of_range("the number of types", 0, MAX_TYPES));
        }
        worker = worker.takes_named();
        for taken in types {
            let (name, mut says) = match taken {
                Taken::Name(name) => (name, RemoteType::new()),
                Taken::Says(given) => {
                    let mut says = RemoteType::new();
                    says.max_attempts = given.max_attempts;
                    says.timeout = given.timeout_seconds.map(timeout).transpose()?;
                    (given.r#type, says)
                }
            };
            says.max_attempts = says.max_attempts.or(request.max_attempts);
            worker = worker.takes(JobType::new(name)?, says);
        }
    }
    worker.check().map_err(|error| Problem::invalid(error.to_string()))?;
    Ok(worker)
}

fn retry(request: &Request) -> Result<Exponential, Problem> {
    let mut retry = Exponential::new();
    if let Some(max_attempts) = request.max_attempts {
        retry = retry.max_attempts(max_attempts);
    }
    let Some(given) = &request.retry else { return Ok(retry) };
    let delay = |what, value| seconds(what, value, 0.0, MAX_SECONDS);
    if let Some(base) = given.base_seconds {
        retry = retry.base(delay("base_seconds", base)?);
    }
    if let Some(cap) = given.cap_seconds {
        retry = retry.cap(delay("cap_seconds", cap)?);
    }
    if let Some(multiplier) = given.multiplier {
        retry = retry.multiplier(multiplier);
    }
    if let Some(jitter) = given.jitter {
        retry = retry.jitter(jitter);
    }
    Ok(retry)
}
