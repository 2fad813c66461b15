//! `taskharbor inspect`: all there is to know about a job.

use taskharbor::{Admin, AnyDriver, Blob, JobRecord, State, Timestamp, explain::held};
use taskharbor_core::job::{Condition, FailurePolicy, JobKind};

use super::list::{id, tone};
use crate::{
    clean,
    failure::{Failure, Outcome},
    json_output,
    screen::Screen,
    store::{Missing, Url},
    table::{self, Align, Cell},
    terminal::Tone,
};

/// How much of a payload or output is shown.
const SHOWN: usize = 4_096;

/// Show everything that is stored about a job
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor inspect 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11")]
pub(crate) struct Args {
    /// The id of the job
    id: String,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let record = stored(&driver, &args.id, now).await?;
    if screen.is_json {
        let summary = record.summary();
        return screen.document(&json_output::Whole::of(&record, &summary));
    }
    for line in lines(&record, now, screen) {
        screen.line(&line)?;
    }
    Ok(())
}

/// The job with this id.
pub(crate) async fn stored(driver: &AnyDriver, text: &str, now: Timestamp) -> Outcome<JobRecord> {
    driver.inspect(id(text)?, now).await?.ok_or_else(|| {
        Failure::not_found(format!(
            "no job {text} is stored: it was never enqueued here, or its record was removed after its retention"
        ))
    })
}

fn lines(record: &JobRecord, now: Timestamp, screen: &Screen) -> Vec<String> {
    let job = &record.job;
    let mut rows = Vec::new();
    let mut add = |name: &str, value: Cell| rows.push(vec![Cell::new(Tone::Faint, name), value]);
    let text = |text: &str| Cell::plain(clean::line(text));
    let time = |at: Timestamp| Cell::plain(format!("{at} ({})", crate::screen::relative(at, now)));
    add("id", text(job.id.as_str()));
    add("type", text(job.job_type.as_str()));
    add("queue", text(job.queue.as_str()));
    if let Some(lane) = &job.lane {
        add("lane", text(lane.as_str()));
    }
    let state = Cell::new(tone(record.state), record.state.as_str());
    add(
        "state",
        if record.cancel_requested { state.and(Tone::Warning, ", asked to stop") } else { state },
    );
    if let Some(held) = &record.held_back {
        add("held back", text(&held::in_words(held, &job.queue, job.lane.as_ref(), now)));
    }
    if let Some(reason) = &record.reason {
        add("reason", text(reason.as_str()));
    }
    if let Some(held) = &record.held {
        add("held by", text(held.holder.as_str()));
        add("lease until", time(held.expires_at));
    }
    if let Some(progress) = &record.progress {
        add("progress", text(progress.as_str()));
    }
    if let Some(note) = &job.released {
        add("released", text(note.text.as_str()));
    }
    let attempts = job.max_attempts.map_or_else(
        || format!("{} failed", job.attempts),
        |max| format!("{} of {max} failed", job.attempts),
    );
    add("attempts", Cell::plain(attempts));
    add("deliveries", Cell::plain(job.deliveries.to_string()));
    for (name, count) in [("expired leases", job.expirations), ("requeued", record.epoch)] {
        if count > 0 {
            add(name, Cell::plain(count.to_string()));
        }
    }
    if job.priority != 0 {
        add("priority", Cell::plain(job.priority.to_string()));
    }
    add("enqueued", time(job.created_at));
    // While it waits, that is when it is due.
    let available = json_output::available_at(record).filter(|_| record.state == State::Inflight);
    for (name, at) in [
        ("not before", job.run_at),
        ("due", record.due_at),
        ("available", available),
        ("started", record.started_at),
        ("finished", record.finished_at),
    ] {
        if let Some(at) = at {
            add(name, time(at));
        }
    }
    if let Some(timeout) = job.timeout {
        add("timeout", Cell::plain(crate::duration::human(timeout)));
    }
    if let Some(key) = &job.idempotency_key {
        add("key", text(key.as_str()));
        let hold = json_output::key_hold(record.key_hold).replace('_', " ");
        match record.key_hold.held_until(job.created_at) {
            Some(until) => add("key held until", time(until)),
            None => add("key held", Cell::plain(hold)),
        }
    }
    if let Some(flow) = &job.flow {
        add("flow", text(flow.as_str()));
        if job.on_failure != FailurePolicy::default() {
            add("on failure", Cell::plain(job.on_failure.as_str()));
        }
    }
    if let JobKind::Join(reading) = record.kind {
        add("join", Cell::plain(reading.as_str()));
    }
    if !record.parents.is_empty() {
        let parents: Vec<_> =
            record.parents.iter().take(10).map(|id| clean::line(id.as_str())).collect();
        let more = record.parents.len() - parents.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let name = match job.condition {
            Condition::ParentsDone => "after",
            Condition::ParentsFailed => "if these fail",
        };
        add(name, Cell::plain(format!("{}{more}", parents.join(", "))));
        if record.pending > 0 {
            add("waits for", Cell::plain(format!("{} of them", record.pending)));
        }
    }
    if let Some(tail) = &record.expanded_into {
        add("expanded into", text(tail.as_str()));
    }
    for (name, value) in job.headers.iter() {
        add("header", Cell::plain(format!("{} = {}", clean::line(name), clean::line(value))));
    }
    let mut lines = table::lines(&[Align::Left, Align::Left], &rows, screen.palette());
    lines.extend(blob("payload", &job.payload, screen));
    if let Some(output) = &record.output {
        lines.extend(blob("output", output, screen));
    }
    if !record.errors.is_empty() {
        lines.push(heading("errors", screen));
        for failure in &record.errors {
            let at = screen.time(failure.failed_at, now);
            lines.push(format!("    attempt {}, {at}:", failure.attempts));
            lines.extend(
                clean::lines(failure.error.as_str()).lines().map(|line| format!("    {line}")),
            );
        }
    }
    lines
}

fn heading(name: &str, screen: &Screen) -> String {
    screen.palette().paint(Tone::Faint, &format!("  {name}"))
}

/// Text as text, everything else as numbers.
fn blob(name: &str, blob: &Blob, screen: &Screen) -> Vec<String> {
    let mut lines = vec![heading(&format!("{name}, {} bytes", blob.len()), screen)];
    let shown = &blob[..blob.len().min(SHOWN)];
    match std::str::from_utf8(shown)
        .or_else(|error| std::str::from_utf8(&shown[..error.valid_up_to()]).map_err(|_| error))
    {
        Ok(text) if !text.is_empty() && std::str::from_utf8(blob).is_ok() => {
            lines.extend(clean::lines(text).lines().map(|line| format!("    {line}")));
        }
        _ => lines.extend(shown.chunks(16).take(32).map(|bytes| {
            let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("    {}", hex.join(" "))
        })),
    }
    if blob.len() > SHOWN {
        lines.push(format!("    … the rest with --json ({} bytes in all)", blob.len()));
    }
    lines
}
