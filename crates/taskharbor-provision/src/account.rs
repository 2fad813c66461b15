//! The account under which servers run: ours, or an unprivileged one when we are root, because
//! neither PostgreSQL nor pgbouncer agrees to run as root.
//!
//! A command runs under it by a prefix (`setpriv … --`), which the shell script that cleans up can
//! use as well.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::shell::{output, succeeds};

/// Accounts that own nothing of value, in the order of preference.
const UNPRIVILEGED: [&str; 2] = ["nobody", "postgres"];

/// Programs that change the account, in the order of preference: the first only changes ids, the
/// others open a session.
const TOOLS: [&str; 3] = ["setpriv", "runuser", "su"];

/// The account that runs the servers.
#[derive(Debug)]
pub struct Account {
    /// None if it is that of this process.
    name: Option<String>,
    prefix: Vec<String>,
}

impl Account {
    pub(crate) fn choose() -> Result<Self, Error> {
        if output(Command::new("id").arg("-u"))?.trim() != "0" {
            return Ok(Self { name: None, prefix: Vec::new() });
        }
        let usable = UNPRIVILEGED.into_iter().find_map(|name| {
            Some(Self { prefix: usable_prefix(name)?, name: Some(name.to_owned()) })
        });
        usable.ok_or_else(|| {
            let tools = TOOLS.join(", ");
            Error::new(format!(
                "PostgreSQL does not run as root, and none of {tools} can become {}: \
                 run this as an ordinary user",
                UNPRIVILEGED.join(" or ")
            ))
        })
    }

    /// The account of this name, which `TASKHARBOR_PG_USER` has; that of this process if there is no name.
    ///
    /// # Errors
    ///
    /// No program can run commands under that account.
    pub fn named(name: Option<String>) -> Result<Self, Error> {
        let prefix = match &name {
            Some(name) => usable_prefix(name).ok_or_else(|| {
                Error::new(format!("none of {} can become {name}", TOOLS.join(", ")))
            })?,
            None => Vec::new(),
        };
        Ok(Self { name, prefix })
    }

    /// The name of the account, if it is not that of this process.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What comes before a command to run it under this account.
    pub(crate) fn prefix(&self) -> &[String] {
        &self.prefix
    }

    /// A command under this account.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        under(&self.prefix, program)
    }

    /// Whether all directories on the way, and this one, let the account through.
    pub(crate) fn reaches(&self, dir: &Path) -> bool {
        succeeds(self.command("test").arg("-x").arg(dir))
    }

    /// Makes the account the owner of a directory that we have just made.
    pub(crate) fn own(&self, dir: &Path) -> Result<(), Error> {
        match &self.name {
            Some(name) => output(Command::new("chown").arg(name).arg(dir)).map(drop),
            None => Ok(()),
        }
    }
}

/// The prefix with the first tool that works.
fn usable_prefix(name: &str) -> Option<Vec<String>> {
    let gid = output(Command::new("id").args(["-g", name])).ok()?;
    let mut prefixes = TOOLS.into_iter().map(|tool| prefix(tool, name, gid.trim()));
    // A tool of that name need not know the options: the one of busybox does not.
    prefixes.find(|prefix| succeeds(&mut under(prefix, "true")))
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
