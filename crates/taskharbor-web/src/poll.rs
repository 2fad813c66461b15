//! Counts, rates and waits of the queues of a store, which all browsers share.
//!
//! One task asks the store, and only while browsers look ([`Poller`]). The answers are kept in bounded memory
//! and are lost with the process: longer histories are for Prometheus.

mod arrival;
mod event;
mod histogram;
mod history;
mod model;
mod overview;
mod plan;
mod poller;
mod series;
mod tracker;

use std::time::Duration;

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use taskharbor::QueueName;

pub(crate) use poller::Poller;

use crate::{
    call::Call,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
};
use history::{History, Step};
use overview::Overview;

/// How long the first look waits for the store.
const FIRST_LOOK: Duration = Duration::from_secs(5);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/{store}/overview", overview)
            .summary("What is going on: counts, rates and waits of the queues"),
        Endpoint::get("/v1/{store}/history", history)
            .summary("What queues have been doing while the store was looked at"),
        Endpoint::get_raw("/v1/{store}/events", "text/event-stream", events)
            .summary("What happens, as server-sent events: overview, store, sweep"),
    ]
}

async fn overview(call: Call, _: Nothing) -> Result<Overview, Problem> {
    Ok(call.named()?.poller.look(FIRST_LOOK).await)
}

/// Which part of the history.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    /// The last 10 minutes, a point each second, or the last 1,440, a point each minute; 10 unless set.
    minutes: Option<u32>,
    /// One queue; the 20 busiest unless set.
    queue: Option<QueueName>,
}

async fn history(call: Call, query: Query) -> Result<History, Problem> {
    let step = match query.minutes {
        None | Some(10) => Step::Second,
        Some(1_440) => Step::Minute,
        Some(_) => {
            let detail = "choose minutes=10 for a point each second, or minutes=1440 for a point each minute";
            return Err(Problem { code: "out_of_range", ..Problem::invalid(detail) });
        }
    };
    let queue = query.queue.as_ref();
    let found = call.named()?.poller.read(|model, now| History::of(model, step, queue, now));
    Ok(found.unwrap_or_else(|| History::empty(step)))
}

async fn events(call: Call, _: Nothing) -> Result<Response, Problem> {
    event::stream(&call)
}
