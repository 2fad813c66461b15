//! The work on a job, in a small and in a large store: it must not grow with the number of stored jobs.

use taskharbor::AnyDriver;
use taskharbor_core::{Admin, Driver};

use super::{
    Outcome,
    size::Sizes,
    store::{QUEUE, Store},
};
use crate::{
    finding::{Bound, Rounds, figure, head, per_second, rate, ratio},
    noop::work,
    stopwatch::now,
};

const FEW: usize = 10_000;

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    let backlog = sizes.backlog;
    head(&format!("backlog: a worker drains {FEW} jobs"));
    let many = Store::new(sizes.payload).await?;
    many.fill(backlog, sizes.bulk).await?;
    for _ in 0..backlog.div_ceil(1_000) {
        many.step(1_000).await?;
    }
    many.fill(backlog, sizes.bulk).await?;
    let (mut with_few, mut with_many) = (Rounds::default(), Rounds::default());
    for _ in 0..sizes.rounds {
        let few = Store::new(sizes.payload).await?;
        few.fill(FEW, sizes.bulk).await?;
        let took = work(&AnyDriver::new(few.driver.clone()), QUEUE, FEW, sizes.concurrency).await?;
        with_few.push(per_second(FEW, took));
        let took =
            work(&AnyDriver::new(many.driver.clone()), QUEUE, FEW, sizes.concurrency).await?;
        with_many.push(per_second(FEW, took));
    }
    rate(&format!("{FEW} waiting, none over"), &with_few);
    rate(&format!("{backlog} waiting, {backlog} over"), &with_many);
    ratio("many / few", &with_many.over(&with_few), Bound::AtLeast(0.7));
    let started = now();
    many.driver.counts(taskharbor_core::admin::Counts::new(many.now())).await?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    figure("counting all of them, for people", took, " ms", 0, Bound::None);
    many.driver.close().await?;
    Ok(())
}
