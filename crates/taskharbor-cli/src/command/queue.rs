//! `taskharbor queue`: queues, and whether they are paused.

use taskharbor::{Admin, QueueCounts, QueueName};
use taskharbor_core::admin::Counts;

use super::stats;
use crate::{
    clean,
    failure::Outcome,
    screen::Screen,
    stderr::tell,
    store::{Missing, Url},
};

/// Show, pause and resume queues
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show all queues that have jobs or are paused
    #[command(after_help = "Example:\n  taskharbor queue list")]
    List,
    /// Pause a queue: no job of it starts until it is resumed; running jobs go on
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
}

pub(crate) async fn run(command: Command, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let (queue, text) = match command {
        Command::List => {
            let counts = driver.counts(Counts::new(now)).await?;
            return stats::show(&counts, None, None, now, screen);
        }
        Command::Pause { queue } => {
            driver.pause(queue.clone(), now).await?;
            (queue, "is paused")
        }
        Command::Resume { queue } => {
            driver.resume(queue.clone(), now).await?;
            (queue, "is resumed")
        }
    };
    let counts = driver.counts(Counts::new(now)).await?;
    let counts = counts.into_iter().find(|it| it.queue == queue);
    let counts = counts.unwrap_or_else(|| QueueCounts::new(queue));
    if screen.is_json {
        return screen.document(&crate::json_output::Queue::of(&counts, now, None, None));
    }
    let name = clean::line(counts.queue.as_str());
    screen.line(&format!("{name} {text}"))?;
    if counts.states.total() == 0 {
        screen.flush()?;
        tell(&format!("queue {name} has no jobs: is the name right?"));
    }
    Ok(())
}
