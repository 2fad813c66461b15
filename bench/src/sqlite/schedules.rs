//! Schedules, with a handle for each worker, as processes of their own would have it.

use taskharbor::AnyDriver;
use taskharbor_sqlite::{Config, SqliteDriver};

use super::{Outcome, size::Sizes, store::TempDir};
use crate::schedules::{BURST_WORKERS, WORKERS, burst, on_time};

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    let temp = TempDir::new()?;
    on_time(&handles(&temp, WORKERS).await?, sizes.idle).await?;
    let temp = TempDir::new()?;
    burst(&handles(&temp, BURST_WORKERS).await?).await
}

async fn handles(temp: &TempDir, count: usize) -> Outcome<Vec<AnyDriver>> {
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        let config = Config::new(temp.file()).create(true);
        handles.push(AnyDriver::new(SqliteDriver::open_with(config).await?));
    }
    Ok(handles)
}
