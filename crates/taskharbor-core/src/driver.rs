//! [`Driver`]: the operations of a store for workers and clients.

pub use crate::{
    announce::{Announce, Incarnation},
    enqueue::{Enqueue, Enqueued},
    fire::{Due, DueSchedules, Fire, FireSchedule, SlotJobs},
    lane::{LaneRange, Turn},
    lease::{Lease, LeaseMark, LeaseToken},
    limit::Limits,
    output::{JoinList, OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs},
    record::Leased,
    reserve::{Demand, ExtendLeases, Extended, Extension, Reserve, Reserved},
    settle::{LockWait, Settle, Settled, Settlement, Transition},
    transaction::{DriverId, OfDriver, OpenTransaction, SeenJob, Transaction},
    wake::{WakeHub, Watch, Woken},
};

use std::future::Future;

use crate::{
    DriverError, JobId, QueueName, Timestamp,
    error::{FireRefused, Refusal, Rejected},
};

/// The answer to a call that carries many items: one answer for each, in their order, or the
/// failure of the call as a whole.
pub type Answers<T, E> = Result<Vec<Result<T, E>>, DriverError>;

/// The operations of a store for workers and clients.
///
/// A driver makes single transitions atomic and durable, and has no policy: its callers decide
/// about retries, backoff and dead-lettering. [SEMANTICS.md] has the clauses of the contract, [the
/// guide] explains how to write a driver, and the crate `taskharbor-conformance` tests it.
///
/// [SEMANTICS.md]: https://github.com/taskharbor/taskharbor/blob/main/docs/SEMANTICS.md
/// [the guide]: https://docs.rs/taskharbor/latest/taskharbor/guide/writing_a_driver/
///
/// Every operation takes the current time as an argument; no driver reads a clock to decide
/// anything. Every operation takes a batch, because a queue is fast only with one round trip for
/// many jobs; [`AnyDriver`](crate::AnyDriver) has calls for a single job on top.
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

    /// The identity that a [`Transaction`] on this store carries; `None`, the default, if the store
    /// has no transactions of the application.
    fn driver_id(&self) -> Option<DriverId> {
        None
    }

    /// Returns a handle to the same store that does not depend on this handle's runtime, for a
    /// thread with a runtime of its own; `None`, the default, if this handle can be used there.
    ///
    /// A worker extends its leases from such a thread. A driver whose sockets are served by the
    /// application's runtime would leave it without an answer while handlers block that runtime. It
    /// is called on the thread that will use the handle, and returns at once: connections are
    /// opened with the first call. The two handles are closed separately; the caller closes the new
    /// one.
    fn detached_handle(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Stores sets of jobs, each whole or not at all.
    ///
    /// Idempotent on the id, then on the key within the queue: for a job that exists already,
    /// [`Enqueued::Existing`] is returned, and that job stays as it is.
    fn enqueue(
        &self,
        request: Enqueue,
    ) -> impl Future<Output = Answers<Vec<Enqueued>, Rejected>> + Send;

    /// Leases jobs to the caller, by priority, position and order of insertion. A job whose lease
    /// has ended is reclaimed when its turn comes.
    fn reserve(
        &self,
        request: Reserve,
    ) -> impl Future<Output = Result<Reserved, DriverError>> + Send;

    /// Extends leases. Never shortens one.
    fn extend_leases(
        &self,
        request: ExtendLeases,
    ) -> impl Future<Output = Answers<Extended, Refusal>> + Send;

    /// Records the outcomes of inflight jobs, and unblocks or cancels their dependants in the same
    /// atomic step.
    fn settle(&self, request: Settle) -> impl Future<Output = Answers<Settled, Refusal>> + Send;

    /// Reads the outputs of jobs or of their parents.
    fn outputs(
        &self,
        request: Outputs,
    ) -> impl Future<Output = Answers<OutputPage, Refusal>> + Send;

    /// Returns the schedules that are due, and when the next one is due.
    fn due_schedules(
        &self,
        request: DueSchedules,
    ) -> impl Future<Output = Result<Due, DriverError>> + Send;

    /// Stores the jobs of slots and moves their schedules to the next slot, each in one atomic
    /// step. Returns the job that stands for each slot.
    fn fire(
        &self,
        request: Fire,
    ) -> impl Future<Output = Answers<Vec<Enqueued>, FireRefused>> + Send;

    /// Announces a worker, or withdraws its announcement.
    fn announce(&self, request: Announce) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Returns a watch for a worker that waits for jobs in these queues. A lost wake-up may cost
    /// time, but never a job: [`Watch::never`] is a correct answer.
    fn watch(
        &self,
        queues: Vec<QueueName>,
    ) -> impl Future<Output = Result<Watch, DriverError>> + Send;

    /// Returns a watch for a caller that waits for the end of this job. A lost wake-up may cost
    /// time, but never an output: [`Watch::never`], the default, is a correct answer.
    fn watch_job(&self, id: JobId) -> impl Future<Output = Result<Watch, DriverError>> + Send {
        let _ = id;
        std::future::ready(Ok(Watch::never()))
    }

    /// Returns the store's own time, by which all its workers set their clocks.
    fn store_time(&self) -> impl Future<Output = Result<Timestamp, DriverError>> + Send;

    /// Ends the use of this driver: every later operation fails with [`DriverError::Closed`].
    /// Closing again changes nothing.
    fn close(&self) -> impl Future<Output = Result<(), DriverError>> + Send;
}
