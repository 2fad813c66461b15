//! The transaction that a job is enqueued in, without its type.

use std::{fmt, future::Future, pin::Pin};

use taskharbor_core::{
    driver::{Answers, DriverId, Enqueue, Enqueued, Transaction},
    error::Rejected,
};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction of the caller's, which lives for as long as what is about to be enqueued in it.
pub(super) struct Within<'a>(Box<dyn Erased + 'a>);

/// The part of [`Transaction`] that a client uses, as a trait object.
trait Erased: Send {
    fn driver(&self) -> DriverId;
    fn enqueue(&mut self, request: Enqueue) -> BoxFuture<'_, Answers<Vec<Enqueued>, Rejected>>;
}

impl<T: Transaction> Erased for T {
    fn driver(&self) -> DriverId {
        Transaction::driver(self)
    }

    fn enqueue(&mut self, request: Enqueue) -> BoxFuture<'_, Answers<Vec<Enqueued>, Rejected>> {
        Box::pin(Transaction::enqueue(self, request))
    }
}

impl<'a> Within<'a> {
    pub(super) fn new(transaction: impl Transaction + 'a) -> Self {
        Self(Box::new(transaction))
    }

    pub(super) fn driver(&self) -> DriverId {
        self.0.driver()
    }

    pub(super) async fn enqueue(&mut self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        self.0.enqueue(request).await
    }
}

impl fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Within").field(&self.driver()).finish()
    }
}
