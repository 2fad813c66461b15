//! The program `taskharbor`.
//!
//! Everything it prints goes through `Write`, so that a reader who leaves early is an error to be
//! dealt with here and not a panic.

mod cli;
mod demo;
mod duration;
mod table;
mod terminal;

use std::{
    io::{self, Write},
    process::ExitCode,
};

/// What a shell reports for a program that wrote to a closed pipe.
const BROKEN_PIPE: u8 = 141;

fn main() -> ExitCode {
    cli::run().unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::from(BROKEN_PIPE);
        }
        // If even this cannot be written, the exit code has to say it alone.
        let _ = writeln!(io::stderr(), "taskharbor: {error:#}");
        ExitCode::FAILURE
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
