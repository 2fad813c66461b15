//! A worker may move a handler from thread to thread. This one keeps something that cannot go along.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job, JobResult};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize")]
struct Resize;

async fn resize(_: Resize, cx: Context) -> JobResult {
    let counted = Rc::new(1);
    cx.cancelled().await;
    drop(counted);
    Ok(())
}

fn main() {
    let _: Handlers = Handlers::new().on(resize);
}
