//! Whether the work on a batch grows with the number of jobs stored.

use std::time::Duration;

use super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{Store, json},
};
use crate::finding::{Bound, Rounds, head, per_second, rate, ratio};
use crate::stopwatch::now;

const WAITING: &str = include_str!("fill.sql");
const DONE: &str = include_str!("done.sql");
const FEW: usize = 10_000;
const BATCHES: usize = 10;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (backlog, batch) = (sizes.backlog, sizes.batch);
    head(&format!("backlog: reserve + settle, {batch} at a time"));
    let few = Store::new(server, "few", sizes.payload).await?;
    let many = Store::new(server, "many", sizes.payload).await?;
    // What is filled in past the driver has to be as the driver would have left it.
    fill(&few, DONE, FEW, sizes).await?;
    fill(&few, WAITING, FEW, sizes).await?;
    few.check().await?;
    fill(&many, DONE, backlog, sizes).await?;
    fill(&many, WAITING, backlog, sizes).await?;
    many.vacuum().await?;
    let (mut with_few, mut with_many) = (Rounds::default(), Rounds::default());
    let rounds = sizes.rounds * 2 + 1;
    for _ in 0..rounds {
        few.clear().await?;
        fill(&few, WAITING, FEW, sizes).await?;
        few.vacuum().await?;
        // Both begin with pages that are written whole when they are first touched.
        few.sql.batch_execute("CHECKPOINT").await?;
        with_few.push(steps(&few, batch).await?);
        with_many.push(steps(&many, batch).await?);
        many.sql.batch_execute("VACUUM th_hot").await?;
    }
    few.check().await?;
    rate(&format!("{FEW} waiting, none over"), &with_few);
    rate(&format!("{backlog} waiting, {backlog} over"), &with_many);
    ratio("many / few", &with_many.over(&with_few), Bound::AtLeast(0.8));
    // Some hundred megabytes that nobody needs any more.
    many.clear().await
}

async fn fill(store: &Store, sql: &str, count: usize, sizes: &Sizes) -> Outcome {
    // Long ago, so that all is due.
    let at = store.clock.now().saturating_sub(Duration::from_secs(3_600)).as_micros();
    let (count, payload) = (i64::try_from(count)?, json(sizes.payload));
    store.sql.execute(sql, &[&at, &count, &payload]).await?;
    Ok(())
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
