//! The PostgreSQL driver, beside graphile_worker and the plainest thing that could do the same on the
//! same server.
//!
//! Everything is measured on a private server that forgets nothing: `fsync` and `synchronous_commit`
//! are on. The sides of a comparison take turns, and what is printed is the median of the rounds with
//! the least and the most of them.

mod announce;
mod backlog;
mod bulk;
mod child;
mod chord;
mod dashboard;
mod drain;
mod lanes;
mod latency;
mod layout;
mod metrics;
mod peer;
mod producer;
mod queues;
mod scale;
mod schedules;
mod server;
mod side;
mod single;
mod size;
mod snapshot;
mod store;
mod usage;
mod wal;

use std::error::Error;

use crate::{choice::split, worker::runtime};
use size::Sizes;

pub(crate) use child::Child;
pub(crate) use server::Server;
pub(crate) use usage::Usage;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PARTS: [&str; 21] = [
    "drain",
    "millisecond",
    "single",
    "bulk",
    "chord",
    "wal",
    "queues",
    "held",
    "leased",
    "expired",
    "herd",
    "key",
    "backlog",
    "snapshot",
    "latency",
    "schedules",
    "lanes",
    "flows",
    "announce",
    "metrics",
    "dashboard",
];

/// Runs the chosen parts, or all of them: names of parts and sizes such as `jobs=20000`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    runtime()?.block_on(choose(arguments)).map_err(|error| error as Box<dyn Error>)
}

/// A private server for other benchmarks, with a new store whenever one is asked for.
pub(crate) struct Fresh(Server);

impl Fresh {
    pub(crate) fn start() -> Outcome<Self> {
        Server::start().map(Self)
    }

    pub(crate) async fn store(&self, schema: &str) -> Outcome<crate::http::Kept> {
        let store = store::Store::new(&self.0, schema, 0).await?;
        Ok((taskharbor::AnyDriver::new(store.driver.clone()), Box::new(store)))
    }
}

/// Is a process that enqueues, for a part that needs several.
pub(crate) fn produce(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    producer::run(arguments).map_err(|error| error as Box<dyn Error>)
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
            "millisecond" => drain::millisecond(&server, sizes).await?,
            "single" => single::run(&server, sizes).await?,
            "bulk" => bulk::run(&server, sizes).await?,
            "chord" => chord::run(&server, sizes).await?,
            "wal" => wal::run(&server, sizes).await?,
            "queues" => queues::run(&server, sizes).await?,
            "held" => scale::held::run(&server, sizes).await?,
            "leased" => scale::leased::run(&server, sizes).await?,
            "expired" => scale::expired::run(&server, sizes).await?,
            "herd" => scale::herd::run(&server, sizes).await?,
            "key" => scale::key::run(&server, sizes).await?,
            "backlog" => backlog::run(&server, sizes).await?,
            "snapshot" => snapshot::run(&server, sizes).await?,
            "latency" => latency::run(&server, sizes).await?,
            "schedules" => schedules::run(&server, sizes).await?,
            "lanes" => lanes::run(&server, sizes).await?,
            "announce" => announce::run(&server, sizes).await?,
            "metrics" => metrics::run(&server, sizes).await?,
            "dashboard" => dashboard::run(&server, sizes).await?,
            _ => {
                let store = store::Store::new(&server, "flows", sizes.payload).await?;
                crate::flows::measure(&taskharbor::AnyDriver::new(store.driver)).await?;
            }
        }
    }
    Ok(())
}
