//! The description of the API (`OpenAPI` 3.1), made from the table of endpoints that the router is made from.
//!
//! What an endpoint takes and answers are types, and their schemas are derived. So the description cannot
//! differ from what the server does, and a copy of it in the repository shows every change to the API.

mod schema;

use std::{borrow::Cow, collections::BTreeSet, sync::OnceLock};

use axum::{
    http::{HeaderValue, Method, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{
    access::Needs,
    call::Call,
    endpoint::{self, Endpoint, Nothing},
    problem::{Document, Problem},
};
use schema::Schemas;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get_raw("/v1/openapi.json", "application/json", answer)
            .summary("This description of the API"),
    ]
}

async fn answer(_: Call, _: Nothing) -> Result<Response, Problem> {
    static WRITTEN: OnceLock<Bytes> = OnceLock::new();
    let written = match WRITTEN.get() {
        Some(written) => written.clone(),
        None => {
            let written = serde_json::to_vec(&document(&endpoint::table()));
            let written = Bytes::from(written.map_err(|error| Problem::internal(&error))?);
            WRITTEN.get_or_init(|| written).clone()
        }
    };
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], written).into_response())
}

/// Describes these endpoints.
fn document(endpoints: &[Endpoint]) -> Value {
    let mut schemas = Schemas::new();
    // First, so that no other type takes its name.
    let problem = schemas.answered(Document::schema);
    let described: Vec<(&Endpoint, Value)> =
        endpoints.iter().map(|it| (it, operation(it, &mut schemas))).collect();
    let mut paths: Map<String, Value> = Map::new();
    for (endpoint, operation) in described {
        let path = paths.entry(endpoint.path.to_string()).or_insert_with(|| {
            let parameters: Vec<Value> = names(&endpoint.path).map(path_parameter).collect();
            json!({ "parameters": parameters })
        });
        path[endpoint.method.as_str().to_ascii_lowercase()] = operation;
    }
    let tags: BTreeSet<&str> = endpoints.iter().map(|it| tag(&it.path)).collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "TaskHarbor",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Stores of background jobs over HTTP: what the dashboard shows, the contract of a \
                driver, and what workers in any language speak.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": env!("CARGO_PKG_LICENSE") },
        },
        "servers": [{ "url": "/", "description": "The address of the server, and the prefix under which it is mounted" }],
        "tags": tags.into_iter().map(|tag| json!({ "name": tag })).collect::<Vec<_>>(),
        "security": [{ "token": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "Taken by a server that has tokens. A browser signs in with one and has a cookie \
                    from then on.",
            } },
            "responses": { "Problem": {
                "description": "The request was not done",
                "content": { "application/problem+json": { "schema": problem } },
            } },
        },
    });
    schemas.finish(&mut document);
    document
}

fn operation(endpoint: &Endpoint, schemas: &mut Schemas) -> Value {
    let content = match endpoint.answers {
        // Each event has such data.
        Some(answers) if endpoint.media_type == "text/event-stream" => {
            json!({ "schema": { "type": "string" }, "x-event-data": schemas.answered(answers) })
        }
        Some(answers) => json!({ "schema": schemas.answered(answers) }),
        None if endpoint.media_type == "application/json" => json!({ "schema": {} }),
        None => json!({ "schema": { "type": "string" } }),
    };
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": [tag(&endpoint.path)],
        "x-access": access(endpoint.needs),
        "x-time-limit-seconds": endpoint.time_limit.as_secs(),
        "responses": {
            "200": {
                "description": "Done",
                "content": { (endpoint.media_type): content },
            },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    });
    if endpoint.needs == Needs::NOTHING {
        operation["security"] = json!([]);
    }
    if let Some(action) = &endpoint.action {
        operation["x-action"] = json!(action);
    }
    match endpoint.method {
        Method::GET => {
            let parameters = schemas.parameters(endpoint.takes);
            if !parameters.is_empty() {
                operation["parameters"] = json!(parameters);
            }
        }
        // It takes nothing.
        Method::DELETE => {}
        _ => {
            operation["x-body-limit-bytes"] = json!(endpoint.body_limit);
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": schemas.taken(endpoint.takes) } },
            });
        }
    }
    operation
}

fn access(needs: Needs) -> Value {
    match needs.role {
        Some(role) => {
            json!({ "role": role, "payloads": needs.payloads, "workers": needs.workers })
        }
        None => Value::Null,
    }
}

/// The method and the path as one word: `post_driver_enqueue`, `get_jobs_by_id`.
fn operation_id(endpoint: &Endpoint) -> String {
    let mut id = endpoint.method.as_str().to_ascii_lowercase();
    for segment in segments(&endpoint.path) {
        let word: Cow<'_, str> = match segment.strip_prefix('{') {
            Some(name) => format!("by_{}", name.trim_end_matches('}')).into(),
            None => segment.into(),
        };
        id.push('_');
        id.extend(word.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }));
    }
    id
}

/// What comes after the version and the store.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|it| !matches!(*it, "" | "v1" | "{store}"))
}

fn tag(path: &str) -> &'static str {
    match segments(path).next() {
        Some("driver") => "driver face",
        Some("admin") => "admin face",
        Some("work") => "worker face",
        _ if path.contains("/{store}/") => "dashboard",
        _ => "server",
    }
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|it| it.strip_prefix('{')?.strip_suffix('}'))
}

fn path_parameter(name: &str) -> Value {
    let mut parameter = json!({
        "name": name,
        "in": "path",
        "required": true,
        "schema": { "type": "string" },
    });
    if name == "store" {
        parameter["description"] =
            json!("The name of a store; `default` is the server's first one.");
    }
    parameter
}
