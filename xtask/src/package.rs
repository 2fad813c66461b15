//! The system's packages: installed where that is allowed, otherwise only downloaded.
//!
//! Only apt is spoken. Other systems have their programs in places that are searched, or a wheel
//! that fits.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::shell::{on_path, output};

/// Whether packages may be installed on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installing {
    Allowed,
    /// Packages are not installed on a developer's machine without being asked for.
    Refused,
}

impl Installing {
    /// Machines of CI are made to be thrown away.
    pub(crate) fn by_default() -> Self {
        if in_ci() { Self::Allowed } else { Self::Refused }
    }
}

fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

pub(crate) fn install(name: &str) -> Result<(), Failure> {
    let install = || output(privileged()?.args(["install", "-y", name])).map(drop);
    eprintln!("installing {name} with apt-get");
    install().or_else(|_| update().and_then(|()| install()))
}

/// Downloads packages into a directory without installing them, which needs no privileges.
pub(crate) fn download(
    names: &[String],
    dir: &Path,
    installing: Installing,
) -> Result<(), Failure> {
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
fn update() -> Result<(), Failure> {
    output(privileged()?.args(["-q", "update"])).map(drop)
}

fn privileged() -> Result<Command, Failure> {
    apt_get()?;
    let is_root = output(Command::new("id").arg("-u"))?.trim() == "0";
    let mut command = if is_root {
        Command::new("apt-get")
    } else {
        // Without a terminal there is no way to type a password.
        let mut command = Command::new("sudo");
        command.args(["-n", "apt-get"]);
        command
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Ok(command)
}

fn apt_get() -> Result<(), Failure> {
    match on_path("apt-get") {
        Some(_) => Ok(()),
        None => Err(Failure::Check("this system has no apt-get".to_owned())),
    }
}
