//! Rules about manifests: what all crates share is written once, in the root's.

use std::io;

use crate::manifest::{Dependency, Kind, Manifest, members};
use crate::tree::{File, assert_clean, files};

fn own_lints_or_licence(manifest: &Manifest) -> Vec<String> {
    let shared: [(&[&str], &str); 2] =
        [(&["lints"], "lints"), (&["package", "license"], "licence")];
    let own = shared.into_iter().filter(|(key, _)| !manifest.inherits(key));
    own.map(|(_, what)| format!("{}: must inherit the workspace's {what}", manifest.path)).collect()
}

fn own_versions(manifest: &Manifest) -> Vec<String> {
    // A package that is a workspace of its own has its versions where ours has them.
    let dependencies = manifest.dependencies().into_iter().filter(|it| it.key[0] != "workspace");
    // A dependency of tests on a crate of ours has a path and no version where a version would be a cycle of packages.
    let is_path = |dependency: &Dependency<'_>| {
        let has = |field| manifest.get(dependency.key, field).is_some();
        dependency.kind == Kind::Dev && has("path") && !has("version")
    };
    let own = dependencies.filter(|it| !manifest.inherits(it.key) && !is_path(it));
    own.map(|Dependency { name, .. }| {
        let path = &manifest.path;
        format!("{path}: `{name}` must be `workspace = true`; versions live in the root's manifest")
    })
    .collect()
}

/// What is not under `crates/` is not published, and neither is what serves tests only.
fn published_tool(manifest: &Manifest) -> Option<String> {
    let for_tests = ["crates/taskharbor-provision/", "crates/taskharbor-testkit/"];
    let is_tool = !manifest.path.starts_with("crates/")
        || for_tests.iter().any(|folder| manifest.path.starts_with(folder));
    let unpublished = manifest.get(&["package"], "publish") == Some("false");
    (is_tool && !unpublished).then(|| format!("{}: must say `publish = false`", manifest.path))
}

/// Two of them, and `cargo run` at the root would not know which program is meant.
fn default_program(manifest: &Manifest) -> Option<String> {
    let is_command = manifest.get(&["package"], "name") == Some("taskharbor-cli");
    let claims = manifest.get(&["package"], "default-run").is_some();
    (claims != is_command)
        .then(|| format!("{}: `default-run` is for taskharbor-cli only", manifest.path))
}

/// Another name for a crate of ours would hide it from the rule about dependencies.
fn renamed_crates(root: &Manifest) -> Vec<String> {
    let dependencies = root.dependencies().into_iter();
    let renamed = dependencies.filter(|dependency| {
        let package = root.get(dependency.key, "package");
        package.is_some_and(|package| package.starts_with("taskharbor"))
    });
    renamed.map(|d| format!("{}: `{}` renames a crate of ours", root.path, d.name)).collect()
}

/// A manifest that breaks every rule here.
fn broken() -> Manifest {
    let text = r#"
        [package]
        license = "MIT"
        default-run = "tool"
        [dependencies]
        serde = { version = "1", features = ["derive"] }
        tokio.workspace = true
        [dev-dependencies]
        tool = { path = "." }
        [workspace.dependencies]
        heart = { package = "taskharbor-core", path = "crates/taskharbor-core" }
    "#;
    Manifest::read(&File::new("tool/Cargo.toml", text))
}

#[test]
fn every_crate_inherits_lints_and_licence() -> io::Result<()> {
    assert_clean(members()?.iter().flat_map(own_lints_or_licence));
    Ok(())
}

#[test]
fn a_crate_with_its_own_lints_or_licence_is_found() {
    assert_eq!(own_lints_or_licence(&broken()).len(), 2);
}

#[test]
fn cargo_run_at_the_root_means_the_command() -> io::Result<()> {
    assert_clean(members()?.iter().filter_map(default_program));
    Ok(())
}

#[test]
fn a_second_default_program_is_found() {
    assert!(default_program(&broken()).is_some());
}

#[test]
fn every_version_lives_in_the_workspace() -> io::Result<()> {
    assert_clean(members()?.iter().flat_map(own_versions));
    Ok(())
}

#[test]
fn a_version_outside_the_workspace_is_found() {
    let found = own_versions(&broken());
    assert!(found[0].contains("`serde` must be `workspace = true`"), "{found:?}");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn only_what_is_under_crates_is_published() -> io::Result<()> {
    assert_clean(members()?.iter().filter_map(published_tool));
    Ok(())
}

#[test]
fn a_tool_that_would_be_published_is_found() {
    assert!(published_tool(&broken()).is_some());
}

#[test]
fn no_crate_of_ours_is_renamed() -> io::Result<()> {
    let files = files()?;
    let root = files.iter().filter(|file| file.path == "Cargo.toml").map(Manifest::read);
    assert_clean(root.flat_map(|root| renamed_crates(&root)));
    Ok(())
}

#[test]
fn a_renamed_crate_of_ours_is_found() {
    assert_eq!(renamed_crates(&broken()), ["tool/Cargo.toml: `heart` renames a crate of ours"]);
}
