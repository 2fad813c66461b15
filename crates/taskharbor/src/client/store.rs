//! The store as a client sees it: every call is bounded in time.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use taskharbor_core::{
    Admin, AnyDriver, Driver, DriverError, JobId, Timestamp,
    driver::{Answers, DriverId, Enqueue, Enqueued, OutputPage, Outputs},
    error::{Refusal, Rejected},
    job::JobRecord,
};
use tokio::runtime::Handle;

use super::within::Within;
use crate::flow::read::Source;

#[derive(Clone)]
pub(super) struct Store {
    driver: AnyDriver,
    pub(super) call_timeout: Duration,
}

impl Store {
    pub(super) fn new(driver: &AnyDriver) -> Self {
        Self { driver: driver.clone(), call_timeout: Duration::from_secs(30) }
    }

    pub(super) async fn now(&self) -> Result<Timestamp, DriverError> {
        self.bounded(self.driver.now()).await
    }

    pub(super) async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        self.bounded(self.driver.enqueue(request)).await
    }

    /// The identity of the transactions on this store.
    pub(super) fn id(&self) -> Option<DriverId> {
        self.driver.driver_id()
    }

    pub(super) async fn enqueue_within(
        &self,
        within: &mut Within<'_>,
        request: Enqueue,
    ) -> Answers<Vec<Enqueued>, Rejected> {
        self.bounded(within.enqueue(request)).await
    }

    pub(super) async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        self.bounded(self.driver.outputs(request)).await
    }

    pub(super) async fn inspect(
        &self,
        id: JobId,
        now: Timestamp,
    ) -> Result<Option<JobRecord>, DriverError> {
        self.bounded(self.driver.inspect(id, now)).await
    }

    pub(super) const fn driver(&self) -> &AnyDriver {
        &self.driver
    }

    /// This store, for whoever reads outputs.
    pub(super) fn source(&self) -> Source {
        let store = self.clone();
        Arc::new(move |request| {
            let store = store.clone();
            Box::pin(async move { store.outputs(request).await })
        })
    }

    pub(super) async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let mut call = pin!(call);
        // Most calls on a store in memory are answered at once and need no timer.
        if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
            return answer;
        }
        // Without a runtime there are no timers, and whoever polls this has to bound it.
        if Handle::try_current().is_err() {
            return call.await;
        }
        let limit = self.call_timeout;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            Err(DriverError::unavailable(format!("no answer within {limit:?}")))
        })
    }
}
