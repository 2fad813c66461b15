//! The dependency audit: licences, sources and bans always, known vulnerabilities when reachable.
//!
//! The rules are in `deny.toml`. Bans, licences and sources are judged from the crates themselves
//! and must pass everywhere. Advisories need a database that closed networks cannot reach, and by
//! its exit code a check without the database looks like one that found something. So the database
//! is fetched by a command of its own, which may fail, and the check then runs without the network.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::Failure;
use crate::shell::{command_line, root, run};
use crate::step::Outcome;
use crate::tool::DENY;

/// Longer than any honest fetch of the database, which is a shallow clone of a few megabytes.
const FETCH_LIMIT: Duration = Duration::from_secs(60);

/// What to do where cargo-deny is neither present nor installable.
#[derive(Clone, Copy)]
pub(crate) enum MissingTool {
    Fails,
    /// Say so and pass: a registry that is down must not block everything else.
    IsReported,
}

pub(crate) fn dependencies(missing_tool: MissingTool) -> Result<Outcome, Failure> {
    let tool = match (DENY.find_or_install(), missing_tool) {
        (Ok(tool), _) => tool,
        (Err(failure), MissingTool::Fails) => return Err(failure),
        (Err(_), MissingTool::IsReported) => {
            let pinned = DENY.pinned;
            eprintln!("WARNING: DEPENDENCIES WERE NOT AUDITED: cannot install cargo-deny {pinned}");
            return Ok(Outcome::PassedExcept("not audited"));
        }
    };
    // First, because it also validates `deny.toml` and downloads every crate: what can still go
    // wrong in the fetch is the fetch, and the offline check after it has all it needs.
    run(deny(&tool).args(["--locked", "check", "bans", "licenses", "sources"]))?;
    if let Err(reason) = fetch_database(deny(&tool).args(["fetch", "db"]), FETCH_LIMIT) {
        eprintln!("WARNING: advisories were not checked: cannot fetch the database: {reason}");
        return Ok(Outcome::PassedExcept("advisories not checked"));
    }
    run(deny(&tool).args(["--locked", "--offline", "check", "advisories"]))?;
    Ok(Outcome::Passed)
}

fn deny(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(root());
    command
}

/// Runs the fetch for at most `limit`; an error is one line that says why there is no database.
fn fetch_database(command: &mut Command, limit: Duration) -> Result<(), String> {
    eprintln!("$ {}", command_line(command));
    // The clone is made by git, which must neither ask for a password nor outlive us on a
    // connection that has gone silent.
    command
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_HTTP_LOW_SPEED_LIMIT", "1000")
        .env("GIT_HTTP_LOW_SPEED_TIME", "30")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut stderr = child.stderr.take().ok_or("its stderr is missing")?;

    // The end of its error output is the event that says the child is done.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut output = Vec::new();
        let read = stderr.read_to_end(&mut output);
        // The receiver has been dropped once the limit has passed.
        let _ = sender.send(read.map(|_| output));
    });
    let Ok(output) = receiver.recv_timeout(limit) else {
        // Should it have ended just now, the limit was still reached.
        let _ = child.kill().and_then(|()| child.wait());
        return Err(format!("no answer within {} s", limit.as_secs()));
    };
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let output = output.map_err(|error| error.to_string())?;
    Err(reason_in(&String::from_utf8_lossy(&output)).unwrap_or_else(|| status.to_string()))
}

/// The most telling line of a failed fetch: git's own complaint, or else the last line.
fn reason_in(output: &str) -> Option<String> {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let complaint = lines().find_map(|line| line.strip_prefix("fatal: "));
    complaint.or_else(|| lines().next_back()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_git_complained_about() {
        let output =
            "[ERROR] failed to fetch\nCloning into 'db'...\nfatal: no route\n\nTry again\n";
        assert_eq!(reason_in(output).as_deref(), Some("no route"));
        assert_eq!(
            reason_in("[ERROR] is git installed?\n\n").as_deref(),
            Some("[ERROR] is git installed?")
        );
        assert_eq!(reason_in("\n"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_fetch_that_hangs_is_given_up() {
        let mut hanging = Command::new("sleep");
        let result = fetch_database(hanging.arg("600"), Duration::from_millis(20));
        assert_eq!(result, Err("no answer within 0 s".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn a_fetch_that_fails_gives_its_reason_and_one_that_works_gives_none() {
        let limit = Duration::from_secs(60);
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo 'fatal: no route' >&2; exit 1"]);
        assert_eq!(fetch_database(&mut failing, limit), Err("no route".to_owned()));
        assert_eq!(fetch_database(&mut Command::new("true"), limit), Ok(()));
    }
}
