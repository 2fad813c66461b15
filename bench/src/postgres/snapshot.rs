//! The cost of an old snapshot, which keeps dead rows from being removed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor_core::Driver;

use super::{Outcome, server::Server, size::Sizes, store::Store};
use crate::finding::{Bound, Rounds, figure, head, per_second, rate, ratio};
use crate::stopwatch::now;

/// Jobs that the producer keeps waiting.
const BACKLOG: usize = 20_000;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let held = Duration::from_secs(u64::try_from(sizes.held)?);
    head(&format!("snapshot: one held for {held:?} while jobs come and go"));
    let (mut free, mut pinned, mut end) = (Rounds::default(), Rounds::default(), Rounds::default());
    // Off the record, so that neither pays for files that are made and caches that are cold.
    spell(server, sizes, held / 6).await?;
    let before = spell(server, sizes, held / 2).await?.0;
    let reader = server.connect("public").await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    reader.batch_execute(begin).await?;
    let (whole, last) = spell(server, sizes, held).await?;
    pinned.push(whole);
    end.push(last);
    reader.batch_execute("COMMIT").await?;
    // The better of two, before and after: machines have good and bad minutes.
    free.push(before.max(spell(server, sizes, held / 2).await?.0));
    rate("without", &free);
    rate("with a snapshot", &pinned);
    rate("  in the last fifth of the time", &end);
    ratio("with / without", &pinned.over(&free), Bound::AtLeast(0.6));
    figure("  in the last fifth", end.over(&free).median(), "", 2, Bound::None);
    Ok(())
}

/// The rate of a loop beside a producer: on the whole, and in the last fifth.
async fn spell(server: &Server, sizes: &Sizes, length: Duration) -> Outcome<(f64, f64)> {
    let store = Arc::new(Store::new(server, "snapshot", sizes.payload).await?);
    store.fill(BACKLOG, sizes.bulk).await?;
    store.vacuum().await?;
    let (done, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let producer =
        tokio::spawn(produce(Arc::clone(&store), sizes.bulk, Arc::clone(&done), Arc::clone(&over)));
    let (started, mut late, mut late_took) = (now(), 0, Duration::ZERO);
    while started.elapsed() < length {
        let (is_late, began) = (started.elapsed() > length * 4 / 5, now());
        let count = store.step(sizes.batch).await?;
        done.fetch_add(count, Ordering::Relaxed);
        if is_late {
            late += count;
            late_took += began.elapsed();
        }
    }
    let took = started.elapsed();
    over.store(true, Ordering::Relaxed);
    producer.await??;
    store.check().await?;
    Ok((per_second(done.load(Ordering::Relaxed), took), per_second(late, late_took)))
}

async fn produce(
    store: Arc<Store>,
    bulk: usize,
    done: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
) -> Outcome {
    let mut made = BACKLOG;
    while !over.load(Ordering::Relaxed) {
        if made - done.load(Ordering::Relaxed) < BACKLOG {
            store.driver.enqueue(store.jobs(bulk)?).await?;
            made += bulk;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(())
}
