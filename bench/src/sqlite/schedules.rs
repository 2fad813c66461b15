//! Schedules, with a handle for each worker, as processes of their own would have it.

use taskharbor::AnyDriver;
use taskharbor_sqlite::{Config, SqliteDriver};

use super::{Outcome, size::Sizes, store::Place};
use crate::schedules::{BURST_WORKERS, WORKERS, burst, on_time};

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    let place = Place::new()?;
    on_time(&handles(&place, WORKERS).await?, sizes.idle).await?;
    let place = Place::new()?;
    burst(&handles(&place, BURST_WORKERS).await?).await
}

async fn handles(place: &Place, count: usize) -> Outcome<Vec<AnyDriver>> {
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        let config = Config::new(place.file()).create(true);
        handles.push(AnyDriver::new(SqliteDriver::open_with(config).await?));
    }
    Ok(handles)
}
