//! The server itself: its stores, its health, its description.

use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    app::StoreKind,
    call::Call,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
};

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get_raw("/healthz", "text/plain", health)
            .public()
            .summary("Whether the server runs"),
        Endpoint::get("/v1/stores", stores).summary("The stores of this server"),
    ]
}

async fn health(_: Call, _: Nothing) -> Result<Response, Problem> {
    Ok("ok".into_response())
}

/// A store of the server.
#[derive(Debug, Serialize, JsonSchema)]
struct StoreName {
    /// Its name, as addresses have it.
    name: String,
    /// What kind of store it is.
    kind: StoreKind,
}

async fn stores(call: Call, _: Nothing) -> Result<Vec<StoreName>, Problem> {
    let stores = call.app.stores.iter();
    Ok(stores.map(|store| StoreName { name: store.name.clone(), kind: store.kind }).collect())
}
