//! The time from the call to enqueue until the handler runs, on an idle worker of the same process; and the
//! time of a sync to the disk.

use std::{
    fs::File,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Client, Context, Handlers, Job, Worker};
use taskharbor_sqlite::SqliteDriver;
use tokio::sync::mpsc;

use super::{
    Outcome,
    size::Sizes,
    store::{QUEUE, Store},
};
use crate::{
    finding::{Bound, figure, head, percentile},
    stopwatch::now,
};

const RATE: u32 = 50;
/// What an enqueue writes to the log: five pages.
const LOGGED: usize = 5 * 4_096;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "stamp")]
struct Stamp {
    number: usize,
}

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    head(&format!("latency: {RATE} jobs a second for {} s, from enqueue to start", sizes.idle));
    let store = Store::new(sizes.payload).await?;
    let same = AnyDriver::new(store.driver.clone());
    let other = AnyDriver::new(SqliteDriver::open(store.temp.file()).await?);
    let (mut here, mut answers, mut syncs) = measure(&same, &same, sizes, &store.temp.0).await?;
    let (mut there, ..) = measure(&same, &other, sizes, &store.temp.0).await?;
    for samples in [&mut here, &mut there, &mut answers, &mut syncs] {
        samples.sort_by(f64::total_cmp);
    }
    let sync = percentile(&syncs, 50);
    figure("fsync of 20 KiB, p50", sync, " ms", 2, Bound::None);
    figure("fsync of 20 KiB, p99", percentile(&syncs, 99), " ms", 2, Bound::None);
    figure("enqueue to its answer, p50", percentile(&answers, 50), " ms", 2, Bound::None);
    let most = Bound::AtMost(2.0 * sync + 1.0);
    figure("enqueue to start, same process, p50", percentile(&here, 50), " ms", 2, most);
    figure("enqueue to start, same process, p99", percentile(&here, 99), " ms", 2, Bound::None);
    figure("enqueue to start, another opening, p50", percentile(&there, 50), " ms", 2, Bound::None);
    let most = Bound::AtMost(50.0 + 2.0 * sync);
    figure("enqueue to start, another opening, p99", percentile(&there, 99), " ms", 2, most);
    Ok(())
}

/// Milliseconds from enqueue to start and to the answer, and those that the disk takes, measured in turns.
async fn measure(
    producer: &AnyDriver,
    consumer: &AnyDriver,
    sizes: &Sizes,
    dir: &Path,
) -> Outcome<(Vec<f64>, Vec<f64>, Vec<f64>)> {
    let client = Client::new(producer);
    let (started, mut starts) = mpsc::unbounded_channel::<(usize, Instant)>();
    let stamp = move |job: Stamp, _: Context| {
        let sent = started.send((job.number, now()));
        async move { sent.map_err(|_| "the receiver was dropped") }
    };
    let worker = Worker::builder(consumer).handlers(Handlers::new().on(stamp)).queue(QUEUE, 10);
    let running = worker.build()?.start();
    let (path, mut syncs) = (dir.join("sync"), Vec::new());
    let mut file = File::create(&path)?;
    let count = sizes.idle * usize::try_from(RATE)?;
    let (mut latencies, mut answers) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for number in 0..count {
        tokio::time::sleep(Duration::from_secs(1) / RATE).await;
        let began = now();
        client.enqueue(Stamp { number }).await?;
        answers.push(millis(began.elapsed()));
        let (_, start) = starts.recv().await.ok_or("the worker has ended")?;
        latencies.push(millis(start.duration_since(began)));
        // Until its ack is on the disk, which would make the measured wait longer.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let began = now();
        file.write_all(&[1; LOGGED])?;
        file.sync_all()?;
        syncs.push(millis(began.elapsed()));
    }
    running.shutdown().await?;
    std::fs::remove_file(path)?;
    Ok((latencies, answers, syncs))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
