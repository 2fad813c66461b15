//! `taskharbor dlq`: dead-lettered jobs.

mod group;

use taskharbor::{Action, State};
use taskharbor_core::admin::Order;

use super::{
    act::How,
    bulk::{Bulk, Jobs},
    list::{self, PageArgs, Which},
};
use crate::{
    failure::Outcome,
    screen::Screen,
    store::{Missing, Url},
};

/// Show, group, requeue or remove dead-lettered jobs
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Groups(group::GroupsArgs),
    Requeue(RequeueArgs),
    Purge(PurgeArgs),
}

/// Show dead-lettered jobs, newest first
///
/// Newest means enqueued last.
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

/// Requeue dead-lettered jobs: the given ids, or all that match
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
}

/// Remove dead-lettered jobs: the given ids, or all that match
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  taskharbor dlq purge --queue mail --type email:send --all --dry-run"
)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    jobs: Jobs,
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
        Command::Groups(args) => {
            let driver = url.open(Missing::Refuse).await?;
            group::run(args, &driver, screen).await
        }
        Command::Requeue(RequeueArgs { jobs, how }) => {
            let action = Action::Requeue(how.request());
            Bulk { verb: "requeue", action, state: Some(State::Dlq), is_dlq: true, jobs }
                .run(url, screen)
                .await
        }
        Command::Purge(PurgeArgs { jobs }) => {
            let action = Action::Purge;
            Bulk { verb: "purge", action, state: Some(State::Dlq), is_dlq: true, jobs }
                .run(url, screen)
                .await
        }
    }
}
