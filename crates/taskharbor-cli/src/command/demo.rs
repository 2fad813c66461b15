//! `taskharbor demo`.

use std::process::ExitCode;

use crate::{
    demo,
    failure::{Failure, Outcome},
};

/// Run a worker on a few hundred jobs and show what becomes of them
///
/// The jobs are kept in memory, so it needs no store and leaves nothing behind. Most of them
/// succeed; others fail, panic or time out on purpose. It takes about five seconds, and ends
/// with 0 if all went as planned, with 1 if it did not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor demo")]
pub(crate) struct Args {}

pub(crate) async fn run(Args {}: Args) -> Outcome<ExitCode> {
    demo::run().await.map_err(|error| match error.downcast::<std::io::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::error("demo", format!("{error:#}")),
    })
}
