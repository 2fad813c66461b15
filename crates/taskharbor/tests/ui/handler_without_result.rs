//! A handler returns a `Result`. This one returns its output bare.

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "count", output = u64)]
struct Count;

async fn count(_: Count, _: Context) -> u64 {
    7
}

fn main() {
    let _: Handlers = Handlers::new().on(count);
}
