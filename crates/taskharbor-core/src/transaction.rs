//! [`Transaction`]: the user's open transaction on a store.
//!
//! If the application's own data is in the same database as the store, jobs can be enqueued and
//! completed in the same transaction as that data. The driver makes a [`Transaction`] of the
//! application's open transaction. A client or worker compares its [`DriverId`] with that of its
//! own driver, because a job that is enqueued in the transaction of another store would wait there
//! for ever.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    AnyDriver, Blob, DriverError, JobId, JobType, QueueName,
    driver::{Answers, Enqueue, Enqueued, Settle, Settled},
    error::{Refusal, Rejected},
    job::Headers,
};

/// The user's open transaction on a store: changes through it happen if and only if the transaction
/// commits.
///
/// Requests are answered as [`Driver`](crate::Driver) answers them, from what the transaction sees.
/// Wake-ups go out when it commits.
///
/// # Cancel safety
///
/// If a future is dropped, the transaction may have the change or not; roll it back.
pub trait Transaction: Send {
    /// The driver that made it: what [`Driver::driver_id`](crate::Driver::driver_id) answers there.
    fn driver(&self) -> DriverId;

    /// As [`Driver::enqueue`](crate::Driver::enqueue).
    fn enqueue(
        &mut self,
        request: Enqueue,
    ) -> impl Future<Output = Answers<Vec<Enqueued>, Rejected>> + Send;

    /// As [`Driver::settle`](crate::Driver::settle).
    fn settle(&mut self, request: Settle)
    -> impl Future<Output = Answers<Settled, Refusal>> + Send;

    /// Lists the jobs of a type that the transaction sees, including its own, in the order in which
    /// they were stored. It is for tests of applications. The default returns an error, because not
    /// every driver supports it.
    fn stored(
        &mut self,
        job_type: JobType,
    ) -> impl Future<Output = Result<Vec<SeenJob>, DriverError>> + Send {
        let problem = "this driver reads no jobs in transactions";
        std::future::ready(Err(DriverError::backend(format!("{problem}: {job_type}"))))
    }
}

/// A job as a transaction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeenJob {
    /// Its id.
    pub id: JobId,
    /// The queue it is in.
    pub queue: QueueName,
    /// Its headers.
    pub headers: Headers,
    /// Its payload.
    pub payload: Blob,
}

impl SeenJob {
    /// A job that a transaction sees.
    #[must_use]
    pub const fn new(id: JobId, queue: QueueName, headers: Headers, payload: Blob) -> Self {
        Self { id, queue, headers, payload }
    }
}

/// So that one transaction can be lent to several calls.
impl<T: Transaction> Transaction for &mut T {
    fn driver(&self) -> DriverId {
        (**self).driver()
    }

    fn enqueue(
        &mut self,
        request: Enqueue,
    ) -> impl Future<Output = Answers<Vec<Enqueued>, Rejected>> + Send {
        (**self).enqueue(request)
    }

    fn settle(
        &mut self,
        request: Settle,
    ) -> impl Future<Output = Answers<Settled, Refusal>> + Send {
        (**self).settle(request)
    }

    fn stored(
        &mut self,
        job_type: JobType,
    ) -> impl Future<Output = Result<Vec<SeenJob>, DriverError>> + Send {
        (**self).stored(job_type)
    }
}

/// An open transaction as the application has it: what a client and a handler's context take.
///
/// Every [`Transaction`] implements it. The crate of a driver also implements it for the
/// transactions of database libraries, so that they can be passed as they are. `M` tells these
/// implementations apart, and the compiler infers it.
pub trait OpenTransaction<M>: Send {
    /// The driver's type for it.
    type Transaction: Transaction;

    /// Converts it into a transaction of this driver; `None` if the driver is for another store.
    fn on(self, driver: &AnyDriver) -> Option<Self::Transaction>;
}

/// Marks that a driver made the transaction.
#[derive(Clone, Copy, Debug)]
pub enum OfDriver {}

impl<T: Transaction> OpenTransaction<OfDriver> for T {
    type Transaction = T;

    fn on(self, _: &AnyDriver) -> Option<T> {
        Some(self)
    }
}

/// Tells one opened driver from all others of this process. Clones of a driver share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverId(u64);

impl DriverId {
    /// An identity that no other driver has.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no two are equal, and a default would be")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_identities_are_equal() {
        let (one, other) = (DriverId::new(), DriverId::new());
        let copy = one;
        assert_ne!(one, other);
        assert_eq!(one, copy);
    }
}
