//! Running commands for what they print, and finding programs.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// The root of the workspace, found from the directory of the package that cargo runs: what was compiled in
/// would be wrong in a checkout that was moved together with its build cache.
pub fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let start = package.or_else(|| env::current_dir().ok()).unwrap_or_default();
    let root = start.ancestors().find(|dir| dir.join("Cargo.lock").is_file());
    root.unwrap_or(Path::new(".")).to_owned()
}

/// Prints a line on standard error, past the capture of test programs, which hold back what a test prints.
pub fn announce(line: &str) {
    // A terminal that has gone away is no reason to stop.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Runs a command without showing it and returns what it printed.
///
/// # Errors
///
/// It did not start or did not succeed; the message has the error that it printed, in one line.
pub fn output(command: &mut Command) -> Result<String, Error> {
    let line = command_line(command);
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return Err(Error::new(format!("`{line}` did not start: {error}"))),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = complaint_in(&String::from_utf8_lossy(&output.stderr));
    let complaint = complaint.unwrap_or_else(|| output.status.to_string());
    Err(Error::new(format!("`{line}` failed: {complaint}")))
}

/// The last line that calls itself an error, else whatever was said last.
fn complaint_in(stderr: &str) -> Option<String> {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut errors = lines().filter(|line| line.to_lowercase().contains("error"));
    errors.next_back().or_else(|| lines().next_back()).map(str::to_owned)
}

/// The error of an operation on a file or a directory.
pub fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(format!("cannot {what} {}: {error}", path.display()))
}

/// Whether a command can be run and succeeds; what it prints is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    output(command).is_ok()
}

/// The file of a program that is called by its name alone.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The command as a person would type it, with the program's name instead of its full path.
pub fn command_line(command: &Command) -> String {
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
    fn the_root_is_the_workspace_and_not_the_package() {
        assert!(root().join("xtask/Cargo.toml").is_file());
    }

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["doc", "--locked", ""]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command_line(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --locked ''");
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
    fn output_is_returned_and_a_complaint_becomes_the_error() {
        let sh = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        assert!(matches!(output(&mut sh("echo here")), Ok(text) if text == "here\n"));
        let Err(error) = output(&mut sh("echo 'no room' >&2; exit 3")) else {
            panic!("it exits with 3");
        };
        assert!(error.to_string().ends_with("failed: no room"), "{error}");
        assert!(on_path("sh").is_some() && on_path("no-such-program").is_none());
    }
}
