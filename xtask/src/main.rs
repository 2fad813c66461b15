//! `cargo xtask`: the commands that people and CI share, so that green here means green there.
//!
//! Std only: on a fresh checkout this is compiled before anything else, and what checks the
//! dependencies should have none. Every command runs at the workspace root, wherever it is called.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the terminal is what this program is for"
)]

mod audit;
mod cargo;
mod deny_tool;
mod shell;
mod step;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use audit::MissingTool;
use shell::run;
use step::{Step, run_steps};

const HELP: &str = "\
usage: cargo xtask <command>

  quick         the inner loop: fmt, clippy, tests of core, conformance, memory and the library
  test [args]   every test and doctest; with arguments, `cargo test --locked <args>`
  ci            exactly what CI runs: fmt, clippy, test, scripts, doctest, doc, audit
  audit         check licences, sources and advisories of the dependencies
  bench [args]  build and run the benchmarks in release mode
  help          print this text
";

/// Why a command did not succeed; decides the exit code.
#[derive(Debug)]
enum Failure {
    /// The command line makes no sense: exit code 2.
    Usage(String),
    /// A check did not pass: exit code 1.
    Check(String),
}

fn main() -> ExitCode {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprint!("error: {message}\n\n{HELP}");
            ExitCode::from(2)
        }
        Err(Failure::Check(message)) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[OsString]) -> Result<(), Failure> {
    let Some((name, rest)) = args.split_first() else {
        return Err(Failure::Usage("no command given".to_owned()));
    };
    let name = name.to_string_lossy();
    match (name.as_ref(), rest) {
        ("test", args) => test(args),
        ("bench", args) => run(&mut cargo::bench(args)),
        ("quick", []) => quick(),
        ("ci", []) => ci(),
        ("audit", []) => audit::dependencies(MissingTool::Fails).map(drop),
        ("help" | "--help" | "-h", []) => {
            print!("{HELP}");
            Ok(())
        }
        ("quick" | "ci" | "audit" | "help" | "--help" | "-h", [extra, ..]) => {
            let extra = extra.to_string_lossy();
            Err(Failure::Usage(format!("`{name}` takes no arguments, got `{extra}`")))
        }
        _ => Err(Failure::Usage(format!("unknown command `{name}`"))),
    }
}

fn quick() -> Result<(), Failure> {
    run_steps(
        "quick",
        vec![
            Step::command("fmt", cargo::fmt()),
            Step::command("clippy", cargo::clippy()),
            Step::command("test", cargo::quick_tests()),
        ],
    )
}

/// Arguments narrow the run, and then cargo's own rules say what they mean: `-p` chooses packages,
/// `--test` and its like switch the doctests off, `--doc` leaves nothing else.
fn test(args: &[OsString]) -> Result<(), Failure> {
    if args.is_empty() {
        run_steps(
            "test",
            vec![
                Step::command("test", cargo::tests()),
                Step::command("doctest", cargo::doctests()),
            ],
        )
    } else {
        run(&mut cargo::chosen_tests(args))
    }
}

fn ci() -> Result<(), Failure> {
    run_steps(
        "ci",
        vec![
            Step::command("fmt", cargo::fmt()),
            Step::command("clippy", cargo::clippy()),
            Step::command("test", cargo::tests()),
            Step::command("scripts", cargo::scripts()),
            Step::command("doctest", cargo::doctests()),
            Step::command("doc", cargo::doc()),
            Step::new("audit", || audit::dependencies(MissingTool::IsReported)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error(args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        match dispatch(&args) {
            Err(Failure::Usage(message)) => message,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        assert_eq!(usage_error(&[]), "no command given");
        assert_eq!(usage_error(&["deploy"]), "unknown command `deploy`");
        assert_eq!(usage_error(&["--fast"]), "unknown command `--fast`");
        assert_eq!(usage_error(&["ci", "--fast"]), "`ci` takes no arguments, got `--fast`");
    }
}
