//! Running programs under the account of the servers: ours, or another one when we are root, as
//! which neither PostgreSQL nor pgbouncer runs.

use std::{ffi::OsStr, path::Path, process::Command, sync::LazyLock};

use taskharbor_provision::Account;

use crate::postgres::environment;

/// A command under the account of the servers.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    static ACCOUNT: LazyLock<Account> = LazyLock::new(|| {
        let account = Account::named(environment::optional("TASKHARBOR_PG_USER"));
        account.unwrap_or_else(|error| panic!("{error}"))
    });
    let mut command = ACCOUNT.command(program);
    // Not in the directory of this process, which the account may be unable to enter.
    command.current_dir("/");
    command
}

/// Runs a command to its end and returns what it printed.
pub fn run(command: &mut Command) -> String {
    attempt(command).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Runs a command to its end; what it printed, or why it failed.
pub fn attempt(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?} did not start: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{command:?}: {}\n{}", output.status, text(&output.stderr))),
    }
}

/// Runs a few lines of shell in a directory, which are told it as `$1` and the rest after it.
pub fn script(lines: &str, dir: &Path, arguments: &[&str]) -> String {
    let lines = format!("set -eu; umask 022; {lines}");
    run(command("sh").args(["-c", &lines, "sh"]).arg(dir).args(arguments))
}
