//! One lane with most of the jobs beside many lanes with one job each.

use super::{
    super::{Outcome, server::Server, size::Sizes, store::Store},
    Shape, put,
};
use crate::finding::{Bound, Rounds, finding, head, median_ms, percentile_ms};
use crate::stopwatch::now;

const SCHEMA: &str = "dominant";
const DEMAND: usize = 16;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (waiting, lanes) = (sizes.jobs, (sizes.jobs / 2).max(1));
    head(&format!("lanes, dominant: {waiting} jobs of one lane, {lanes} lanes with one job"));
    let [mut median, mut p99, mut calls] =
        [Rounds::default(), Rounds::default(), Rounds::default()];
    // In the middle of the others.
    let new = format!("lane-{:05}-new", lanes / 2);
    for _ in 0..sizes.rounds {
        let store = Store::new(server, SCHEMA, sizes.payload).await?;
        Shape::of(1, None).fill(&store, waiting, sizes.bulk).await?;
        Shape::of(lanes, None).fill(&store, lanes, sizes.bulk).await?;
        store.vacuum().await?;
        put(&store, &new).await?;
        let (mut samples, mut is_granted) = (Vec::new(), false);
        while !is_granted {
            let began = now();
            let jobs = store.reserve(DEMAND).await?;
            samples.push(began.elapsed());
            if jobs.is_empty() {
                return Err("the job of the new lane is not granted".into());
            }
            is_granted =
                jobs.iter().any(|it| it.job.lane.as_ref().is_some_and(|it| it.as_str() == new));
            store.ack(jobs).await?;
        }
        store.check().await?;
        median.push(median_ms(&samples));
        p99.push(percentile_ms(&samples, 99));
        #[expect(clippy::cast_precision_loss, reason = "so few calls fit")]
        calls.push(samples.len() as f64);
    }
    finding(&format!("reserve of {DEMAND}, median"), &median, " ms", 2, Bound::None);
    finding(&format!("reserve of {DEMAND}, p99"), &p99, " ms", 2, Bound::None);
    finding("calls until the job of a new lane is granted", &calls, "", 0, Bound::None);
    Ok(())
}
