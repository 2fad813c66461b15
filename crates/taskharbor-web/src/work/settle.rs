//! Recording the outcomes of jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskharbor::{
    Blob, CancelReason, JobError, JobId, Outcome, State, Timestamp,
    remote::{Decision, Ticket},
};
use taskharbor_core::{
    AnyDriver, Driver, DriverError,
    driver::{Settle, Settled, Settlement, Transition},
    error::Refusal,
};

use super::{
    MAX_JOBS, Refused, throttle,
    value::{MAX_SECONDS, bytes, given, seconds},
};
use crate::{call::Call, problem::Problem};

/// The longest time for which a job may put its lane or queue on hold: others wait meanwhile.
const MAX_HOLD_SECONDS: f64 = 86_400.0;

/// The outcomes of jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkSettle")]
pub(super) struct Request {
    /// 1 to 1,000 jobs.
    jobs: Vec<Given>,
}

/// The outcome of a job: one of `ok`, `error`, `timeout`, `snooze`, `throttled` and `release`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkOutcome")]
struct Given {
    /// The job.
    id: String,
    /// Its lease, as it was given last.
    lease: String,
    /// It succeeded.
    ok: Option<Success>,
    /// It failed.
    error: Option<Failure>,
    /// It took longer than it may, which is a failure.
    timeout: Option<TimedOut>,
    /// Not now: it runs again after a time, and no attempt is charged.
    snooze: Option<Pause>,
    /// What it calls asks for a pause, a day at most: as `snooze`, and its lane, or else its queue, is on hold
    /// meanwhile.
    throttled: Option<Pause>,
    /// It was stopped, or did not start; no attempt is charged.
    release: Option<Release>,
}

/// What a job produced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkSuccess")]
struct Success {
    /// Its output, as JSON.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<serde_json::Value>")]
    output: Option<Box<RawValue>>,
    /// Its output, as bytes.
    output_base64: Option<String>,
}

/// Why a job failed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkFailure")]
struct Failure {
    /// What went wrong, for people.
    message: String,
    /// Whether trying again is worth it; if not, it is dead-lettered at once. Defaults to true.
    retryable: Option<bool>,
    /// When to try again, if not when the retry policy says.
    retry_after_seconds: Option<f64>,
}

/// A job took longer than it may.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkTimedOut")]
struct TimedOut {}

/// How long a job waits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkPause")]
struct Pause {
    /// The time to wait.
    seconds: f64,
}

/// Why a job has no result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkRelease")]
struct Release {
    /// Defaults to `shutdown`.
    reason: Option<Why>,
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "WorkReleaseReason")]
enum Why {
    /// Its cancellation was requested.
    Requested,
    /// Its worker shuts down.
    Shutdown,
    /// Its worker shuts down and has not started it.
    Unstarted,
}

/// The result for each job, in the order of the request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkSettled")]
pub(super) struct Answer {
    jobs: Vec<Recorded>,
}

/// The result for one job.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "WorkRecorded")]
struct Recorded {
    /// The state in which the outcome leaves the job. A job that would run again is cancelled instead if its
    /// cancellation was requested meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// When it runs again at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<String>,
    /// Why it was dead-lettered.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Why the outcome was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

impl Recorded {
    fn refused(error: Refused) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    fn of(item: &Item, now: Timestamp) -> Self {
        let state = item.decision.state(now);
        let is_cancelled = item.is_cancelled && matches!(state, State::Ready | State::Scheduled);
        let state = if is_cancelled { State::Cancelled } else { state };
        let (run_at, reason) = match &item.decision.transition {
            Transition::Fail { reason, .. } => (None, Some(reason.to_string())),
            Transition::Retry { run_at, .. } | Transition::Release { run_at, .. } => {
                (run_at.map(|at| at.to_string()), None)
            }
            Transition::Ack { .. } | Transition::Expand(_) => (None, None),
        };
        Self { state: Some(state.as_str()), run_at, reason, error: None }
    }
}

/// An outcome on its way.
pub(super) struct Item {
    /// Its place in the answer.
    place: usize,
    pub(super) id: JobId,
    pub(super) ticket: Ticket,
    pub(super) decision: Decision,
    /// Whether the job was stopped because its cancellation was requested.
    is_cancelled: bool,
}

impl Item {
    fn settlement(&self) -> Settlement {
        Settlement::new(self.id.clone(), self.ticket.token(), self.decision.transition.clone())
    }
}

pub(super) async fn settle(call: Call, request: Request) -> Result<Answer, Problem> {
    if request.jobs.is_empty() || request.jobs.len() > MAX_JOBS {
        return Err(Problem::out_of_range("the number of jobs", 1, MAX_JOBS));
    }
    let (store, now) = call.store_now().await?;
    let (mut recorded, mut items) = (Vec::new(), Vec::new());
    for given in request.jobs {
        match item(given, recorded.len(), now) {
            Ok(item) => {
                items.push(item);
                recorded.push(Recorded::default());
            }
            Err(refused) => recorded.push(Recorded::refused(refused)),
        }
    }
    throttle::hold(&call, store, &items, now).await;
    let mut again = record(&store.driver, items, now, &mut recorded).await?;
    for item in &mut again {
        // No job can end like this, so it ends as what it is: a failure.
        if let Err(error) = item.decision.transition.check(&store.driver.limits()) {
            let failure = Err(JobError::unrecoverable(error));
            item.decision = item.ticket.settle(failure, now, fastrand::f64());
        }
    }
    record(&store.driver, again, now, &mut recorded).await?;
    Ok(Answer { jobs: recorded })
}

/// Records outcomes; answers those that no job can have.
async fn record(
    driver: &AnyDriver,
    items: Vec<Item>,
    now: Timestamp,
    recorded: &mut [Recorded],
) -> Result<Vec<Item>, Problem> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let request = Settle::new(items.iter().map(Item::settlement).collect(), now);
    let answers: Vec<Result<Settled, Refused>> = match driver.settle(request).await {
        Ok(answers) => {
            let mut invalid = Vec::new();
            for (item, answer) in items.into_iter().zip(answers) {
                match answer {
                    Ok(_) => recorded[item.place] = Recorded::of(&item, now),
                    Err(refusal) => {
                        recorded[item.place] = Recorded::refused(Refused::from(&refusal));
                        if matches!(refusal, Refusal::Invalid(_)) {
                            invalid.push(item);
                        }
                    }
                }
            }
            return Ok(invalid);
        }
        // One of them may have spoilt the call for all.
        Err(error @ DriverError::Backend(_)) if items.len() > 1 => {
            tracing::warn!(%error, "outcomes are recorded one by one");
            let mut answers = Vec::new();
            for item in &items {
                answers.push(alone(driver, item, now).await?);
            }
            answers
        }
        Err(error) => return Err(error.into()),
    };
    for (item, answer) in items.into_iter().zip(answers) {
        recorded[item.place] = match answer {
            Ok(_) => Recorded::of(&item, now),
            Err(refused) => Recorded::refused(refused),
        };
    }
    Ok(Vec::new())
}

/// Records one outcome.
async fn alone(
    driver: &AnyDriver,
    item: &Item,
    now: Timestamp,
) -> Result<Result<Settled, Refused>, Problem> {
    match driver.settle(Settle::new(vec![item.settlement()], now)).await {
        Ok(answers) => Ok(match answers.into_iter().next() {
            Some(Ok(settled)) => Ok(settled),
            Some(Err(refusal)) => Err(Refused::from(&refusal)),
            None => Err(Refused::new("store_failed", "the store did not answer about the job")),
        }),
        Err(DriverError::Backend(_)) => {
            let text = "the store refuses the outcome: the cause is in the server's log";
            Ok(Err(Refused::new("store_failed", text)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads one outcome, and decides what it comes to.
fn item(given: Given, place: usize, now: Timestamp) -> Result<Item, Refused> {
    let invalid =
        |error: &dyn std::fmt::Display| Refused::new("invalid_request", error.to_string());
    let id = JobId::new(&given.id).map_err(|error| invalid(&error))?;
    let ticket = Ticket::parse(&given.lease);
    let ticket = ticket.map_err(|error| Refused::new("invalid_lease", error.to_string()))?;
    let given_count = [
        given.ok.is_some(),
        given.error.is_some(),
        given.timeout.is_some(),
        given.snooze.is_some(),
        given.throttled.is_some(),
        given.release.is_some(),
    ];
    if given_count.into_iter().filter(|is_given| *is_given).count() != 1 {
        let text = "give one of ok, error, timeout, snooze, throttled and release";
        return Err(invalid(&text));
    }
    let chance = fastrand::f64();
    let release = given.release.as_ref().map(|it| it.reason.unwrap_or(Why::Shutdown));
    let is_cancelled = matches!(release, Some(Why::Requested));
    let decision = match (release, given.timeout) {
        (Some(Why::Requested), _) => ticket.stop(CancelReason::Requested),
        (Some(Why::Shutdown), _) => ticket.stop(CancelReason::Shutdown),
        (Some(Why::Unstarted), _) => ticket.unstarted(),
        (None, Some(TimedOut {})) => ticket.time_out(now, chance),
        (None, None) => {
            let result = result(given.ok, given.error, given.snooze, given.throttled, &ticket)?;
            ticket.settle(result, now, chance)
        }
    };
    Ok(Item { place, id, ticket, decision, is_cancelled })
}

/// What a handler of the library would have returned.
fn result(
    ok: Option<Success>,
    error: Option<Failure>,
    snooze: Option<Pause>,
    throttled: Option<Pause>,
    ticket: &Ticket,
) -> Result<Result<Outcome<Option<Blob>>, JobError>, Refused> {
    let invalid = |text: &dyn std::fmt::Display| Refused::new("invalid_request", text.to_string());
    let up_to = |value, max| {
        let delay = seconds("the time to wait", value, 0.0, max);
        delay.map_err(|problem| invalid(&problem.detail))
    };
    let delay = |value| up_to(value, MAX_SECONDS);
    if let Some(pause) = snooze {
        return Ok(Ok(Outcome::Snooze(delay(pause.seconds)?)));
    }
    if let Some(pause) = throttled {
        return Ok(Err(JobError::throttled(up_to(pause.seconds, MAX_HOLD_SECONDS)?)));
    }
    if let Some(failure) = error {
        let text = failure.message;
        return Ok(Err(match (failure.retryable, failure.retry_after_seconds) {
            (Some(false), _) => JobError::unrecoverable(text),
            (_, Some(after)) => JobError::retry_after(delay(after)?, text),
            (_, None) => JobError::from(text),
        }));
    }
    let success = ok.unwrap_or(Success { output: None, output_base64: None });
    let is_json = success.output.is_some();
    let output = bytes("output", success.output, success.output_base64.as_deref());
    let output = output.map_err(|error| invalid(&error))?;
    if is_json && !ticket.is_json() {
        // A reader would take it for something else, and running it again would come to the same.
        let text = "the job was not enqueued as JSON, so its output has to be bytes: output_base64";
        return Ok(Err(JobError::unrecoverable(text)));
    }
    Ok(Ok(Outcome::Done(output)))
}
