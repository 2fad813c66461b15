//! `taskharbor demo`.

use std::{path::PathBuf, process::ExitCode};

use crate::{
    demo,
    failure::{Failure, Outcome},
};

/// Run a few hundred jobs, kill the worker halfway, and show that no job is lost
///
/// The jobs are in a temporary file, which is removed at the end. Most jobs succeed; others fail,
/// panic or time out on purpose. The demo takes about eight seconds. The exit code is 0 if every
/// job ended as expected, and 1 otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor demo")]
pub(crate) struct Args {
    /// Run as the worker of a demo, on this file
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
