//! Welcome mails: a typed job with state, an idempotency key, a delay, and an output to wait for.
//!
//! Run it with `cargo run -p taskharbor --example email`.
#![allow(clippy::print_stdout, reason = "printing is what this example does")]

use std::{sync::Mutex, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{Client, Context, Handlers, Job, JobError, JobResult, WaitError, Worker};

/// The data that is stored with the job. Keep it small: an id is better than a whole document.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "email:welcome", queue = "mail", max_attempts = 5, timeout = "30s", output = Receipt)]
struct Welcome {
    to: String,
    name: String,
}

/// The output of the handler, for a caller that waits for it.
#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    message_id: u64,
}

/// The state that handlers share: here a mail server that keeps a list of its mails.
#[derive(Default)]
struct MailServer {
    sent: Mutex<Vec<String>>,
}

impl MailServer {
    async fn send(&self, to: &str, text: &str) -> Result<u64, std::io::Error> {
        tokio::task::yield_now().await;
        let mut sent = self.sent.lock().map_err(|_| std::io::Error::other("a handler panicked"))?;
        println!("to {to}: {text}");
        sent.push(to.to_owned());
        Ok(sent.len() as u64)
    }
}

async fn welcome(mail: Welcome, cx: Context<MailServer>) -> JobResult<Receipt> {
    if !mail.to.contains('@') {
        // A retry does not help, so the job is dead-lettered at once.
        return Err(JobError::unrecoverable(format!("{:?} is not an address", mail.to)));
    }
    // Any other error is retried with backoff.
    let text = format!("Welcome, {}! (attempt {})", mail.name, cx.attempt());
    let message_id = cx.state().send(&mail.to, &text).await?;
    Ok(Receipt { message_id })
}

#[taskharbor::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    let worker = Worker::builder(&driver)
        .handlers(Handlers::new().on(welcome).with_state(MailServer::default()))
        .queue("mail", 16)
        .build()?
        .start();

    // A second click on "sign up" finds the first job.
    let ada = || Welcome { to: "ada@example.com".into(), name: "Ada".into() };
    let first = client.enqueue(ada()).idempotency_key("welcome-1815").await?;
    let second = client.enqueue(ada()).idempotency_key("welcome-1815").await?;
    assert_eq!((first.id(), second.is_new()), (second.id(), false));
    println!("the receipt: {:?}", first.wait().await?);

    // This one waits 100 ms. Then it runs before jobs of a lower priority.
    let grace = Welcome { to: "grace@example.com".into(), name: "Grace".into() };
    let soon = Duration::from_millis(100);
    let third = client.enqueue(grace).delay(soon).priority(10).header("tenant", "navy").await?;
    println!("the receipt: {:?}", third.wait().await?);

    // A permanent failure: `wait` returns the reason.
    let typo = client.enqueue(Welcome { to: "ada.example.com".into(), name: "Ada".into() }).await?;
    match typo.wait().await {
        Err(error @ WaitError::DeadLettered { .. }) => println!("{error}"),
        other => return Err(format!("that was not expected: {other:?}").into()),
    }
    worker.shutdown().await?;
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
