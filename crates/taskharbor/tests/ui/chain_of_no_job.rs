//! A step is a job. This one is only data.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "fetch")]
struct Fetch;

#[derive(Serialize, Deserialize)]
struct Letter;

fn main() {
    let _ = Flow::first(Fetch).then(Letter);
}
