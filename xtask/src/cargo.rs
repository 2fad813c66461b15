//! The cargo command lines behind the steps: one place to see what is checked, and how strictly.
//!
//! All that build are `--locked`: a run must not change the versions it is judging.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::shell::root;

/// A command line as one would type it, run by the cargo that started us, so that
/// `cargo +toolchain xtask` means that toolchain throughout.
pub(crate) fn cargo(line: &str) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()).args(line.split_whitespace());
    command
}

pub(crate) fn fmt() -> Command {
    cargo("fmt --all --check")
}

pub(crate) fn clippy() -> Command {
    cargo("clippy --workspace --all-targets --locked -- -D warnings")
}

/// The library with each of its features alone, and with none: what others build, we never do.
pub(crate) fn features() -> Vec<Command> {
    let sets = [
        "",
        "--features derive",
        "--features http",
        "--features memory",
        "--features messagepack",
        "--features postgres",
        "--features sqlite",
    ];
    let check = |set| {
        cargo(&format!(
            "clippy -q -p taskharbor --lib --locked --no-default-features {set} -- -D warnings"
        ))
    };
    sets.map(check).into()
}

/// What is supported on Windows: that the published crates compile, and this program.
pub(crate) fn windows_check() -> Command {
    cargo(
        "check --locked --workspace --lib --bins
         --exclude taskharbor-bench --exclude taskharbor-chaos --exclude taskharbor-testkit",
    )
}

/// The unit tests of the crates that need nothing of the system.
pub(crate) fn windows_tests() -> Command {
    cargo(
        "test --locked --lib
         -p taskharbor-core -p taskharbor-conformance -p taskharbor-memory -p taskharbor",
    )
}

/// Crates that need no store to be provisioned, and nothing that calls the compiler again, so the
/// inner loop stays short.
pub(crate) fn quick_tests() -> Command {
    cargo(
        "test --locked -p taskharbor-core -p taskharbor-conformance -p taskharbor-memory
         -p taskharbor --lib --test it --test span --test sqlite -- --skip compile_fail",
    )
}

/// Everything but the doctests. Not `--all-targets`, which would build the benchmarks as tests.
/// A failure in one crate does not hide the failures in the next.
pub(crate) fn tests() -> Command {
    let mut command =
        cargo("test --workspace --locked --no-fail-fast --lib --bins --tests --examples");
    few_scripts(&mut command);
    command
}

/// Random scripts take a round trip for each step on a server, and the suite runs there in several
/// ways. Where they cost next to nothing, `scripts` runs many.
fn few_scripts(command: &mut Command) {
    if env::var_os("TASKHARBOR_SCRIPTS").is_none() {
        command.env("TASKHARBOR_SCRIPTS", "80");
    }
}

/// The tests that a version of PostgreSQL could make a difference to: not how statements are sent,
/// nor what is between the driver and the server.
pub(crate) fn newer_postgres_tests() -> Command {
    let mut command = cargo(
        "test --locked -p taskharbor-postgres --test it --
         --skip conformance::unnamed --skip conformance::pooled",
    );
    few_scripts(&mut command);
    command
}

/// Many more random scripts than the suite runs by itself, where they cost next to nothing.
pub(crate) fn scripts() -> Command {
    let mut command = cargo("test --locked -p taskharbor-memory --lib plain::model");
    command.env("TASKHARBOR_SCRIPTS", "10000");
    command
}

pub(crate) fn doctests() -> Command {
    cargo("test --workspace --locked --doc")
}

/// No `--workspace`: at the root cargo takes every member anyway, and it would overrule a `-p`.
pub(crate) fn chosen_tests(args: &[OsString]) -> Command {
    let mut command = cargo("test --locked");
    command.args(args);
    command
}

pub(crate) fn doc() -> Command {
    let mut command = cargo("doc --workspace --no-deps --locked");
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Kills processes that work on a file, for as many rounds as the arguments say.
pub(crate) fn crash(args: &[OsString]) -> Command {
    let mut command = cargo("run --release --locked -p taskharbor-sqlite --example crash --");
    command.args(args);
    command
}

/// Builds the program that breaks things, with the checks for overflows that tests have.
pub(crate) fn build_chaos() -> Command {
    cargo("build --profile test --locked -p taskharbor-chaos -p taskharbor-cli")
}

/// The program that breaks things, beside this one. Its own tests need it, and those of the command need
/// that, so that building all tests builds both.
pub(crate) fn chaos(args: &[OsString]) -> Command {
    let mut command = Command::new(beside(&format!("taskharbor-chaos{}", env::consts::EXE_SUFFIX)));
    command.args(args).current_dir(root());
    command
}

/// Builds the command, as building all tests does.
pub(crate) fn build_program() -> Command {
    cargo("build --profile test --locked -p taskharbor-cli")
}

/// The command that was built.
pub(crate) fn program() -> PathBuf {
    beside(&format!("taskharbor{}", env::consts::EXE_SUFFIX))
}

/// A program that was built beside this one.
fn beside(name: &str) -> PathBuf {
    let built = env::current_exe().ok().and_then(|path| Some(path.parent()?.join(name)));
    built.unwrap_or_else(|| root().join("target/debug").join(name))
}

/// The command as people install it.
pub(crate) fn build_command() -> Command {
    cargo("build --release --locked -p taskharbor-cli --bin taskharbor")
}

/// Where the built command is.
pub(crate) fn command_program() -> PathBuf {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("release").join(format!("taskharbor{}", env::consts::EXE_SUFFIX))
}

pub(crate) fn bench(args: &[OsString]) -> Command {
    // Counting allocations slows everything down, so that it is done by a program of its own.
    if args == ["allocations"] {
        return cargo("run --release --locked -p taskharbor-bench --bin allocations");
    }
    let mut command = cargo("run --release --locked -p taskharbor-bench --bin taskharbor-bench --");
    command.args(args);
    command
}
