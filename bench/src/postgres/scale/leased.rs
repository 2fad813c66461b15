//! Leased jobs that stand in front of the queue, as those of a large fleet do.

use std::time::Duration;

use taskharbor_core::Driver;
use taskharbor_postgres::PostgresDriver;

use super::super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{Store, WakeUps, open, reserve},
};
use crate::finding::{Bound, Rounds, finding, head, median_ms, percentile_ms, ratio};
use crate::stopwatch::now;

const SCHEMA: &str = "leased";
const CALLS: usize = 200;
const DEMAND: usize = 10;
const LEASE: Duration = Duration::from_secs(3_600);
const TIMES: f64 = 2.0;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("leased: one job behind {} that are leased", sizes.leased));
    let [mut free, mut behind, mut first, mut worst] =
        [Rounds::default(), Rounds::default(), Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let store = Store::new(server, SCHEMA, sizes.payload).await?;
        free.push(median_ms(&calls(&store, &store.driver).await?));
        store.fill(sizes.leased, sizes.bulk).await?;
        let mut held = 0;
        while held < sizes.leased {
            let jobs = reserve(&store.driver, sizes.bulk, store.clock.now(), LEASE).await?;
            if jobs.is_empty() {
                return Err("jobs are missing".into());
            }
            held += jobs.len();
        }
        // Another process, which did not lease them.
        let other = open(server, SCHEMA, WakeUps::On).await?;
        let samples = calls(&store, &other).await?;
        behind.push(median_ms(&samples));
        first.push(samples.first().map_or(f64::NAN, |it| it.as_secs_f64() * 1e3));
        worst.push(percentile_ms(&samples, 99));
    }
    finding("reserve of one job, none is leased, median", &free, " ms", 2, Bound::None);
    finding("reserve of one job, behind them, median", &behind, " ms", 2, Bound::None);
    finding("  p99", &worst, " ms", 2, Bound::None);
    finding("  the first call of a process", &first, " ms", 2, Bound::None);
    ratio("the second over the first", &behind.over(&free), Bound::AtMost(TIMES));
    Ok(())
}

/// What it takes to get a job that was just stored.
async fn calls(store: &Store, driver: &PostgresDriver) -> Outcome<Vec<Duration>> {
    let mut samples = Vec::new();
    for _ in 0..CALLS {
        driver.enqueue(store.jobs(1)?).await?;
        let began = now();
        let jobs = reserve(driver, DEMAND, store.clock.now(), LEASE).await?;
        samples.push(began.elapsed());
        if jobs.len() != 1 {
            return Err(format!("{} jobs instead of one", jobs.len()).into());
        }
        store.ack(jobs).await?;
    }
    Ok(samples)
}
