//! A large chord: how soon its finalizer starts after the last member's ack, and what each member costs
//! the server.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Client, Context, Flow, Handlers, Job, Worker};
use tokio::sync::mpsc;

use super::{Outcome, server::Server, size::Sizes, store::Store, usage::Usage};
use crate::finding::{Bound, Rounds, finding, head};
use crate::stopwatch::now;

const SOON_MS: f64 = 20.0;
const MEMBER_US: f64 = 35.0;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "member", output = u64)]
struct Member {}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "last", queue = "last", input = Vec<u64>)]
struct Last {}

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let members = sizes.members;
    head(&format!("chord: {members} members with an output each, and a finalizer"));
    let [mut soon, mut whole] = [Rounds::default(), Rounds::default()];
    let [mut start, mut run, mut last] = [Rounds::default(), Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let round = round(server, sizes).await?;
        let each = |seconds: f64| seconds * 1e6 / f64::from(u32::try_from(members).unwrap_or(1));
        soon.push(round.soon_ms);
        start.push(each(round.start));
        run.push(each(round.run));
        last.push(each(round.last));
        whole.push(each(round.start + round.run + round.last));
    }
    let what = "the last member's ack to the finalizer's start";
    finding(what, &soon, " ms", 1, Bound::AtMost(SOON_MS));
    let what = "processor time of the server per member";
    finding(what, &whole, " µs", 1, Bound::AtMost(MEMBER_US));
    finding("  to start the chord", &start, " µs", 1, Bound::None);
    finding("  to run the members", &run, " µs", 1, Bound::None);
    finding("  to unblock and start the finalizer", &last, " µs", 1, Bound::None);
    Ok(())
}

/// What one chord took: seconds of the server, and milliseconds.
struct Round {
    start: f64,
    run: f64,
    last: f64,
    soon_ms: f64,
}

async fn round(server: &Server, sizes: &Sizes) -> Outcome<Round> {
    let store = Store::new(server, "chord", sizes.payload).await?;
    // Opens connections and makes plans.
    store.fill(sizes.batch, sizes.bulk).await?;
    store.drain(sizes.batch).await?;
    let driver = AnyDriver::new(store.driver.clone());
    let (told, mut starts) = mpsc::unbounded_channel::<(usize, Instant)>();
    let last = move |job: Last, context: Context| {
        let at = now();
        let outputs = context.input(&job);
        if let Ok(outputs) = &outputs {
            let _ = told.send((outputs.len(), at));
        }
        async { outputs.map(drop) }
    };
    let worker = Worker::builder(&driver).handlers(Handlers::new().on(last)).queue("last", 1);
    let worker = worker.build()?.start();
    let before = Usage::now(server)?;
    let members: Vec<_> = (0..sizes.members).map(|_| Member {}).collect();
    Client::new(&driver).start(Flow::chord(members, Last {})).await?;
    let started = Usage::now(server)?;
    let mut left = sizes.members - 1;
    while left > 0 {
        let jobs = store.reserve(sizes.batch.min(left)).await?;
        if jobs.is_empty() {
            return Err(format!("{left} members are missing").into());
        }
        left -= jobs.len();
        store.ack_with(jobs, Some(b"42")).await?;
    }
    let jobs = store.reserve(1).await?;
    let ran = Usage::now(server)?;
    let began = now();
    store.ack_with(jobs, Some(b"42")).await?;
    let (outputs, at) = starts.recv().await.ok_or("the worker has ended")?;
    let over = Usage::now(server)?;
    if outputs < sizes.members {
        return Err(format!("the finalizer got {outputs} outputs").into());
    }
    worker.shutdown().await?;
    store.check().await?;
    Ok(Round {
        start: started.since(before).server,
        run: ran.since(started).server,
        last: over.since(ran).server,
        soon_ms: at.duration_since(began).as_secs_f64() * 1e3,
    })
}
