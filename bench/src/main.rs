//! Measures the drivers. Run it with `cargo xtask bench`.
//!
//! Machines differ and are noisy, so what counts are ratios between things measured in one run, in
//! turns; absolute rates are printed beside them for orientation.

#![expect(clippy::print_stdout, reason = "printing figures is what it is for")]
#![expect(clippy::print_stderr, reason = "so is saying what went wrong")]

mod choice;
mod finding;
mod flows;
mod http;
mod memory;
mod noop;
mod peers;
mod postgres;
mod schedules;
mod sqlite;
mod stopwatch;
mod worker;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask bench [memory | worker | allocations | flows [url…] | http [part…] [size=number…] | peers [report <file> | [part…] [size=number…]] | postgres [part…] [size=number…] | sqlite [part…] [size=number…]]
exit code: 0 if every bound is met, 1 if one is missed beyond noise or the benchmark failed, 2 for a wrong call";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chosen: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match chosen.as_slice() {
        [] => memory::run().and_then(|()| worker::run()),
        ["memory"] => memory::run(),
        ["worker"] => worker::run(),
        ["flows", urls @ ..] => flows::run(urls),
        ["http", chosen @ ..] => http::run(chosen),
        ["peers", arguments @ ..] => peers::run(arguments),
        // Started by it, beside the programs of the other systems.
        ["peers-side", arguments @ ..] => peers::side(arguments),
        ["postgres", chosen @ ..] => postgres::run(chosen),
        ["sqlite", chosen @ ..] => sqlite::run(chosen),
        // Started by a part of `postgres` that needs processes of its own.
        ["producer", arguments @ ..] => postgres::produce(arguments),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [other, ..] => {
            eprintln!("unknown benchmark {other:?}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => judge(&finding::missed()),
        Err(error) => {
            eprintln!("the benchmark failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Fails the run if a bound was missed.
fn judge(missed: &[String]) -> ExitCode {
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    let bounds = if missed.len() == 1 { "bound was" } else { "bounds were" };
    eprintln!("\n{} {bounds} missed in every round:", missed.len());
    for figure in missed {
        eprintln!("  {figure}");
    }
    ExitCode::FAILURE
}
