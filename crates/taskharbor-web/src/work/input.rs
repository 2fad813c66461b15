//! Reading what the steps before a job have produced.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskharbor::{
    JobId,
    remote::{self, InputError, Ticket},
};

use super::{Refused, lease, value::written};
use crate::{call::Call, problem::Problem};

/// A job that its worker holds, and whose input is read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkInputOf")]
pub(super) struct Request {
    /// The job.
    id: String,
    /// Its lease, as it was given last.
    lease: String,
}

/// What the steps before a job have produced.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "WorkInput")]
pub(super) struct Answer {
    /// The output of its parent, or the list of outputs, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    input: Option<Box<RawValue>>,
    /// The same, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_base64: Option<String>,
    /// Why a parent has no output, if the job runs in spite of that or because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<ParentFailure>,
}

/// Why a step has no output.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkParentFailure")]
struct ParentFailure {
    /// `dlq` or `cancelled`.
    state: &'static str,
    /// Why, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) async fn input(call: Call, request: Request) -> Result<Answer, Problem> {
    let id = JobId::new(request.id)?;
    let ticket = Ticket::parse(&request.lease);
    let ticket = ticket.map_err(|error| Problem {
        code: "invalid_lease",
        ..Problem::invalid(error.to_string())
    })?;
    let (store, now) = call.store_now().await?;
    // What other jobs produced is for the worker of the job alone: it takes no permission to see payloads.
    let answers = lease::check(&store.driver, [(&id, &ticket)].into_iter(), now).await?;
    if let Some(Err(refusal)) = answers.first() {
        let refused = Refused::from(refusal);
        let title = "the worker does not hold the job";
        return Err(Problem::conflict(refused.code, title, refused.message));
    }
    let read = match remote::input(&store.driver, &id).await {
        Ok(read) => read,
        Err(InputError::Store(error)) => return Err(error.into()),
        Err(InputError::JobNotFound) => return Err(Problem::no_job(&id)),
        Err(error) => {
            let title = "the input cannot be read";
            return Err(Problem::conflict("input_unreadable", title, error.to_string()));
        }
    };
    let mut answer = Answer::default();
    if let Some(value) = &read.value {
        (answer.input, answer.input_base64) = written(value, read.is_json);
    }
    answer.failure = read.failure.map(|failure| ParentFailure {
        state: if failure.is_cancelled { "cancelled" } else { "dlq" },
        reason: failure.reason,
    });
    Ok(answer)
}
