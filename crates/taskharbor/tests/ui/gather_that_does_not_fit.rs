//! What follows a gather takes each member's outcome. This one takes their outputs.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "row", output = u64)]
struct Row;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "total", input = Vec<u64>)]
struct Total;

fn main() {
    let _ = Flow::gather([Row, Row]).then(Total);
}
