//! Schedules, with a handle for each worker, as processes of their own would have it.

use taskharbor::AnyDriver;

use super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{Store, WakeUps, open},
};
use crate::schedules::{BURST_WORKERS, WORKERS, burst, on_time};

const SCHEMA: &str = "schedules";

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    on_time(&handles(server, sizes, WORKERS).await?, sizes.idle).await?;
    burst(&handles(server, sizes, BURST_WORKERS).await?).await
}

/// Handles to a new store.
async fn handles(server: &Server, sizes: &Sizes, count: usize) -> Outcome<Vec<AnyDriver>> {
    Store::new(server, SCHEMA, sizes.payload).await?;
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        handles.push(AnyDriver::new(open(server, SCHEMA, WakeUps::On).await?));
    }
    Ok(handles)
}
