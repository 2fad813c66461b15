//! Enqueueing, starting flows, and waiting for what they produce.

mod chain;
mod coalesce;
mod gate;
mod key;
mod manage;
mod many;
mod option;
mod refuse;
mod runtime;
mod tell;
mod wait;

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job, JobError, JobResult, testing::Harbor};

/// Adds up. A sum that is too large is a permanent failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Job)]
#[job(type = "sum", output = u64)]
struct Sum {
    terms: Vec<u64>,
}

fn sum(terms: impl Into<Vec<u64>>) -> Sum {
    Sum { terms: terms.into() }
}

async fn add_up(job: Sum, _: Context) -> JobResult<u64> {
    let total = job.terms.into_iter().try_fold(0, u64::checked_add);
    total.ok_or_else(|| JobError::unrecoverable("the sum is too large"))
}

/// Carries this many bytes, and produces nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Job)]
#[job(type = "carry")]
struct Carry {
    load: String,
}

fn carry(bytes: usize) -> Carry {
    Carry { load: "x".repeat(bytes) }
}

async fn put_down(_: Carry, _: Context) -> JobResult {
    Ok(())
}

/// A store without a worker: what is enqueued stays as it is.
fn store() -> Harbor {
    Harbor::new(Handlers::new())
}
