//! Counts allocations per job. A program of its own, because counting slows everything down.
//! Run it with `cargo xtask bench allocations`.

#![expect(clippy::print_stdout, reason = "printing figures is what it is for")]

use std::{alloc::System, error::Error};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[path = "../stopwatch.rs"]
mod stopwatch;
#[expect(dead_code, reason = "only jobs that do nothing are counted here")]
#[path = "../worker.rs"]
mod worker;

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> Result<(), Box<dyn Error>> {
    worker::runtime()?.block_on(async {
        let region = Region::new(GLOBAL);
        let driver = worker::filled(&mut stopwatch::Stopwatch::default()).await?;
        report("enqueue, 1,000 in a call", &region);
        let region = Region::new(GLOBAL);
        worker::drain(&driver).await?;
        report("worker, from reserve to ack", &region);
        Ok(())
    })
}

#[expect(clippy::cast_precision_loss, reason = "an average needs no more than 52 bits")]
fn report(what: &str, region: &Region<'_, System>) {
    let stats = region.change();
    let per_job = |count: usize| count as f64 / worker::JOBS as f64;
    println!(
        "{what}: {:.1} allocations and {:.0} bytes per job",
        per_job(stats.allocations),
        per_job(stats.bytes_allocated)
    );
}
