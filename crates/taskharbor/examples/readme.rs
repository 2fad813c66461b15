//! The program at the beginning of the README. It runs until Ctrl-C.
//!
//! Run it with `cargo run -p taskharbor --example readme`.
#![allow(clippy::print_stdout, reason = "printing is what this example does")]
use serde::{Deserialize, Serialize};
use std::time::Duration;
use taskharbor::{Client, Context, Handlers, Job, JobError, JobResult, Worker};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "email:send", queue = "mail", max_attempts = 5)]
struct SendEmail {
    to: String,
}

struct App {
    from: String,
}

async fn send_email(email: SendEmail, cx: Context<App>) -> JobResult {
    if !email.to.contains('@') {
        return Err(JobError::unrecoverable("not an address")); // straight to the DLQ
    }
    println!("{} -> {}, attempt {}", cx.state().from, email.to, cx.attempt());
    Ok(()) // any other error is retried with backoff
}

#[taskharbor::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = taskharbor::connect("memory:").await?; // a store in this process
    let client = Client::new(&driver);
    let later = Duration::from_secs(5);
    client
        .enqueue(SendEmail { to: "ada@example.com".into() })
        .idempotency_key("welcome-42")
        .await?;
    client.enqueue(SendEmail { to: "bob@example.com".into() }).delay(later).await?;

    let app = App { from: "hello@example.com".into() };
    Worker::builder(&driver)
        .handlers(Handlers::new().on(send_email).with_state(app))
        .queue("mail", 16)
        .build()?
        .run() // until SIGINT or SIGTERM, then drains; a second signal ends the grace period
        .await?;
    Ok(())
}
