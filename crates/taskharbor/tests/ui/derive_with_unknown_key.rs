//! An unknown key is refused with a list of the valid keys, together with all other mistakes.

use serde::{Deserialize, Serialize};
use taskharbor::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize", retries = 5, max_attempts = 0, timeout = "30")]
struct Resize;

fn main() {}
