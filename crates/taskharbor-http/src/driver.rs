//! [`HttpDriver`], and the operations of workers and clients.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use taskharbor_core::{
    Driver, DriverError, JobId, QueueName, Timestamp,
    driver::{
        Announce, Answers, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended, Fire,
        Limits, OutputPage, Outputs, Reserve, Reserved, Settle, Settled, Watch,
    },
    error::{FireRefused, InvalidRequest, Refusal, Rejected},
    wire::{Bounds, Nothing, Operation, operation},
};

use crate::{link::Link, wake::Wakeups};

/// The store of a TaskHarbor server.
///
/// Clones share connections and wake-ups.
///
/// ```
/// use taskharbor_core::AnyDriver;
/// use taskharbor_http::HttpDriver;
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// // The token comes from the variable TASKHARBOR_TOKEN.
/// let http = HttpDriver::connect("https://jobs.example.com?store=main").await?;
/// let driver = AnyDriver::new(http);
/// // Now: Client::new(&driver) and Worker::builder(&driver), of the crate taskharbor.
/// # drop(driver);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpDriver {
    inner: Arc<Inner>,
}

struct Inner {
    link: Arc<Link>,
    bounds: Bounds,
    wakeups: Wakeups,
    closed: AtomicBool,
}

impl HttpDriver {
    pub(crate) fn with(link: Arc<Link>, bounds: Bounds) -> Self {
        let wakeups = Wakeups::new(Arc::clone(&link.target));
        let closed = AtomicBool::new(false);
        Self { inner: Arc::new(Inner { link, bounds, wakeups, closed }) }
    }

    pub(crate) fn check_open(&self) -> Result<(), DriverError> {
        if self.inner.closed.load(Ordering::Acquire) { Err(DriverError::Closed) } else { Ok(()) }
    }

    pub(crate) async fn call<O: Operation>(
        &self,
        request: O::Request,
    ) -> Result<O::Answer, DriverError> {
        self.check_open()?;
        let json = serde_json::to_vec(&request).map_err(DriverError::backend)?;
        drop(request);
        let max = self.inner.bounds.request_bytes;
        if json.len() > max {
            let what = "the size of the request in bytes of JSON".into();
            let value = json.len();
            return Err(InvalidRequest::OutOfRange { what, value, min: 0, max }.into());
        }
        self.inner.link.call::<O>(json.into()).await
    }
}

impl Driver for HttpDriver {
    fn limits(&self) -> Limits {
        self.inner.bounds.limits
    }

    fn detached_handle(&self) -> Option<Self> {
        let driver = Self::with(Arc::new(self.inner.link.detached()), self.inner.bounds);
        driver.inner.closed.store(self.inner.closed.load(Ordering::Acquire), Ordering::Release);
        Some(driver)
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        Ok(self.call::<operation::EnqueueJobs>(request).await?.into())
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        self.call::<operation::ReserveJobs>(request).await
    }

    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        Ok(self.call::<operation::ExtendJobLeases>(request).await?.into())
    }

    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        Ok(self.call::<operation::SettleJobs>(request).await?.into())
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        Ok(self.call::<operation::ReadOutputs>(request).await?.into())
    }

    async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        self.call::<operation::FindDueSchedules>(request).await
    }

    async fn fire(&self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        Ok(self.call::<operation::FireSchedules>(request).await?.into())
    }

    async fn announce(&self, request: Announce) -> Result<(), DriverError> {
        self.call::<operation::AnnounceWorker>(request).await
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        self.check_open()?;
        Ok(self.inner.wakeups.watch(queues).await)
    }

    async fn watch_job(&self, id: JobId) -> Result<Watch, DriverError> {
        self.check_open()?;
        Ok(self.inner.wakeups.watch_job(id).await)
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        self.call::<operation::TellTime>(Nothing {}).await
    }

    async fn close(&self) -> Result<(), DriverError> {
        self.inner.closed.store(true, Ordering::Release);
        self.inner.wakeups.close();
        self.inner.link.pool.clear();
        Ok(())
    }
}

impl fmt::Debug for HttpDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpDriver").field("link", &self.inner.link).finish_non_exhaustive()
    }
}
