//! Draining jobs that do nothing, and jobs that take a millisecond: a worker, the peer, and loops that
//! reserve and ack and nothing else.

use std::{pin::Pin, sync::Arc, time::Duration};

use taskharbor::AnyDriver;

use super::{
    Outcome,
    layout::Layout,
    peer::{Peer, Setting},
    server::Server,
    side::Side,
    size::Sizes,
    store::{QUEUE, Store},
    usage::Usage,
};
use crate::finding::{Bound, Rounds, head, per_second, rate, ratio};
use crate::{noop::work_for, stopwatch::now};

/// The handlers of a worker as the README shows it.
const FEW: usize = 16;
/// Handlers for jobs that take time.
const MANY: usize = 100;
/// What such a job takes.
const WORK: Duration = Duration::from_millis(1);
/// Without a local queue the peer takes one waiting job for each handler, whenever it looks.
const LOOKS: &str = "looks once a second";
const SCHEMA: &str = "drain";

/// Jobs that do nothing.
pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let jobs = sizes.jobs;
    head(&format!("drain: {jobs} waiting jobs that do nothing"));
    let layout = Arc::new(Layout::new(server, sizes.batch, sizes.payload).await?);
    let second = Arc::new(Layout::again(server, sizes.batch, sizes.payload).await?);
    let mut peer = Peer::new(server, "peer", sizes.payload).await?;
    let [mut plain, mut bare] = [Rounds::default(), Rounds::default()];
    let [mut best, mut few] = [Side::default(), Side::default()];
    let [mut peer_best, mut peer_few, mut peer_default] =
        [Side::default(), Side::default(), Side::default()];
    for _ in 0..sizes.rounds {
        ours(server, sizes, sizes.concurrency, Duration::ZERO, &mut best).await?;
        let setting = Setting::BEST;
        theirs(server, sizes, &mut peer, (setting, jobs, Duration::ZERO), &mut peer_best).await?;
        ours(server, sizes, FEW, Duration::ZERO, &mut few).await?;
        let setting = Setting::BEST.with_concurrency(FEW);
        theirs(server, sizes, &mut peer, (setting, jobs, Duration::ZERO), &mut peer_few).await?;
        let default = (Setting::DEFAULT, FEW, Duration::ZERO);
        theirs(server, sizes, &mut peer, default, &mut peer_default).await?;

        layout.clear().await?;
        layout.fill(jobs, sizes.bulk).await?;
        layout.vacuum().await?;
        plain.push(timed(jobs, [plainly(&layout), plainly(&second)]).await?);
        let store = Arc::new(Store::filled(server, SCHEMA, sizes).await?);
        let two = [barely(&store, sizes.batch), barely(&store, sizes.batch)];
        bare.push(timed(jobs, two).await?);
    }
    best.print(&format!("worker, best setting: {} handlers", sizes.concurrency));
    few.print(&format!("worker, {FEW} handlers"));
    peer_best.print("peer, best setting: 48 handlers, jobs fetched ahead, batched acks");
    peer_few.print(&format!("peer, {FEW}, otherwise the same"));
    rate(&format!("peer, default setting, {FEW} jobs: {LOOKS}"), &peer_default.rate);
    rate("plain layout, two loops", &plain);
    rate("driver, two bare loops", &bare);
    ratio("best / peer's best", &best.rate.over(&peer_best.rate), Bound::AtLeast(1.8));
    let what = format!("{FEW} handlers / best");
    ratio(&what, &few.rate.over(&best.rate), Bound::AtLeast(0.8));
    let what = format!("{FEW} handlers / peer's {FEW}");
    ratio(&what, &few.rate.over(&peer_few.rate), Bound::None);
    ratio("best / plain layout", &best.rate.over(&plain), Bound::None);
    ratio("best / bare loops", &best.rate.over(&bare), Bound::AtLeast(0.6));
    Ok(())
}

/// Jobs that take a millisecond.
pub(crate) async fn millisecond(server: &Server, sizes: &Sizes) -> Outcome {
    let jobs = sizes.jobs;
    head(&format!("millisecond: {jobs} waiting jobs that take 1 ms, {MANY} at once"));
    let mut peer = Peer::new(server, "peer", sizes.payload).await?;
    let [mut worker, mut peer_best, mut peer_default] =
        [Side::default(), Side::default(), Side::default()];
    for _ in 0..sizes.rounds {
        ours(server, sizes, MANY, WORK, &mut worker).await?;
        let setting = Setting::BEST.with_concurrency(MANY);
        theirs(server, sizes, &mut peer, (setting, jobs, WORK), &mut peer_best).await?;
        let setting = Setting::DEFAULT.with_concurrency(MANY);
        theirs(server, sizes, &mut peer, (setting, MANY * 2, WORK), &mut peer_default).await?;
    }
    worker.print(&format!("worker, {MANY} handlers"));
    peer_best.print(&format!("peer, {MANY}, jobs fetched ahead, batched acks"));
    let what = format!("peer, {MANY}, otherwise default, {} jobs: {LOOKS}", MANY * 2);
    rate(&what, &peer_default.rate);
    ratio("worker / peer", &worker.rate.over(&peer_best.rate), Bound::AtLeast(1.3));
    Ok(())
}

async fn ours(
    server: &Server,
    sizes: &Sizes,
    handlers: usize,
    work: Duration,
    side: &mut Side,
) -> Outcome {
    let store = Store::filled(server, SCHEMA, sizes).await?;
    let driver = AnyDriver::new(store.driver.clone());
    let before = Usage::now(server)?;
    let took = work_for(work, &driver, QUEUE, sizes.jobs, handlers).await?;
    side.push(sizes.jobs, took, Usage::now(server)?.since(before));
    store.check().await
}

async fn theirs(
    server: &Server,
    sizes: &Sizes,
    peer: &mut Peer,
    (setting, jobs, work): (Setting, usize, Duration),
    side: &mut Side,
) -> Outcome {
    peer.clear().await?;
    peer.fill(jobs, sizes.bulk).await?;
    peer.vacuum().await?;
    let before = peer.usage(server)?;
    let took = peer.drain(setting, jobs, work).await?;
    side.push(jobs, took, peer.usage(server)?.since(before));
    Ok(())
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
