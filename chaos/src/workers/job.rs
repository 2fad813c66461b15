//! The jobs, and the handlers that write down when they run.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job, JobError, JobResult};
use tokio::time::sleep;

use super::log::{Log, What};

/// A job that takes a while, and then succeeds or fails.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "chaos:chore")]
pub(crate) struct Chore {
    pub(crate) millis: u64,
    pub(crate) behavior: Behavior,
}

/// How a chore ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Behavior {
    Succeeds,
    /// In the first attempt.
    FailsOnce,
    /// It is dead-lettered.
    Fails,
}

/// A member of a chord, which produces its number.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "chaos:member", output = u32)]
pub(crate) struct Member {
    pub(crate) number: u32,
    pub(crate) millis: u64,
}

/// The finalizer of a chord, which produces the sum.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "chaos:finalizer", input = Vec<u32>, output = u32)]
pub(crate) struct Finalizer {
    pub(crate) millis: u64,
}

/// Is held by the first worker that takes it, and done by the next.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "chaos:held")]
pub(crate) struct Held {}

pub(crate) fn handlers(log: Arc<Log>) -> Handlers {
    Handlers::new().on(chore).on(member).on(finalizer).on(held).with_state(log)
}

async fn chore(job: Chore, cx: Context<Arc<Log>>) -> JobResult {
    let run = Run::start(&cx);
    sleep(Duration::from_millis(job.millis)).await;
    match job.behavior {
        Behavior::Fails => Err(JobError::unrecoverable("it always fails")),
        Behavior::FailsOnce if cx.attempt() == 1 => Err("it fails once".into()),
        Behavior::FailsOnce | Behavior::Succeeds => {
            run.succeed();
            Ok(())
        }
    }
}

async fn member(job: Member, cx: Context<Arc<Log>>) -> JobResult<u32> {
    let run = Run::start(&cx);
    sleep(Duration::from_millis(job.millis)).await;
    if cx.attempt() == 1 && job.number.is_multiple_of(7) {
        return Err("it fails once".into());
    }
    run.succeed();
    Ok(job.number)
}

async fn finalizer(job: Finalizer, cx: Context<Arc<Log>>) -> JobResult<u32> {
    let run = Run::start(&cx);
    let numbers = cx.input(&job)?;
    sleep(Duration::from_millis(job.millis)).await;
    run.succeed();
    Ok(numbers.iter().sum())
}

async fn held(_: Held, cx: Context<Arc<Log>>) -> JobResult {
    if cx.delivery() == 1 {
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// One run of a handler. Its end is written down also when the handler is dropped where it is.
struct Run {
    cx: Context<Arc<Log>>,
    succeeded: bool,
}

impl Run {
    fn start(cx: &Context<Arc<Log>>) -> Self {
        let what = What::Start { delivery: cx.delivery() };
        cx.state().write(format_args!("{} {what}", cx.id()));
        Self { cx: cx.clone(), succeeded: false }
    }

    fn succeed(mut self) {
        self.succeeded = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let what = What::End { delivery: self.cx.delivery(), succeeded: self.succeeded };
        self.cx.state().write(format_args!("{} {what}", self.cx.id()));
    }
}
