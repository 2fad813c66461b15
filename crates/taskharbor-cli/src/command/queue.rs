//! `taskharbor queue`: queues, whether they are paused, their limits and lanes.

mod hold;
mod lanes;
pub(crate) mod limit;

use taskharbor::{Admin, AnyDriver, QueueCounts, QueueName, Timestamp};
use taskharbor_core::{
    admin::{Change, Configure, Counts},
    error::Denied,
};

use super::{stats, usage};
use crate::{
    clean,
    failure::{Failure, Outcome},
    screen::Screen,
    stderr::tell,
    store::{Missing, Url},
};

/// Show, pause, resume, limit and hold queues and their lanes
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show all queues that have jobs or are paused
    #[command(after_help = "Example:\n  taskharbor queue list")]
    List,
    /// Pause a queue: none of its jobs starts until it is resumed; running jobs go on
    #[command(after_help = "Example:\n  taskharbor queue pause mail")]
    Pause {
        /// The name of the queue
        queue: QueueName,
    },
    /// Resume a paused queue
    #[command(after_help = "Example:\n  taskharbor queue resume mail")]
    Resume {
        /// The name of the queue
        queue: QueueName,
    },
    Limit(Box<limit::Args>),
    Lanes(lanes::Args),
    Hold(hold::Args),
}

pub(crate) async fn run(command: Command, url: &Url, screen: &mut Screen) -> Outcome {
    if let Command::Limit(args) = &command {
        args.check()?;
    }
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let (queue, text) = match command {
        Command::List => {
            let counted = stats::Counted::now(&driver, None).await?.with_usages(&driver).await?;
            return stats::show(&counted, None, screen);
        }
        Command::Limit(args) => return limit::run(&args, &driver, now, screen).await,
        Command::Lanes(args) => return lanes::run(args, &driver, now, screen).await,
        Command::Hold(args) => return hold::run(&args, &driver, now, screen).await,
        Command::Pause { queue } => {
            driver.pause(queue.clone(), now).await?;
            (queue, "is paused")
        }
        Command::Resume { queue } => {
            driver.resume(queue.clone(), now).await?;
            (queue, "is resumed")
        }
    };
    let counts = counts_of(&driver, &queue, now).await?;
    if screen.is_json {
        let mut usage = usage::of(&driver, std::slice::from_ref(&counts), None, now).await?;
        let usage = usage.remove(&counts.queue);
        let queue = crate::json_output::Queue::of(&counts, usage.as_ref(), now, None, None);
        return screen.document(&queue);
    }
    screen.line(&format!("{} {text}", clean::line(queue.as_str())))?;
    ask_about_empty(&counts, screen)
}

async fn counts_of(driver: &AnyDriver, queue: &QueueName, now: Timestamp) -> Outcome<QueueCounts> {
    let counts = driver.counts(Counts::new(now)).await?;
    let counts = counts.into_iter().find(|it| it.queue == *queue);
    Ok(counts.unwrap_or_else(|| QueueCounts::new(queue.clone())))
}

/// A queue without jobs may be a typo.
fn ask_about_empty(counts: &QueueCounts, screen: &mut Screen) -> Outcome {
    if counts.states.total() == 0 {
        screen.flush()?;
        let name = clean::line(counts.queue.as_str());
        tell(&format!("queue {name} has no jobs: is the name right?"));
    }
    Ok(())
}

/// Makes one change to the settings of the store.
async fn configure(driver: &AnyDriver, change: Change, now: Timestamp) -> Outcome {
    let answers = driver.configure(Configure::new(vec![change], now)).await?;
    match answers.into_iter().next() {
        Some(Err(denied @ Denied::LimitsOwned { .. })) => {
            Err(Failure::refused("limits_owned", denied.to_string()))
        }
        Some(Err(denied)) => Err(Failure::refused("denied", denied.to_string())),
        Some(Ok(())) => Ok(()),
        None => Err(Failure::error("error", "the store did not answer")),
    }
}
