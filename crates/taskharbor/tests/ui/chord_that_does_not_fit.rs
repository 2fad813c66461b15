//! A finalizer takes the outputs of its group, in order. This one takes another kind of list.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "row", output = u64)]
struct Row;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "total", input = Vec<String>)]
struct Total;

fn main() {
    let _ = Flow::chord([Row, Row], Total);
}
