//! `taskharbor cancel`, `requeue` and `run-now`: one action on the jobs that are named.

use taskharbor::{Action, Admin, AnyDriver, Denied, Manage, Requeue, State, Timestamp};

use super::list::id;
use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    json_output,
    screen::Screen,
    stderr::tell,
    store::{Missing, Url},
};

/// Cancel jobs, or ask their workers to stop them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor cancel 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11")]
pub(crate) struct CancelArgs {
    /// The ids of the jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

/// Requeue dead-lettered or cancelled jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor requeue 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11
  taskharbor requeue ID --reset-attempts --at 2026-11-16T08:00:00Z")]
pub(crate) struct RequeueArgs {
    /// The ids of the jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    how: How,
    /// If no other job of its flow would use its output any more, run it outside the flow
    #[arg(long)]
    detach: bool,
}

/// Let scheduled jobs run without waiting for their time
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor run-now 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11")]
pub(crate) struct RunNowArgs {
    /// The ids of the jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

/// How jobs are requeued.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// Start counting attempts anew; otherwise the job is executed at most once more
    #[arg(long)]
    pub(crate) reset_attempts: bool,
    /// Not before this instant, as 2026-11-15T10:00:00Z
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
    act(&args.ids, Action::Cancel, url, screen).await
}

pub(crate) async fn requeue(args: RequeueArgs, url: &Url, screen: &mut Screen) -> Outcome {
    let mut request = args.how.request();
    request.detach = args.detach;
    act(&args.ids, Action::Requeue(request), url, screen).await
}

pub(crate) async fn run_now(args: RunNowArgs, url: &Url, screen: &mut Screen) -> Outcome {
    act(&args.ids, Action::RunNow, url, screen).await
}

async fn act(ids: &[String], action: Action, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    on(&driver, ids, action, screen).await
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
