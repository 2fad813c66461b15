//! TaskHarbor beside other systems: `cargo xtask bench peers`.
//!
//! Every system is a program of the same protocol (`bench/peers/protocol`), and so is TaskHarbor. They
//! take turns on one private server that forgets nothing, each on a database of its own, and the state
//! of the machine is measured before and after every round. A run is a file with one line for each
//! measurement; `report` makes the page and its plots from such a file.

mod case;
mod database;
mod gate;
mod page;
mod plot;
mod program;
#[path = "../peers/protocol/src/lib.rs"]
#[expect(unreachable_pub, reason = "the programs of other systems use it as a crate")]
mod protocol;
mod record;
mod report;
mod round;
mod side;
mod size;
mod summary;
mod system;
mod table;

use std::error::Error;

use crate::{choice::split, postgres::Server, worker::runtime};
use record::Log;
use size::Sizes;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The parts on PostgreSQL, and all that is measured on SQLite as one part.
const PARTS: [&str; 7] = ["drain", "single", "latency", "wal", "growth", "processes", "sqlite"];

/// Runs the chosen parts, or all of them; or makes the page of a run.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let outcome = match arguments {
        ["report", file] => report::write(file),
        ["report", ..] => Err("usage: cargo xtask bench peers report <file>".into()),
        _ => runtime()?.block_on(choose(arguments)),
    };
    outcome.map_err(|error| error as Box<dyn Error>)
}

/// Is a process of TaskHarbor's side.
pub(crate) fn side(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    side::run(arguments).map_err(|error| error as Box<dyn Error>)
}

async fn choose(arguments: &[&str]) -> Outcome {
    let (given, chosen) = split(arguments, &PARTS)?;
    let sizes = Sizes::read(&given)?;
    let measured = tokio::spawn(async move {
        let programs = program::all()?;
        let server = Server::start()?;
        let mut log = Log::create(&server, &sizes, &programs).await?;
        round::run(&server, &sizes, &programs, &chosen, &mut log).await?;
        println!("\nThe run: {}", log.path().display());
        println!("The page: cargo xtask bench peers report {}", log.path().display());
        Ok(())
    });
    measured.await?
}
