//! The system's packages: installed where that is allowed, otherwise only downloaded.
//!
//! Only apt is supported. Other systems have their programs in directories that are searched, or a wheel
//! that fits.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::shell::{announce, on_path, output};

/// Whether packages may be installed on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installing {
    /// On a machine of CI, or because the user said so.
    Allowed,
    /// The machine of a user is not changed without being asked to.
    Refused,
}

impl Installing {
    /// Allowed on machines of CI, which are thrown away afterwards.
    pub fn by_default() -> Self {
        if in_ci() { Self::Allowed } else { Self::Refused }
    }
}

fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Installs a package with `apt-get`.
///
/// # Errors
///
/// This system has no `apt-get`, the process has no privileges, or there is no such package.
pub fn install(name: &str) -> Result<(), Error> {
    let install = || output(privileged()?.args(["install", "-y", name])).map(drop);
    announce(&format!("installing {name} with apt-get"));
    install().or_else(|_| update().and_then(|()| install()))
}

/// Downloads packages into a directory without installing them, which needs no privileges.
pub(crate) fn download(names: &[String], dir: &Path, installing: Installing) -> Result<(), Error> {
    apt_get()?;
    let download = || {
        let mut command = Command::new("apt-get");
        output(command.args(["-q", "download"]).args(names).current_dir(dir)).map(drop)
    };
    match (download(), installing) {
        (Err(_), Installing::Allowed) => update().and_then(|()| download()),
        (result, _) => result,
    }
}

/// Fresh machines have programs but no list of packages.
fn update() -> Result<(), Error> {
    output(privileged()?.args(["-q", "update"])).map(drop)
}

fn privileged() -> Result<Command, Error> {
    apt_get()?;
    let is_root = output(Command::new("id").arg("-u"))?.trim() == "0";
    let mut command = if is_root {
        Command::new("apt-get")
    } else {
        // Without a terminal nobody could type a password.
        let mut command = Command::new("sudo");
        command.args(["-n", "apt-get"]);
        command
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Ok(command)
}

fn apt_get() -> Result<(), Error> {
    match on_path("apt-get") {
        Some(_) => Ok(()),
        None => Err(Error::new("this system has no apt-get")),
    }
}
