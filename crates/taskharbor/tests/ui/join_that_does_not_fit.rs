//! What follows a join takes a pair. This one takes a list.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "row", output = u64)]
struct Row;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "total", input = Vec<u64>)]
struct Total;

fn main() {
    let _ = Flow::join(Row, Row).then(Total);
}
