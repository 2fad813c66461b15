//! `cargo xtask`: the commands that people and CI share, so that green here means green there.
//!
//! Std only, as is `taskharbor-provision`: on a fresh checkout both are compiled before anything else, and
//! the check of the dependencies should have none. Every command runs at the workspace root, in whatever
//! directory it is called.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the terminal is what this program is for"
)]

mod audit;
mod cargo;
mod client;
mod guide;
mod guide_copy;
mod option;
mod peer;
mod postgres;
mod progress;
mod release;
mod shell;
mod site;
mod step;
mod tool;
mod vendor;
mod watchdog;

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use taskharbor_provision::{Error, Options, Provision, Version};

use audit::MissingTool;
use shell::run;
use step::{Outcome, Step, run_steps};
use watchdog::run_tests;

const HELP: &str = "\
usage: cargo xtask <command>

  quick         the inner loop: fmt, clippy, tests of core, conformance, memory and the library
  test [args]   every test and doctest, and those of the clients; with arguments,
                `cargo test --locked <args>`
  ci            exactly what CI runs: fmt, clippy, features, test, doctest, chaos, clients, scripts, pages,
                doc, site, packages, audit; on Windows, only what is supported there: check, unit tests
  audit         check licences, sources and advisories of the dependencies
  bench [args]  build and run the benchmarks in release mode; fails if a bound is missed beyond noise
  chaos [memory | sqlite | postgres] [sessions | workers | recovery | schedules | limits]
        [--minutes N] [--kills N] [--jobs N] [--seed S]
                break sessions, workers, connections and servers at random, and check every promise
  crash sqlite [rounds=200] [seed=N]
                kill a process that works on a file, again and again, and look for what was lost
  clients       build the command, and test the clients in Python and TypeScript with it; needs python3
                and npm
  docs          build the documentation site from docs/ into target/book
  guides        copy the guides into the crate taskharbor, for its documentation; after every change of a guide
  package       make the package of each published crate, and build it from its package
  minimal       build with the oldest dependencies that the manifests allow
  semver [REV]  compare the public interfaces with those of the last release, or of a revision
  vendor        fetch the packages that the dashboard's pages use; needs npm
  web-check     check the types of the dashboard's pages; needs npm
  pg            start a PostgreSQL server like that of the tests, until Enter is pressed
  help          print this text

Tests that print nothing for ten minutes are killed, and the run fails.
test, ci, pg, `chaos postgres`, `bench postgres`, `bench peers` and `bench http` start a private PostgreSQL,
found or fetched, and stop it;
test and ci also find or fetch a browser:

  --install            install what is missing with apt-get if there is no other way, for clients as well;
                       CI always does
  --pg-version VERSION use this major version, such as 17, or `newer` for a newer one than the system's; `ci` always tests
                       on the system's and a newer one
";

/// A few minutes of chaos for each change. An hour of it is for people. The clock of a store is set only in
/// runs of a minute.
const CI_CHAOS: [&str; 7] = [
    "sqlite postgres recovery",
    "postgres sessions --minutes 0.5",
    "sqlite workers --minutes 0.5",
    "postgres workers --minutes 1",
    "sqlite postgres schedules --kills 10",
    "memory sqlite limits --jobs 1500",
    "postgres limits --jobs 1000",
];

/// Why a command did not succeed; decides the exit code.
#[derive(Debug)]
enum Failure {
    /// Invalid command line: exit code 2.
    Usage(String),
    /// A check did not pass: exit code 1.
    Check(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Check(error.to_string())
    }
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
        ("bench", args) => bench(args),
        ("chaos", args) => chaos(args),
        ("crash", args) => crash(args),
        ("ci", args) => ci(only_options("ci", args)?),
        ("clients", args) => client::test(only_options("clients", args)?.installing),
        ("pg", args) => postgres::serve(only_options("pg", args)?),
        ("quick", []) => quick(),
        ("audit", []) => audit::dependencies(MissingTool::Fails).map(drop),
        ("docs", []) => site::build(),
        ("guides", []) => guide::copy(),
        ("package", []) => run(&mut release::package()),
        ("minimal", []) => release::minimal_versions(),
        ("semver", []) => release::semver(None),
        ("semver", [revision]) => release::semver(Some(&revision.to_string_lossy())),
        ("vendor", []) => vendor::vendor(),
        ("web-check", []) => vendor::check_types(),
        ("help" | "--help" | "-h", []) => {
            print!("{HELP}");
            Ok(())
        }
        (
            "quick" | "audit" | "docs" | "guides" | "package" | "minimal" | "vendor" | "web-check"
            | "help" | "--help" | "-h",
            [extra, ..],
        )
        | ("semver", [_, extra, ..]) => Err(unexpected(&name, extra)),
        _ => Err(Failure::Usage(format!("unknown command `{name}`"))),
    }
}

fn only_options(name: &str, args: &[OsString]) -> Result<Options, Failure> {
    match option::take(args)? {
        (options, rest) if rest.is_empty() => Ok(options),
        (_, rest) => Err(unexpected(name, &rest[0])),
    }
}

fn unexpected(name: &str, arg: &OsStr) -> Failure {
    Failure::Usage(format!("`{name}` does not take `{}`", arg.to_string_lossy()))
}

fn fmt() -> Step {
    Step::new("fmt", || {
        let mut commands = peer::fmt();
        commands.push(cargo::fmt());
        commands.iter_mut().try_for_each(run).map(|()| Outcome::Passed)
    })
}

fn quick() -> Result<(), Failure> {
    run_steps(
        "quick",
        vec![
            fmt(),
            Step::command("clippy", cargo::clippy()),
            Step::tests("test", cargo::quick_tests()),
        ],
    )
}

/// Arguments narrow the run, and then cargo's own rules say what they mean: `-p` chooses packages,
/// `--test` and its like switch the doctests off, `--doc` leaves nothing else.
fn test(args: &[OsString]) -> Result<(), Failure> {
    let (options, args) = option::take(args)?;
    if args.is_empty() {
        let commands = vec![("test", cargo::tests()), ("doctest", cargo::doctests())];
        let mut steps = postgres::steps("postgres", options, commands);
        steps.push(client::step(options.installing));
        return run_steps("test", steps);
    }
    let provision = Provision::for_tests(options)?;
    provision.warn();
    let mut command = cargo::chosen_tests(&args);
    provision.pass_on(&mut command);
    run_tests(&mut command)
}

fn bench(args: &[OsString]) -> Result<(), Failure> {
    let is = |wanted: &str| args.first().is_some_and(|name| name == wanted);
    if is("postgres") {
        return bench_postgres(args);
    }
    if is("peers") && args.get(1).is_none_or(|it| it != "report") {
        return bench_peers(args);
    }
    if !is("http") {
        return run(&mut cargo::bench(args));
    }
    let (options, args) = option::take(args)?;
    let mut command = cargo::bench(&args);
    let provision = Provision::new(options)?;
    provision.pass_on(&mut command);
    run(&mut command)
}

fn bench_postgres(args: &[OsString]) -> Result<(), Failure> {
    let (options, args) = option::take(args)?;
    let has_part = |part: &str| args.iter().any(|arg| arg == part);
    let has_parts = args.iter().skip(1).any(|arg| !arg.to_string_lossy().contains('='));
    let mut command = cargo::bench(&args);
    command.env("TASKHARBOR_BENCH_PEER", peer::graphile_worker()?);
    // The dashboard is looked at as people do: the command serves it, and a browser shows it.
    let provision = if has_part("dashboard") || !has_parts {
        run(&mut cargo::build_command())?;
        command.env("TASKHARBOR_BENCH_PROGRAM", cargo::command_program());
        Provision::for_tests(options)?
    } else {
        Provision::new(options)?
    };
    provision.pass_on(&mut command);
    run(&mut command)
}

/// All systems on a server of their own. It is started by the benchmark, like that of `bench postgres`.
fn bench_peers(args: &[OsString]) -> Result<(), Failure> {
    let (options, args) = option::take(args)?;
    let mut command = cargo::bench(&args);
    command.env("TASKHARBOR_PEERS", peer::build_all());
    Provision::new(options)?.pass_on(&mut command);
    run(&mut command)
}

/// Only what is chosen is provided: without a name, that is everything.
fn chaos(args: &[OsString]) -> Result<(), Failure> {
    let (options, args) = option::take(args)?;
    run(&mut cargo::build_chaos())?;
    let mut command = cargo::chaos(&args);
    let names = |name: &str| args.iter().any(|arg| arg == name);
    if names("--help") || (!names("postgres") && (names("memory") || names("sqlite"))) {
        return run_tests(&mut command);
    }
    let provision = Provision::new(options)?;
    provision.pass_on(&mut command);
    run_tests(&mut command)
}

fn crash(args: &[OsString]) -> Result<(), Failure> {
    match args.split_first() {
        Some((store, args)) if store == "sqlite" => run(&mut cargo::crash(args)),
        Some((store, _)) => Err(unexpected("crash", store)),
        None => Err(Failure::Usage("`crash` needs a store: sqlite".to_owned())),
    }
}

fn ci(options: Options) -> Result<(), Failure> {
    if cfg!(windows) {
        let check = Step::command("check", cargo::windows_check());
        return run_steps("ci", vec![check, Step::tests("unit tests", cargo::windows_tests())]);
    }
    let mut steps = vec![fmt(), Step::command("clippy", cargo::clippy())];
    steps.push(Step::new("features", || {
        cargo::features().iter_mut().try_for_each(run).map(|()| Outcome::Passed)
    }));
    let usual = Options { version: Version::Usual, ..options };
    let mut commands = vec![("test", cargo::tests()), ("doctest", cargo::doctests())];
    commands.extend(CI_CHAOS.map(|line| {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        ("chaos", cargo::chaos(&args))
    }));
    steps.extend(postgres::steps("postgres", usual, commands));
    let newer = Options { version: Version::Newer, ..options };
    let commands = vec![("test on it", cargo::newer_postgres_tests())];
    steps.extend(postgres::steps("newer postgres", newer, commands));
    steps.extend([
        client::step(options.installing),
        Step::tests("scripts", cargo::scripts()),
        Step::new("pages", || vendor::check_types().map(|()| Outcome::Passed)),
        Step::command("doc", cargo::doc()),
        Step::new("site", || site::build().map(|()| Outcome::Passed)),
        Step::command("packages", release::package()),
        Step::new("audit", || audit::dependencies(MissingTool::IsReported)),
    ]);
    run_steps("ci", steps)
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
    fn invalid_arguments_are_refused_by_name() {
        assert_eq!(usage_error(&[]), "no command given");
        assert_eq!(usage_error(&["deploy"]), "unknown command `deploy`");
        assert_eq!(usage_error(&["--fast"]), "unknown command `--fast`");
        assert_eq!(usage_error(&["crash"]), "`crash` needs a store: sqlite");
        assert_eq!(usage_error(&["crash", "mysql"]), "`crash` does not take `mysql`");
        assert_eq!(usage_error(&["ci", "--fast"]), "`ci` does not take `--fast`");
    }
}
