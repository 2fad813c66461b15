//! [`Caretaker`]: a worker's duties for its store, without running jobs.
//!
//! If all workers use HTTP, no worker of this library runs. Then the server fires the schedules and
//! removes old jobs, with the same loops that every worker runs.

use std::{future::Future, sync::Arc};

use super::{
    WorkerError, outage, pruner,
    running::Ending,
    scheduler,
    shared::{Phase, Shared},
    supervisor,
};

/// Fires schedules and removes jobs that have been kept for long enough, and runs no job.
///
/// There can be any number of caretakers and workers on one store: each slot of a schedule is fired
/// once. A caretaker is built with [`WorkerBuilder::caretaker`](crate::WorkerBuilder::caretaker).
///
/// ```no_run
/// # async fn care(driver: taskharbor::AnyDriver) -> Result<(), Box<dyn std::error::Error>> {
/// use taskharbor::{Retention, Worker};
///
/// let caretaker = Worker::builder(&driver).retention(Retention::keep_all()).caretaker()?;
/// caretaker.run(std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a caretaker does nothing until it is run"]
#[derive(Debug)]
pub struct Caretaker {
    shared: Arc<Shared>,
}

impl Caretaker {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Runs until `shutdown` completes. Waits for an unavailable store, as a worker does.
    ///
    /// # Errors
    ///
    /// [`WorkerError::Store`] if the store cannot be used, for example because it was not migrated.
    ///
    /// [`WorkerError::Closed`] if the driver is closed meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the caretaker. A slot that was being fired is fired by another
    /// worker or caretaker, unless the store has fired it already.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerError> {
        tokio::select! {
            biased;
            () = shutdown => Ok(()),
            ending = self.work() => ending.result(),
        }
    }

    async fn work(&self) -> Ending {
        let shared = &self.shared;
        if let Err(ending) = supervisor::start_clock(shared, &shared.driver).await {
            return ending;
        }
        let probe = outage::probe(Arc::clone(shared), shared.driver.clone());
        tokio::select! {
            biased;
            () = shared.reached(Phase::Draining) => {}
            // Each of them goes on until then.
            _ = async { tokio::join!(scheduler::run(Arc::clone(shared)), pruner::run(Arc::clone(shared)), probe) } => {}
        }
        Ending::from_phase(shared)
    }
}
