//! The endpoints behind the pages: jobs, flows, schedules, queues, workers.

mod dlq;
mod flow;
mod job;
mod queue;
mod schedule;
mod store;
mod worker;

use crate::{endpoint::Endpoint, problem::Problem};

pub(crate) use flow::FlowGraphs;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    [
        store::endpoints(),
        job::endpoints(),
        dlq::endpoints(),
        flow::endpoints(),
        queue::endpoints(),
        schedule::endpoints(),
        worker::endpoints(),
    ]
    .into_iter()
    .flatten()
    .map(|endpoint| {
        // Payloads and outputs can be large, and the server keeps none.
        let is_small = endpoint.answers.is_some() && !endpoint.needs.payloads;
        if endpoint.is_read() && is_small { endpoint.shared() } else { endpoint }
    })
    .collect()
}

/// How many things a page has: what was asked for, 100 if nothing was.
pub(crate) fn limit(asked: Option<usize>, max: usize) -> Result<usize, Problem> {
    match asked.unwrap_or(max.min(100)) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        _ => Err(Problem::out_of_range("limit", 1, max)),
    }
}
