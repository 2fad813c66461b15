//! Other processes: this program again, which runs the one test that an environment variable names.

use std::process::Command;

const CHILD: &str = "TASKHARBOR_SQLITE_CHILD";

/// This program, running the test `name` as a child that is told `what`.
pub(crate) fn child(name: &str, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(CHILD, what);
    command
}

/// What this process was told, if it is a child.
pub(crate) fn told() -> Option<String> {
    std::env::var(CHILD).ok()
}
