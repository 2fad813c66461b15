//! Announcing a worker, so that people and other workers know of it.

use schemars::JsonSchema;
use serde::Deserialize;
use taskharbor::WorkerInfo;
use taskharbor_core::{
    Driver,
    driver::{Announce, Incarnation},
    name::Holder,
};

use super::value::seconds;
use crate::{call::Call, endpoint::Nothing, problem::Problem};

/// A worker.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkAnnounce")]
pub(super) struct Request {
    /// The name under which it holds leases.
    worker: String,
    /// Tells one start of the worker from another: 16 hexadecimal digits.
    incarnation: String,
    /// How long the announcement is valid, up to a day. 0 withdraws it.
    valid_seconds: f64,
    /// What it says about itself: version, host, pid, phase, types, and counts for each of its queues.
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    info: WorkerInfo,
}

pub(super) async fn announce(call: Call, request: Request) -> Result<Nothing, Problem> {
    let holder = Holder::new(&request.worker)?;
    let Some(incarnation) = Incarnation::parse(&request.incarnation) else {
        return Err(Problem::invalid("incarnation: give 16 hexadecimal digits in lower case"));
    };
    let valid_for = seconds("valid_seconds", request.valid_seconds, 0.0, 86_400.0)?;
    let (store, now) = call.store_now().await?;
    let info = request.info.encode();
    let announced = Announce::new(holder, incarnation, info, valid_for, now);
    store.driver.announce(announced).await?;
    Ok(Nothing {})
}
