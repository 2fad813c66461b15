//! A job that runs because a flow failed takes the failure or nothing. This one takes a number.

use serde::{Deserialize, Serialize};
use taskharbor::{Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "pay", output = u64)]
struct Pay;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "refund", input = u64)]
struct Refund;

fn main() {
    let _ = Flow::first(Pay).on_failure(Refund);
}
