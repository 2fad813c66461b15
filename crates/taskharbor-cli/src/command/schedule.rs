//! `taskharbor schedule`: recurring jobs.

mod json;

use std::time::Duration;

use taskharbor::{
    Client, Cursor, ManageError, Missed, Options, Overlap, Schedule, ScheduleDetails, ScheduleInfo,
    Timestamp,
};
use taskharbor_core::{driver::Limits, error::Denied};

use super::enqueue;
use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    json_output,
    screen::{Screen, counted, relative, span},
    stderr::tell,
    store::{Missing, Url},
    table::{Align, Cell},
    terminal::Tone,
    value::{self, When},
};

/// Show, store and change schedules, which make jobs again and again
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show all schedules
    #[command(after_help = "Example:\n  taskharbor schedule list")]
    List,
    /// Show a schedule with its last firings
    #[command(after_help = "Example:\n  taskharbor schedule show invoices")]
    Show(Name),
    /// Show the next slots of a schedule
    #[command(after_help = "Example:\n  taskharbor schedule next invoices -n 10")]
    Next {
        #[command(flatten)]
        name: Name,
        /// How many slots to show
        #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        count: u32,
    },
    Put(Box<Put>),
    /// Pause a schedule: none of its slots is fired until it is resumed
    #[command(after_help = "Example:\n  taskharbor schedule pause invoices")]
    Pause(Name),
    /// Resume a paused schedule with its next slot; slots during the pause are not fired late
    #[command(after_help = "Example:\n  taskharbor schedule resume invoices")]
    Resume(Name),
    /// Store the job of a schedule now, in addition to its slots
    #[command(after_help = "Example:\n  taskharbor schedule run-now invoices")]
    RunNow(Name),
    Backfill(Backfill),
    /// Remove a schedule; its jobs stay
    #[command(after_help = "Example:\n  taskharbor schedule remove invoices")]
    Remove(Name),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Name {
    /// The name of the schedule
    name: String,
}

/// Store a schedule, or replace the one with its name
///
/// The payload is given as for taskharbor enqueue. A schedule that a service declares belongs to
/// that service and cannot be replaced here.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor schedule put invoices invoices:make --cron '0 3 * * *' --zone Europe/Berlin
  taskharbor schedule put poll feed:poll '{\"feed\": 7}' --every 30s --queue feeds")]
pub(crate) struct Put {
    /// The name of the schedule
    name: String,
    /// The type of its job, which chooses the handler
    r#type: String,
    /// The payload, @FILE, or - for standard input
    payload: Option<String>,
    /// When: minute, hour, day of month, month and weekday; or @hourly, @daily and their like
    #[arg(
        long,
        value_name = "EXPRESSION",
        required_unless_present = "every",
        conflicts_with = "every"
    )]
    cron: Option<String>,
    /// The interval, as 30s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    every: Option<Duration>,
    /// The time zone of --cron, as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", conflicts_with = "every")]
    zone: Option<String>,
    /// The queue [default: default]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// The lane of the queue
    #[arg(long, value_name = "LANE")]
    lane: Option<String>,
    /// Which missed slots are fired late: latest, skip or all:N [default: latest]
    #[arg(long, value_name = "POLICY", value_parser = missed)]
    missed: Option<Missed>,
    /// How old a missed slot may be to be fired late [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    within: Option<Duration>,
    /// What happens while the job of an earlier slot runs: allow, skip, queue or replace [default: allow with --cron, skip with --every]
    #[arg(long, value_name = "POLICY", value_parser = overlap)]
    overlap: Option<Overlap>,
    /// Start each job up to this much later, at random
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    jitter: Option<Duration>,
    /// The start of the schedule: no slot is earlier
    #[arg(long, value_name = "TIME")]
    starts_at: Option<Timestamp>,
    /// The end of the schedule: no slot is later
    #[arg(long, value_name = "TIME")]
    ends_at: Option<Timestamp>,
    /// How long one execution may take
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    timeout: Option<Duration>,
    /// How many attempts may fail before the job is dead-lettered
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The priority, from -32768 to 32767; higher runs first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// A header of the job, stored beside the payload; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = value::pair)]
    header: Vec<(String, String)>,
}

/// Store the jobs of past slots
///
/// For a slot whose job is still stored, nothing is done, so a backfill can be repeated.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor schedule backfill invoices --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run
  taskharbor schedule backfill invoices --from 7d")]
pub(crate) struct Backfill {
    #[command(flatten)]
    name: Name,
    /// The start: an instant, or an age such as 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = value::when)]
    from: When,
    /// The end, which is not included [default: now]
    #[arg(long, value_name = "TIME", value_parser = value::when)]
    to: Option<When>,
    /// Show the slots and store nothing
    #[arg(long)]
    dry_run: bool,
}

fn missed(text: &str) -> Result<Missed, String> {
    let all = text.strip_prefix("all:").map(|most| most.parse().map_err(|_| ()));
    match (text, all) {
        ("latest", _) => Ok(Missed::Latest),
        ("skip", _) => Ok(Missed::Skip),
        (_, Some(Ok(at_most))) => Ok(Missed::All { at_most }),
        _ => Err(format!("{text:?} is not a policy: choose latest, skip or all:N, as in all:100")),
    }
}

fn overlap(text: &str) -> Result<Overlap, String> {
    let known = [Overlap::Allow, Overlap::Skip, Overlap::Queue, Overlap::Replace];
    let found = known.into_iter().find(|it| it.as_str() == text);
    found.ok_or_else(|| format!("{text:?} is not a policy: choose allow, skip, queue or replace"))
}

pub(crate) async fn run(command: Command, url: &Url, screen: &mut Screen) -> Outcome {
    if let Command::Put(put) = command {
        let payload = enqueue::content(put.payload.as_deref())?;
        // An invalid schedule is found before a store is made.
        let nowhere = Client::new(&taskharbor::connect("memory:").await?);
        let checked = nowhere.schedules().put(put.schedule(payload.clone())).await;
        checked.map_err(failure(&put.name))?;
        let driver = url.open(Missing::Create).await?;
        let client = Client::new(&driver);
        client.schedules().put(put.schedule(payload)).await.map_err(failure(&put.name))?;
        return show_one(&client, &put.name, driver.now().await?, screen).await;
    }
    let driver = url.open(Missing::Refuse).await?;
    let (client, now) = (Client::new(&driver), driver.now().await?);
    let schedules = client.schedules();
    match command {
        Command::List => list(&client, now, screen).await,
        Command::Show(Name { name }) => show_one(&client, &name, now, screen).await,
        Command::Next { name: Name { name }, count } => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let slots = schedules.upcoming(&name, count).await.map_err(failure(&name))?;
            show_slots(&slots, now, screen)
        }
        Command::Pause(Name { name }) => {
            schedules.pause(&name).await.map_err(failure(&name))?;
            show_one(&client, &name, now, screen).await
        }
        Command::Resume(Name { name }) => {
            schedules.resume(&name).await.map_err(failure(&name))?;
            show_one(&client, &name, now, screen).await
        }
        Command::RunNow(Name { name }) => {
            let job = schedules.run_now(&name).await.map_err(failure(&name))?;
            let (id, existed) = (job.id().as_str(), !job.is_new());
            if screen.is_json {
                return screen.document(&json_output::Enqueued { id, existed });
            }
            if existed {
                tell("an earlier job of this schedule is not terminal; nothing was stored");
            }
            screen.line(id)
        }
        Command::Backfill(args) => backfill(&client, &args, now, screen).await,
        Command::Remove(Name { name }) => {
            schedules.remove(&name).await.map_err(failure(&name))?;
            if screen.is_json {
                return screen.document(&json::Removed { removed: &name });
            }
            screen.line(&format!("{} is removed; its jobs stay", clean::line(&name)))
        }
        Command::Put(_) => Ok(()),
    }
}

/// What went wrong with the schedule of this name.
fn failure(name: &str) -> impl Fn(ManageError) -> Failure {
    let name = clean::line(name);
    move |error| match error {
        ManageError::Denied(Denied::ScheduleNotFound) => Failure::not_found(format!(
            "no schedule {name} is stored (taskharbor schedule list shows all)"
        )),
        ManageError::Store(error) => error.into(),
        ManageError::Denied(denied) => Failure::refused("denied", denied.to_string()),
        error => Failure::new(Exit::Usage, "invalid_schedule", error.to_string()),
    }
}

impl Put {
    fn schedule(&self, payload: Vec<u8>) -> Schedule {
        let name = self.name.as_str();
        let mut schedule = match &self.cron {
            Some(cron) => Schedule::cron(name, cron),
            // One of the two is required.
            None => Schedule::every(name, self.every.unwrap_or_default()),
        };
        schedule = schedule.raw(&self.r#type, payload).options(self.options());
        if let Some(zone) = &self.zone {
            schedule = schedule.zone(zone);
        }
        if let Some(missed) = self.missed {
            schedule = schedule.missed(missed);
        }
        if let Some(within) = self.within {
            schedule = schedule.within(within);
        }
        if let Some(overlap) = self.overlap {
            schedule = schedule.overlap(overlap);
        }
        if let Some(jitter) = self.jitter {
            schedule = schedule.jitter(jitter);
        }
        if let Some(starts_at) = self.starts_at {
            schedule = schedule.starts_at(starts_at);
        }
        if let Some(ends_at) = self.ends_at {
            schedule = schedule.ends_at(ends_at);
        }
        schedule
    }

    fn options(&self) -> Options {
        let mut options = Options::new();
        for (name, value) in &self.header {
            options = options.header(name, value);
        }
        if let Some(queue) = &self.queue {
            options = options.queue(queue);
        }
        if let Some(lane) = &self.lane {
            options = options.lane(lane);
        }
        if let Some(timeout) = self.timeout {
            options = options.timeout(timeout);
        }
        if let Some(max_attempts) = self.max_attempts {
            options = options.max_attempts(max_attempts);
        }
        if let Some(priority) = self.priority {
            options = options.priority(priority);
        }
        options
    }
}

async fn list(client: &Client, now: Timestamp, screen: &mut Screen) -> Outcome {
    let mut cursor: Option<Cursor> = None;
    let mut rows = Vec::new();
    loop {
        let page = client.schedules().list(cursor, Limits::MAX_PAGE).await;
        let page = page.map_err(failure(""))?;
        for info in &page.items {
            if screen.is_json {
                screen.document(&json::Schedule::of(info))?;
            } else {
                rows.push(row(info, now, screen));
            }
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    if rows.is_empty() {
        if !screen.is_json {
            tell("no schedules");
        }
        return Ok(());
    }
    let names = ["NAME", "WHEN", "JOB", "NEXT", "LAST", "STORED", "SKIPPED", "MISSED"];
    let left = [Align::Left; 5];
    let columns: Vec<_> = left.into_iter().chain([Align::Right; 3]).collect();
    screen.table(&names, &columns, rows)
}

fn row(info: &ScheduleInfo, now: Timestamp, screen: &Screen) -> Vec<Cell> {
    let record = &info.record;
    let time = |at: Option<Timestamp>| at.map_or_else(String::new, |at| screen.time(at, now));
    let next = match (record.paused_since, &record.error) {
        (Some(_), _) => Cell::new(Tone::Warning, "paused"),
        (None, Some(_)) if record.next_slot.is_none() => Cell::new(Tone::Bad, "set aside"),
        _ => Cell::plain(time(record.next_slot)),
    };
    let (when, job) = match &info.details {
        Ok(details) => (when(details), clean::line(&details.job_type)),
        Err(_) => ("unreadable".to_owned(), String::new()),
    };
    let count = |n: u64| Cell::plain(n.to_string());
    vec![
        Cell::plain(clean::line(record.name.as_str())),
        Cell::plain(when),
        Cell::plain(job),
        next,
        Cell::plain(time(record.firings.last().map(|it| it.slot))),
        count(record.totals.stored),
        count(record.totals.skipped),
        count(record.totals.missed),
    ]
}

fn when(details: &ScheduleDetails) -> String {
    match &details.zone {
        Some(zone) if zone != "UTC" => format!("{} {zone}", clean::line(&details.timing)),
        _ => clean::line(&details.timing),
    }
}

async fn show_one(client: &Client, name: &str, now: Timestamp, screen: &mut Screen) -> Outcome {
    let info = client.schedules().get(name).await.map_err(failure(name))?;
    let info = info.ok_or_else(|| failure(name)(ManageError::Denied(Denied::ScheduleNotFound)))?;
    if screen.is_json {
        return screen.document(&json::Schedule::of(&info));
    }
    let record = &info.record;
    let mut line = |what: &str, text: String| {
        if text.is_empty() { Ok(()) } else { screen.line(&format!("{what:<10}{text}")) }
    };
    let at = |at: Timestamp| format!("{at}, {}", relative(at, now));
    line("name", clean::line(record.name.as_str()))?;
    line("owner", record.owner.as_ref().map_or_else(String::new, |it| clean::line(it.as_str())))?;
    match &info.details {
        Ok(details) => {
            line("when", when(details))?;
            let jobs = if details.jobs > 1 {
                format!(" and {} more", details.jobs - 1)
            } else {
                String::new()
            };
            let (job, queue) = (clean::line(&details.job_type), clean::line(&details.queue));
            line("job", format!("{job}{jobs} in queue {queue}"))?;
            let within = span(details.within);
            line("missed", format!("{}, within {within}", json::missed(details.missed)))?;
            line("overlap", details.overlap.as_str().to_owned())?;
            if !details.jitter.is_zero() {
                line("jitter", span(details.jitter))?;
            }
            line("starts", details.starts_at.map_or_else(String::new, at))?;
            line("ends", details.ends_at.map_or_else(String::new, at))?;
        }
        Err(problem) => line("problem", clean::line(problem))?,
    }
    line("paused", record.paused_since.map_or_else(String::new, at))?;
    line("next", record.next_slot.map_or_else(|| "none".to_owned(), at))?;
    let totals = &record.totals;
    let slots = |n: u64| counted(usize::try_from(n).unwrap_or(usize::MAX), "slot");
    let (stored, skipped, missed) = (slots(totals.stored), totals.skipped, totals.missed);
    line("so far", format!("{stored} stored, {skipped} skipped, {missed} missed"))?;
    line("error", record.error.as_ref().map_or_else(String::new, |it| clean::line(it.as_str())))?;
    for firing in record.firings.iter().rev() {
        let (job, is_new) = (clean::line(firing.job.id().as_str()), firing.job.is_new());
        let outcome = if is_new { "" } else { " (skipped: this job was there)" };
        line("fired", format!("{} as {job}{outcome}", firing.slot))?;
    }
    Ok(())
}

fn show_slots(slots: &[Timestamp], now: Timestamp, screen: &mut Screen) -> Outcome {
    for &slot in slots {
        if screen.is_json {
            screen.document(&json::Slot { slot: slot.to_string() })?;
        } else {
            screen.line(&format!("{slot}  {}", relative(slot, now)))?;
        }
    }
    Ok(())
}

async fn backfill(
    client: &Client,
    args: &Backfill,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let name = args.name.name.as_str();
    let (from, to) = (args.from.instant(now), args.to.map_or(now, |to| to.instant(now)));
    if to < from {
        return Err(Failure::usage("--to is before --from: swap them"));
    }
    if args.dry_run {
        let slots = client.schedules().slots(name, from, to).await.map_err(failure(name))?;
        show_slots(&slots, now, screen)?;
        screen.flush()?;
        tell(&format!("{} would be stored", counted(slots.len(), "slot")));
        return Ok(());
    }
    let done = client.schedules().backfill(name, from, to).await.map_err(failure(name))?;
    if screen.is_json {
        let (stored, existing) = (done.stored, done.existing);
        return screen.document(&json::Backfilled { stored, existing });
    }
    let existing = done.existing;
    screen.line(&format!("{} stored, {existing} stored before", counted(done.stored, "slot")))
}
