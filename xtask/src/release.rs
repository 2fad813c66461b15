//! Checks before a release: that each package builds by itself, that its dependencies may be as old as it says,
//! and which versions its changes call for.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::cargo::cargo;
use crate::shell::{cannot, output, root, run};
use crate::tool::SEMVER_CHECKS;

/// The members of the workspace that are not published.
const OURS_ALONE: &str = "--exclude taskharbor-testkit --exclude taskharbor-provision --exclude taskharbor-bench --exclude taskharbor-chaos --exclude xtask";

/// Makes the package of each published crate and builds it from its package, with the other packages as dependencies.
pub(crate) fn package() -> Command {
    // Changes that are not committed yet are packaged, too.
    let mut command = cargo(&format!("package --workspace {OURS_ALONE} --locked --allow-dirty"));
    command.env("CARGO_TARGET_DIR", root().join("target/packages"));
    command
}

/// Builds the published crates with the oldest versions of their dependencies that their manifests allow.
pub(crate) fn minimal_versions() -> Result<(), Failure> {
    let lock = root().join("Cargo.lock");
    let before = fs::read(&lock).map_err(|error| cannot("read", &lock, &error))?;
    let result = with_minimal_versions();
    fs::write(&lock, before).map_err(|error| cannot("write", &lock, &error))?;
    result
}

fn with_minimal_versions() -> Result<(), Failure> {
    // A setting of cargo that has no stable name yet.
    let mut update = cargo("update -Z direct-minimal-versions");
    run(update.env("RUSTC_BOOTSTRAP", "1"))?;
    let mut check = cargo(&format!("check --workspace {OURS_ALONE} --all-features"));
    run(check.env("CARGO_TARGET_DIR", root().join("target/minimal-versions")))
}

/// Compares the public interface of each published library with that of a revision, by default the last release.
pub(crate) fn semver(revision: Option<&str>) -> Result<(), Failure> {
    let revision = match revision {
        Some(revision) => revision.to_owned(),
        None => last_release(&root())?,
    };
    let mut command = Command::new(SEMVER_CHECKS.find_or_install()?);
    let line =
        format!("semver-checks --workspace {OURS_ALONE} --exclude taskharbor-cli --baseline-rev");
    run(command.current_dir(root()).args(line.split_whitespace()).arg(revision))
}

fn last_release(repository: &Path) -> Result<String, Failure> {
    let mut describe = Command::new("git");
    describe.current_dir(repository).args(["describe", "--tags", "--match", "v*", "--abbrev=0"]);
    let tag = output(&mut describe).map_err(|why| {
        Failure::Check(format!(
            "there is no release to compare with ({why}); name a revision: cargo xtask semver REVISION"
        ))
    })?;
    Ok(tag.trim().to_owned())
}
