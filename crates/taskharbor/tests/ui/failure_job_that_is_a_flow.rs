//! What runs because a flow failed is one job. This is a flow.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "pay")]
struct Pay;

fn main() {
    let _ = Flow::first(Pay).on_failure(Flow::first(Pay));
}
