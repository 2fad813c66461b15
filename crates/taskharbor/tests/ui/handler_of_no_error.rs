//! A handler fails with any standard error. This one fails with something that is none.

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize")]
struct Resize;

struct Oops;

async fn resize(_: Resize, _: Context) -> Result<(), Oops> {
    Err(Oops)
}

fn main() {
    let _: Handlers = Handlers::new().on(resize);
}
