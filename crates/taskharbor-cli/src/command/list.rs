//! `taskharbor list`: jobs, a page at a time.

use taskharbor::{
    Admin, AnyDriver, Cursor, Filter, JobSummary, JobType, List, QueueName, State, Timestamp,
};

use crate::{
    clean,
    failure::{Failure, Outcome},
    screen::Screen,
    shape,
    store::{Missing, Url},
    table::{Align, Cell},
    terminal::Tone,
    voice::{note, tell},
};

/// Show jobs, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor list --queue mail --state dlq
  taskharbor list --json --limit 1000 | jq -r .id")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// In this state
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<State>,
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Go on after the page that gave this
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// Which jobs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Which {
    /// Of this queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<QueueName>,
    /// Of this type
    #[arg(long, value_name = "TYPE")]
    pub(crate) r#type: Option<JobType>,
}

impl Which {
    pub(crate) fn filter(&self) -> Filter {
        let mut filter = Filter::all();
        filter.queue.clone_from(&self.queue);
        filter.job_type.clone_from(&self.r#type);
        filter
    }
}

fn state(text: &str) -> Result<State, String> {
    State::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
        let known = State::ALL.map(State::as_str).join(", ");
        format!("there is no state {text:?}: choose {known}")
    })
}

pub(crate) async fn run(args: Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let mut filter = args.which.filter();
    filter.state = args.state;
    show(&driver, filter, args.limit, args.cursor, now, screen).await
}

/// Shows the jobs that match, up to `limit` of them.
pub(crate) async fn show(
    driver: &AnyDriver,
    filter: Filter,
    limit: u32,
    cursor: Option<String>,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut cursor = cursor.map(Cursor::new);
    let mut rows = Vec::new();
    while left > 0 {
        let mut request = List::new(filter.clone(), left.min(taskharbor::Limits::MAX_PAGE), now);
        request.after = cursor.take();
        let page = driver.list(request).await?;
        left = left.saturating_sub(page.items.len());
        for job in &page.items {
            if screen.is_json {
                screen.document(&shape::Line::of(job))?;
            } else {
                rows.push(row(job, now, screen));
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if !screen.is_json {
        if rows.is_empty() {
            tell("no jobs");
        } else {
            screen.table(
                &["ID", "TYPE", "QUEUE", "STATE", "TRIES", "ENQUEUED", "ABOUT"],
                &[
                    Align::Left,
                    Align::Left,
                    Align::Left,
                    Align::Left,
                    Align::Right,
                    Align::Left,
                    Align::Left,
                ],
                rows,
            )?;
        }
    }
    if let Some(next) = cursor {
        // So that whoever reads the output as data is not told in the middle of it.
        screen.flush()?;
        more(&next);
    }
    Ok(())
}

/// Says how to get the next page.
pub(crate) fn more(next: &Cursor) {
    let next_cursor = next.as_str();
    note(&shape::More { next_cursor }, &format!("there is more: --cursor {next_cursor}"));
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

fn row(job: &JobSummary, now: Timestamp, screen: &Screen) -> Vec<Cell> {
    let tries = match job.max_attempts {
        Some(max) => format!("{}/{max}", job.attempts),
        None => job.attempts.to_string(),
    };
    vec![
        Cell::plain(clean::line(job.id.as_str())),
        Cell::plain(clean::cut(&clean::line(job.job_type.as_str()), 32)),
        Cell::plain(clean::cut(&clean::line(job.queue.as_str()), 24)),
        Cell::new(tone(job.state), job.state.as_str()),
        Cell::plain(tries),
        Cell::plain(screen.time(job.created_at, now)),
        Cell::new(Tone::Faint, clean::cut(&about(job, now, screen), 60)),
    ]
}

/// What matters most about a job in its state.
fn about(job: &JobSummary, now: Timestamp, screen: &Screen) -> String {
    let failed =
        || job.last_error.as_ref().map(|error| clean::line(error.as_str())).unwrap_or_default();
    match (job.state, &job.held, job.due_at) {
        (State::Inflight, Some(held), _) => {
            let until = screen.time(held.expires_at, now);
            format!("held by {} until {until}", clean::line(held.holder.as_str()))
        }
        (State::Scheduled, _, Some(due)) => match &*failed() {
            "" => format!("due {}", screen.time(due, now)),
            failed => format!("due {} after: {failed}", screen.time(due, now)),
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
