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
#[must_use = "dropping this stops the worker"]
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<Ending>>,
}

/// Why a worker did not work, or does no more.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no tokio runtime to work on.
    #[error("there is no tokio runtime here: start the worker inside one")]
    NoRuntime,
    /// The operating system did not give the worker what it needs.
    #[error("the worker could not be started: {0}")]
    NotStarted(Arc<io::Error>),
    /// The store cannot be used, so the worker did not begin: it refuses, as without a schema, or was
    /// away for longer than [`start_timeout`](crate::WorkerBuilder::start_timeout).
    #[error("the worker did not begin: {0}")]
    Store(DriverError),
    /// The process cannot listen for signals.
    #[error("the process cannot listen for signals: {0}")]
    Signals(Arc<io::Error>),
    /// The runtime that the worker ran on was shut down under it.
    #[error(
        "the runtime that the worker ran on was shut down: its jobs come back when their leases end"
    )]
    RuntimeGone,
    /// The driver was closed while the worker ran. Its jobs come back when their leases end.
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

    /// Stops reserving jobs and goes on with those that the worker has, for as long as they take. Jobs
    /// that wait for a slot are released. A shutdown later finds less to wait for. It cannot be undone.
    pub fn quiet(&self) {
        if self.shared.advance(Phase::Quiet) {
            self.shared.tell(&Event::Quiet { inflight: self.shared.registry.len() });
        }
    }

    /// The name under which the worker holds leases.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.config.holder.as_str()
    }

    /// Tells this start of the worker from others under the same name, in its announcements.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
    }

    /// How the worker is now: whether it consumes jobs, or has none to consume.
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

    /// Stops reserving jobs, lets handlers finish for the grace period, then tells them to stop
    /// and gives their jobs back without charging an attempt.
    ///
    /// It takes at most the grace period (15 s), the time that handlers have to stop when told to (5 s),
    /// 3 s to record the last outcomes, and 1 s to close connections of the worker's own: 24 s by
    /// default, whatever the handlers do. With [`block_on`](crate::block_on) or `#[taskharbor::main]` the
    /// process ends within one second more. [`Event::WorkerStarted`] tells the sum, 25 s. A handler that blocks
    /// its thread cannot be stopped: it is left behind, and its job comes back when its lease ends.
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

    /// Ends the grace period of a shutdown that is under way, or shuts down without any.
    pub fn end_grace(&self) {
        self.shared.advance(Phase::Draining);
        self.shared.advance(Phase::Cancelling);
    }

    /// Stops everything where it is. No job is released: the jobs return when their leases end,
    /// as if the process had died.
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
