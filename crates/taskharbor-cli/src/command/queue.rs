//! `taskharbor queue`: queues, and whether they are worked on.

use taskharbor::{Admin, QueueName};

use super::stats;
use crate::{
    clean,
    failure::Outcome,
    screen::Screen,
    store::{Missing, Url},
};

/// Look at queues, stop and resume them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show all queues that have jobs or are paused
    #[command(after_help = "Example:\n  taskharbor queue list")]
    List,
    /// Reserve nothing from a queue until it is resumed; what runs, runs on
    #[command(after_help = "Example:\n  taskharbor queue pause mail")]
    Pause {
        /// The name of the queue
        queue: QueueName,
    },
    /// Reserve from a queue again
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
            let counts = driver.counts(now).await?;
            return stats::show(&counts, None, now, screen);
        }
        Command::Pause { queue } => {
            driver.pause(queue.clone(), now).await?;
            (queue, "is paused")
        }
        Command::Resume { queue } => {
            driver.resume(queue.clone()).await?;
            (queue, "is resumed")
        }
    };
    if screen.is_json {
        let counts = driver.counts(now).await?;
        let counts = counts.into_iter().find(|it| it.queue == queue);
        let counts = counts.unwrap_or_else(|| taskharbor::QueueCounts::new(queue));
        return screen.document(&crate::shape::Queue::of(&counts, now, None));
    }
    screen.line(&format!("{} {text}", clean::line(queue.as_str())))
}
