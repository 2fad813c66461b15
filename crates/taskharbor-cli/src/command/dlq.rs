//! `taskharbor dlq`: the jobs that failed for good.

use std::time::Duration;

use taskharbor::{Action, Admin, Filter, JobType, QueueName, State};

use super::{
    act::{self, How},
    bulk::{Ahead, Bulk, matching},
    list,
};
use crate::{
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
    /// The ids of the jobs
    #[arg(value_name = "ID", conflicts_with = "all")]
    ids: Vec<String>,
    /// All dead-lettered jobs that match
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: Which,
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
    /// The ids of the jobs
    #[arg(value_name = "ID", conflicts_with = "all")]
    ids: Vec<String>,
    /// All dead-lettered jobs that match
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    ahead: Ahead,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Which {
    /// Of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<QueueName>,
    /// Of this type
    #[arg(long, value_name = "TYPE")]
    r#type: Option<JobType>,
}

impl Which {
    fn filter(&self) -> Filter {
        let mut filter = Filter::all().state(State::Dlq);
        filter.queue.clone_from(&self.queue);
        filter.job_type.clone_from(&self.r#type);
        filter
    }

    fn in_words(&self) -> String {
        let mut words = "from the DLQ".to_owned();
        if let Some(queue) = &self.queue {
            words += &format!(" of queue {queue}");
        }
        if let Some(job_type) = &self.r#type {
            words += &format!(", type {job_type}");
        }
        words
    }
}

pub(crate) async fn run(command: Command, url: &Url, screen: &mut Screen) -> Outcome {
    match command {
        Command::List(ListArgs { which, limit, cursor }) => {
            let driver = url.open(Missing::Refuse).await?;
            let now = driver.now().await?;
            list::show(&driver, which.filter(), limit, cursor, now, screen).await
        }
        Command::Requeue(args) => {
            let action = Action::Requeue(args.how.request());
            let many = Many {
                verb: "requeue",
                ids: args.ids,
                all: args.all,
                which: args.which,
                pace: args.rate,
                ahead: args.ahead,
            };
            many.run(action, url, screen).await
        }
        Command::Purge(args) => {
            let many = Many {
                verb: "purge",
                ids: args.ids,
                all: args.all,
                which: args.which,
                pace: None,
                ahead: args.ahead,
            };
            many.run(Action::Purge, url, screen).await
        }
    }
}

/// Jobs that are named, or all that match.
struct Many {
    verb: &'static str,
    ids: Vec<String>,
    all: bool,
    which: Which,
    pace: Option<Duration>,
    ahead: Ahead,
}

impl Many {
    async fn run(self, action: Action, url: &Url, screen: &mut Screen) -> Outcome {
        let Self { verb, ids, all, which, pace, ahead } = self;
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
            // What is not in the DLQ is none of this command's business.
            let now = driver.now().await?;
            let mut dead = Vec::with_capacity(ids.len());
            for text in &ids {
                let id = list::id(text)?;
                let Some(record) = driver.inspect(id.clone(), now).await? else {
                    return Err(Failure::not_found(format!("no job {text} is stored")));
                };
                if record.state != State::Dlq {
                    let text = format!("job {text} is {}, and not in the DLQ", record.state);
                    return Err(Failure::refused("wrong_state", text));
                }
                dead.push(id);
            }
            if ahead.dry_run || action == Action::Purge {
                let target = "that are named".to_owned();
                return Bulk { verb, target, ids: dead, action, pace, ahead, url }
                    .run(&driver, screen)
                    .await;
            }
            return act::on(&driver, &ids, action, screen).await;
        }
        let ids = matching(&driver, &which.filter()).await?;
        Bulk { verb, target: which.in_words(), ids, action, pace, ahead, url }
            .run(&driver, screen)
            .await
    }
}
