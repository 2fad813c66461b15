//! Where cargo-deny comes from: our own pinned copy, else one on the `PATH`, else a fresh install.
//!
//! The pinned copy lives under `target/`, so that it is cached with everything else that is built
//! and never touches what the user has installed.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::cargo::cargo;
use crate::shell::{root, run};

/// The version we install.
pub(crate) const PINNED: &str = "0.20.2";

/// The oldest version whose `--offline` means what the audit needs: use the database as it is.
const OLDEST: (u32, u32) = (0, 20);

pub(crate) fn find_or_install() -> Result<PathBuf, Failure> {
    let tools = root().join("target").join("tools");
    let own = tools.join("bin").join(format!("cargo-deny{EXE_SUFFIX}"));
    if version_of(&own).as_deref() == Some(PINNED) {
        return Ok(own);
    }
    let on_path = PathBuf::from("cargo-deny");
    if version_of(&on_path).is_some_and(|version| is_recent(&version)) {
        return Ok(on_path);
    }
    install(&tools)?;
    Ok(own)
}

/// What `--version` says, or nothing where there is no such program.
fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1).map(str::to_owned)
}

fn is_recent(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST,
        _ => false,
    }
}

fn install(tools: &Path) -> Result<(), Failure> {
    // A build directory of its own: the tool shares nothing with the workspace and would only
    // invalidate what is cached there.
    let build = tools.join("build");
    let mut command = cargo(&format!("install cargo-deny --version {PINNED} --locked --root"));
    run(command.arg(tools).env("CARGO_TARGET_DIR", &build))?;
    // The tool is in place; leftovers of its build would cost nothing but disk.
    let _ = fs::remove_dir_all(&build);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_recent("0.20.0"));
        assert!(is_recent("0.100.1"));
        assert!(is_recent("1.0.0-rc.1"));
        assert!(!is_recent("0.19.9"));
        assert!(!is_recent("0.9.1"));
        assert!(!is_recent("unknown"));
    }
}
