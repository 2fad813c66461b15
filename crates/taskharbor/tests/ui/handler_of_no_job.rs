//! A handler's first parameter is a job. This one's is only data.

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, JobResult};

#[derive(Serialize, Deserialize)]
struct Letter;

async fn send(_: Letter, _: Context) -> JobResult {
    Ok(())
}

fn main() {
    let _: Handlers = Handlers::new().on(send);
}
