//! A handler produces its job's output. This one produces something else.

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job, JobResult};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "count", output = u64)]
struct Count;

async fn count(_: Count, _: Context) -> JobResult<String> {
    Ok("many".to_owned())
}

fn main() {
    let _: Handlers = Handlers::new().on(count);
}
