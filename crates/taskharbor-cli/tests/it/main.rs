//! The program as its users run it.

mod cli;
mod demo;

/// The plan of the demo itself, so that its output is held against it and not against a copy.
#[path = "../../src/demo/plan.rs"]
#[expect(dead_code, reason = "the demo needs more of its plan than its tests do")]
mod plan;

use std::process::Command;

/// The program, with nothing in its environment that changes how it writes.
fn taskharbor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskharbor"));
    command.env_remove("NO_COLOR").env_remove("RUST_BACKTRACE");
    command
}
