//! Draining jobs that do nothing: in batches, and by a worker.

use taskharbor::AnyDriver;

use super::{
    Outcome,
    processor::used,
    raw::Raw,
    size::Sizes,
    store::{QUEUE, Store},
};
use crate::{
    finding::{Bound, Rounds, head, per_second, rate, ratio},
    noop::work,
    stopwatch::now,
};

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    let (jobs, batch) = (sizes.jobs, sizes.batch);
    head(&format!("drain: {jobs} jobs that do nothing, {batch} in a call"));
    let [mut raw, mut bare, mut worker] = [Rounds::default(), Rounds::default(), Rounds::default()];
    let [mut raw_cpu, mut bare_cpu] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let store = Store::new(sizes.payload).await?;
        let calls = store.calls(jobs, sizes.bulk)?;
        let mut beside = Raw::new().await?;
        beside.enqueue(&calls)?;
        let (started, cpu) = (now(), used()?);
        if beside.drain(batch)? != jobs {
            return Err("raw SQLite lost jobs".into());
        }
        raw.push(per_second(jobs, started.elapsed()));
        raw_cpu.push(per_second(jobs, used()? - cpu));
        store.fill(jobs, sizes.bulk).await?;
        let (started, cpu) = (now(), used()?);
        while store.step(batch).await? > 0 {}
        bare.push(per_second(jobs, started.elapsed()));
        bare_cpu.push(per_second(jobs, used()? - cpu));
        store.fill(jobs, sizes.bulk).await?;
        let driver = AnyDriver::new(store.driver.clone());
        worker.push(per_second(jobs, work(&driver, QUEUE, jobs, sizes.concurrency).await?));
        store.check().await?;
    }
    rate("raw SQLite, reserve + ack", &raw);
    rate("driver, reserve + ack", &bare);
    rate(&format!("worker, {} handlers at once", sizes.concurrency), &worker);
    rate("raw SQLite, by processor time", &raw_cpu);
    rate("driver, by processor time", &bare_cpu);
    ratio("driver / raw", &bare.over(&raw), Bound::AtLeast(0.5));
    ratio("driver / raw, by processor time", &bare_cpu.over(&raw_cpu), Bound::AtLeast(0.5));
    ratio("worker / raw", &worker.over(&raw), Bound::AtLeast(0.5));
    Ok(())
}
