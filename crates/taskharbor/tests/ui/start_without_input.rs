//! A flow whose first step takes an input cannot be started.

use serde::{Deserialize, Serialize};
use taskharbor::{Client, Flow, Job};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "resize", input = Vec<u8>)]
struct Resize;

async fn shrink(client: &Client) {
    let _ = client.start(Flow::first(Resize)).await;
}

fn main() {}
