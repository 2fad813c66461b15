//! Running one command the way a person would: show it, let its output through, mind its exit code.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    use std::process::Stdio;

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
}
