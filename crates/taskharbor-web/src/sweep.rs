//! Sweeps: one action on all jobs that match a filter, done by the server.
//!
//! A sweep is previewed, confirmed, watched and stopped. The preview counts the jobs and answers a digest
//! of what was asked for; a sweep starts with that digest alone, so what runs is what was shown. It acts
//! on the jobs that were there at the preview, a page at a time and at the pace that was chosen. It
//! outlives the request and the browser, not the server.

mod preview;
mod registry;
mod run;
mod walk;
mod wanted;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use taskharbor::{JobId, Limits};

use crate::{
    access::Role,
    call::Call,
    endpoint::{Endpoint, Nothing},
    guard,
    problem::Problem,
};

use preview::Confirmed;
use registry::Started;
use run::Run;
use wanted::Wanted;

pub(crate) use registry::{Sweep, Sweeps};

/// The greatest size of a request.
const BODY_LIMIT: usize = 64 * 1024;
/// How many jobs one call names.
const PAGE: usize = Limits::MAX_PAGE;
/// The fastest pace, in jobs per second.
const MAX_RATE: u32 = 10_000;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/v1/{store}/sweeps/preview", preview::preview)
            .summary("Counts the jobs that a sweep would act on; nothing is changed")
            .needs(Role::Operator)
            .body_limit(BODY_LIMIT),
        Endpoint::post("/v1/{store}/sweeps", start)
            .summary("Starts the sweep that was previewed")
            .needs(Role::Operator)
            .body_limit(BODY_LIMIT)
            .acts("sweep.start"),
        Endpoint::get("/v1/{store}/sweeps", list).summary("The last 100 sweeps, newest first"),
        Endpoint::get("/v1/{store}/sweeps/{id}", show).summary("One sweep"),
        Endpoint::delete("/v1/{store}/sweeps/{id}", stop)
            .summary("Stops a sweep after the jobs it is working on")
            .needs(Role::Operator)
            .acts("sweep.stop"),
    ]
}

/// Which sweep starts, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SweepStart")]
struct Start {
    #[serde(flatten)]
    wanted: Wanted,
    /// What the preview of the same request answered.
    digest: String,
    /// At most this many jobs in a second, 1 to 10,000; as fast as it goes unless set.
    rate_per_s: Option<u32>,
    /// Acts on this many jobs at most; on all unless set.
    cap: Option<usize>,
}

async fn start(call: Call, start: Start) -> Result<Sweep, Problem> {
    let Start { wanted, digest, rate_per_s, cap } = start;
    wanted.check(&call.access)?;
    if rate_per_s.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
        return Err(Problem::out_of_range("rate_per_s", 1, MAX_RATE));
    }
    if cap == Some(0) {
        return Err(Problem::out_of_range("cap", 1, usize::MAX));
    }
    let (store, now) = call.store_now().await?;
    let confirmed = Confirmed::read(&digest, &store.name, &wanted, now)?;
    let id = JobId::generate(now).map_err(|error| Problem::internal(&error))?.to_string();
    let count = cap.map_or(confirmed.count, |cap| cap.min(confirmed.count));
    let details = details(&wanted, rate_per_s, cap);
    call.note(|note| {
        note.count = Some(count);
        note.details = Some(details.clone());
    });
    let sweep = Sweep::new(id, &wanted, count, call.access.name.clone(), now);
    let (sweep, stop) = match store.sweeps.start(sweep, digest)? {
        Started::New(sweep, stop) => (sweep, stop),
        // The same confirmation twice is the same sweep.
        Started::Existing(sweep) => return Ok(sweep),
    };
    call.note(|note| note.ids = vec![sweep.id.clone()]);
    let of_sweep = wanted.clone();
    let lost = guard::token_lost(&call, move |access| of_sweep.check(access).is_ok());
    let run = Run {
        id: sweep.id.clone(),
        app: Arc::downgrade(&call.app),
        store: Arc::clone(store),
        access: call.access.clone(),
        details,
        wanted,
        matched_at: confirmed.at,
        rate_per_s,
        cap: cap.unwrap_or(usize::MAX),
        stop,
    };
    tokio::spawn(run.go(call.app.ended(), lost));
    Ok(sweep)
}

/// What the action log says about a sweep.
fn details(wanted: &Wanted, rate_per_s: Option<u32>, cap: Option<usize>) -> serde_json::Value {
    let mut details = json!(wanted);
    for (name, number) in [("rate_per_s", json!(rate_per_s)), ("cap", json!(cap))] {
        if !number.is_null() {
            details[name] = number;
        }
    }
    details
}

/// How many sweeps.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SweepQuery")]
struct Query {
    /// The greatest number of items to return, 1 to 100; 100 unless set.
    limit: Option<usize>,
}

/// The last sweeps of a store.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SweepList")]
struct List {
    /// The last one first.
    items: Vec<Sweep>,
}

async fn list(call: Call, query: Query) -> Result<List, Problem> {
    let limit = crate::view::limit(query.limit, registry::KEPT)?;
    Ok(List { items: call.named()?.sweeps.last(limit) })
}

async fn show(call: Call, _: Nothing) -> Result<Sweep, Problem> {
    call.named()?.sweeps.get(call.text("id")).ok_or_else(no_sweep)
}

async fn stop(call: Call, _: Nothing) -> Result<Sweep, Problem> {
    call.store()?.sweeps.stop(call.text("id"), None).ok_or_else(no_sweep)
}

fn no_sweep() -> Problem {
    Problem::not_found(
        "sweep_not_found",
        "no such sweep",
        "the server keeps the last 100 sweeps since it was started: GET sweeps lists them",
    )
}
