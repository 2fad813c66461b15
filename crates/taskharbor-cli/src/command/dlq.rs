//! `taskharbor dlq`: the jobs that failed for good.

use std::time::Duration;

use taskharbor::{Action, AnyDriver, JobId, State};

use super::{
    act::{self, How},
    bulk::{Ahead, Bulk, matching},
    inspect,
    list::{self, Which},
};
use crate::{
    clean,
    failure::{Failure, Outcome},
    screen::Screen,
    store::{Missing, Url},
    value,
};

/// Look at dead-lettered jobs, give them another life, or remove them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Requeue(RequeueArgs),
    Purge(PurgeArgs),
}

/// Show dead-lettered jobs, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor dlq list --queue mail")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on after the page that gave this
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Give dead-lettered jobs another life: those that are named, or all that match
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor dlq requeue 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11
  taskharbor dlq requeue --queue mail --all --rate 50/s --yes")]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    how: How,
    /// No more than this, as 50/s or 600/m
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

fn in_words(which: &Which) -> String {
    let mut words = "from the DLQ".to_owned();
    if let Some(queue) = &which.queue {
        words += &format!(" of queue {}", clean::line(queue.as_str()));
    }
    if let Some(job_type) = &which.r#type {
        words += &format!(", type {}", clean::line(job_type.as_str()));
    }
    words
}

pub(crate) async fn run(command: Command, url: &Url, screen: &mut Screen) -> Outcome {
    match command {
        Command::List(ListArgs { which, limit, cursor }) => {
            let driver = url.open(Missing::Refuse).await?;
            let now = driver.now().await?;
            let dead = which.filter().state(State::Dlq);
            list::show(&driver, dead, limit, cursor, now, screen).await
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

/// Something to be done to jobs of the DLQ.
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
        if !ids.is_empty() && (which.queue.is_some() || which.r#type.is_some()) {
            return Err(Failure::usage(
                "--queue and --type choose among all: pass --all with them, or ids alone",
            ));
        }
        let driver = url.open(Missing::Refuse).await?;
        if !ids.is_empty() {
            let dead = named(&driver, &ids).await?;
            if ahead.dry_run || action == Action::Purge {
                let target = "that are named".to_owned();
                return Bulk { verb, target, ids: dead, action, pace, ahead, url }
                    .run(&driver, screen)
                    .await;
            }
            return act::on(&driver, &ids, action, screen).await;
        }
        let ids = matching(&driver, &which.filter().state(State::Dlq)).await?;
        Bulk { verb, target: in_words(&which), ids, action, pace, ahead, url }
            .run(&driver, screen)
            .await
    }
}

/// The jobs with these ids, each once. What is not in the DLQ is none of this command's business.
async fn named(driver: &AnyDriver, ids: &[String]) -> Outcome<Vec<JobId>> {
    let now = driver.now().await?;
    let mut dead = Vec::with_capacity(ids.len());
    for text in ids {
        let record = inspect::stored(driver, text, now).await?;
        if record.state != State::Dlq {
            let text = format!("job {text} is {}, and not in the DLQ", record.state);
            return Err(Failure::refused("wrong_state", text));
        }
        if !dead.contains(&record.job.id) {
            dead.push(record.job.id);
        }
    }
    Ok(dead)
}
