//! The worker face: the API for workers in other languages.
//!
//! A worker reserves jobs, extends their leases while they run, and settles them. The server makes the
//! decisions that a Rust worker makes: which jobs are handed out, when a failure is retried, when a job is
//! dead-lettered ([`taskharbor::remote`]). It keeps no state between two calls. The data for settling a job
//! travels with the job as its `lease`, a text that the worker sends back.
//!
//! Jobs are reserved right before they are handed out. If a client disconnects while its request waits, no
//! job is reserved. If it disconnects after that, its jobs are released at once.

mod announce;
mod enqueue;
mod extend;
mod grant;
mod input;
mod lease;
mod reserve;
mod settle;
mod throttle;
mod value;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor_core::error::Refusal;

use crate::endpoint::Endpoint;

pub(crate) use enqueue::Given as NewWork;

/// The greatest size of a request: payloads of many jobs, or their outputs.
const BODY_LIMIT: usize = 32 * 1024 * 1024;
/// How long a request may take beside what it waits for jobs.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The greatest number of jobs in one request.
const MAX_JOBS: usize = 1_000;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let reserve_limit = TIME_LIMIT.saturating_add(reserve::MAX_WAIT);
    let all = vec![
        Endpoint::post("/v1/{store}/work/enqueue", enqueue::enqueue)
            .summary("Stores jobs, each by itself")
            .body_limit(BODY_LIMIT),
        Endpoint::post("/v1/{store}/work/reserve", reserve::reserve)
            .summary("Leases jobs to a worker, and waits for some if there are none")
            .time_limit(reserve_limit),
        Endpoint::post("/v1/{store}/work/inputs", input::input).summary(
            "Reads what the steps before a job have produced, for the worker that holds the job",
        ),
        Endpoint::post("/v1/{store}/work/extend", extend::extend)
            .summary("Extends leases, and tells which jobs should stop")
            .body_limit(BODY_LIMIT),
        Endpoint::post("/v1/{store}/work/settle", settle::settle)
            .summary("Records the outcomes of jobs")
            .body_limit(BODY_LIMIT),
        Endpoint::post("/v1/{store}/work/announce", announce::announce)
            .summary("Announces a worker, so that it is listed"),
    ];
    all.into_iter().map(Endpoint::needs_workers).collect()
}

/// Why one job of a request was not done.
#[derive(Debug, Serialize, JsonSchema)]
struct Refused {
    /// Tells refusals apart: `lease_lost`, `busy`, `invalid_lease`, `invalid_request`, `rejected`,
    /// `store_failed`.
    code: &'static str,
    /// What went wrong, for people.
    message: String,
}

impl Refused {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Self {
        let code = match refusal {
            Refusal::Busy => "busy",
            Refusal::Invalid(_) => "invalid_request",
            // The worker does not hold the job any more; why that is changes nothing for it.
            _ => "lease_lost",
        };
        Self::new(code, refusal.to_string())
    }
}
