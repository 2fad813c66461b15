//! Whether workers serve a queue, as far as its jobs tell: a store does not know its workers.

use std::time::Duration;

use taskharbor::{Admin, AnyDriver, Filter, List, QueueName, Timestamp};

use crate::{
    failure::Outcome,
    screen::{relative, span},
};

/// How many of the newest jobs are looked at, and how many records for that.
const LOOKED_AT: usize = 200;
const SCANNED: usize = 5_000;
/// A queue that was served within this time is not worth a word.
const LATELY: Duration = Duration::from_secs(3_600);

/// When a worker last took one of the newest jobs of a queue.
pub(crate) async fn last_served(
    driver: &AnyDriver,
    queue: &QueueName,
    now: Timestamp,
) -> Outcome<Option<Timestamp>> {
    last_started(driver, Filter::all().queue(queue.clone()), now).await
}

async fn last_started(
    driver: &AnyDriver,
    filter: Filter,
    now: Timestamp,
) -> Outcome<Option<Timestamp>> {
    let list = List::new(filter, LOOKED_AT, now).newest_first().scan(SCANNED);
    Ok(driver.list(list).await?.items.into_iter().filter_map(|job| job.started_at).max())
}

/// What there is to say about a queue from which no worker has taken a job lately. Before the first
/// worker of a store, nothing.
pub(crate) async fn unserved(
    driver: &AnyDriver,
    queue: &QueueName,
    now: Timestamp,
) -> Outcome<Option<String>> {
    Ok(match last_served(driver, queue, now).await? {
        Some(at) if now.since(at) < LATELY => None,
        Some(at) => Some(format!(
            "no worker has taken a job from queue {queue} for {}: is one serving it?",
            span(now.since(at))
        )),
        None if last_started(driver, Filter::all(), now).await?.is_none() => None,
        None => Some(format!(
            "no worker has taken a job from queue {queue} yet: is the name right, and a worker serving it?"
        )),
    })
}

/// The same as part of a sentence.
pub(crate) fn in_words(last: Option<Timestamp>, now: Timestamp) -> String {
    match last {
        Some(at) => format!("the last one was taken {}", relative(at, now)),
        None => "no worker has taken one yet".to_owned(),
    }
}
