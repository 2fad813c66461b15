//! Handlers that share a state have to be given it before a worker takes them.

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Context, Handlers, Job, JobResult, Worker};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize")]
struct Resize;

struct App;

async fn resize(_: Resize, _: Context<App>) -> JobResult {
    Ok(())
}

fn build(driver: &AnyDriver) {
    let _ = Worker::builder(driver).handlers(Handlers::new().on(resize));
}

fn main() {}
