//! Flows on a PostgreSQL server.

use std::time::Duration;

use taskharbor::AnyDriver;
use tokio::time::timeout;

use crate::harness::store;

#[allow(clippy::allow_attributes_without_reason, reason = "it is as people write it")]
#[path = "../sketch/flows.rs"]
mod sketch;

#[tokio::test(flavor = "multi_thread")]
async fn the_program_that_people_see_runs() {
    let store = store::named().await;
    let driver = AnyDriver::new(store.driver().clone());
    timeout(Duration::from_secs(60), sketch::run::all(&driver)).await.unwrap();
}
