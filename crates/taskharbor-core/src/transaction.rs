//! [`Transaction`]: the user's open transaction on a store.
//!
//! A store that the application's own data lives in too can take jobs and outcomes in the same
//! transaction as that data. The driver makes a [`Transaction`] of the one that the application has
//! open. A client or worker compares its [`DriverId`] with that of the driver it uses itself, since
//! a job put into the transaction of another store would wait there for ever.

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

/// The user's open transaction on a store: what is done through it happens if and only if the
/// transaction commits.
///
/// Requests are answered as [`Driver`](crate::Driver) answers them, from what the transaction sees.
/// Wake-ups go out when it commits.
///
/// # Cancel safety
///
/// Dropping a future leaves open whether the transaction has what was asked for; its owner rolls it
/// back then.
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

    /// The jobs of a type that the transaction sees, its own among them, in the order in which they
    /// were stored: for tests of applications. The default is an error that says so.
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
/// Each [`Transaction`] is one. The crate of a driver implements it for the transactions of client
/// libraries, so that they can be passed as they are; the driver of the client or worker makes a
/// [`Transaction`] of them. `M` tells these implementations apart, and the compiler infers it.
pub trait OpenTransaction<M>: Send {
    /// What the driver makes of it.
    type Transaction: Transaction;

    /// Makes a transaction of this driver of it, or `None` if the driver is for another store.
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
