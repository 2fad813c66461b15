//! Actions on one job, and enqueueing one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use taskharbor::{JobAdmin, JobId, Requeue, State, Timestamp};

use crate::{
    access::Role,
    call::Call,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
    work::NewWork,
};

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/v1/{store}/jobs/{id}/requeue", requeue)
            .summary("Lets a dead-lettered or cancelled job run again")
            .needs(Role::Operator)
            .acts("job.requeue"),
        Endpoint::post("/v1/{store}/jobs/{id}/run_now", run_now)
            .summary("Lets a scheduled job run without waiting for its time")
            .needs(Role::Operator)
            .acts("job.run_now"),
        Endpoint::post("/v1/{store}/jobs/{id}/cancel", cancel)
            .summary("Cancels a job, or asks its worker to stop it")
            .needs(Role::Operator)
            .acts("job.cancel"),
        Endpoint::post("/v1/{store}/jobs/{id}/priority", priority)
            .summary("Gives a job that is not terminal another priority")
            .needs(Role::Operator)
            .acts("job.priority"),
        Endpoint::post("/v1/{store}/jobs/{id}/purge", purge)
            .summary("Removes a terminal job that is in no flow, with payload, output and errors")
            .needs(Role::Admin)
            .acts("job.purge"),
    ]
}

/// The result of the action.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobActed")]
struct Acted {
    /// The state it is in, or was in before it was purged.
    state: State,
}

/// How a job is requeued.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "JobRequeue")]
struct How {
    /// Not before this time.
    run_at: Option<Timestamp>,
    /// Whether attempts are counted anew. Otherwise a dead-lettered job runs once more.
    #[serde(default)]
    reset_attempts: bool,
    /// Whether the job leaves its flow, if that is terminal, to run alone.
    #[serde(default)]
    detach: bool,
}

/// Which priority a job gets.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "JobPriority")]
struct Priority {
    /// Higher runs first.
    priority: i16,
}

fn job(call: &Call) -> Result<JobAdmin<'_>, Problem> {
    let id: JobId = call.param("id")?;
    Ok(call.store()?.client.job(&id))
}

async fn requeue(call: Call, how: How) -> Result<Acted, Problem> {
    let mut requeue = Requeue::new();
    requeue.run_at = how.run_at;
    requeue.reset_attempts = how.reset_attempts;
    requeue.detach = how.detach;
    if requeue != Requeue::new() {
        let How { run_at, reset_attempts, detach } = how;
        let run_at = run_at.map(|at| at.to_string());
        call.note(|note| {
            note.details =
                Some(json!({"run_at": run_at, "reset_attempts": reset_attempts, "detach": detach}));
        });
    }
    Ok(Acted { state: job(&call)?.requeue(requeue).await? })
}

async fn run_now(call: Call, _: Nothing) -> Result<Acted, Problem> {
    Ok(Acted { state: job(&call)?.run_now().await? })
}

async fn cancel(call: Call, _: Nothing) -> Result<Acted, Problem> {
    Ok(Acted { state: job(&call)?.cancel().await? })
}

async fn priority(call: Call, Priority { priority }: Priority) -> Result<Acted, Problem> {
    call.note(|note| note.details = Some(json!({"priority": priority})));
    Ok(Acted { state: job(&call)?.set_priority(priority).await? })
}

async fn purge(call: Call, _: Nothing) -> Result<Acted, Problem> {
    Ok(Acted { state: job(&call)?.purge().await? })
}

/// The result of an enqueue.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobEnqueued")]
pub(super) struct Stored {
    /// The job that now stands for the one that was given.
    id: JobId,
    /// Whether it was stored before: it has the same id, or holds the key.
    existed: bool,
}

pub(super) async fn enqueue(call: Call, given: NewWork) -> Result<Stored, Problem> {
    let (store, now) = call.store_now().await?;
    let job = given.into_job(now)?;
    let details = json!({"type": job.job_type.as_str(), "queue": job.queue.as_str()});
    let stored = store.driver.enqueue_job(job, now).await?;
    let answer = Stored { id: stored.id().clone(), existed: !stored.is_new() };
    call.note(|note| {
        note.ids = vec![answer.id.to_string()];
        note.details = Some(details);
    });
    Ok(answer)
}
