//! `taskharbor cancel`, `requeue`, `run-now` and `purge`: one action on the jobs that are named, or
//! on all that match.

use taskharbor::{Action, Admin, AnyDriver, Denied, Manage, Requeue, State, Timestamp};

use super::{
    bulk::{Bulk, Jobs},
    list::{self, id},
};
use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    json_output,
    screen::Screen,
    stderr::tell,
    store::Url,
};

/// Cancel jobs, or ask their workers to stop them: the given ids, or all that match
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor cancel 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11
  taskharbor cancel --all --state scheduled --header tenant=acme --dry-run
  taskharbor cancel --all --queue mail --until 2h --rate 50/s --yes")]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    state: InState,
}

/// Requeue dead-lettered or cancelled jobs: the given ids, or all that match
///
/// With --all and without --state, only dead-lettered jobs match.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor requeue 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11
  taskharbor requeue ID --reset-attempts --at 2026-11-16T08:00:00Z
  taskharbor requeue --all --type email:send --error 'timed out' --rate 50/s --yes")]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    state: InState,
    #[command(flatten)]
    how: How,
    /// If no other job of its flow would use its output any more, run it outside the flow
    #[arg(long)]
    detach: bool,
}

/// Make scheduled jobs due now: the given ids, or all that match
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor run-now 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11
  taskharbor run-now --all --queue mail --dry-run")]
pub(crate) struct RunNowArgs {
    #[command(flatten)]
    jobs: Jobs,
}

/// Remove the records of jobs that are done, dead-lettered or cancelled
///
/// Jobs of a flow are removed with the flow: taskharbor flow purge.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor purge 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11
  taskharbor purge --all --state cancelled --finished-until 7d --dry-run")]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    state: InState,
}

/// Which of the jobs that match.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct InState {
    /// Only jobs in this state
    #[arg(long, value_name = "STATE", value_parser = list::state)]
    state: Option<State>,
}

/// How jobs are requeued.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// Count attempts from 0 again; otherwise a dead-lettered job has one more attempt, and a
    /// cancelled job those it had left
    #[arg(long)]
    pub(crate) reset_attempts: bool,
    /// Run the jobs at this time at the earliest, as 2026-11-15T10:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Timestamp>,
}

impl How {
    pub(crate) fn request(self) -> Requeue {
        let mut requeue = Requeue::new();
        requeue.reset_attempts = self.reset_attempts;
        requeue.run_at = self.at;
        requeue
    }
}

pub(crate) async fn cancel(args: CancelArgs, url: &Url, screen: &mut Screen) -> Outcome {
    bulk("cancel", Action::Cancel, args.state.state, args.jobs).run(url, screen).await
}

pub(crate) async fn requeue(args: RequeueArgs, url: &Url, screen: &mut Screen) -> Outcome {
    let mut request = args.how.request();
    request.detach = args.detach;
    let action = Action::Requeue(request);
    bulk("requeue", action, args.state.state, args.jobs).run(url, screen).await
}

pub(crate) async fn run_now(args: RunNowArgs, url: &Url, screen: &mut Screen) -> Outcome {
    bulk("run", Action::RunNow, None, args.jobs).run(url, screen).await
}

pub(crate) async fn purge(args: PurgeArgs, url: &Url, screen: &mut Screen) -> Outcome {
    bulk("purge", Action::Purge, args.state.state, args.jobs).run(url, screen).await
}

fn bulk(verb: &'static str, action: Action, state: Option<State>, jobs: Jobs) -> Bulk {
    Bulk { verb, action, state, is_dlq: false, jobs }
}

/// Does one action to each of these jobs; fails like the first that was refused.
pub(crate) async fn on(
    driver: &AnyDriver,
    ids: &[String],
    action: Action,
    screen: &mut Screen,
) -> Outcome {
    let mut parsed = Vec::with_capacity(ids.len());
    for text in ids {
        let id = id(text)?;
        // A job that is named twice is acted on once.
        if !parsed.contains(&id) {
            parsed.push(id);
        }
    }
    let now = driver.now().await?;
    let answers = driver.manage(Manage::new(parsed.clone(), action.clone(), now)).await?;
    let mut failure = None;
    for (id, answer) in parsed.iter().zip(answers) {
        match answer {
            Ok(state) => told(id.as_str(), state, &action, screen)?,
            Err(denied) => {
                let refused = Failure::denied(id.as_str(), &action, &denied);
                if screen.is_json {
                    let message = Some(refused.text.clone());
                    let error = Some(refused.code);
                    screen.document(&json_output::Managed {
                        id: id.as_str(),
                        state: None,
                        error,
                        message,
                    })?;
                }
                // A refusal because of the state says more than a job that is not stored.
                let is_first =
                    failure.as_ref().is_none_or(|it: &Failure| it.exit == Exit::NotFound);
                if is_first || !matches!(denied, Denied::JobNotFound) {
                    let earlier = failure.replace(refused);
                    if let Some(earlier) = earlier.filter(|_| !screen.is_json) {
                        tell(&format!("taskharbor: {}", earlier.text));
                    }
                } else if !screen.is_json {
                    tell(&format!("taskharbor: {}", refused.text));
                }
            }
        }
    }
    screen.flush()?;
    failure.map_or(Ok(()), Err)
}

fn told(id: &str, state: State, action: &Action, screen: &mut Screen) -> Outcome {
    if screen.is_json {
        let state = Some(state.as_str());
        return screen.document(&json_output::Managed { id, state, error: None, message: None });
    }
    let id = clean::line(id);
    let text = match (action, state) {
        (Action::Cancel, State::Inflight) => {
            format!("{id} is running; its worker was asked to stop")
        }
        (Action::Purge | Action::PurgeFlow, _) => format!("{id} was removed; it was {state}"),
        _ => format!("{id} is {state}"),
    };
    screen.line(&text)
}
