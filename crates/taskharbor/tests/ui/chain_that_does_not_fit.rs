//! A step takes what the one before it produces. This one takes something else.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "fetch", output = Vec<u8>)]
struct Fetch;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "print", input = String)]
struct Print;

fn main() {
    let _ = Flow::first(Fetch).then(Print);
}
