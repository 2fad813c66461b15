//! [`Driver`]: what a store does for workers and clients.

pub use crate::{
    enqueue::{Enqueue, Enqueued},
    lease::{Lease, LeaseToken},
    limit::Limits,
    output::{OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs},
    record::Leased,
    reserve::{Demand, ExtendLeases, Extended, Extension, Reserve, Reserved},
    settle::{Settle, Settled, Settlement, Transition},
    transaction::{DriverId, Transaction},
    wake::{WakeHub, Watch},
};

use std::{future::Future, time::Duration};

use crate::{
    Blob, DriverError, JobId, NewJob, QueueName, Text, Timestamp,
    error::{CallError, Refusal, Rejected},
    job::FailedAttempt,
    name::Holder,
};

/// The answer to a call that carries many items: one answer for each, in their order, or the
/// failure of the call as a whole.
pub type Answers<T, E> = Result<Vec<Result<T, E>>, DriverError>;

/// What a store does for workers and clients.
///
/// A driver makes single transitions atomic and durable, and decides nothing: retries, backoff and
/// dead-lettering are decided by its callers. `docs/SEMANTICS.md` has the contract clause by
/// clause, `docs/guides/writing-a-driver.md` the way to a driver of your own, and the crate
/// `taskharbor-conformance` the proof that it is one.
///
/// Every operation takes the current time as an argument; no driver reads a clock to decide
/// anything. Every operation takes a batch, because one round trip for 500 jobs is what makes a
/// queue fast; the calls for a single job are provided on top.
///
/// # Cancel safety
///
/// Every future may be dropped at any point: the call then happened whole or not at all, and the
/// driver is as usable as before.
pub trait Driver: Send + Sync + 'static {
    /// The bounds of this driver.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// The identity that a [`Transaction`](crate::driver::Transaction) on this store carries; `None` if the
    /// store has no transactions of users.
    fn id(&self) -> Option<DriverId> {
        None
    }

    /// A handle to the same store that shares nothing which lives on this one's runtime, for a
    /// thread with a runtime of its own; `None` if this one will do.
    ///
    /// A worker extends its leases from such a thread. A driver whose sockets are served by the
    /// application's runtime would leave it without an answer while handlers block that runtime.
    /// It is called where the handle will be used, and answers at once: what has to be opened is
    /// opened with the first call. The two are closed separately; whoever asked for one closes it.
    fn apart(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Stores sets of jobs, each whole or not at all.
    ///
    /// Idempotent on the id, then on the key within the queue: what is there already is answered
    /// as [`Enqueued::Existing`] and left as it is.
    fn enqueue(
        &self,
        request: Enqueue,
    ) -> impl Future<Output = Answers<Vec<Enqueued>, Rejected>> + Send;

    /// Leases jobs to the caller, by priority, due time and order of insertion. A job whose lease is
    /// over stands in line where the lease ended, and is taken back when its turn comes.
    fn reserve(
        &self,
        request: Reserve,
    ) -> impl Future<Output = Result<Reserved, DriverError>> + Send;

    /// Extends leases. Never shortens one.
    fn extend_leases(
        &self,
        request: ExtendLeases,
    ) -> impl Future<Output = Answers<Extended, Refusal>> + Send;

    /// Records what became of inflight jobs, and lets go or stops those that wait for them in the
    /// same atomic step.
    fn settle(&self, request: Settle) -> impl Future<Output = Answers<Settled, Refusal>> + Send;

    /// Reads what jobs or their parents produced.
    fn outputs(
        &self,
        request: Outputs,
    ) -> impl Future<Output = Answers<OutputPage, Refusal>> + Send;

    /// A hint for whoever waits for work in these queues. Losing one may cost time, never a job:
    /// [`Watch::never`] is a correct answer.
    fn watch(
        &self,
        queues: Vec<QueueName>,
    ) -> impl Future<Output = Result<Watch, DriverError>> + Send;

    /// The store's own time, by which all its workers set their clocks.
    fn store_time(&self) -> impl Future<Output = Result<Timestamp, DriverError>> + Send;

    /// Ends the use of this driver: every later operation fails with [`DriverError::Closed`].
    /// Closing again changes nothing.
    fn close(&self) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Stores one job.
    ///
    /// # Errors
    ///
    /// [`CallError::Rejected`], [`CallError::Failed`].
    fn enqueue_job(
        &self,
        job: NewJob,
        now: Timestamp,
    ) -> impl Future<Output = Result<Enqueued, CallError>> + Send {
        async move {
            let answers = self.enqueue(Enqueue::new(vec![job.into()], now)).await?;
            only(only(answers)??)
        }
    }

    /// Leases the best ready job of a queue, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`CallError::Failed`].
    fn reserve_job(
        &self,
        queue: QueueName,
        holder: Holder,
        now: Timestamp,
        lease_for: Duration,
    ) -> impl Future<Output = Result<Option<Leased>, CallError>> + Send {
        async move {
            let demands = vec![Demand::new(queue, 1)];
            let reserved = self.reserve(Reserve::new(demands, holder, now, lease_for)).await?;
            Ok(reserved.jobs.into_iter().next())
        }
    }

    /// Extends one lease; use the token of the answer from then on.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    fn extend_lease(
        &self,
        id: JobId,
        token: LeaseToken,
        now: Timestamp,
        lease_for: Duration,
    ) -> impl Future<Output = Result<Lease, CallError>> + Send {
        async move {
            let items = vec![Extension::new(id, token)];
            let answers = self.extend_leases(ExtendLeases::new(items, now, lease_for)).await?;
            Ok(only(answers)??.lease)
        }
    }

    /// Settles one job.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    fn settle_job(
        &self,
        id: JobId,
        token: LeaseToken,
        transition: Transition,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, CallError>> + Send {
        async move {
            let items = vec![Settlement::new(id, token, transition)];
            Ok(only(self.settle(Settle::new(items, now)).await?)??)
        }
    }

    /// Records success.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    fn ack(
        &self,
        id: JobId,
        token: LeaseToken,
        output: Option<Blob>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, CallError>> + Send {
        self.settle_job(id, token, Transition::Ack { output }, now)
    }

    /// Records a failure after which the job is tried again.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    fn retry(
        &self,
        id: JobId,
        token: LeaseToken,
        failure: FailedAttempt,
        run_at: Option<Timestamp>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, CallError>> + Send {
        self.settle_job(id, token, Transition::Retry { failure, run_at }, now)
    }

    /// Records a failure after which the job is dead-lettered.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    fn fail(
        &self,
        id: JobId,
        token: LeaseToken,
        failure: FailedAttempt,
        reason: Text,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, CallError>> + Send {
        self.settle_job(id, token, Transition::Fail { failure, reason }, now)
    }

    /// Gives a job back without charging anything.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    fn release(
        &self,
        id: JobId,
        token: LeaseToken,
        run_at: Option<Timestamp>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, CallError>> + Send {
        self.settle_job(id, token, Transition::Release { run_at }, now)
    }
}

/// The answer to the one item of a call.
fn only<T>(answers: Vec<T>) -> Result<T, CallError> {
    let mut answers = answers.into_iter();
    match (answers.next(), answers.next()) {
        (Some(answer), None) => Ok(answer),
        _ => Err(DriverError::ContractViolation("one item, but not one answer".to_owned()).into()),
    }
}
