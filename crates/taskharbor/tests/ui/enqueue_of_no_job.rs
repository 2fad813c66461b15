//! Only a job can be enqueued. This is only data.

use serde::{Deserialize, Serialize};
use taskharbor::Client;

#[derive(Serialize, Deserialize)]
struct Letter;

async fn send(client: &Client) {
    let _ = client.enqueue(Letter).await;
}

fn main() {}
