//! The programs that only checks need: our own pinned copy, else one on the `PATH`, else a fresh install.
//!
//! The pinned copies are under `target/`, so that they are cached with everything else that is built, and what the user
//! has installed is left alone.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::cargo::cargo;
use crate::shell::{root, run};

/// A program that cargo installs.
pub(crate) struct Tool {
    /// The package and its program.
    pub(crate) name: &'static str,
    /// The version that we install.
    pub(crate) pinned: &'static str,
    /// The oldest version that does what we need.
    oldest: (u32, u32),
    /// What else `cargo install` is told.
    flags: &'static str,
}

/// `--offline` of older versions does not use the database as it is.
pub(crate) const DENY: Tool =
    Tool { name: "cargo-deny", pinned: "0.20.2", oldest: (0, 20), flags: "" };

/// The documentation site. Watching and serving would double what is compiled.
pub(crate) const MDBOOK: Tool = Tool {
    name: "mdbook",
    pinned: "0.5.4",
    oldest: (0, 5),
    flags: "--no-default-features --features search",
};

/// Compares public interfaces.
pub(crate) const SEMVER_CHECKS: Tool =
    Tool { name: "cargo-semver-checks", pinned: "0.51.0", oldest: (0, 51), flags: "" };

impl Tool {
    pub(crate) fn find_or_install(&self) -> Result<PathBuf, Failure> {
        let tools = root().join("target").join("tools");
        let own = tools.join("bin").join(format!("{}{EXE_SUFFIX}", self.name));
        if version_of(&own).as_deref() == Some(self.pinned) {
            return Ok(own);
        }
        let on_path = PathBuf::from(self.name);
        if version_of(&on_path).is_some_and(|version| is_at_least(&version, self.oldest)) {
            return Ok(on_path);
        }
        self.install(&tools)?;
        Ok(own)
    }

    fn install(&self, tools: &Path) -> Result<(), Failure> {
        // A build directory of its own: the tool shares nothing with the workspace and would only
        // invalidate what is cached there.
        let build = tools.join("build");
        let Self { name, pinned, flags, .. } = self;
        let mut command =
            cargo(&format!("install {name} --version {pinned} --locked {flags} --root"));
        run(command.arg(tools).env("CARGO_TARGET_DIR", &build))?;
        // The tool is in place; leftovers of its build would cost nothing but disk.
        let _ = fs::remove_dir_all(&build);
        Ok(())
    }
}

/// What `--version` says, or nothing where there is no such program.
fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1).map(|version| version.trim_start_matches('v').to_owned())
}

fn is_at_least(version: &str, oldest: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= oldest,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_at_least("0.20.0", (0, 20)));
        assert!(is_at_least("0.100.1", (0, 20)));
        assert!(is_at_least("1.0.0-rc.1", (0, 20)));
        assert!(!is_at_least("0.19.9", (0, 20)));
        assert!(!is_at_least("0.9.1", (0, 20)));
        assert!(!is_at_least("unknown", (0, 20)));
    }
}
