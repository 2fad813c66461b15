//! A worker whose events are counted for Prometheus, beside one that is not observed.

use taskharbor::AnyDriver;
use taskharbor_prometheus::Metrics;

use super::{
    Outcome,
    server::Server,
    side::Side,
    size::Sizes,
    store::{QUEUE, Store},
    usage::Usage,
};
use crate::finding::{Bound, head, ratio};
use crate::noop::{work, work_observed};

const SCHEMA: &str = "metrics";

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("metrics: {} waiting jobs that do nothing", sizes.jobs));
    let [mut observed, mut plain] = [Side::default(), Side::default()];
    for round in 0..sizes.rounds {
        // Neither side always comes first.
        for is_observed in [round % 2 == 0, round % 2 != 0] {
            let side = if is_observed { &mut observed } else { &mut plain };
            drain(server, sizes, is_observed, side).await?;
        }
    }
    plain.print("worker");
    observed.print("worker with metrics");
    ratio("with metrics / without", &observed.rate.over(&plain.rate), Bound::AtLeast(0.98));
    Ok(())
}

async fn drain(server: &Server, sizes: &Sizes, is_observed: bool, side: &mut Side) -> Outcome {
    let store = Store::filled(server, SCHEMA, sizes).await?;
    let driver = AnyDriver::new(store.driver.clone());
    let before = Usage::now(server)?;
    let took = if is_observed {
        let metrics = Metrics::new();
        work_observed(&driver, QUEUE, sizes.jobs, sizes.concurrency, metrics).await?
    } else {
        work(&driver, QUEUE, sizes.jobs, sizes.concurrency).await?
    };
    side.push(sizes.jobs, took, Usage::now(server)?.since(before));
    store.check().await
}
