//! Draining jobs that do nothing: a worker, the bare loop that issues the same statements, and the
//! plain layout.

use std::{pin::Pin, sync::Arc};

use taskharbor::AnyDriver;

use super::{
    Outcome,
    layout::Layout,
    server::Server,
    size::Sizes,
    store::{QUEUE, Store},
    usage::Usage,
};
use crate::finding::{Bound, Rounds, figure, head, per_second, rate, ratio};
use crate::{noop::work, stopwatch::now};

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let jobs = sizes.jobs;
    head(&format!("drain: {jobs} waiting jobs that do nothing"));
    let store = Arc::new(Store::new(server, "drain", sizes.payload).await?);
    let layout = Arc::new(Layout::new(server, sizes.batch, sizes.payload).await?);
    let second = Arc::new(Layout::again(server, sizes.batch, sizes.payload).await?);
    let mut plain = [Rounds::default(), Rounds::default()];
    let mut bare = [Rounds::default(), Rounds::default()];
    let (mut worker, mut spent) = (Rounds::default(), [Rounds::default(), Rounds::default()]);
    for _ in 0..sizes.rounds {
        fill_layout(&layout, &store, sizes).await?;
        plain[0].push(timed(jobs, [plainly(&layout)]).await?);
        fill_layout(&layout, &store, sizes).await?;
        plain[1].push(timed(jobs, [plainly(&layout), plainly(&second)]).await?);

        fill(&store, sizes).await?;
        bare[0].push(timed(jobs, [barely(&store, sizes.batch)]).await?);
        fill(&store, sizes).await?;
        let two = [barely(&store, sizes.batch), barely(&store, sizes.batch)];
        bare[1].push(timed(jobs, two).await?);

        fill(&store, sizes).await?;
        let before = Usage::now(server)?;
        worker.push(per_second(
            jobs,
            work(&AnyDriver::new(store.driver.clone()), QUEUE, jobs, sizes.concurrency).await?,
        ));
        let used = Usage::now(server)?.since(before);
        spent[0].push(used.server);
        spent[1].push(used.client);
    }
    store.check().await?;
    rate("plain layout, one connection", &plain[0]);
    rate("plain layout, two connections", &plain[1]);
    rate("bare loop over the driver", &bare[0]);
    rate("two bare loops over the driver", &bare[1]);
    rate(&format!("worker, {} handlers at once", sizes.concurrency), &worker);
    let [one, two] = &plain;
    ratio("worker / plain layout, one connection", &worker.over(one), Bound::AtLeast(2.0));
    ratio("worker / plain layout, two connections", &worker.over(two), Bound::None);
    ratio("worker / bare loop", &worker.over(&bare[0]), Bound::AtLeast(0.6));
    ratio("worker / two bare loops", &worker.over(&bare[1]), Bound::AtLeast(0.6));
    for (what, spent) in ["server", "client"].into_iter().zip(&spent) {
        let micros = spent.median() * 1e6 / f64::from(u32::try_from(jobs)?);
        figure(
            &format!("processor time per job with the worker, {what}"),
            micros,
            " µs",
            1,
            Bound::None,
        );
    }
    Ok(())
}

async fn fill(store: &Store, sizes: &Sizes) -> Outcome {
    store.clear().await?;
    store.fill(sizes.jobs, sizes.bulk).await?;
    store.vacuum().await
}

async fn fill_layout(layout: &Layout, store: &Store, sizes: &Sizes) -> Outcome {
    layout.clear().await?;
    layout.fill(sizes.jobs, sizes.bulk, store.clock.now()).await?;
    layout.vacuum().await
}

type Loop = Pin<Box<dyn Future<Output = Outcome<usize>> + Send>>;

fn plainly(layout: &Arc<Layout>) -> Loop {
    let layout = Arc::clone(layout);
    Box::pin(async move { layout.drain().await })
}

fn barely(store: &Arc<Store>, batch: usize) -> Loop {
    let store = Arc::clone(store);
    Box::pin(async move { store.drain(batch).await })
}

/// Jobs per second, each loop in a task of its own; fails unless all of them are drained.
async fn timed<const N: usize>(jobs: usize, loops: [Loop; N]) -> Outcome<f64> {
    let started = now();
    let mut done = 0;
    for running in loops.map(tokio::spawn) {
        done += running.await??;
    }
    let took = started.elapsed();
    if done < jobs {
        return Err(format!("{done} of {jobs} jobs were drained").into());
    }
    Ok(per_second(done, took))
}
