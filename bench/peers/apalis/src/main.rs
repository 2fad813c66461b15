//! apalis, driven by the benchmarks: `taskharbor-bench-apalis <url> <schema>`. The schema is not used: apalis has
//! its own, and each side has a database of its own. The URL of a file begins with `sqlite:`.

mod postgres;
mod sqlite;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use apalis::prelude::{BoxDynError, Data, WorkerContext};
use serde::{Deserialize, Serialize};
use taskharbor_bench_protocol::{Outcome, Probe, Running, serve};
use tokio::task::JoinHandle;

/// Jobs that the best setting runs at once.
const MANY: usize = 500;
/// Jobs that the best setting fetches in one call.
const BATCH: usize = 500;
const CONNECTIONS: u32 = 20;
/// How often the best setting looks for jobs that no notification has announced.
const POLL: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Noop {
    number: usize,
    pad: String,
}

async fn noop(job: Noop, probe: Data<Arc<Probe>>) -> Result<(), BoxDynError> {
    probe.handle(job.number).await;
    Ok(())
}

fn main() -> Outcome {
    let usage = "usage: taskharbor-bench-apalis <url> <schema>";
    let url = std::env::args().nth(1).ok_or(usage)?;
    if url.starts_with("sqlite:") {
        serve(&sqlite::Apalis::new(&url))
    } else {
        serve(&postgres::Apalis::new(&url))
    }
}

/// A name that no other worker has had, which SQLite demands.
fn worker_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A worker, in a task of its own.
struct Worker {
    context: WorkerContext,
    task: JoinHandle<Outcome>,
}

impl Running for Worker {
    async fn stop(self) -> Outcome {
        self.context.stop()?;
        self.task.await?
    }
}
