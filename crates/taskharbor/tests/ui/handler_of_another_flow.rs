//! A handler may return a flow that produces its job's output. This one's produces something else.

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Flow, Handlers, Job, JobResult};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "count", output = u64)]
struct Count;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "spell", output = String)]
struct Spell;

async fn count(_: Count, _: Context) -> JobResult<Flow<String>> {
    Ok(Flow::first(Spell))
}

fn main() {
    let _: Handlers = Handlers::new().on(count);
}
