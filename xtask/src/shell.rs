//! Running one command the way a person would: show it, let its output through, mind its exit code.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;

/// The workspace root, which cargo tells us as we run: what was compiled in would be wrong in a
/// checkout that was moved together with its build cache.
pub(crate) fn root() -> PathBuf {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let parent = manifest_dir.as_deref().and_then(Path::parent);
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Prints the command and runs it; anything but exit code 0 is a failure that names it.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = command_line(command);
    eprintln!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Check(format!("`{line}` failed with {status}"))),
        Err(error) => Err(Failure::Check(format!("`{line}` did not start: {error}"))),
    }
}

/// Runs a command without showing it and returns what it printed; a failure says what it complained
/// about, in one line.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let line = command_line(command);
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return Err(Failure::Check(format!("`{line}` did not start: {error}"))),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = complaint_in(&String::from_utf8_lossy(&output.stderr));
    let complaint = complaint.unwrap_or_else(|| output.status.to_string());
    Err(Failure::Check(format!("`{line}` failed: {complaint}")))
}

/// The last line that mentions an error, or else the last line.
fn complaint_in(stderr: &str) -> Option<String> {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut errors = lines().filter(|line| line.to_lowercase().contains("error"));
    errors.next_back().or_else(|| lines().next_back()).map(str::to_owned)
}

/// Why a file or a directory was not made, removed or read.
pub(crate) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Check(format!("cannot {what} {}: {error}", path.display()))
}

/// Whether a command can be run and succeeds. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    output(command).is_ok()
}

/// Where a program is found that is called by its name alone.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The command as one would type it, with the program's name instead of its full path.
pub(crate) fn command_line(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))));
    let program = Path::new(command.get_program()).file_stem().map(quoted);
    let args = command.get_args().map(quoted);
    variables.chain(program).chain(args).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains(char::is_whitespace) {
        format!("'{word}'")
    } else {
        word.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["doc", "--locked", ""]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command_line(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --locked ''");
    }

    #[test]
    fn a_failed_command_is_named() {
        let mut command = crate::cargo::cargo("no-such-command");
        let Err(Failure::Check(message)) = run(command.stderr(Stdio::null())) else {
            panic!("cargo has no such command");
        };
        assert!(message.starts_with("`cargo no-such-command` failed"), "{message}");
    }

    #[test]
    fn the_complaint_is_the_last_error_else_the_last_line() {
        let initdb = "initdb: error: no such directory\ninitdb: removing contents\n\n";
        assert_eq!(complaint_in(initdb).as_deref(), Some("initdb: error: no such directory"));
        assert_eq!(complaint_in("one\ntwo\n").as_deref(), Some("two"));
        assert_eq!(complaint_in("\n"), None);
    }

    #[cfg(unix)]
    #[test]
    fn output_is_returned_and_a_complaint_becomes_the_failure() {
        let sh = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        assert!(matches!(output(&mut sh("echo here")), Ok(text) if text == "here\n"));
        let Err(Failure::Check(message)) = output(&mut sh("echo 'no room' >&2; exit 3")) else {
            panic!("it exits with 3");
        };
        assert!(message.ends_with("failed: no room"), "{message}");
        assert!(on_path("sh").is_some() && on_path("no-such-program").is_none());
    }
}
