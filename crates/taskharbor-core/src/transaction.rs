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
    driver::{Answers, Enqueue, Enqueued, Settle, Settled},
    error::{Refusal, Rejected},
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
