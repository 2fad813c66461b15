//! The work on a batch, in a small and in a large store: it must not grow with the number of stored jobs.

use super::{Outcome, server::Server, size::Sizes, store::Store};
use crate::finding::{Bound, Rounds, head, per_second, rate, ratio};
use crate::stopwatch::now;

const FEW: usize = 10_000;
const BATCHES: usize = 10;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (backlog, batch) = (sizes.backlog, sizes.batch);
    head(&format!("backlog: reserve + settle, {batch} at a time"));
    let many = Store::new(server, "many", sizes.payload).await?;
    many.fill(backlog, sizes.bulk).await?;
    many.drain(sizes.bulk).await?;
    many.fill(backlog, sizes.bulk).await?;
    many.vacuum().await?;
    let (mut with_few, mut with_many) = (Rounds::default(), Rounds::default());
    let rounds = sizes.rounds * 2 + 1;
    for _ in 0..rounds {
        let few = Store::new(server, "few", sizes.payload).await?;
        few.fill(FEW, sizes.bulk).await?;
        few.vacuum().await?;
        // Both begin with pages that are written whole when they are first touched.
        few.sql.batch_execute("CHECKPOINT").await?;
        with_few.push(steps(&few, batch).await?);
        with_many.push(steps(&many, batch).await?);
        many.vacuum().await?;
        few.check().await?;
    }
    rate(&format!("{FEW} waiting, none over"), &with_few);
    rate(&format!("{backlog} waiting, {backlog} over"), &with_many);
    ratio("many / few", &with_many.over(&with_few), Bound::AtLeast(0.8));
    // Some hundred megabytes that are not needed any more.
    Ok(many.sql.batch_execute("DROP SCHEMA many CASCADE").await?)
}

async fn steps(store: &Store, batch: usize) -> Outcome<f64> {
    // The first call makes plans and connections.
    store.step(1).await?;
    let (started, mut done) = (now(), 0);
    for _ in 0..BATCHES {
        done += store.step(batch).await?;
    }
    if done < BATCHES * batch {
        return Err("the queue ran dry".into());
    }
    Ok(per_second(done, started.elapsed()))
}
