//! A handler takes two things: the job and the context. This one takes the job alone.

use serde::{Deserialize, Serialize};
use taskharbor::{Handlers, Job, JobResult};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize")]
struct Resize;

async fn resize(_: Resize) -> JobResult {
    Ok(())
}

fn main() {
    let _: Handlers = Handlers::new().on(resize);
}
