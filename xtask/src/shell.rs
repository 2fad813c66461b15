//! Running one command as a person would: show it, let its output through, check its exit code.

use std::process::Command;

use crate::Failure;

pub(crate) use taskharbor_provision::shell::{cannot, command_line, on_path, output, root};

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

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_failed_command_is_named() {
        let mut command = crate::cargo::cargo("no-such-command");
        let Err(Failure::Check(message)) = run(command.stderr(Stdio::null())) else {
            panic!("cargo has no such command");
        };
        assert!(message.starts_with("`cargo no-such-command` failed"), "{message}");
    }
}
