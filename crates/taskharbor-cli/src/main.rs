//! The program `taskharbor`.
//!
//! Everything it prints goes through `Write`, so that a reader who leaves early is an error to be
//! dealt with here and not a panic.

mod clean;
mod cli;
mod command;
mod demo;
mod duration;
mod failure;
mod interrupt;
mod json;
mod json_output;
mod screen;
mod secret;
mod stderr;
mod store;
mod table;
mod terminal;
mod value;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
