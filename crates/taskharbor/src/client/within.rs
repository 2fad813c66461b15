//! The transaction that a job is enqueued in, without its type.

use std::{fmt, future::Future, pin::Pin};

use taskharbor_core::{
    AnyDriver, DriverError,
    driver::{Answers, DriverId, Enqueue, Enqueued, OpenTransaction, Transaction},
    error::Rejected,
};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction of the caller's, which lives for as long as what is about to be enqueued in it;
/// `None` for one that cannot be on the store of the client.
pub(super) struct Within<'a>(Option<Box<dyn Erased + 'a>>);

/// Whether jobs are enqueued in a transaction, and on which driver that is.
#[derive(Clone, Copy)]
pub(super) enum Where {
    Anywhere,
    In(Option<DriverId>),
}

impl Where {
    pub(super) fn of(within: Option<&Within<'_>>) -> Self {
        within.map_or(Self::Anywhere, |within| Self::In(within.driver()))
    }
}

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
    pub(super) fn new<M, T>(transaction: T, driver: &AnyDriver) -> Self
    where
        T: OpenTransaction<M, Transaction: 'a>,
    {
        let transaction = transaction.on(driver);
        Self(transaction.map(|transaction| Box::new(transaction) as Box<dyn Erased + 'a>))
    }

    fn driver(&self) -> Option<DriverId> {
        self.0.as_ref().map(|transaction| transaction.driver())
    }

    pub(super) async fn enqueue(&mut self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        match &mut self.0 {
            Some(transaction) => transaction.enqueue(request).await,
            None => Err(DriverError::backend("the transaction belongs to another store")),
        }
    }
}

impl fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Within").field(&self.driver()).finish()
    }
}
