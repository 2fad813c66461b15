//! `taskharbor demo`.

use std::{path::PathBuf, process::ExitCode};

use crate::{
    demo,
    failure::{Failure, Outcome},
};

/// Run a few hundred jobs, kill the worker half way, and show that nothing is lost
///
/// The jobs are kept in a temporary file, so it needs no store and leaves nothing behind. Most of
/// them succeed; others fail, panic or time out on purpose. It takes about eight seconds, and ends
/// with 0 if all went as planned, with 1 if it did not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor demo")]
pub(crate) struct Args {
    /// Be the worker of a demo, on this file
    #[arg(long, hide = true, value_name = "FILE")]
    worker_on: Option<PathBuf>,
}

pub(crate) async fn run(args: Args) -> Outcome<ExitCode> {
    let ended = match args.worker_on {
        Some(path) => demo::worker_process::work(path).await.map(|()| ExitCode::SUCCESS),
        None => demo::run().await,
    };
    ended.map_err(|error| match error.downcast::<std::io::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::error("demo", format!("{error:#}")),
    })
}
