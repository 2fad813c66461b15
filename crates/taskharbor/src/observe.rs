//! [`Observer`]: receiving events about jobs, workers and calls to the store.
//!
//! Everything is told once, where it happens, as an [`Event`]. Logs are an observer that every
//! client and worker has; counting is one that an application may add.

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
/// A closure is one, if its argument is spelled out:
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
/// It is called from the loops that move jobs, so it must be quick and must not block. A panic in
/// it is caught and changes nothing.
pub trait Observer: Send + Sync + 'static {
    /// This happened.
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

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A job was stored, or stood there already. In a transaction of the caller's: it is stored if
    /// that commits.
    #[non_exhaustive]
    Enqueued {
        /// The job.
        id: &'a JobId,
        /// What kind of job it is.
        job_type: &'a JobType,
        /// Where it waits.
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
    /// A handler begins.
    #[non_exhaustive]
    Started {
        /// The job.
        job: &'a JobView,
    },
    /// A handler failed. What becomes of the job is told once it is recorded.
    #[non_exhaustive]
    Failed {
        /// The job.
        job: &'a JobView,
        /// Why.
        error: &'a JobError,
        /// How long it ran.
        took: Duration,
    },
    /// Success is recorded.
    #[non_exhaustive]
    Succeeded {
        /// The job.
        job: &'a JobView,
        /// How long it ran.
        took: Duration,
    },
    /// A failure is recorded, and the job will be tried again.
    #[non_exhaustive]
    Retried {
        /// The job.
        job: &'a JobView,
        /// When, at the earliest.
        run_at: Timestamp,
    },
    /// A failure is recorded, and the job is dead-lettered.
    #[non_exhaustive]
    DeadLettered {
        /// The job.
        job: &'a JobView,
        /// Why.
        reason: &'a Text,
    },
    /// The job is released: no attempt is charged.
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
        /// When the lease is over now.
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
    /// A call to the store has ended. A call whose future was dropped is not told.
    #[non_exhaustive]
    Called {
        /// What was asked for.
        operation: Operation,
        /// How many items the call carried: jobs, queries or queues; for a reserve the number of
        /// jobs it asked for. Zero for calls about no particular job.
        items: usize,
        /// How long it took, waiting for a connection and retries inside the driver included.
        took: Duration,
        /// Why the call failed as a whole, if it did. Refusals of single items are not told here.
        error: Option<&'a DriverError>,
    },
    /// The store cannot be reached. Told once, until it is back.
    #[non_exhaustive]
    StoreUnavailable {
        /// What was tried.
        doing: &'static str,
        /// What the driver said.
        error: &'a DriverError,
    },
    /// The store answers again.
    #[non_exhaustive]
    StoreBack {
        /// How long it was away.
        after: Duration,
    },
    /// The store's wake-ups do not arrive although they should, so the worker finds jobs by polling.
    /// Told once, until they arrive again.
    #[non_exhaustive]
    WakeUpsLost {
        /// What the driver said.
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
        /// Whether the firing stored it. Otherwise another job stood in its place.
        is_new: bool,
    },
    /// A slot of a schedule could not be fired. The record of the schedule says so too, unless another
    /// worker may be able to.
    #[non_exhaustive]
    ScheduleFailed {
        /// The schedule.
        schedule: &'a str,
        /// Why.
        error: &'a str,
    },
    /// The schedules of this worker were not declared. The worker goes on without them.
    #[non_exhaustive]
    SchedulesDenied {
        /// Their owner.
        owner: &'a str,
        /// Why. A newer version is nothing to worry about: this is an old process in a deploy.
        denied: &'a Denied,
    },
    /// The limits of this worker were not declared. The worker goes on under those that are stored.
    #[non_exhaustive]
    LimitsDenied {
        /// Their owner.
        owner: &'a str,
        /// Why. A newer version is nothing to worry about: this is an old process in a deploy.
        denied: &'a Denied,
    },
    /// A handler was throttled ([`JobError::throttled`]): its job is released without a charge, and its
    /// lane, or its queue if it has none, is held until then.
    #[non_exhaustive]
    Throttled {
        /// The job.
        job: &'a JobView,
        /// Until when.
        until: Timestamp,
        /// Why the lane or queue is not held, if the store did not do so. The job is released all the
        /// same.
        not_held: Option<&'a DriverError>,
    },
    /// A worker begins to reserve jobs.
    #[non_exhaustive]
    WorkerStarted {
        /// The name under which it holds leases.
        name: &'a str,
        /// The longest that its shutdown takes, with a second for the end of the process. Whatever ends
        /// the process has to wait for that long.
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
        /// How many of its leases have ended with that.
        leases: usize,
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
    #[error("the store could not be reached before the lease was over")]
    Unreachable,
    /// The worker came too late to extend it, although the store was not away: its process was
    /// suspended, or its threads were kept busy.
    #[error("this process was suspended or too busy to extend the lease in time")]
    Stalled,
    /// The driver was closed.
    #[error("the driver was closed")]
    Closed,
    /// The handler has not ended although its time is over: it blocks its thread.
    #[error("the handler did not end when its time was over")]
    Overdue,
    /// The store accepts neither the outcome nor a failure in its place.
    #[error("the store does not take the outcome")]
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
                tracing::error!(?event, "an observer panicked");
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
