//! A handler takes two things: the job and the context. This one asks for a third.

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job, JobResult};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize")]
struct Resize;

async fn resize(_: Resize, _: Context, _: u64) -> JobResult {
    Ok(())
}

fn main() {
    let _: Handlers = Handlers::new().on(resize);
}
