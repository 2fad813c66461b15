//! A handler is an `async fn`. This one is not.

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job, JobResult};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize")]
struct Resize;

fn resize(_: Resize, _: Context) -> JobResult {
    Ok(())
}

fn main() {
    let _: Handlers = Handlers::new().on(resize);
}
