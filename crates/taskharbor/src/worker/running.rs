//! [`Running`]: a worker in the background.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use taskharbor_core::{DriverError, debug_as_display, driver::Incarnation};
use tokio::sync::watch;

use super::{
    health::{self, Health},
    shared::{Phase, Shared},
};
use crate::{CancelReason, Event};

/// A worker in the background. Dropping it shuts the worker down without waiting for that.
///
/// ```
/// # use taskharbor::{AnyDriver, BoxError, Handlers};
/// use taskharbor::Worker;
///
/// # async fn serve(driver: AnyDriver, handlers: Handlers, server: impl Future) -> Result<(), BoxError> {
/// let worker = Worker::builder(&driver).handlers(handlers).queue("mail", 16).build()?.start();
/// server.await; // the rest of the program
/// worker.quiet(); // reserves no more jobs
/// worker.shutdown().await?; // waits for handlers, then stops them
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping this stops the worker"]
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<Ending>>,
}

/// Why a worker did not start, or has ended.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no tokio runtime.
    #[error("there is no tokio runtime here: start the worker inside one")]
    NoRuntime,
    /// The operating system refused a resource that the worker needs.
    #[error("the worker could not be started: {0}")]
    NotStarted(Arc<io::Error>),
    /// The store cannot be used, so the worker did not start: the store was not migrated, for
    /// example, or was unavailable for longer than
    /// [`start_timeout`](crate::WorkerBuilder::start_timeout).
    #[error("the worker did not start: {0}")]
    Store(DriverError),
    /// The process cannot listen for signals.
    #[error("the process cannot listen for signals: {0}")]
    Signals(Arc<io::Error>),
    /// The runtime on which the worker ran was shut down.
    #[error(
        "the runtime that the worker ran on was shut down: its jobs come back when their leases end"
    )]
    RuntimeGone,
    /// The driver was closed while the worker ran. Its jobs run again when their leases have ended.
    #[error("the driver was closed")]
    Closed,
    /// A part of the worker panicked; this is a bug in TaskHarbor or in the driver.
    #[error("a part of the worker panicked: its jobs come back when their leases end")]
    Crashed,
}

debug_as_display!(WorkerError);

/// How a worker ended.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Stopped,
    Closed,
    Crashed,
    NoRuntime,
    RuntimeGone,
    NotStarted(Arc<io::Error>),
    Store(DriverError),
}

impl Ending {
    pub(super) fn from_phase(shared: &Shared) -> Self {
        if shared.is_closed() { Self::Closed } else { Self::Stopped }
    }

    pub(super) fn result(&self) -> Result<(), WorkerError> {
        match self {
            Self::Stopped => Ok(()),
            Self::Closed => Err(WorkerError::Closed),
            Self::Crashed => Err(WorkerError::Crashed),
            Self::NoRuntime => Err(WorkerError::NoRuntime),
            Self::RuntimeGone => Err(WorkerError::RuntimeGone),
            Self::NotStarted(error) => Err(WorkerError::NotStarted(Arc::clone(error))),
            Self::Store(error) => Err(WorkerError::Store(error.clone())),
        }
    }
}

impl Running {
    pub(super) const fn new(shared: Arc<Shared>, ended: watch::Receiver<Option<Ending>>) -> Self {
        Self { shared, ended }
    }

    /// Makes the worker quiet: it reserves no more jobs, and lets running handlers end, without a
    /// time limit. Jobs that wait for a slot are released. Use it some time before a shutdown,
    /// which then has fewer jobs to wait for. It cannot be undone.
    pub fn quiet(&self) {
        if self.shared.advance(Phase::Quiet) {
            self.shared.tell(&Event::Quiet { inflight: self.shared.registry.len() });
        }
    }

    /// The worker's name, which stands in its leases.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.config.holder.as_str()
    }

    /// Tells this start of the worker from others under the same name, in its announcements.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
    }

    /// The health of the worker now: whether it runs jobs when there are any.
    ///
    /// ```
    /// # fn probe(running: &taskharbor::Running) -> (u16, String) {
    /// let health = running.health();
    /// (if health.is_ready() { 200 } else { 503 }, health.to_string())
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        health::of(&self.shared)
    }

    /// Stops reserving jobs, gives handlers the grace period to finish, then tells them to stop and
    /// releases their jobs without charging an attempt.
    ///
    /// It takes at most 24 s by default, whatever the handlers do: the grace period (15 s), the time
    /// that handlers have to stop when told to (5 s), 3 s to record the last outcomes, and 1 s to
    /// close the worker's own connections. With [`block_on`](crate::block_on) or
    /// `#[taskharbor::main]` the process ends within one second more. [`Event::WorkerStarted`] has
    /// the sum, 25 s.
    ///
    /// A handler that blocks its thread cannot be stopped. The shutdown does not wait for it, and
    /// its job runs again when its lease has ended.
    ///
    /// # Errors
    ///
    /// [`WorkerError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown; calling this again waits for it.
    pub async fn shutdown(&self) -> Result<(), WorkerError> {
        self.shared.advance(Phase::Draining);
        self.ended().await
    }

    /// Ends the grace period of a running shutdown, or shuts down without one.
    pub fn end_grace(&self) {
        self.shared.advance(Phase::Draining);
        self.shared.advance(Phase::Cancelling);
    }

    /// Stops the worker at once. No job is released: the jobs run again when their leases have
    /// ended, as if the process had died.
    pub fn abort(&self) {
        self.shared.aborted.store(true, Ordering::SeqCst);
        self.shared.advance(Phase::Ended);
        for inflight in self.shared.registry.all() {
            inflight.cancellation.raise(CancelReason::LeaseLost);
        }
    }

    /// Waits until the worker has ended.
    ///
    /// # Errors
    ///
    /// [`WorkerError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ended(&self) -> Result<(), WorkerError> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(ending)) => ending.result(),
            Ok(None) | Err(_) => Err(WorkerError::Crashed),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.advance(Phase::Draining);
    }
}
