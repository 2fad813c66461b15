//! The cost of checking for commits of other processes while there is nothing to do.

use std::time::Duration;

use taskharbor_core::{Driver, QueueName};

use super::{
    Outcome,
    size::Sizes,
    store::{QUEUE, Store},
};
use crate::finding::{Bound, figure, head};

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    head(&format!("idle: processor time in {} s", sizes.idle));
    let store = Store::new(sizes.payload).await?;
    let alone = spent_in(sizes).await?;
    let watch = store.driver.watch(vec![QueueName::new(QUEUE)?]).await?;
    let watching = spent_in(sizes).await?;
    drop(watch);
    figure("without a watch", alone, " ms", 1, Bound::None);
    figure("with one watch", watching, " ms", 1, Bound::None);
    let seconds = f64::from(u32::try_from(sizes.idle)?);
    let share = (watching - alone).max(0.0) / seconds / 10.0;
    figure("the difference, of one core", share, " %", 3, Bound::None);
    Ok(())
}

/// Milliseconds of processor time, by what the scheduler counted for each thread.
async fn spent_in(sizes: &Sizes) -> Outcome<f64> {
    let before = spent()?;
    tokio::time::sleep(Duration::from_secs(u64::try_from(sizes.idle)?)).await;
    Ok(spent()? - before)
}

fn spent() -> Outcome<f64> {
    let mut nanos = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += text.split(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(nanos / 1e6)
}
