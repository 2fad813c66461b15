//! `taskharbor why`: one sentence on where a job stands.

use taskharbor::{Admin, AnyDriver, JobRecord, QueueCounts, State, Timestamp};

use super::inspect;
use crate::{
    clean,
    failure::Outcome,
    screen::{Screen, counted, relative, span},
    shape,
    store::{Missing, Url},
};

/// So much of an error or a reason is shown; `inspect` has all of it.
const SHORT: usize = 200;

/// Say in one sentence why a job is not running yet, or what is happening to it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor why 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11")]
pub(crate) struct Args {
    /// The id of the job
    id: String,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let record = inspect::stored(&driver, &args.id, now).await?;
    let (code, text) = explain(&driver, &record, now).await?;
    let text = clean::line(&text);
    if screen.is_json {
        let (id, state) = (record.job.id.as_str(), record.state.as_str());
        return screen.document(&shape::Why { id, state, code, text });
    }
    screen.line(&text)
}

/// A name that never changes, and the sentence.
async fn explain(
    driver: &AnyDriver,
    record: &JobRecord,
    now: Timestamp,
) -> Outcome<(&'static str, String)> {
    let job = &record.job;
    Ok(match record.state {
        State::Ready => ready(driver, record, now).await?,
        State::Scheduled => scheduled(driver, record, now).await?,
        State::Inflight => inflight(record, now),
        State::Blocked => blocked(driver, record, now).await?,
        State::Done => match (&record.expanded_into, record.finished_at) {
            (Some(into), _) => (
                "grown",
                format!("It is done and became job {into}, whose output stands for its own."),
            ),
            (None, Some(at)) => ("done", format!("It is done since {at}, {}.", relative(at, now))),
            (None, None) => ("done", "It is done.".to_owned()),
        },
        State::Dlq => {
            let since = record.finished_at.map(|at| relative(at, now)).unwrap_or_default();
            let reason = record.reason.as_ref().map_or("no reason was given", |it| it.as_str());
            let limit = job.max_attempts.map_or_else(String::new, |max| format!(" of {max}"));
            let after = match job.attempts {
                0 => String::new(),
                attempts => format!(" after {}{limit}", times(attempts, "failed attempt")),
            };
            (
                "dlq",
                format!(
                    "It was dead-lettered {since}{after}: {}. Nothing runs it until somebody requeues it (taskharbor requeue {}).",
                    short(reason).trim_end_matches('.'),
                    job.id
                ),
            )
        }
        State::Cancelled => {
            let since = record.finished_at.map(|at| relative(at, now)).unwrap_or_default();
            let reason = record
                .reason
                .as_ref()
                .map_or_else(String::new, |it| format!(": {}", short(it.as_str())));
            ("cancelled", format!("It was cancelled {since}{reason}."))
        }
        state => ("other", format!("It is {state}.")),
    })
}

/// So many of them.
fn times(count: u32, what: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), what)
}

/// A text from a job, in one line that is not too long.
fn short(text: &str) -> String {
    clean::cut(&clean::line(text.trim()), SHORT)
}

/// The queue of a job as it is now.
async fn queue_of(driver: &AnyDriver, record: &JobRecord, now: Timestamp) -> Outcome<QueueCounts> {
    let queue = &record.job.queue;
    let counts = driver.counts(now).await?.into_iter().find(|it| it.queue == *queue);
    Ok(counts.unwrap_or_else(|| QueueCounts::new(queue.clone())))
}

async fn scheduled(
    driver: &AnyDriver,
    record: &JobRecord,
    now: Timestamp,
) -> Outcome<(&'static str, String)> {
    let job = &record.job;
    let due = record.due_at.unwrap_or(now);
    let when = format!("{due}, {}", relative(due, now));
    let paused = match queue_of(driver, record, now).await?.paused_since {
        Some(since) => format!(
            " Queue {0} is paused since {since}, {1}: nothing of it runs until it is resumed (taskharbor queue resume {0}).",
            job.queue,
            relative(since, now)
        ),
        None => String::new(),
    };
    // What has been delivered, and neither failed nor been requeued, was given back.
    let was_given_back = job.deliveries > job.expirations && record.epoch == 0;
    let (code, text) = match &job.last_error {
        Some(error) if job.attempts > 0 => {
            let (failed, error) = (times(job.attempts, "time"), short(error.as_str()));
            let text = format!(
                "It failed {failed} and is tried again at {when}; the last error was: {error}"
            );
            ("retry_scheduled", text)
        }
        Some(error) => {
            let error = short(error.as_str());
            ("retry_scheduled", format!("It is tried again at {when}; the last error was: {error}"))
        }
        None if was_given_back => {
            let text = format!(
                "A worker has given it back at no charge, and it is tried again at {when}: the worker has no handler for type {}, or the program cannot be run (exit codes 126 and 127) or asked for later (75); the worker says which.",
                job.job_type
            );
            ("scheduled", text)
        }
        None => ("scheduled", format!("It is scheduled for {when}.")),
    };
    let stop = if text.ends_with(['.', '…']) || paused.is_empty() { "" } else { "." };
    Ok((code, format!("{text}{stop}{paused}")))
}

async fn ready(
    driver: &AnyDriver,
    record: &JobRecord,
    now: Timestamp,
) -> Outcome<(&'static str, String)> {
    let queue = &record.job.queue;
    let counts = queue_of(driver, record, now).await?;
    if let Some(since) = counts.paused_since {
        return Ok((
            "queue_paused",
            format!(
                "It is ready, but queue {queue} is paused since {since}, {} (taskharbor queue resume {queue}).",
                relative(since, now)
            ),
        ));
    }
    let (ready, inflight) = (counts.states.ready, counts.states.inflight);
    let waits = record.due_at.map(|due| span(now.since(due))).unwrap_or_default();
    if inflight == 0 {
        return Ok((
            "no_worker",
            format!(
                "It is ready for {waits}, one of {ready} in queue {queue}, and no job of the queue is running: is a worker serving it?"
            ),
        ));
    }
    Ok((
        "in_line",
        format!(
            "It is ready for {waits} and waits for its turn: {ready} ready in queue {queue}, {inflight} running."
        ),
    ))
}

fn inflight(record: &JobRecord, now: Timestamp) -> (&'static str, String) {
    let Some(held) = &record.held else {
        return ("inflight", "A worker has it.".to_owned());
    };
    let (holder, until) = (&held.holder, held.expires_at);
    if until <= now {
        return (
            "lease_expired",
            format!(
                "Worker {holder} had it, but its lease ended {}: it is taken back when its turn comes.",
                relative(until, now)
            ),
        );
    }
    let since =
        record.started_at.map(|at| format!(" since {}", span(now.since(at)))).unwrap_or_default();
    let asked = if record.cancel_requested { " It was asked to stop." } else { "" };
    let progress = record
        .progress
        .as_ref()
        .map_or_else(String::new, |it| format!(" It says: {}.", short(it.as_str())));
    (
        "running",
        format!(
            "Worker {holder} is running it{since}; its lease lasts until {until}, {}.{progress}{asked}",
            relative(until, now)
        ),
    )
}

/// Looks for the parent that will not end by itself; else for one that is not over.
async fn blocked(
    driver: &AnyDriver,
    record: &JobRecord,
    now: Timestamp,
) -> Outcome<(&'static str, String)> {
    /// So many parents are looked at.
    const LOOKED_AT: usize = 1_000;
    let mut waiting = None;
    for id in record.parents.iter().take(LOOKED_AT) {
        let Some(parent) = driver.inspect(id.clone(), now).await? else { continue };
        match parent.state {
            State::Dlq | State::Cancelled => {
                let since = parent.finished_at.map(|at| relative(at, now)).unwrap_or_default();
                let (state, verb) = (parent.state, "requeue it to go on");
                return Ok((
                    "blocked_by_failed",
                    format!(
                        "It waits for job {id}, which is {state} since {since}: {verb} (taskharbor requeue {id})."
                    ),
                ));
            }
            State::Done => {}
            state => {
                waiting.get_or_insert((id.clone(), state));
            }
        }
    }
    let pending = counted(record.pending, "other job");
    Ok(match waiting {
        Some((id, state)) if record.pending == 1 => {
            ("blocked", format!("It waits for job {id}, which is {state}."))
        }
        Some((id, state)) => {
            ("blocked", format!("It waits for {pending}; one of them is {id}, which is {state}."))
        }
        None => ("blocked", format!("It waits for {pending}.")),
    })
}
