//! Running programs under the account of the servers: ours, or another one when we are root, as
//! which neither PostgreSQL nor pgbouncer runs.

use std::{ffi::OsStr, path::Path, process::Command, sync::OnceLock};

use crate::postgres::environment;

/// A command under the account of the servers.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    static PREFIX: OnceLock<Vec<String>> = OnceLock::new();
    let prefix = PREFIX.get_or_init(|| {
        environment::optional("TASKHARBOR_PG_USER").map(|user| prefix(&user)).unwrap_or_default()
    });
    let mut command = under(prefix, program);
    // Not where we are: the account may not be let in there.
    command.current_dir("/");
    command
}

fn under(prefix: &[String], program: impl AsRef<OsStr>) -> Command {
    match prefix.split_first() {
        Some((tool, arguments)) => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// What comes before a command, with the first tool that is there and knows the options.
fn prefix(user: &str) -> Vec<String> {
    let group = run(Command::new("id").args(["-g", user]));
    let lines = [
        format!("setpriv --reuid={user} --regid={} --clear-groups --", group.trim()),
        format!("runuser -u {user} --"),
    ];
    let mut prefixes = lines.iter().map(|line| line.split(' ').map(str::to_owned).collect());
    let works =
        |prefix: &Vec<String>| under(prefix, "true").status().is_ok_and(|status| status.success());
    prefixes.find(works).unwrap_or_else(|| panic!("neither setpriv nor runuser becomes {user}"))
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
