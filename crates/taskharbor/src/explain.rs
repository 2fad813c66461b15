//! [`explain`]: why a job is in its state, in words for people.
//!
//! The command, the dashboard and applications use the same text. Errors and names of jobs are in
//! the text as they are, so a terminal or a page has to escape them.

pub mod held;
pub mod served;
pub mod words;

use taskharbor_core::{
    Admin, AnyDriver, DriverError, JobId, State, Timestamp,
    admin::{Counts, Filter, HeldBack, HeldJob, List, QueueCounts},
    job::{Condition, FailurePolicy, JobRecord, ReleaseNote, ReleaseReason},
};

use crate::header;
use served::Announced;
use words::{counted, relative, span};

/// The most characters of an error or a reason that are shown; `inspect` has all of it.
const SHORT: usize = 200;
/// The same for what was noted of a release: it says what to expect, and names the worker.
const NOTE: usize = 400;
/// Where counting the jobs of a queue stops.
const COUNTED: usize = 10_000;
/// How many jobs that have the places of a limit are named, how many are looked at, and how many
/// records for that.
const HOLDERS_SHOWN: usize = 3;
const HOLDERS_LOOKED_AT: usize = 20;
const SCANNED: usize = 5_000;

/// Why a job is in its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Why {
    /// A name of the reason that never changes, such as `queue_paused`.
    pub code: &'static str,
    /// The reason in one to three sentences.
    pub text: String,
}

type Sentence = Result<(&'static str, String), DriverError>;

/// Explains why a job is in its state, with a record that was read at `now`. For some states it
/// makes further calls to the store.
///
/// # Errors
///
/// [`DriverError`], if a call to the store fails.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn explain(
    driver: &AnyDriver,
    record: &JobRecord,
    now: Timestamp,
) -> Result<Why, DriverError> {
    let (code, mut text) = sentence(driver, record, now).await?;
    let header = |name| record.job.headers.get(name);
    if let (Some(schedule), Some(slot)) = (header(header::SCHEDULE), header(header::SLOT)) {
        text += &format!(" Schedule {schedule} made it for its slot at {slot}.");
    }
    Ok(Why { code, text })
}

async fn sentence(driver: &AnyDriver, record: &JobRecord, now: Timestamp) -> Sentence {
    let job = &record.job;
    Ok(match record.state {
        State::Ready => ready(driver, record, now).await?,
        State::Scheduled => scheduled(driver, record, now).await?,
        State::Inflight => inflight(record, now),
        State::Blocked => blocked(driver, record, now).await?,
        State::Done => match (&record.expanded_into, record.finished_at) {
            (Some(into), _) => (
                "expanded",
                format!("It is done and expanded into job {into}, whose output replaces its own."),
            ),
            (None, Some(at)) => {
                ("done", format!("It has been done since {at}, {}.", relative(at, now)))
            }
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
                    "It was dead-lettered {since}{after}: {}. It does not run again unless it is requeued (taskharbor requeue {}).",
                    short(reason).trim_end_matches('.'),
                    job.id
                ),
            )
        }
        State::Cancelled => cancelled(record, now),
        state => ("other", format!("It is {state}.")),
    })
}

fn cancelled(record: &JobRecord, now: Timestamp) -> (&'static str, String) {
    let since = record.finished_at.map(|at| relative(at, now)).unwrap_or_default();
    let reason = record.reason.as_ref().map(|reason| short(reason.as_str()));
    let is_failure_job = record.job.condition == Condition::ParentsFailed;
    match reason {
        Some(reason) if is_failure_job && reason.starts_with("not needed") => (
            "not_needed",
            format!("It runs only if other jobs fail, and was cancelled {since} as {reason}."),
        ),
        Some(reason) => ("cancelled", format!("It was cancelled {since}: {reason}.")),
        None => ("cancelled", format!("It was cancelled {since}.")),
    }
}

/// A number with its noun.
fn times(count: u32, what: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), what)
}

/// A text from a job that is not too long.
fn short(text: &str) -> String {
    words::cut(text.trim(), SHORT)
}

/// The queue of a job as it is now.
async fn queue_of(
    driver: &AnyDriver,
    record: &JobRecord,
    now: Timestamp,
) -> Result<QueueCounts, DriverError> {
    let queue = &record.job.queue;
    let counts = driver.counts(Counts::new(now).at_most(COUNTED)).await?;
    let counts = counts.into_iter().find(|it| it.queue == *queue);
    Ok(counts.unwrap_or_else(|| QueueCounts::new(queue.clone())))
}

async fn scheduled(driver: &AnyDriver, record: &JobRecord, now: Timestamp) -> Sentence {
    let job = &record.job;
    let due = record.due_at.unwrap_or(now);
    let when = format!("{due}, {}", relative(due, now));
    let paused = match queue_of(driver, record, now).await?.paused_since {
        Some(since) => format!(
            " Queue {0} has been paused since {since}, {1}: no job of it starts until it is resumed (taskharbor queue resume {0}).",
            job.queue,
            relative(since, now)
        ),
        None => String::new(),
    };
    let (code, text) = match (&job.released, &job.last_error) {
        (Some(note), _) => (
            note.reason.as_str(),
            format!(
                "A worker released it without charging an attempt, and it is tried again at {when}: {}.",
                in_words(note)
            ),
        ),
        (None, Some(error)) if job.attempts > 0 => {
            let (failed, error) = (times(job.attempts, "time"), short(error.as_str()));
            let text = format!(
                "It failed {failed} and is tried again at {when}; the last error was: {error}"
            );
            ("retry_scheduled", text)
        }
        (None, Some(error)) => {
            let error = short(error.as_str());
            ("retry_scheduled", format!("It is tried again at {when}; the last error was: {error}"))
        }
        (None, None) => ("scheduled", format!("It is scheduled for {when}.")),
    };
    let stop = if text.ends_with(['.', '…']) || paused.is_empty() { "" } else { "." };
    Ok((code, format!("{text}{stop}{paused}")))
}

/// What a worker noted when it released a job, as the end of a sentence without its full stop.
fn in_words(note: &ReleaseNote) -> String {
    let text = words::cut(note.text.as_str().trim_end_matches('.'), NOTE);
    match note.reason {
        ReleaseReason::Snoozed => {
            format!(
                "{text} (a program does so with exit code 75; with 126 or 127 it cannot be run)"
            )
        }
        _ => text,
    }
}

async fn ready(driver: &AnyDriver, record: &JobRecord, now: Timestamp) -> Sentence {
    let queue = &record.job.queue;
    let counts = queue_of(driver, record, now).await?;
    if let Some(since) = counts.paused_since {
        return Ok((
            "queue_paused",
            format!(
                "It is ready, but queue {queue} has been paused since {since}, {} (taskharbor queue resume {queue}).",
                relative(since, now)
            ),
        ));
    }
    if let Some(held) = &record.held_back {
        return held_back(driver, record, held, now).await;
    }
    let number = |count| words::capped(count, Some(COUNTED));
    let (ready, inflight) = (number(counts.states.ready), number(counts.states.inflight));
    let waits = record.due_at.map(|due| span(now.since(due))).unwrap_or_default();
    let before = match &record.job.released {
        Some(note) => format!(" It was released before: {}.", in_words(note)),
        None => String::new(),
    };
    if counts.states.inflight == 0 {
        let served = match served::announced(driver, queue, now).await? {
            Announced::Served(1) => "1 worker serves it".to_owned(),
            Announced::Served(workers) => format!("{workers} workers serve it"),
            Announced::Unserved(text) => text,
            Announced::Unknown => {
                served::in_words(served::last_served(driver, queue, now).await?, now)
            }
        };
        return Ok((
            "no_worker",
            format!(
                "It has been ready for {waits}, one of {ready} in queue {queue}, and no job of the queue is running; {served}: is a worker serving it (taskharbor worker --queue {queue})?{before}"
            ),
        ));
    }
    Ok((
        "in_line",
        format!(
            "It has been ready for {waits} and waits for its turn: {ready} ready in queue {queue}, {inflight} running.{before}"
        ),
    ))
}

/// The limit that keeps a ready job from starting.
async fn held_back(
    driver: &AnyDriver,
    record: &JobRecord,
    held: &HeldJob,
    now: Timestamp,
) -> Sentence {
    let (queue, lane) = (&record.job.queue, record.job.lane.as_ref());
    let waits = record.due_at.map(|due| span(now.since(due))).unwrap_or_default();
    let words = held::in_words(held, queue, lane, now);
    Ok(match held.why {
        HeldBack::OnHold { .. } => {
            let of_lane = match lane.filter(|_| held.by_lane) {
                Some(lane) => format!(" --lane {lane}"),
                None => String::new(),
            };
            let text = format!(
                "It has been ready for {waits} and is held back: {words}; taskharbor queue hold {queue}{of_lane} --end ends the hold."
            );
            ("on_hold", text)
        }
        HeldBack::Rate { .. } => (
            "rate_limited",
            format!("It has been ready for {waits} and is held back by a rate: {words}."),
        ),
        _ => {
            let holders = holders(driver, record, held, now).await?;
            let text = format!("It has been ready for {waits} and is held back: {words}{holders}.");
            ("limit_reached", text)
        }
    })
}

/// The first jobs that have the places of a limit, and their workers.
async fn holders(
    driver: &AnyDriver,
    record: &JobRecord,
    held: &HeldJob,
    now: Timestamp,
) -> Result<String, DriverError> {
    let mut filter = Filter::all().queue(record.job.queue.clone()).state(State::Inflight);
    if held.by_lane {
        filter.lane.clone_from(&record.job.lane);
    }
    let page = driver.list(List::new(filter, HOLDERS_LOOKED_AT, now).scan(SCANNED)).await?;
    // A lease that has ended has no place.
    let valid = page.items.iter().filter_map(|job| {
        let held = job.held.as_ref().filter(|held| held.expires_at > now)?;
        Some(format!("{} (worker {})", job.id, held.holder))
    });
    let shown: Vec<_> = valid.take(HOLDERS_SHOWN).collect();
    Ok(match &*shown {
        [] => String::new(),
        [one] => format!(", by job {one}"),
        many => format!(", by jobs {}", many.join(", ")),
    })
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
                "Worker {holder} had it, but its lease ended {}: another worker gets it when its turn comes.",
                relative(until, now)
            ),
        );
    }
    let since =
        record.started_at.map(|at| format!(" for {}", span(now.since(at)))).unwrap_or_default();
    let asked = if record.cancel_requested { " The worker was asked to stop it." } else { "" };
    let progress = record
        .progress
        .as_ref()
        .map_or_else(String::new, |it| format!(" Progress: {}.", short(it.as_str())));
    (
        "running",
        format!(
            "Worker {holder} has been running it{since}; its lease ends at {until}, {}.{progress}{asked}",
            relative(until, now)
        ),
    )
}

/// The most parents that are looked at.
const PARENTS_LOOKED_AT: usize = 1_000;

/// Looks for a parent that failed and keeps the job blocked; else for one that is not terminal.
async fn blocked(driver: &AnyDriver, record: &JobRecord, now: Timestamp) -> Sentence {
    let is_failure_job = record.job.condition == Condition::ParentsFailed;
    let mut waiting = None;
    for id in record.parents.iter().take(PARENTS_LOOKED_AT) {
        let Some(parent) = driver.inspect(id.clone(), now).await? else { continue };
        match parent.state {
            State::Done => {}
            // The job does not wait for these any more.
            State::Dlq | State::Cancelled
                if is_failure_job || parent.job.on_failure == FailurePolicy::Continue => {}
            State::Dlq | State::Cancelled => {
                let since = parent.finished_at.map(|at| relative(at, now)).unwrap_or_default();
                let happened = match parent.state {
                    State::Dlq => "was dead-lettered",
                    _ => "was cancelled",
                };
                return Ok((
                    "blocked_by_failed",
                    format!(
                        "It waits for job {id}, which {happened} {since}: requeue that job to continue (taskharbor requeue {id})."
                    ),
                ));
            }
            state => {
                waiting.get_or_insert((id.clone(), state));
            }
        }
    }
    if is_failure_job {
        return Ok(("waits_for_failure", waits_for_failure(record, waiting)));
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

/// Why a failure job waits, with a parent that has not failed.
fn waits_for_failure(record: &JobRecord, waiting: Option<(JobId, State)>) -> String {
    let condition = match &*record.parents {
        [parent] => format!("It runs only if job {parent} fails"),
        parents => format!("It runs only if all of {} other jobs fail", parents.len()),
    };
    match waiting {
        Some((_, state)) if record.parents.len() == 1 => {
            format!("{condition}, which is {state}.")
        }
        Some((id, state)) => format!("{condition}; one of them is {id}, which is {state}."),
        None => format!("{condition}."),
    }
}
