//! The systems that TaskHarbor is compared with: `bench/peers` has a program for each.
//!
//! They are no members of the workspace. They bring some 400 packages, minutes on two cores, and no change of ours
//! can break them, since they use nothing of ours. So CI only checks their formatting, and they are built where they
//! are used. A system whose program cannot be built is left out, and the page of the run says so.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;
use crate::cargo::cargo;
use crate::shell::{on_path, output, root, run};

const TARGET: &str = "target/peers";
/// The workspaces, relative to the root.
const WORKSPACES: [&str; 2] = ["bench/peers/Cargo.toml", "bench/peers/awa/Cargo.toml"];
/// The systems in Rust, and the index of their workspace.
const CRATES: [(&str, usize); 5] =
    [("graphile_worker", 0), ("riverqueue", 0), ("apalis", 0), ("worklane", 0), ("awa", 1)];
/// The systems in JavaScript, which have a script of that name.
const SCRIPTS: [&str; 2] = ["graphile-worker", "pg-boss"];
const NODE: &str = "bench/peers/node";
/// The oldest Node.js that the scripts' packages support.
const OLDEST_NODE: (u32, u32) = (22, 18);

/// The formatting of the programs in Rust.
pub(crate) fn fmt() -> Vec<Command> {
    WORKSPACES.map(|it| cargo(&format!("fmt --manifest-path {it} --all --check"))).into()
}

/// Builds the program of graphile_worker, and answers where it is.
pub(crate) fn graphile_worker() -> Result<PathBuf, Failure> {
    let (name, workspace) = CRATES[0];
    build(name, workspace)
}

/// Builds all programs. Each line of the answer is `name<tab>program…`, or `name<tab><tab>reason`.
pub(crate) fn build_all() -> String {
    let mut lines = Vec::new();
    for (name, workspace) in CRATES {
        lines.push(match build(name, workspace) {
            Ok(program) => format!("{name}\t{}", program.display()),
            Err(failure) => left_out(name, failure),
        });
    }
    let node = install();
    for name in SCRIPTS {
        lines.push(match &node {
            Ok(node) => {
                let script = root().join(NODE).join(format!("{name}.mjs"));
                format!("{name}\t{}\t{}", node.display(), script.display())
            }
            Err(reason) => left_out(name, Failure::Check(reason.clone())),
        });
    }
    lines.join("\n")
}

fn left_out(name: &str, failure: Failure) -> String {
    let reason = message(failure);
    eprintln!("WARNING: {name} is left out: {reason}");
    format!("{name}\t\t{reason}")
}

fn message(failure: Failure) -> String {
    match failure {
        Failure::Usage(message) | Failure::Check(message) => message,
    }
}

fn build(name: &str, workspace: usize) -> Result<PathBuf, Failure> {
    let manifest = WORKSPACES[workspace];
    let package = format!("taskharbor-bench-{name}");
    run(&mut cargo(&format!(
        "build --release --locked --manifest-path {manifest} -p {package} --target-dir {TARGET}"
    )))?;
    let file = format!("{package}{}", env::consts::EXE_SUFFIX);
    Ok(root().join(TARGET).join("release").join(file))
}

/// Installs the packages of the scripts, and answers where the Node.js is that they run with: the one among the
/// packages, else the one of the system.
fn install() -> Result<PathBuf, String> {
    let dir = root().join(NODE);
    if on_path("npm").is_none() {
        return Err("npm is missing".to_owned());
    }
    let mut npm = Command::new("npm");
    npm.current_dir(&dir).args(["ci", "--silent", "--no-audit", "--no-fund"]);
    run(&mut npm).map_err(message)?;
    let packaged = dir.join("node_modules/node/bin/node");
    for node in [packaged].into_iter().chain(on_path("node")) {
        let printed = output(Command::new(&node).arg("--version")).unwrap_or_default();
        if is_new_enough(&printed) {
            return Ok(node);
        }
    }
    let (major, minor) = OLDEST_NODE;
    Err(format!("Node.js {major}.{minor} or later is missing"))
}

/// Whether `node --version` has printed a version that the packages support.
fn is_new_enough(printed: &str) -> bool {
    let mut parts = printed.trim().trim_start_matches('v').split('.').map(str::parse);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST_NODE)
}

#[test]
fn an_old_node_is_refused() {
    for (printed, is_new) in [
        ("v22.18.0\n", true),
        ("v23.0.0", true),
        ("v22.12.1", false),
        ("v20.20.2", false),
        ("", false),
    ] {
        assert_eq!(is_new_enough(printed), is_new, "{printed:?}");
    }
}

#[test]
fn a_system_that_is_left_out_is_a_line_with_its_reason() {
    let failure = Failure::Check("npm is missing".to_owned());
    assert_eq!(left_out("pg-boss", failure), "pg-boss\t\tnpm is missing");
}
