//! A job needs a name that is stored with it.

use serde::{Deserialize, Serialize};
use taskharbor::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "images")]
struct Resize;

#[derive(Serialize, Deserialize, Job)]
struct Rotate;

fn main() {}
