//! A transaction that has stored a job with an idempotency key and was forgotten: callers with the same
//! key wait for it. All other callers must not.

use std::time::Duration;

use taskharbor::{AnyDriver, Client};

use super::super::{Outcome, server::Server, size::Sizes, store::Store};
use crate::finding::{Bound, Rounds, finding, head, percentile_ms, ratio};
use crate::noop::Noop;
use crate::stopwatch::now;

const SCHEMA: &str = "forgotten";
const CALLERS: usize = 12;
const KEY: &str = "forgotten";
const CALLS: usize = 200;
/// A call that took longer is not waited for.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the callers to arrive where they wait.
const ARRIVAL: Duration = Duration::from_millis(300);
const TIMES: f64 = 5.0;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("key: {CALLERS} callers wait for a transaction that holds their key"));
    let [mut free, mut beside] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let store = Store::new(server, SCHEMA, sizes.payload).await?;
        let client = Client::new(&AnyDriver::new(store.driver.clone()));
        calls(&client, sizes.payload).await?;
        free.push(percentile_ms(&calls(&client, sizes.payload).await?, 99));
        let mut sql = server.connect(SCHEMA).await?;
        let transaction = sql.transaction().await?;
        let job = client.enqueue(Noop::of_length(sizes.payload)).idempotency_key(KEY);
        job.within(store.driver.tx(&transaction)).await?;
        let waiting: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (client, payload) = (client.clone(), sizes.payload);
                tokio::spawn(async move {
                    // They may fail in the end: what counts is what they do to the others.
                    client.enqueue(Noop::of_length(payload)).idempotency_key(KEY).await.is_ok()
                })
            })
            .collect();
        tokio::time::sleep(ARRIVAL).await;
        beside.push(percentile_ms(&calls(&client, sizes.payload).await?, 99));
        transaction.rollback().await?;
        for caller in waiting {
            caller.await?;
        }
    }
    finding("enqueue without a key, p99, nothing is held", &free, " ms", 2, Bound::None);
    finding("enqueue without a key, p99, beside the callers", &beside, " ms", 2, Bound::None);
    ratio("  the second over the first", &beside.over(&free), Bound::AtMost(TIMES));
    Ok(())
}

/// What enqueues of other jobs take, one after another on the same driver.
async fn calls(client: &Client, payload: usize) -> Outcome<Vec<Duration>> {
    let mut samples = Vec::new();
    for _ in 0..CALLS {
        let began = now();
        match tokio::time::timeout(CALL_TIMEOUT, client.enqueue(Noop::of_length(payload))).await {
            Ok(stored) => drop(stored?),
            Err(_) => {
                samples.push(CALL_TIMEOUT);
                break;
            }
        }
        samples.push(began.elapsed());
    }
    Ok(samples)
}
