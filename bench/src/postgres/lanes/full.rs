//! Many jobs behind a lane that is full, while other lanes get jobs.

use std::time::Duration;

use taskharbor_core::admin::QueueLimits;

use super::{
    super::{
        Outcome,
        server::Server,
        size::Sizes,
        store::{Store, reserve},
    },
    Shape, put,
};
use crate::finding::{Bound, Rounds, finding, head, median_ms, percentile_ms};
use crate::stopwatch::now;

const SCHEMA: &str = "full_lane";
const OTHERS: usize = 20;
const CALLS: usize = 500;
const DEMAND: usize = 10;
const LEASE: Duration = Duration::from_secs(3_600);
const MOST_MS: f64 = 10.0;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("lanes, full: {} jobs behind a full lane, {OTHERS} other lanes", sizes.jobs));
    let [mut median, mut p99] = [Rounds::default(), Rounds::default()];
    let shape = Shape::of(1, Some(QueueLimits::new().per_lane(1)));
    let store = Store::new(server, SCHEMA, sizes.payload).await?;
    shape.limit(&store).await?;
    shape.fill(&store, sizes.jobs, sizes.bulk).await?;
    store.vacuum().await?;
    if reserve(&store.driver, DEMAND, store.clock.now(), LEASE).await?.len() != 1 {
        return Err("the lane has more than one place, or none".into());
    }
    for _ in 0..sizes.rounds {
        let mut samples = Vec::with_capacity(CALLS);
        for number in 0..CALLS {
            put(&store, &format!("other-{}", number % OTHERS)).await?;
            let began = now();
            let jobs = store.reserve(DEMAND).await?;
            samples.push(began.elapsed());
            if jobs.len() != 1 {
                return Err(format!("{} jobs instead of one", jobs.len()).into());
            }
            store.ack(jobs).await?;
        }
        median.push(median_ms(&samples));
        p99.push(percentile_ms(&samples, 99));
    }
    finding("reserve, median", &median, " ms", 2, Bound::None);
    finding("reserve, p99", &p99, " ms", 2, Bound::AtMost(MOST_MS));
    store.check().await
}
