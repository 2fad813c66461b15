//! [`Worker`]: reserving jobs, running their handlers, recording their outcomes.
//!
//! Four loops share one state. The *reserver* fills free slots with jobs, and reserves jobs that
//! will start soon ahead of time. The *executor* runs each job's handler in a task. The *keeper*
//! extends all leases in one call. The *settler* records outcomes in batches. The *supervisor*
//! starts them and shuts them down. Beside them, a *pruner* removes old records of terminal jobs, a
//! *scheduler* fires schedules, and an *announcer* announces the worker in the store.

mod ahead;
mod announcer;
mod build_error;
mod builder;
mod caretaker;
pub(crate) mod caution;
mod executor;
mod health;
mod input;
mod keeper;
mod limits;
mod outage;
mod pace;
mod part;
mod pool;
mod pruner;
mod reserver;
pub(crate) mod resolution;
mod retention;
mod running;
mod scheduler;
mod set_back;
mod settler;
mod shared;
mod signal;
mod supervisor;
mod tally;
mod throttle;
pub(crate) mod unfit;

use std::sync::Arc;

use taskharbor_core::AnyDriver;

use shared::Shared;
use signal::{Asked, Signals};

pub use build_error::BuildError;
pub(crate) use builder::DEFAULT_CRASH_LIMIT;
pub use builder::WorkerBuilder;
pub use caretaker::Caretaker;
pub use health::{Health, HealthProblem};
pub(crate) use outage::BACKOFF;
pub use retention::Retention;
pub use running::{Running, WorkerError};
pub(crate) use supervisor::EXIT;
pub use unfit::{MissingHandler, Unreadable};

/// Reserves jobs, runs their handlers, and records their outcomes.
///
/// ```no_run
/// # async fn serve(driver: taskharbor::AnyDriver, handlers: taskharbor::Handlers) -> Result<(), Box<dyn std::error::Error>> {
/// use taskharbor::Worker;
///
/// Worker::builder(&driver).handlers(handlers).queue("mail", 16).build()?.run().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is run or started"]
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
}

impl Worker {
    /// Configures a worker for the jobs of this driver's store.
    pub fn builder(driver: &AnyDriver) -> WorkerBuilder {
        WorkerBuilder::new(driver.clone())
    }

    /// Runs jobs until SIGINT or SIGTERM, then shuts down as [`Running::shutdown`] does. A second
    /// signal ends the grace period. SIGUSR1 makes it quiet, as [`Running::quiet`] does.
    ///
    /// # Errors
    ///
    /// [`WorkerError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future shuts the worker down without waiting for it.
    pub async fn run(self) -> Result<(), WorkerError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(WorkerError::NoRuntime);
        }
        let mut signals =
            Signals::listen().map_err(|error| WorkerError::Signals(Arc::new(error)))?;
        let running = self.start();
        loop {
            let asked = tokio::select! {
                ended = running.ended() => return ended,
                asked = signals.next() => asked,
            };
            match asked {
                Asked::Quiet => running.quiet(),
                Asked::Stop => break,
            }
        }
        loop {
            tokio::select! {
                ended = running.shutdown() => return ended,
                asked = signals.next() => if asked == Asked::Stop { running.end_grace() },
            }
        }
    }

    /// Starts the worker in the background, on the current runtime. It runs until it is shut down.
    pub fn start(self) -> Running {
        supervisor::start(self.shared)
    }
}
