//! The command line: which commands there are, and what runs each.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::demo;

/// Background jobs with one strict contract on every store.
#[derive(Debug, Parser)]
#[command(name = "taskharbor", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a worker on a few hundred jobs and show what becomes of them
    ///
    /// The jobs are kept in memory, so it needs no store and leaves nothing behind. Most of them
    /// succeed; others fail, panic or time out on purpose. It takes about five seconds, and ends
    /// with 0 if all went as planned, with 1 if it did not.
    Demo,
}

/// Does what the arguments of this process ask for; wrong ones end it with a message and 2.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let Cli { command } = Cli::parse();
    let runtime = tokio::runtime::Runtime::new().context("no runtime could be started")?;
    match command {
        Command::Demo => runtime.block_on(demo::run()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }
}
