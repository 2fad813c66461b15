//! Breaks stores and workers at random and checks the promises. Run it with `cargo xtask chaos`.
//!
//! `sessions` are callers of the contract that do random things to the same jobs. `workers` are real
//! processes that are killed, stopped and cut off from their store. `recovery` measures how soon work
//! goes on. `schedules` are fired by processes that are killed around the slots. `limits` are tasks that
//! race for the places and turns of limited queues. Everything random comes from one seed, which is
//! printed. What threads and processes do at the same time is not repeated by a seed.

#![expect(clippy::print_stdout, reason = "printing what happened is what it is for")]
#![expect(clippy::print_stderr, reason = "so is saying what went wrong")]

mod choice;
mod limits;
mod recovery;
mod sessions;
mod store;
mod workers;

use std::{error::Error, process::ExitCode};

use choice::{Choice, Part, USAGE};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((workers::WORKER, rest)) =
        arguments.split_first().map(|(name, rest)| (name.as_str(), rest))
    {
        return report(run(workers::work(rest)));
    }
    if let [workers::PROGRAM, dir] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return report(run(workers::run_program(std::path::Path::new(dir))));
    }
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Choice::read(&arguments) {
        Ok(choice) => report(run(all(choice))),
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Fails with the first of these broken promises, if there are any.
fn fail_if_any(problems: &[String]) -> Outcome {
    const SHOWN: usize = 5;
    if problems.is_empty() {
        return Ok(());
    }
    let shown = problems[..problems.len().min(SHOWN)].join("\n  ");
    Err(format!("{} broken promises, such as\n  {shown}", problems.len()).into())
}

fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    // A thread that hangs has been reported already.
    runtime.shutdown_background();
    outcome
}

/// Runs what was chosen, one after another. A part that fails does not keep the others from running.
async fn all(choice: Choice) -> Outcome {
    let seed = choice.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut failed = Vec::new();
    for (store, part) in choice.runs() {
        let name = format!("{part} on {store}");
        match part {
            Part::Recovery => println!("{name}"),
            Part::Schedules => println!("{name}: {} kills, --seed {seed}", choice.kills()),
            Part::Limits => println!("{name}: {} jobs, --seed {seed}", choice.jobs),
            Part::Sessions | Part::Workers => {
                println!("{name}: {:.0?}, --seed {seed}", choice.time);
            }
        }
        let outcome = match part {
            Part::Sessions => sessions::run(store, seed, choice.time).await,
            Part::Workers => workers::run(store, seed, choice.time).await,
            Part::Recovery => recovery::run(store).await,
            Part::Schedules => workers::schedules::run(store, seed, choice.kills()).await,
            Part::Limits => limits::run(store, seed, choice.jobs).await,
        };
        match outcome {
            Ok(()) => println!("{name}: every promise was kept\n"),
            Err(error) => {
                eprintln!("{name}: {error}\n");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("failed: {} (--seed {seed})", failed.join(", ")).into())
}
