//! Nor can many of them.

use serde::{Deserialize, Serialize};
use taskharbor::{Client, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize", input = Vec<u8>)]
struct Resize {
    width: u32,
}

async fn shrink(client: &Client) {
    let _ = client.enqueue_many([Resize { width: 100 }]).await;
}

fn main() {}
