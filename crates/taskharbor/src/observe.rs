//! [`Observer`]: receiving events about jobs, workers and calls to the store.
//!
//! Each event is reported once, where it happens, as an [`Event`]. Every client and worker has an
//! observer that writes logs; an application can add others, such as [`Counters`].

mod count;
mod log;
mod operation;

use std::{
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use taskharbor_core::{
    DriverError, JobId, JobType, QueueName, Text, Timestamp,
    error::Denied,
    job::{JobView, ReleaseReason},
};

use tokio::time::Instant;

use crate::JobError;

pub use count::{Counters, EventCounts};
pub use operation::Operation;

/// Receives events about jobs, workers and calls to the store.
///
/// A closure is an observer, if the type of its argument is written out:
///
/// ```
/// use taskharbor::Event;
///
/// let shout = |event: &Event<'_>| {
///     if let Event::DeadLettered { job, reason, .. } = event {
///         eprintln!("{} is dead-lettered: {reason}", job.job_type);
///     }
/// };
/// # fn add(worker: taskharbor::WorkerBuilder, shout: impl taskharbor::Observer) {
/// worker.observer(shout);
/// # }
/// ```
///
/// It is called from the loops of workers and from clients, so it must be quick and must not block.
/// A panic in it is caught and logged.
pub trait Observer: Send + Sync + 'static {
    /// Receives an event.
    fn on(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}

impl<O: Observer> Observer for Arc<O> {
    fn on(&self, event: &Event<'_>) {
        (**self).on(event);
    }
}

/// An event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A job was stored, or existed already. A job that was enqueued in the caller's transaction is
    /// stored when the transaction commits.
    #[non_exhaustive]
    Enqueued {
        /// The job.
        id: &'a JobId,
        /// Its type.
        job_type: &'a JobType,
        /// Its queue.
        queue: &'a QueueName,
        /// Whether this call stored it.
        is_new: bool,
    },
    /// A worker has leased a job.
    #[non_exhaustive]
    Reserved {
        /// The job.
        job: &'a JobView,
    },
    /// A handler was started.
    #[non_exhaustive]
    Started {
        /// The job.
        job: &'a JobView,
    },
    /// A handler failed. `Retried`, `DeadLettered` or `Released` follows when the outcome is
    /// recorded.
    #[non_exhaustive]
    Failed {
        /// The job.
        job: &'a JobView,
        /// Why.
        error: &'a JobError,
        /// How long it ran.
        took: Duration,
    },
    /// A success was recorded.
    #[non_exhaustive]
    Succeeded {
        /// The job.
        job: &'a JobView,
        /// How long it ran.
        took: Duration,
    },
    /// A failure was recorded, and the job will be retried.
    #[non_exhaustive]
    Retried {
        /// The job.
        job: &'a JobView,
        /// The earliest time of the retry.
        run_at: Timestamp,
    },
    /// A failure was recorded, and the job is dead-lettered.
    #[non_exhaustive]
    DeadLettered {
        /// The job.
        job: &'a JobView,
        /// Why.
        reason: &'a Text,
    },
    /// The job was released: no attempt is charged.
    #[non_exhaustive]
    Released {
        /// The job.
        job: &'a JobView,
        /// Why.
        why: ReleaseReason,
    },
    /// A heartbeat was accepted.
    #[non_exhaustive]
    LeaseExtended {
        /// The job.
        job: &'a JobView,
        /// The new end of the lease.
        expires_at: Timestamp,
    },
    /// The lease is lost, so this worker cannot record the outcome of the job.
    #[non_exhaustive]
    LeaseLost {
        /// The job.
        job: &'a JobView,
        /// How.
        why: &'a LossReason,
    },
    /// A call to the store has ended. A call whose future was dropped is not reported.
    #[non_exhaustive]
    Called {
        /// The kind of call.
        operation: Operation,
        /// How many items the call carried: jobs, queries or queues; for a reserve the number of
        /// jobs it asked for. Zero for calls about no particular job.
        items: usize,
        /// How long it took, waiting for a connection and retries inside the driver included.
        took: Duration,
        /// Why the call failed as a whole, if it did. Refusals of single items are not reported
        /// here.
        error: Option<&'a DriverError>,
    },
    /// The store cannot be reached. Reported once per outage.
    #[non_exhaustive]
    StoreUnavailable {
        /// The call that failed.
        doing: &'static str,
        /// The driver's error.
        error: &'a DriverError,
    },
    /// The store answers again.
    #[non_exhaustive]
    StoreBack {
        /// How long it was away.
        after: Duration,
    },
    /// The store's wake-ups do not arrive although they should, so the worker finds jobs by
    /// polling. Reported once, until they arrive again.
    #[non_exhaustive]
    WakeUpsLost {
        /// The driver's error.
        problem: &'a str,
    },
    /// The store's wake-ups arrive again.
    #[non_exhaustive]
    WakeUpsBack {},
    /// A slot of a schedule was fired.
    #[non_exhaustive]
    ScheduleFired {
        /// The schedule.
        schedule: &'a str,
        /// The slot.
        slot: Timestamp,
        /// The job that stands for the slot.
        job: &'a JobId,
        /// Whether the firing stored it. Otherwise the slot's job existed already, or another job
        /// held its key.
        is_new: bool,
    },
    /// A slot of a schedule could not be fired. The error is also in the schedule's record, unless
    /// a newer worker may be able to fire the slot.
    #[non_exhaustive]
    ScheduleFailed {
        /// The schedule.
        schedule: &'a str,
        /// Why.
        error: &'a str,
    },
    /// The store denied the declaration of this worker's schedules. The worker goes on without
    /// them.
    #[non_exhaustive]
    SchedulesDenied {
        /// Their owner.
        owner: &'a str,
        /// Why. A newer version is nothing to worry about: this is an old process in a deploy.
        denied: &'a Denied,
    },
    /// The store denied the declaration of this worker's limits. The worker goes on under those
    /// that are stored.
    #[non_exhaustive]
    LimitsDenied {
        /// Their owner.
        owner: &'a str,
        /// Why. A newer version is nothing to worry about: this is an old process in a deploy.
        denied: &'a Denied,
    },
    /// A handler was throttled ([`JobError::throttled`]): its job is released without charging an
    /// attempt, and its lane, or its queue if it has no lane, is held.
    #[non_exhaustive]
    Throttled {
        /// The job.
        job: &'a JobView,
        /// The end of the hold.
        until: Timestamp,
        /// Why the lane or queue is not held, if the store did not do so. The job is released all the
        /// same.
        not_held: Option<&'a DriverError>,
    },
    /// A worker begins to reserve jobs.
    #[non_exhaustive]
    WorkerStarted {
        /// The worker's name.
        name: &'a str,
        /// The version of the service ([`WorkerBuilder::version`](crate::WorkerBuilder::version)).
        version: Option<&'a str>,
        /// The longest time that its shutdown takes, with a second for the end of the process. A
        /// supervisor that kills the process must wait at least this long.
        shutdown_within: Duration,
    },
    /// Another worker has announced itself under the name of this one. An eviction of one of them ends
    /// the leases of both: give each worker a name of its own.
    #[non_exhaustive]
    NameShared {
        /// The name.
        name: &'a str,
    },
    /// A worker whose announcement was overdue has been evicted
    /// ([`WorkerBuilder::fast_recovery`](crate::WorkerBuilder::fast_recovery)).
    #[non_exhaustive]
    WorkerEvicted {
        /// Its name.
        name: &'a str,
        /// How many of its leases the eviction ended.
        leases: usize,
    },
    /// The store does not allow this worker to evict others: a server, for example, needs a token with the
    /// role admin for it. Reported once. [`WorkerBuilder::fast_recovery`](crate::WorkerBuilder::fast_recovery)
    /// has no effect.
    #[non_exhaustive]
    EvictionDenied {
        /// What the store said.
        error: &'a DriverError,
    },
    /// A worker reserves no more jobs and goes on with those it has: [`Running::quiet`](crate::Running::quiet).
    #[non_exhaustive]
    Quiet {
        /// How many jobs it holds.
        inflight: usize,
    },
    /// A worker shuts down and reserves no more jobs.
    #[non_exhaustive]
    ShuttingDown {
        /// How many jobs it still holds.
        inflight: usize,
        /// How long their handlers have to finish.
        grace: Duration,
    },
    /// A worker has ended.
    #[non_exhaustive]
    WorkerStopped {
        /// The name under which it held leases.
        name: &'a str,
        /// How many handlers would not stop. Their jobs come back when their leases end.
        abandoned: usize,
    },
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The store refused the worker.
    #[error("{0}")]
    Refused(#[from] taskharbor_core::error::Refusal),
    /// The store could not be reached in time to extend it.
    #[error("the store could not be reached before the lease ended")]
    Unreachable,
    /// The worker extended it too late although the store was available: its process was suspended,
    /// or its threads were busy.
    #[error("this process was suspended or too busy to extend the lease in time")]
    Stalled,
    /// The driver was closed.
    #[error("the driver was closed")]
    Closed,
    /// The handler did not end after its timeout: it blocks its thread.
    #[error("the handler did not end within its timeout")]
    Overdue,
    /// The store refuses the outcome, and also a failure in its place.
    #[error("the store refuses the outcome")]
    Unrecordable,
}

/// All observers of one client or worker.
#[derive(Clone)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(crate) fn new(added: Vec<Arc<dyn Observer>>) -> Self {
        let log: Arc<dyn Observer> = Arc::new(log::Log);
        Self(std::iter::once(log).chain(added).collect())
    }

    /// Waits for a call to the store and tells how it went. Without an observer, and with debug
    /// logs off, it only waits.
    pub(crate) async fn call<T>(
        &self,
        operation: Operation,
        items: usize,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let is_observed = self.0.len() > 1
            || tracing::enabled!(target: "taskharbor::store", tracing::Level::DEBUG);
        if !is_observed {
            return call.await;
        }
        let (started, mut call) = (Instant::now(), pin!(call));
        let answer = match poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
            // The clock answers at once, without a call, unless it is due to ask the store.
            Poll::Ready(Ok(time)) if operation == Operation::StoreTime => return Ok(time),
            Poll::Ready(answer) => answer,
            Poll::Pending => call.await,
        };
        let (took, error) = (started.elapsed(), answer.as_ref().err());
        self.tell(&Event::Called { operation, items, took, error });
        answer
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        for observer in &*self.0 {
            if catch_unwind(AssertUnwindSafe(|| observer.on(event))).is_err() {
                tracing::error!(target: "taskharbor::observe", ?event, "an observer panicked");
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_told_with_its_time_and_the_clock_only_if_it_asked_the_store() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let observer = move |event: &Event<'_>| {
            if let Event::Called { operation, took, error, .. } = event {
                tell.lock().unwrap().push((*operation, took.as_secs(), error.is_some()));
            }
        };
        let observers = Observers::new(vec![Arc::new(observer)]);
        let late = |answer: Result<(), DriverError>| async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            answer
        };
        observers.call(Operation::StoreTime, 0, async { Ok(()) }).await.unwrap();
        observers.call(Operation::StoreTime, 0, late(Ok(()))).await.unwrap();
        observers.call(Operation::Inspect, 1, async { Ok(()) }).await.unwrap();
        let failed = observers.call(Operation::Settle, 1, late(Err(DriverError::Closed))).await;
        assert!(failed.is_err());
        let expected = [
            (Operation::StoreTime, 2, false),
            (Operation::Inspect, 0, false),
            (Operation::Settle, 2, true),
        ];
        assert_eq!(*told.lock().unwrap(), expected);
    }
}
