//! `taskharbor list`: jobs, a page at a time.

use taskharbor::{
    Admin, AnyDriver, Cursor, Filter, JobSummary, JobType, List, QueueName, State, Timestamp,
};
use taskharbor_core::{
    admin::{Order, TimeRange},
    driver::Limits,
    name::{IdempotencyKey, LaneName},
};

use crate::{
    clean,
    failure::{Failure, Outcome},
    json_output,
    screen::Screen,
    stderr::{note, tell},
    store::{Missing, Url},
    table::{Align, Cell},
    terminal::Tone,
    value::{self, When},
};

/// Show jobs, oldest first
///
/// Times (--since, --until, --finished-since, --finished-until) are instants such as
/// 2026-11-15T10:00:00Z, or ages such as 2h, which means two hours ago.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor list --queue mail --state dlq
  taskharbor list --newest --error 'connection refused' --since 2h
  taskharbor list --json --limit 1000 | jq -r .id")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// In this state
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<State>,
    /// Show the newest jobs first
    #[arg(long)]
    newest: bool,
    #[command(flatten)]
    page: PageArgs,
}

/// Which page of a list.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// Show at most this many jobs
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Read at most this many records, matching or not
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..))]
    scan: u32,
    /// Continue after the page that gave this cursor; repeat the other options
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Which {
    /// Only jobs in this queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<QueueName>,
    /// Only jobs of this type
    #[arg(long, value_name = "TYPE")]
    pub(crate) r#type: Option<JobType>,
    /// Only jobs in this lane
    #[arg(long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// Only jobs that were enqueued with this idempotency key
    #[arg(long, value_name = "KEY")]
    key: Option<IdempotencyKey>,
    /// Only jobs with this header
    #[arg(long, value_name = "NAME=VALUE", value_parser = value::pair)]
    header: Option<(String, String)>,
    /// Only jobs with this text in the last error or in the reason
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only jobs that were enqueued at this time or later
    #[arg(long, value_name = "TIME", value_parser = value::when)]
    since: Option<When>,
    /// Only jobs that were enqueued before this time
    #[arg(long, value_name = "TIME", value_parser = value::when)]
    until: Option<When>,
    /// Only jobs that became done, dead-lettered or cancelled at this time or later
    #[arg(long, value_name = "TIME", value_parser = value::when)]
    finished_since: Option<When>,
    /// Only jobs that became done, dead-lettered or cancelled before this time
    #[arg(long, value_name = "TIME", value_parser = value::when)]
    finished_until: Option<When>,
}

impl Which {
    pub(crate) fn filter(&self, now: Timestamp) -> Filter {
        let range = |from: Option<When>, before: Option<When>| {
            let instant = |when: Option<When>| when.map(|when| when.instant(now));
            TimeRange::new(instant(from), instant(before))
        };
        let mut filter = Filter::all();
        filter.queue.clone_from(&self.queue);
        filter.job_type.clone_from(&self.r#type);
        filter.lane.clone_from(&self.lane);
        filter.key.clone_from(&self.key);
        filter.header.clone_from(&self.header);
        filter.error.clone_from(&self.error);
        filter.created = range(self.since, self.until);
        filter.finished = range(self.finished_since, self.finished_until);
        filter
    }

    /// Whether it restricts anything.
    pub(crate) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// The restrictions in words, each with a comma before it.
    pub(crate) fn in_words(&self, now: Timestamp) -> String {
        let mut words = String::new();
        let mut add = |name: &str, value: &str| {
            words += &format!(", {name} {}", clean::line(value));
        };
        if let Some(queue) = &self.queue {
            add("queue", queue.as_str());
        }
        if let Some(job_type) = &self.r#type {
            add("type", job_type.as_str());
        }
        if let Some(lane) = &self.lane {
            add("lane", lane.as_str());
        }
        if let Some(key) = &self.key {
            add("key", key.as_str());
        }
        if let Some((name, value)) = &self.header {
            add("header", &format!("{name}={value}"));
        }
        if let Some(error) = &self.error {
            add("error containing", &format!("{error:?}"));
        }
        for (name, when) in [
            ("enqueued since", self.since),
            ("enqueued before", self.until),
            ("finished since", self.finished_since),
            ("finished before", self.finished_until),
        ] {
            if let Some(when) = when {
                add(name, &when.instant(now).to_string());
            }
        }
        words
    }
}

pub(crate) fn state(text: &str) -> Result<State, String> {
    State::ALL.iter().copied().find(|state| state.as_str() == text).ok_or_else(|| {
        let known: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
        format!("unknown state {text:?}: choose {}", known.join(", "))
    })
}

pub(crate) async fn run(args: Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let mut filter = args.which.filter(now);
    filter.state = args.state;
    let order = if args.newest { Order::NewestFirst } else { Order::OldestFirst };
    show(&driver, filter, order, args.page, now, screen).await
}

/// Shows the jobs that match, up to the limit of the page.
pub(crate) async fn show(
    driver: &AnyDriver,
    filter: Filter,
    order: Order,
    page: PageArgs,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let (mut left, mut scan) = (count(page.limit), count(page.scan));
    let mut cursor = page.cursor.map(Cursor::new);
    let mut looked_at = None;
    let mut rows = Vec::new();
    while left > 0 && scan > 0 {
        let limit = left.min(Limits::MAX_PAGE);
        let mut request = List::new(filter.clone(), limit, now).scan(scan.min(Limits::MAX_SCAN));
        request.order = order;
        request.after = cursor.take();
        let budget = request.scan;
        let page = driver.list(request).await?;
        left = left.saturating_sub(page.items.len());
        for job in &page.items {
            if screen.is_json {
                screen.document(&json_output::Line::of(job))?;
            } else {
                rows.push(row(job, now, screen));
            }
        }
        // A short page with a cursor has used its budget.
        if page.items.len() < limit {
            scan = scan.saturating_sub(budget);
        }
        (cursor, looked_at) = (page.next, page.looked_at);
        if cursor.is_none() {
            break;
        }
    }
    if !screen.is_json {
        if rows.is_empty() {
            tell(if cursor.is_none() { "no jobs" } else { "no jobs so far" });
        } else {
            table(rows, screen)?;
        }
    }
    if let Some(next) = cursor {
        // The note comes after the output, not in the middle of it.
        screen.flush()?;
        more(&next, looked_at.map(|at| Looked { at, order, is_short: left > 0 }));
    }
    Ok(())
}

/// Where [`row`] has the lane of a job.
const LANE: usize = 3;

/// Jobs in columns, each made by [`row`]. Without a job that has a lane, there is no column for it.
pub(crate) fn table(mut rows: Vec<Vec<Cell>>, screen: &mut Screen) -> Outcome {
    let mut names = vec!["ID", "TYPE", "QUEUE", "LANE", "STATE", "TAKEN", "ENQUEUED", "ABOUT"];
    let mut columns = vec![Align::Left; names.len()];
    columns[5] = Align::Right;
    if rows.iter().all(|row| row[LANE].is_empty()) {
        names.remove(LANE);
        columns.remove(LANE);
        for row in &mut rows {
            row.remove(LANE);
        }
    }
    screen.table(&names, &columns, rows)
}

/// How far a list looked.
pub(crate) struct Looked {
    at: Timestamp,
    order: Order,
    /// Whether the page is short because the call looked at as many records as it may.
    is_short: bool,
}

/// Says how to get the next page.
pub(crate) fn more(next: &Cursor, looked: Option<Looked>) {
    let next_cursor = next.as_str();
    let text = match &looked {
        Some(Looked { at, order: Order::NewestFirst, is_short: true }) => {
            format!("looked back to {at}; look further back with --cursor {next_cursor}")
        }
        Some(Looked { at, order: Order::OldestFirst, is_short: true }) => {
            format!("looked at jobs enqueued up to {at}; go on with --cursor {next_cursor}")
        }
        _ => format!("there is more: --cursor {next_cursor}"),
    };
    let looked_at = looked.map(|looked| looked.at.to_string());
    note(&json_output::More { next_cursor, looked_at }, &text);
}

pub(crate) const fn tone(state: State) -> Tone {
    match state {
        State::Inflight => Tone::Strong,
        State::Done => Tone::Good,
        State::Dlq => Tone::Bad,
        State::Cancelled => Tone::Warning,
        _ => Tone::Plain,
    }
}

pub(crate) fn row(job: &JobSummary, now: Timestamp, screen: &Screen) -> Vec<Cell> {
    vec![
        Cell::plain(clean::line(job.id.as_str())),
        Cell::plain(clean::cut(&clean::line(job.job_type.as_str()), 32)),
        Cell::plain(clean::cut(&clean::line(job.queue.as_str()), 24)),
        Cell::plain(
            job.lane
                .as_ref()
                .map_or_else(String::new, |lane| clean::cut(&clean::line(lane.as_str()), 24)),
        ),
        Cell::new(tone(job.state), job.state.as_str()),
        Cell::plain(job.deliveries.to_string()),
        Cell::plain(screen.time(job.created_at, now)),
        Cell::new(Tone::Faint, clean::cut(&about(job, now, screen), 60)),
    ]
}

/// What matters most about a job in its state.
fn about(job: &JobSummary, now: Timestamp, screen: &Screen) -> String {
    let failed = || {
        let limit = job.max_attempts.map_or_else(String::new, |max| format!(" of {max}"));
        match &job.last_error {
            Some(error) => {
                format!("failed {}{limit}: {}", job.attempts, clean::line(error.as_str()))
            }
            None => String::new(),
        }
    };
    match (job.state, &job.held, job.due_at) {
        (State::Inflight, Some(held), _) => {
            let until = screen.time(held.expires_at, now);
            let verb = if held.expires_at > now { "ends" } else { "ended" };
            format!("held by {}, lease {verb} {until}", clean::line(held.holder.as_str()))
        }
        (State::Scheduled, _, Some(due)) => match &*failed() {
            "" => format!("due {}", screen.time(due, now)),
            failed => format!("due {}; {failed}", screen.time(due, now)),
        },
        (State::Dlq | State::Cancelled, ..) => {
            job.reason.as_ref().map_or_else(failed, |reason| clean::line(reason.as_str()))
        }
        (State::Done, ..) => match job.finished_at {
            Some(at) => format!("done {}", screen.time(at, now)),
            None => String::new(),
        },
        _ => failed(),
    }
}

/// An id that was written by a person.
pub(crate) fn id(text: &str) -> Outcome<taskharbor::JobId> {
    taskharbor::JobId::new(text).map_err(|error| Failure::usage(error.to_string()))
}
