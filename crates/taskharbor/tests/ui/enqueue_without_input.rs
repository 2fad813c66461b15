//! A job that takes the output of a step before it cannot be enqueued by itself.

use serde::{Deserialize, Serialize};
use taskharbor::{Client, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize", input = Vec<u8>)]
struct Resize {
    width: u32,
}

async fn shrink(client: &Client) {
    let _ = client.enqueue(Resize { width: 100 }).await;
}

fn main() {}
