//! A lane that names no field is refused with the fields that exist.

use serde::{Deserialize, Serialize};
use taskharbor::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "invoice:send", lane = "account")]
struct SendInvoice {
    account_id: u64,
    number: u64,
}

fn main() {}
