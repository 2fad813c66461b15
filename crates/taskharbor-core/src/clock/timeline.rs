//! The clock that all users of one handle share.
//!
//! Two clocks set by the same store differ by a fraction of a round trip. If a client's clock were
//! ahead of its worker's, a job enqueued just now would not be due yet. So a handle has one clock,
//! which starts when the time is first needed.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{
    Driver, DriverError, Timestamp,
    clock::{Clock, ClockReading, StoreClock},
};

pub(crate) enum Timeline {
    Store(OnceLock<Arc<StoreClock>>),
    Given(Arc<dyn Clock>),
}

impl Timeline {
    pub(crate) const fn of_store() -> Self {
        Self::Store(OnceLock::new())
    }

    pub(crate) async fn clock(&self, driver: &impl Driver) -> Result<Arc<dyn Clock>, DriverError> {
        match self {
            Self::Store(cell) => Ok(started(cell, driver).await? as Arc<dyn Clock>),
            Self::Given(clock) => Ok(Arc::clone(clock)),
        }
    }

    pub(crate) async fn now(&self, driver: &impl Driver) -> Result<Timestamp, DriverError> {
        match self {
            Self::Store(cell) => {
                let clock = started(cell, driver).await?;
                // The clock goes on without the store, so that not being answered is no failure.
                let _ = clock.sync_after(StoreClock::SYNC_EVERY, driver).await;
                Ok(clock.now())
            }
            Self::Given(clock) => Ok(clock.now()),
        }
    }

    /// Asks the store for its time if the last question is this long ago; what it answered, if it was asked.
    pub(crate) async fn sync(
        &self,
        age: Duration,
        driver: &impl Driver,
    ) -> Result<Option<ClockReading>, DriverError> {
        match self {
            Self::Store(cell) => started(cell, driver).await?.sync_after(age, driver).await,
            Self::Given(_) => Ok(None),
        }
    }

    pub(crate) fn set_back(&self) -> Option<Duration> {
        match self {
            Self::Store(cell) => cell.get()?.set_back(),
            Self::Given(_) => None,
        }
    }
}

async fn started(
    cell: &OnceLock<Arc<StoreClock>>,
    driver: &impl Driver,
) -> Result<Arc<StoreClock>, DriverError> {
    if let Some(clock) = cell.get() {
        return Ok(Arc::clone(clock));
    }
    let mine = Arc::new(StoreClock::start(driver).await?);
    // The first call has set it; all go by that one.
    Ok(Arc::clone(cell.get_or_init(|| mine)))
}
