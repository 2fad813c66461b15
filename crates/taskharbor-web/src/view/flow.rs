//! Flows and their graphs.

mod graph;
mod layout;
mod name_table;
mod shape;
mod watched;

use std::time::Duration;

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taskharbor::{
    Action, Admin, Cursor, Filter, FlowName, FlowRecord, FlowState, JobId, Limits, ListFlows,
    Manage, Requeue, State,
};

use self::graph::Graph;
use crate::{
    access::Role,
    call::Call,
    endpoint::{Endpoint, Nothing, json},
    problem::Problem,
};

pub(crate) use watched::FlowGraphs;

/// How long an action on all members of a flow may take, and the first reading of a large graph.
const LARGE: Duration = Duration::from_secs(60);

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/{store}/flows", list).summary("A page of flows"),
        Endpoint::get("/v1/{store}/flows/{id}", get).summary("A flow"),
        Endpoint::get_raw("/v1/{store}/flows/{id}/graph", "application/json", graph)
            .answers::<Graph>()
            .time_limit(LARGE)
            .summary("The graph of a flow, with a place for every box"),
        Endpoint::post("/v1/{store}/flows/{id}/cancel", cancel)
            .needs(Role::Operator)
            .acts("flow.cancel")
            .time_limit(LARGE)
            .summary("Cancel all jobs of a flow that are not terminal"),
        Endpoint::post("/v1/{store}/flows/{id}/requeue", requeue)
            .needs(Role::Operator)
            .acts("flow.requeue")
            .time_limit(LARGE)
            .summary("Requeue the dead-lettered jobs of a flow"),
        Endpoint::post("/v1/{store}/flows/{id}/purge", purge)
            .needs(Role::Admin)
            .acts("flow.purge")
            .time_limit(LARGE)
            .summary("Remove a flow whose jobs are all terminal, and these jobs"),
    ]
}

/// Which flows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FlowQuery")]
struct Query {
    /// In this state.
    state: Option<FlowState>,
    /// With this name.
    name: Option<FlowName>,
    /// In which order. Defaults to `newest`.
    #[serde(default)]
    order: Order,
    /// The greatest number of items to return, 1 to 1,000; 100 unless set.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// The order of a list of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "FlowOrder")]
enum Order {
    /// The flow that began last first.
    #[default]
    Newest,
    /// The flow that began first first.
    Oldest,
}

/// A page of flows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FlowPage")]
struct Page {
    items: Vec<FlowRecord>,
    /// The `after` of the next page, if there may be one.
    next: Option<Cursor>,
}

async fn list(call: Call, query: Query) -> Result<Page, Problem> {
    let limit = super::limit(query.limit, Limits::MAX_PAGE)?;
    let (store, now) = call.store_now().await?;
    let mut request = ListFlows::new(limit, now);
    (request.state, request.name) = (query.state, query.name);
    request.after = query.after.map(Cursor::new);
    if query.order == Order::Newest {
        request = request.newest_first();
    }
    let page = store.driver.list_flows(request).await?;
    Ok(Page { items: page.items, next: page.next })
}

async fn get(call: Call, _: Nothing) -> Result<FlowRecord, Problem> {
    let id: JobId = call.param("id")?;
    let store = call.store()?;
    store.graphs.record(store, &id).await
}

async fn graph(call: Call, _: Nothing) -> Result<Response, Problem> {
    let id: JobId = call.param("id")?;
    let store = call.store()?;
    json(&*store.graphs.graph(store, &id).await?)
}

fn no_flow(id: &JobId) -> Problem {
    Problem::not_found(
        "flow_not_found",
        "the flow is not stored",
        format!("no flow {id} is stored: it was never enqueued here, or has been removed"),
    )
}

async fn cancel(call: Call, _: Nothing) -> Result<FlowRecord, Problem> {
    act(&call, Action::CancelFlow).await?;
    get(call, Nothing {}).await
}

async fn purge(call: Call, _: Nothing) -> Result<Nothing, Problem> {
    act(&call, Action::PurgeFlow).await.map(|()| Nothing {})
}

async fn act(call: &Call, action: Action) -> Result<(), Problem> {
    let id: JobId = call.param("id")?;
    let (store, now) = call.store_now().await?;
    let flow = store.driver.flow(id.clone(), now).await?.ok_or_else(|| no_flow(&id))?;
    call.note(|note| note.count = Some(flow.members.total()));
    let answers = store.driver.manage(Manage::new(vec![id.clone()], action, now)).await;
    store.graphs.expire(&id).await;
    for answer in answers? {
        answer?;
    }
    Ok(())
}

/// What a requeue did.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FlowRequeued")]
struct Requeued {
    /// How many jobs were requeued.
    done: usize,
    /// How many were not, because their state had changed or another job holds their key.
    refused: usize,
}

async fn requeue(call: Call, _: Nothing) -> Result<Requeued, Problem> {
    let id: JobId = call.param("id")?;
    let (store, now) = call.store_now().await?;
    store.driver.flow(id.clone(), now).await?.ok_or_else(|| no_flow(&id))?;
    let dead = Filter::all().flow(id.clone()).state(State::Dlq);
    let acted = store.client.jobs(dead).requeue(Requeue::new()).await;
    store.graphs.expire(&id).await;
    let acted = acted?;
    call.note(|note| note.count = Some(acted.done));
    Ok(Requeued { done: acted.done, refused: acted.refused.len() })
}
