//! A key that nobody knows is refused with those that exist, and other mistakes beside it.

use serde::{Deserialize, Serialize};
use taskharbor::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize", retries = 5, max_attempts = 0, timeout = "30")]
struct Resize;

fn main() {}
