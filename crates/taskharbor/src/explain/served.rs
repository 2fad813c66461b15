//! The check whether workers serve a queue, from announcements and from its jobs.

use std::time::Duration;

use taskharbor_core::{
    Admin, AnyDriver, DriverError, QueueName, Timestamp,
    admin::{Filter, List, ListWorkers},
    driver::Limits,
};

use super::words::{counted, relative, span};
use crate::WorkerInfo;

/// How many of the newest jobs are looked at, and how many records for that.
const LOOKED_AT: usize = 200;
const SCANNED: usize = 5_000;
/// A queue that was served within this time is not worth a word.
const LATELY: Duration = Duration::from_secs(3_600);

/// When a worker last took one of the newest jobs of a queue.
///
/// # Errors
///
/// What the store answers.
pub async fn last_served(
    driver: &AnyDriver,
    queue: &QueueName,
    now: Timestamp,
) -> Result<Option<Timestamp>, DriverError> {
    last_started(driver, Filter::all().queue(queue.clone()), now).await
}

async fn last_started(
    driver: &AnyDriver,
    filter: Filter,
    now: Timestamp,
) -> Result<Option<Timestamp>, DriverError> {
    let list = List::new(filter, LOOKED_AT, now).newest_first().scan(SCANNED);
    Ok(driver.list(list).await?.items.into_iter().filter_map(|job| job.started_at).max())
}

/// Whether a queue is served by the workers that have announced themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// By this many of them.
    Served(usize),
    /// By none, and which queues they serve.
    Unserved(String),
    /// There are none, or not all say which queues they serve.
    Unknown,
}

/// Whether a queue is served, as the workers of the store have announced it.
///
/// # Errors
///
/// What the store answers.
pub async fn announced(
    driver: &AnyDriver,
    queue: &QueueName,
    now: Timestamp,
) -> Result<Announced, DriverError> {
    let mut request = ListWorkers::new(Limits::MAX_PAGE, now);
    let mut present = Vec::new();
    loop {
        let page = driver.workers(request.clone()).await?;
        present.extend(page.items);
        match page.next {
            Some(next) => request = request.after(next),
            None => break,
        }
    }
    let infos: Vec<_> = present.iter().filter_map(|it| WorkerInfo::read(&it.info)).collect();
    let serves = |info: &&WorkerInfo| info.queues.iter().any(|it| it.name == queue.as_str());
    let serving = infos.iter().filter(serves).count();
    if serving > 0 {
        return Ok(Announced::Served(serving));
    }
    let are_all_read = infos.len() == present.len();
    if infos.is_empty() || !are_all_read || infos.iter().any(|info| info.queues_left_out > 0) {
        return Ok(Announced::Unknown);
    }
    let mut others: Vec<_> =
        infos.iter().flat_map(|info| &info.queues).map(|it| &*it.name).collect();
    others.sort_unstable();
    others.dedup();
    let (workers, verb) =
        (counted(infos.len(), "worker"), if infos.len() == 1 { "serves" } else { "serve" });
    let others = others.join(", ");
    Ok(Announced::Unserved(format!("no worker serves queue {queue}: {workers} {verb} {others}")))
}

/// What there is to say about a queue from which no worker has taken a job lately. Before the first
/// worker of a store, nothing.
///
/// # Errors
///
/// What the store answers.
pub async fn unserved(
    driver: &AnyDriver,
    queue: &QueueName,
    now: Timestamp,
) -> Result<Option<String>, DriverError> {
    match announced(driver, queue, now).await? {
        Announced::Served(_) => return Ok(None),
        Announced::Unserved(text) => return Ok(Some(text)),
        Announced::Unknown => {}
    }
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

/// When the last job was taken, as part of a sentence.
#[must_use]
pub fn in_words(last: Option<Timestamp>, now: Timestamp) -> String {
    match last {
        Some(at) => format!("the last one was taken {}", relative(at, now)),
        None => "no worker has taken one yet".to_owned(),
    }
}
