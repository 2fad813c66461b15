//! Workers: which have announced themselves, and evictions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taskharbor::{Admin, Cursor, Incarnation, Limits, Timestamp};
use taskharbor_core::{
    admin::{Evict, Evicted, ListWorkers, WorkerRecord},
    name::Holder,
};

use crate::{
    access::Role,
    call::Call,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
};

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/{store}/workers", list)
            .summary("A page of the workers that have announced themselves, by name"),
        Endpoint::post("/v1/{store}/workers/{holder}/evict", evict)
            .needs(Role::Admin)
            .acts("worker.evict")
            .summary("End all leases of a worker now"),
    ]
}

/// Which workers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkerQuery")]
struct Query {
    /// The greatest number of items to return, 1 to 1,000; 100 unless set.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// A page of workers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkerPage")]
struct Page {
    items: Vec<Worker>,
    /// The `after` of the next page, if there may be one.
    next: Option<Cursor>,
}

/// A worker that has announced itself.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkerView")]
struct Worker {
    /// The name under which it holds leases.
    holder: Holder,
    /// Tells this start of the worker from others under the same name.
    incarnation: Incarnation,
    /// What it said about itself last; `None` if it is not a JSON object.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    info: Option<serde_json::Value>,
    /// When it announced itself first.
    started_at: Timestamp,
    /// When it announced itself last.
    seen_at: Timestamp,
    /// Until when its announcement is valid.
    expires_at: Timestamp,
    /// Whether its announcement has expired: it has died, or cannot reach the store.
    overdue: bool,
}

impl Worker {
    fn new(record: WorkerRecord, now: Timestamp) -> Self {
        let overdue = !record.is_valid(now);
        let info = taskharbor::WorkerInfo::read(&record.info);
        let WorkerRecord { holder, incarnation, started_at, seen_at, expires_at, .. } = record;
        let info = info.and_then(|info| serde_json::to_value(info).ok());
        Self { holder, incarnation, info, started_at, seen_at, expires_at, overdue }
    }
}

async fn list(call: Call, query: Query) -> Result<Page, Problem> {
    let limit = super::limit(query.limit, Limits::MAX_PAGE)?;
    let (store, now) = call.store_now().await?;
    let mut request = ListWorkers::new(limit, now).with_overdue();
    request.after = query.after.map(Cursor::new);
    let page = store.driver.workers(request).await?;
    let items = page.items.into_iter().map(|record| Worker::new(record, now)).collect();
    Ok(Page { items, next: page.next })
}

/// What an eviction did.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkerEvicted")]
struct Done {
    /// How many leases have ended.
    leases: usize,
}

async fn evict(call: Call, _: Nothing) -> Result<Done, Problem> {
    let holder: Holder = call.param("holder")?;
    let (store, now) = call.store_now().await?;
    let leases = match store.driver.evict(Evict::new(holder, now)).await? {
        Evicted::Leases(leases) => leases,
        // Only a request that names an incarnation is answered so.
        Evicted::Replaced => 0,
    };
    call.note(|note| note.count = Some(leases));
    Ok(Done { leases })
}
