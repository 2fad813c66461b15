//! Flows on a PostgreSQL server.

use std::time::Duration;

use taskharbor::connect;
use tokio::time::timeout;

use crate::harness::{environment, store};

#[path = "../sketch/flows.rs"]
mod sketch;

#[tokio::test(flavor = "multi_thread")]
async fn the_program_that_people_see_runs() {
    let (schema, _) = store::blank();
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let driver = connect(&format!("{url}?schema={schema}")).await.unwrap();
    driver.migrate().await.unwrap();
    timeout(Duration::from_secs(60), sketch::run::all(&driver)).await.unwrap();
}
