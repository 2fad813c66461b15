//! `taskharbor dlq`: dead-lettered jobs.

use std::time::Duration;

use taskharbor::{Action, AnyDriver, JobId, State, Timestamp};
use taskharbor_core::admin::Order;

use super::{
    act::{self, How},
    bulk::{Ahead, Bulk, matching},
    inspect,
    list::{self, PageArgs, Which},
};
use crate::{
    failure::{Failure, Outcome},
    screen::Screen,
    store::{Missing, Url},
    value,
};

/// Show, requeue or remove dead-lettered jobs
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Requeue(RequeueArgs),
    Purge(PurgeArgs),
}

/// Show dead-lettered jobs, newest first
///
/// The order is that in which they were enqueued.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor dlq list --queue mail
  taskharbor dlq list --finished-since 1h --error timeout")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// Oldest first
    #[arg(long)]
    oldest: bool,
    #[command(flatten)]
    page: PageArgs,
}

/// Requeue dead-lettered jobs: those that are named, or all that match
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor dlq requeue 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11
  taskharbor dlq requeue --queue mail --all --rate 50/s --yes
  taskharbor dlq requeue --all --error 'connection refused' --finished-since 2h --yes")]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    how: How,
    /// Requeue no faster than this, as 50/s or 600/m
    #[arg(long, value_name = "RATE", value_parser = value::rate, requires = "all")]
    rate: Option<Duration>,
    #[command(flatten)]
    ahead: Ahead,
}

/// Remove dead-lettered jobs: those that are named, or all that match
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  taskharbor dlq purge --queue mail --type email:send --all --dry-run"
)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    ahead: Ahead,
}

/// Jobs that are named, or all that match.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Jobs {
    /// The ids of the jobs
    #[arg(value_name = "ID", conflicts_with = "all")]
    ids: Vec<String>,
    /// All dead-lettered jobs that match
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: Which,
}

pub(crate) async fn run(command: Command, url: &Url, screen: &mut Screen) -> Outcome {
    match command {
        Command::List(ListArgs { which, oldest, page }) => {
            let driver = url.open(Missing::Refuse).await?;
            let now = driver.now().await?;
            let dead = which.filter(now).state(State::Dlq);
            let order = if oldest { Order::OldestFirst } else { Order::NewestFirst };
            list::show(&driver, dead, order, page, now, screen).await
        }
        Command::Requeue(RequeueArgs { jobs, how, rate, ahead }) => {
            let action = Action::Requeue(how.request());
            Many { verb: "requeue", jobs, pace: rate, ahead }.run(action, url, screen).await
        }
        Command::Purge(PurgeArgs { jobs, ahead }) => {
            Many { verb: "purge", jobs, pace: None, ahead }.run(Action::Purge, url, screen).await
        }
    }
}

/// An action on jobs of the DLQ.
struct Many {
    verb: &'static str,
    jobs: Jobs,
    pace: Option<Duration>,
    ahead: Ahead,
}

impl Many {
    async fn run(self, action: Action, url: &Url, screen: &mut Screen) -> Outcome {
        let Self { verb, jobs: Jobs { ids, all, which }, pace, ahead } = self;
        if ids.is_empty() && !all {
            return Err(Failure::usage("name jobs by their ids, or pass --all for all that match"));
        }
        if !ids.is_empty() && !which.is_all() {
            return Err(Failure::usage(
                "--queue, --type and other filters choose among all: pass --all with them, or ids alone",
            ));
        }
        let driver = url.open(Missing::Refuse).await?;
        let now = driver.now().await?;
        if !ids.is_empty() {
            let dead = named(&driver, &ids, now).await?;
            if ahead.dry_run || action == Action::Purge {
                let target = "that are named".to_owned();
                return Bulk { verb, target, ids: dead, action, pace, ahead, url }
                    .run(&driver, screen)
                    .await;
            }
            return act::on(&driver, &ids, action, screen).await;
        }
        let ids = matching(&driver, &which.filter(now).state(State::Dlq)).await?;
        let target = format!("from the DLQ{}", which.in_words(now));
        Bulk { verb, target, ids, action, pace, ahead, url }.run(&driver, screen).await
    }
}

/// The jobs with these ids, each once. A job that is not in the DLQ is refused.
async fn named(driver: &AnyDriver, ids: &[String], now: Timestamp) -> Outcome<Vec<JobId>> {
    let mut dead = Vec::with_capacity(ids.len());
    for text in ids {
        let record = inspect::stored(driver, text, now).await?;
        if record.state != State::Dlq {
            let text = format!("job {text} is {}, not in the DLQ", record.state);
            return Err(Failure::refused("wrong_state", text));
        }
        if !dead.contains(&record.job.id) {
            dead.push(record.job.id);
        }
    }
    Ok(dead)
}
