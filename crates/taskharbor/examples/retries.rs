//! Failures: retries with backoff, a retry after the time that a service asks for, permanent failures, panics, and the
//! dead-letter queue.
//!
//! Run it with `cargo run -p taskharbor --example retries`. One handler panics on purpose, so Rust prints a panic.
#![allow(clippy::print_stdout, reason = "printing is what this example does")]
#![allow(clippy::panic, reason = "one of its handlers shows what a bug does")]

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Action, Admin, Client, Context, Exponential, Filter, Handlers, Job, JobError, JobResult, List,
    Manage, Requeue, State, WaitError, Worker,
};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "invoice:charge", queue = "payments", max_attempts = 3)]
struct Charge {
    invoice: u32,
}

/// A payment provider that has failures.
#[derive(Default)]
struct Provider {
    is_repaired: AtomicBool,
}

async fn charge(job: Charge, cx: Context<Provider>) -> JobResult {
    println!("invoice {}, attempt {}", job.invoice, cx.attempt());
    match job.invoice {
        // Any error: the job is retried after a delay that grows with each attempt.
        1 if cx.attempt() == 1 => Err("connection refused")?,
        // The provider says how long to wait.
        2 if cx.attempt() == 1 => {
            Err(JobError::retry_after(Duration::from_millis(80), "too many requests"))
        }
        // A panic is one failed attempt. The worker goes on.
        3 if cx.attempt() == 1 => panic!("an index was out of bounds"),
        // A permanent failure: no retry.
        4 => Err(JobError::unrecoverable("no such invoice")),
        // Fails at every attempt until the provider is repaired.
        5 if !cx.state().is_repaired.load(Ordering::SeqCst) => Err("the card reader is broken")?,
        _ => {
            cx.state().is_repaired.store(true, Ordering::SeqCst);
            Ok(())
        }
    }
}

#[taskharbor::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    let backoff = Exponential::new().base(Duration::from_millis(20)).jitter(0.5);
    let worker = Worker::builder(&driver)
        .handlers(Handlers::new().on(charge).with_state(Provider::default()))
        .queue("payments", 1)
        .retry(backoff)
        .build()?
        .start();

    // The fifth goes first, while the provider is still broken.
    let broken = client.enqueue(Charge { invoice: 5 }).await?;
    assert!(matches!(broken.wait().await, Err(WaitError::DeadLettered { .. })));
    for job in client.enqueue_many((1..=4).map(|invoice| Charge { invoice })).await? {
        let outcome = job.wait().await;
        println!("  {}", outcome.map_or_else(|error| error.to_string(), |()| "charged".to_owned()));
    }

    // The dead-letter queue, with the reason of each job.
    let dlq = List::new(Filter::all().state(State::Dlq), 100, driver.now().await?);
    for job in driver.list(dlq).await?.items {
        let reason = job.reason.map(|reason| reason.to_string()).unwrap_or_default();
        println!("dead-lettered after {} attempts: {reason}", job.attempts);
    }

    // The provider is repaired, so the job is requeued and runs again.
    let requeue = Action::Requeue(Requeue::new().reset_attempts());
    let request = Manage::new(vec![broken.id().clone()], requeue, driver.now().await?);
    for answer in driver.manage(request).await? {
        println!("requeued: it is {} now", answer?);
    }
    broken.wait().await?;
    println!("invoice 5 is charged after all");
    worker.shutdown().await?;
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
