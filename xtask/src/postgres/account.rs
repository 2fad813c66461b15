//! The account under which servers run: ours, or an unprivileged one when we are root, because
//! neither PostgreSQL nor pgbouncer agrees to run as root.
//!
//! A command runs under it by a prefix (`setpriv … --`), which the shell script that cleans up can
//! use as well.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::shell::{output, succeeds};

/// Accounts that own nothing of value, in the order of preference.
const UNPRIVILEGED: [&str; 2] = ["nobody", "postgres"];

/// Programs that change the account, in the order of preference: the first only changes ids, the
/// others open a session.
const TOOLS: [&str; 3] = ["setpriv", "runuser", "su"];

/// Who runs the servers.
pub(crate) struct Account {
    /// None where it is our own.
    name: Option<&'static str>,
    prefix: Vec<String>,
}

impl Account {
    pub(crate) fn choose() -> Result<Self, Failure> {
        if output(Command::new("id").arg("-u"))?.trim() != "0" {
            return Ok(Self { name: None, prefix: Vec::new() });
        }
        let usable = UNPRIVILEGED.into_iter().find_map(|name| {
            let gid = output(Command::new("id").args(["-g", name])).ok()?;
            let prefixes = TOOLS.into_iter().map(|tool| prefix(tool, name, gid.trim()));
            // A tool of that name need not know the options: the one of busybox does not.
            let prefix =
                prefixes.into_iter().find(|prefix| succeeds(&mut under(prefix, "true")))?;
            Some(Self { name: Some(name), prefix })
        });
        usable.ok_or_else(|| {
            let tools = TOOLS.join(", ");
            Failure::Check(format!(
                "PostgreSQL does not run as root, and none of {tools} can become {}: \
                 run this as an ordinary user",
                UNPRIVILEGED.join(" or ")
            ))
        })
    }

    /// The name of the account, if it is not our own.
    pub(crate) fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// What comes before a command to run it under this account.
    pub(crate) fn prefix(&self) -> &[String] {
        &self.prefix
    }

    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        under(&self.prefix, program)
    }

    /// Whether all directories on the way, and this one, let the account through.
    pub(crate) fn reaches(&self, dir: &Path) -> bool {
        succeeds(self.command("test").arg("-x").arg(dir))
    }

    /// Makes the account the owner of a directory that we have just made.
    pub(crate) fn own(&self, dir: &Path) -> Result<(), Failure> {
        match self.name {
            Some(name) => output(Command::new("chown").arg(name).arg(dir)).map(drop),
            None => Ok(()),
        }
    }
}

fn prefix(tool: &str, name: &str, gid: &str) -> Vec<String> {
    let line = match tool {
        "setpriv" => format!("setpriv --reuid={name} --regid={gid} --clear-groups --"),
        "runuser" => format!("runuser -u {name} --"),
        _ => format!("su -s /bin/sh -c EXEC -- {name}"),
    };
    // Such accounts may have no shell, and `su` knows commands only as text for one.
    let words = line.split(' ').map(|word| if word == "EXEC" { r#"exec "$0" "$@""# } else { word });
    words.map(str::to_owned).collect()
}

fn under(prefix: &[String], program: impl AsRef<OsStr>) -> Command {
    match prefix.split_first() {
        Some((tool, args)) => {
            let mut command = Command::new(tool);
            command.args(args).arg(program);
            command
        }
        None => Command::new(program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_followed_by_the_command() {
        let line = |tool| prefix(tool, "nobody", "65534").join(" ");
        assert_eq!(line("setpriv"), "setpriv --reuid=nobody --regid=65534 --clear-groups --");
        assert_eq!(line("runuser"), "runuser -u nobody --");
        assert_eq!(line("su"), r#"su -s /bin/sh -c exec "$0" "$@" -- nobody"#);
    }

    #[test]
    fn without_a_prefix_the_command_is_the_program_itself() {
        assert_eq!(under(&[], "initdb").get_program(), "initdb");
        let prefix = ["setpriv".to_owned(), "--".to_owned()];
        let command = under(&prefix, "initdb");
        assert_eq!(command.get_program(), "setpriv");
        assert!(command.get_args().eq(["--", "initdb"]));
    }
}
