//! Jobs: lists, records, payloads and outputs, and what is done to them.

mod act;
mod content;
mod record;
mod timeline;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taskharbor::{Admin, Cursor, JobSummary, Limits, List, Timestamp};

use super::limit;
use crate::{
    access::Role,
    call::Call,
    endpoint::Endpoint,
    filter::{JobFilter, listed},
    problem::Problem,
};

/// How many records one page looks at unless the caller says otherwise: a page has to come soon also
/// if the filter matches little.
const SCAN: usize = 20_000;
/// The greatest size of a job to store: a large payload, and what surrounds it.
const ENQUEUE_LIMIT: usize = 4 * 1024 * 1024;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![
        Endpoint::get("/v1/{store}/jobs", list).summary("A page of the jobs that match"),
        Endpoint::post("/v1/{store}/jobs", act::enqueue)
            .summary("Stores one job")
            .needs(Role::Operator)
            .body_limit(ENQUEUE_LIMIT)
            .acts("job.enqueue"),
        Endpoint::get("/v1/{store}/jobs/{id}", record::show)
            .summary("All there is to know about a job, without its payload and output"),
        Endpoint::get_raw("/v1/{store}/jobs/{id}/payload", "application/json", content::payload)
            .summary("What the handler of a job receives: the first 64 KiB, or a download of all")
            .answers::<content::Content>()
            .needs_payloads(),
        Endpoint::get_raw("/v1/{store}/jobs/{id}/output", "application/json", content::output)
            .summary("What a job has produced: the first 64 KiB, or a download of all")
            .answers::<content::Content>()
            .needs_payloads(),
    ];
    endpoints.extend(act::endpoints());
    endpoints
}

/// Which page of which jobs.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    #[serde(flatten)]
    filter: JobFilter,
    /// In which order jobs were enqueued; `newest` first unless set.
    #[serde(default)]
    order: ListOrder,
    /// The greatest number of items to return, 1 to 1,000; 100 unless set.
    limit: Option<usize>,
    /// Where the page before ended: its `next`. The filter and the order have to be the same.
    after: Option<Cursor>,
    /// How many records the page may look at, 1 to 50,000; 20,000 unless set.
    scan: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ListOrder {
    /// The job that was enqueued last comes first.
    #[default]
    Newest,
    /// The job that was enqueued first comes first.
    Oldest,
}

/// A page of jobs.
#[derive(Serialize, JsonSchema)]
struct JobPage {
    /// The jobs. Long errors and reasons are cut.
    items: Vec<JobSummary>,
    /// Where the next page begins, if there may be one.
    next: Option<Cursor>,
    /// Set if the page ended because it had looked at as many records as it may: when the last of
    /// them was enqueued.
    looked_back_to: Option<Timestamp>,
}

async fn list(call: Call, query: Query) -> Result<JobPage, Problem> {
    let limit = limit(query.limit, Limits::MAX_PAGE)?;
    let filter = query.filter.to_filter()?;
    let (store, now) = call.store_now().await?;
    let mut list = List::new(filter, limit, now).scan(query.scan.unwrap_or(SCAN));
    if matches!(query.order, ListOrder::Newest) {
        list = list.newest_first();
    }
    list.after = query.after;
    list.check()?;
    let page = store.driver.list(list).await?;
    let looked_back_to = page.looked_at.filter(|_| page.items.len() < limit);
    let items = page.items.into_iter().map(listed).collect();
    Ok(JobPage { items, next: page.next, looked_back_to })
}
