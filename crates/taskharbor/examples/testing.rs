//! Tests of handlers: a subscription is billed once a month, and a test runs a year of it in milliseconds.
//!
//! Run the tests with `cargo test -p taskharbor --example testing`. In a project of your own, tests need the feature
//! `testing` of the crate.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{Client, Context, Handlers, Job, JobError, JobResult, Worker};

const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// Charges a customer, and enqueues the next charge.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "subscription:bill", queue = "billing", max_attempts = 3)]
struct Bill {
    customer: String,
    month: u32,
}

struct App {
    client: Client,
    price: u32,
}

async fn bill(job: Bill, cx: Context<App>) -> JobResult {
    let App { client, price } = cx.state();
    if *price == 0 {
        return Err(JobError::unrecoverable("the price is not set"));
    }
    // The same key in a second attempt finds the job of the first.
    let next = Bill { customer: job.customer, month: job.month + 1 };
    let key = format!("{}-{}", next.customer, next.month);
    client.enqueue(next).delay(MONTH).idempotency_key(key).await?;
    if cx.attempt() == 1 && job.month.is_multiple_of(5) {
        Err("the bank is closed")?;
    }
    Ok(())
}

#[taskharbor::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    let app = App { client: client.clone(), price: 10 };
    let handlers = Handlers::new().on(bill).with_state(app);
    let worker = Worker::builder(&driver).handlers(handlers).queue("billing", 4).build()?.start();
    client.enqueue(Bill { customer: "Ada".into(), month: 1 }).await?.wait().await?;
    worker.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use taskharbor::{State, testing::Harbor, testing::call};

    use super::*;

    fn first() -> Bill {
        Bill { customer: "Ada".into(), month: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_customer_is_billed_every_month_even_if_the_bank_is_closed() {
        // The handlers enqueue jobs, so they need the client of the harbor they run in.
        let empty = Harbor::new(Handlers::new());
        let app = App { client: empty.client().clone(), price: 10 };
        let harbor = empty.start(Handlers::new().on(bill).with_state(app));
        harbor.client().enqueue(first()).await.unwrap();

        harbor.advance(MONTH * 12).await;

        let bills = harbor.jobs::<Bill>().await;
        let months: Vec<u32> = bills.iter().map(|it| it.job.month).collect();
        assert_eq!(months, (1..=14).collect::<Vec<_>>());
        let retried: Vec<u32> =
            bills.iter().filter(|it| it.record.job.attempts > 0).map(|it| it.job.month).collect();
        assert_eq!(retried, [5, 10]);
        let next = harbor.assert_enqueued(|job: &Bill| job.month == 14).await;
        assert_eq!(next.state, State::Scheduled);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_price_no_customer_is_billed() {
        let harbor = Harbor::new(Handlers::new());
        let app = App { client: harbor.client().clone(), price: 0 };
        let error = call(bill, first(), app).await.unwrap_err();
        assert!(error.is_unrecoverable());
        assert!(harbor.records().await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_attempt_does_not_enqueue_a_second_bill() {
        let harbor = Harbor::new(Handlers::new());
        for attempt in 1..=2 {
            let app = App { client: harbor.client().clone(), price: 10 };
            call(bill, first(), app).attempt(attempt).await.unwrap();
        }
        assert_eq!(harbor.jobs::<Bill>().await.len(), 1);
    }
}
