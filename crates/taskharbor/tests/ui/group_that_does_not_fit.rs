//! A step after a group takes the list of what its members produce. This one takes one of them.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "row", output = u64)]
struct Row;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "print", input = u64)]
struct Print;

fn main() {
    let _ = Flow::group([Row, Row]).then(Print);
}
