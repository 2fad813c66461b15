//! Storing jobs in bulk.

use taskharbor_core::Driver;

use super::{Outcome, raw::Raw, size::Sizes, store::Store};
use crate::{
    finding::{Bound, Rounds, head, per_second, rate, ratio},
    stopwatch::now,
};

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    head(&format!("enqueue: {} jobs, {} in a call", sizes.jobs, sizes.bulk));
    let (mut driver, mut raw) = (Rounds::default(), Rounds::default());
    for _ in 0..sizes.rounds {
        let store = Store::new(sizes.payload).await?;
        // Made before the clock runs.
        let calls = store.calls(sizes.jobs, sizes.bulk)?;
        let mut beside = Raw::new().await?;
        let started = now();
        beside.enqueue(&calls)?;
        raw.push(per_second(sizes.jobs, started.elapsed()));
        let started = now();
        for call in calls {
            store.driver.enqueue(call).await?;
        }
        driver.push(per_second(sizes.jobs, started.elapsed()));
        store.check().await?;
    }
    rate("driver", &driver);
    rate("raw SQLite", &raw);
    ratio("driver / raw", &driver.over(&raw), Bound::AtLeast(0.5));
    Ok(())
}
