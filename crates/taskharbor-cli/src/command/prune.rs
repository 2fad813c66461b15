//! `taskharbor prune`: removes jobs that ended long ago.

use std::time::Duration;

use serde::Serialize;
use taskharbor::Admin;
use taskharbor_core::admin::Prune;

use crate::{
    failure::Outcome,
    screen::{Screen, counted},
    store::{Missing, Url},
    value,
};

/// Jobs in one call.
const BATCH: usize = 1_000;
/// How long done and cancelled jobs are kept, as by a worker.
const DAY: Duration = Duration::from_secs(86_400);

/// Remove the records of jobs that ended long ago
///
/// Workers do this by themselves: every worker removes done and cancelled jobs after 24 hours. Use
/// this command if no worker runs, or to free space at once. A flow is removed as a whole,
/// according to the state of its last job and the time at which all its jobs had ended. A job is
/// kept at least until the lease under which it ended would have run out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor prune
  taskharbor prune --done 1h --cancelled 1h
  taskharbor prune --dlq 30d")]
pub(crate) struct Args {
    /// Remove jobs that have been done for this long [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    done: Option<Duration>,
    /// Remove jobs that have been cancelled for this long [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    cancelled: Option<Duration>,
    /// Remove jobs that have been dead-lettered for this long [default: keep them]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    dlq: Option<Duration>,
}

#[derive(Serialize)]
struct Report {
    pruned: usize,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let before = |kept: Duration| now.saturating_sub(kept);
    let mut request = Prune::new(BATCH, now);
    request.done_before = Some(before(args.done.unwrap_or(DAY)));
    request.cancelled_before = Some(before(args.cancelled.unwrap_or(DAY)));
    request.dlq_before = args.dlq.map(before);
    let mut pruned = 0;
    loop {
        let count = driver.prune(request).await?;
        pruned += count;
        if count < BATCH {
            break;
        }
    }
    if screen.is_json {
        return screen.document(&Report { pruned });
    }
    screen.line(&format!("removed {}", counted(pruned, "job")))
}
