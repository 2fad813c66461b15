//! The SQLite driver, beside raw SQLite that does the same inserts and updates on the same tables, in
//! transactions of the same size, with the same durability: `synchronous = FULL`.
//!
//! The sides of a comparison take turns, and what is printed is the median of the rounds with the
//! least and the most of them.

mod backlog;
mod drain;
mod enqueue;
mod idle;
mod latency;
mod processor;
mod raw;
mod removal;
mod schedules;
mod size;
mod store;

use std::error::Error;

use crate::{choice::split, worker::runtime};
use size::Sizes;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PARTS: [&str; 7] = ["enqueue", "drain", "latency", "idle", "removal", "schedules", "backlog"];

/// Runs the chosen parts, or all of them: names of parts and sizes such as `jobs=20000`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    runtime()?.block_on(choose(arguments)).map_err(|error| error as Box<dyn Error>)
}

/// A new store in a file for other benchmarks.
pub(crate) async fn fresh() -> Outcome<crate::http::Kept> {
    let store = store::Store::new(0).await?;
    Ok((taskharbor::AnyDriver::new(store.driver.clone()), Box::new(store)))
}

async fn choose(arguments: &[&str]) -> Outcome {
    let (given, chosen) = split(arguments, &PARTS)?;
    let sizes = Sizes::read(&given)?;
    println!("SQLite {}, {sizes:?}", rusqlite::version());
    for part in chosen {
        match part.as_str() {
            "enqueue" => enqueue::run(&sizes).await?,
            "drain" => drain::run(&sizes).await?,
            "latency" => latency::run(&sizes).await?,
            "idle" => idle::run(&sizes).await?,
            "removal" => removal::run(&sizes).await?,
            "schedules" => schedules::run(&sizes).await?,
            _ => backlog::run(&sizes).await?,
        }
    }
    Ok(())
}
