//! The time from the call to enqueue until the handler runs, on an idle worker that learns of the job from
//! another process. It is measured alternately with a commit of one row.

use std::{
    fs::File,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Client, Context, Handlers, Job, Worker};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{QUEUE, Store, WakeUps, open},
};
use crate::finding::{Bound, figure, head, percentile};
use crate::stopwatch::now;

const RATE: u32 = 50;
const SYNCS: usize = 300;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "stamp")]
struct Stamp {
    number: usize,
}

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("latency: {RATE} jobs a second for {} s, from enqueue to start", sizes.idle));
    let store = Store::new(server, "latency", sizes.payload).await?;
    let elsewhere = AnyDriver::new(open(server, "latency", WakeUps::On).await?);
    let client = Client::new(&AnyDriver::new(store.driver.clone()));
    let (started, mut starts) = mpsc::unbounded_channel::<(usize, Instant)>();
    let stamp = move |job: Stamp, _: Context| {
        let sent = started.send((job.number, now()));
        async move { sent.map_err(|_| "the benchmark has ended") }
    };
    let worker = Worker::builder(&elsewhere).handlers(Handlers::new().on(stamp)).queue(QUEUE, 10);
    let running = worker.build()?.start();
    let sql = server.connect("latency").await?;
    sql.batch_execute("CREATE TABLE one_row (number bigint)").await?;
    let insert = sql.prepare("INSERT INTO one_row VALUES ($1)").await?;
    // Until the worker listens.
    tokio::time::sleep(Duration::from_secs(1)).await;

    let count = sizes.idle * usize::try_from(RATE)?;
    let (mut enqueued, mut commits) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut half = interval(Duration::from_secs(1) / RATE / 2);
    half.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0..count {
        half.tick().await;
        enqueued.push(now());
        client.enqueue(Stamp { number }).await?;
        half.tick().await;
        let began = now();
        sql.execute(&insert, &[&i64::try_from(number)?]).await?;
        commits.push(millis(began.elapsed()));
    }
    let mut latencies = Vec::with_capacity(count);
    while latencies.len() < count {
        let (number, start) = starts.recv().await.ok_or("the worker has ended")?;
        latencies.push(millis(start.duration_since(enqueued[number])));
    }
    running.shutdown().await?;
    let mut syncs = syncs(server.dir())?;
    for samples in [&mut latencies, &mut commits, &mut syncs] {
        samples.sort_by(f64::total_cmp);
    }
    let most = 3.0 * percentile(&commits, 99) + 5.0;
    for (what, samples) in [("fdatasync of 8 KiB", &syncs), ("commit of one row", &commits)] {
        for percent in [50, 99] {
            let what = format!("{what}, p{percent}");
            figure(&what, percentile(samples, percent), " ms", 2, Bound::None);
        }
    }
    for (percent, bound) in [(50, Bound::None), (95, Bound::None), (99, Bound::AtMost(most))] {
        let what = format!("enqueue to start, p{percent}");
        figure(&what, percentile(&latencies, percent), " ms", 2, bound);
    }
    Ok(())
}

/// How long the disk takes.
fn syncs(dir: &Path) -> Outcome<Vec<f64>> {
    let path = dir.join("sync");
    let mut file = File::create(&path)?;
    let mut samples = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = now();
        file.write_all(&[1; 8192])?;
        file.sync_data()?;
        samples.push(millis(began.elapsed()));
    }
    std::fs::remove_file(path)?;
    Ok(samples)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
