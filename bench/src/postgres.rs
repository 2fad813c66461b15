//! The PostgreSQL driver, beside the plainest thing that could do the same on the same server.
//!
//! Everything is measured on a private server that forgets nothing: `fsync` and `synchronous_commit`
//! are on. The sides of a comparison take turns, and what is printed is the median of the rounds with
//! the least and the most of them.

mod backlog;
mod drain;
mod enqueue;
mod fleet;
mod latency;
mod layout;
mod notify;
mod server;
mod size;
mod snapshot;
mod store;
mod usage;
mod wal;

use std::error::Error;

use crate::{choice::split, worker::runtime};
use server::Server;
use size::Sizes;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PARTS: [&str; 9] =
    ["drain", "enqueue", "wal", "backlog", "snapshot", "latency", "notify", "fleet", "flows"];

/// Runs the chosen parts, or all of them: names of parts and sizes such as `jobs=20000`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    runtime()?.block_on(choose(arguments)).map_err(|error| error as Box<dyn Error>)
}

async fn choose(arguments: &[&str]) -> Outcome {
    let (given, chosen) = split(arguments, &PARTS)?;
    let sizes = Sizes::read(&given)?;
    // As a task, because that is where applications have their loops.
    let measured = tokio::spawn(async move { measure(&chosen, &sizes).await });
    measured.await?
}

async fn measure(chosen: &[String], sizes: &Sizes) -> Outcome {
    let server = Server::start()?;
    server.describe(sizes).await?;
    for part in chosen {
        match part.as_str() {
            "drain" => drain::run(&server, sizes).await?,
            "enqueue" => enqueue::run(&server, sizes).await?,
            "wal" => wal::run(&server, sizes).await?,
            "backlog" => backlog::run(&server, sizes).await?,
            "snapshot" => snapshot::run(&server, sizes).await?,
            "flows" => {
                let store = store::Store::new(&server, "flows", sizes.payload).await?;
                crate::flows::measure(&taskharbor::AnyDriver::new(store.driver)).await?;
            }
            "latency" => latency::run(&server, sizes).await?,
            "fleet" => fleet::run(&server, sizes).await?,
            _ => notify::run(&server, sizes).await?,
        }
    }
    Ok(())
}
