//! [`Client`]: enqueueing jobs and starting flows.

mod coalesce;
mod dlq_group;
mod enqueue;
mod handle;
mod manage;
mod pause;
mod queue;
mod schedules;
mod start;
mod status;
mod store;
mod within;
mod workers;

use std::{fmt, sync::Arc, time::Duration};

use taskharbor_core::{
    AnyDriver, Blob, DriverError, JobId, JobType, NewJob, QueueName, Timestamp, debug_as_display,
    driver::{Driver, Enqueue, Enqueued},
    error::Rejected,
    job::{HeaderError, JobSet},
};

use crate::{
    Codec, Data, Event, IntoFlow, IntoStep, InvalidJob, Job, NoInput, Observer, Propagate,
    codec::Format, flow::json::Document, observe::Observers, propagate::Propagated,
};

use coalesce::Coalescer;
use store::Store;
use within::{Where, Within};

pub use dlq_group::{DlqGroup, DlqGroups};
pub use enqueue::{EnqueueBuilder, EnqueueMany};
pub use handle::{Handle, WaitError};
pub use manage::{Acted, Dlq, JobAdmin, JobsAdmin};
pub use queue::QueueAdmin;
pub use schedules::{Backfilled, ScheduleAdmin, ScheduleDetails, ScheduleInfo};
pub use start::Start;
pub use status::ManageError;
pub use workers::WorkerStatus;

/// Enqueues jobs and starts flows. Cheap to clone; clones share their calls to the store.
///
/// It needs a tokio runtime with timers enabled (`enable_all`, as `#[tokio::main]` does).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use serde::{Deserialize, Serialize};
/// use std::time::Duration;
/// use taskharbor::{Client, Job};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "email:send", queue = "mail")]
/// struct SendEmail {
///     to: String,
/// }
///
/// let driver = taskharbor::connect("memory:").await?;
/// let client = Client::new(&driver);
/// let handle = client
///     .enqueue(SendEmail { to: "ada@example.com".into() })
///     .delay(Duration::from_secs(60))
///     .idempotency_key("welcome-42")
///     .await?;
/// assert!(handle.is_new());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    format: Format,
    coalescer: Arc<Coalescer>,
    propagated: Propagated,
}

impl Client {
    /// Creates a client of this driver that writes jobs as JSON.
    #[must_use]
    pub fn new(driver: &AnyDriver) -> Self {
        Self::with(Store::new(driver), Format::json(), Vec::new(), Propagated::default())
    }

    /// Creates a client with other settings than [`Client::new`].
    #[must_use]
    pub fn builder(driver: &AnyDriver) -> ClientBuilder {
        let store = Store::new(driver);
        let (observers, propagated) = (Vec::new(), Propagated::default());
        ClientBuilder { store, format: Ok(Format::json()), observers, propagated }
    }

    fn with(
        mut store: Store,
        format: Format,
        observers: Vec<Arc<dyn Observer>>,
        propagated: Propagated,
    ) -> Self {
        store.observers = Observers::new(observers);
        let coalescer = Arc::new(Coalescer::new(store.clone()));
        Self { shared: Arc::new(Shared { store, format, coalescer, propagated }) }
    }

    /// Enqueues a job: set the options that differ from those of its type, then await the builder.
    #[expect(clippy::needless_pass_by_value, reason = "an enqueued job is given away")]
    pub fn enqueue<J>(&self, job: J) -> EnqueueBuilder<'_, J::Output>
    where
        J: Job,
        J::Input: NoInput,
    {
        EnqueueBuilder::typed(self, &job)
    }

    /// Enqueues a job by the name of its type and the bytes of its payload, as its handler will get
    /// them. A typed handler takes them for JSON unless [`EnqueueBuilder::codec`] says otherwise.
    /// Read its output with [`Handle::wait_raw`].
    pub fn enqueue_raw(
        &self,
        job_type: impl Into<String>,
        payload: impl Into<Blob>,
    ) -> EnqueueBuilder<'_, Blob> {
        EnqueueBuilder::raw(self, job_type.into(), payload.into())
    }

    /// Enqueues many jobs of one type in one call to the store, which stores all of them or none.
    /// Each may have options of its own:
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// use taskharbor::{Client, EnqueueError, Job, Options};
    ///
    /// #[derive(Serialize, Deserialize, Job)]
    /// #[job(type = "invoice:send")]
    /// struct SendInvoice {
    ///     number: u64,
    /// }
    ///
    /// async fn send_invoices(client: &Client, numbers: Vec<u64>) -> Result<usize, EnqueueError> {
    ///     let jobs = numbers.into_iter().map(|number| {
    ///         let once = Options::new().idempotency_key(format!("invoice:{number}"));
    ///         SendInvoice { number }.with(once)
    ///     });
    ///     let handles = client.enqueue_many(jobs).await?;
    ///     Ok(handles.iter().filter(|handle| handle.is_new()).count())
    /// }
    /// ```
    pub fn enqueue_many<S>(&self, jobs: impl IntoIterator<Item = S>) -> EnqueueMany<'_, S::Output>
    where
        S: IntoStep,
        S::Input: NoInput,
    {
        EnqueueMany::new(self, jobs)
    }

    /// Starts a flow: all of its jobs are stored in one step, or none. A driver without support for
    /// flows refuses it with [`Rejected::FlowsNotSupported`].
    pub fn start<F>(&self, flow: F) -> Start<'_, F::Output>
    where
        F: IntoFlow,
        F::Input: NoInput,
    {
        Start::new(self, flow.into_flow().taking_nothing())
    }

    /// Starts a flow that was read from its JSON form, with the name and the key that the document
    /// has. Read its output with [`Handle::wait_raw`].
    pub fn start_document(&self, document: Document) -> Start<'_, Blob> {
        let Document { flow, name, key } = document;
        let start = Start::new(self, flow).format(Format::json());
        let start = name.into_iter().fold(start, Start::name);
        key.into_iter().fold(start, Start::idempotency_key)
    }

    /// Returns a handle to a job that this process or another one enqueued before, to wait for its
    /// output.
    #[must_use]
    pub fn handle<J: Job>(&self, id: JobId) -> Handle<J::Output> {
        Handle::to_existing(self.clone(), id)
    }

    /// Returns a handle to a flow that this process or another one started before, and that
    /// produces an `O`.
    #[must_use]
    pub fn flow_handle<O: Data>(&self, id: JobId) -> Handle<O> {
        Handle::to_existing(self.clone(), id)
    }

    fn store(&self) -> &Store {
        &self.shared.store
    }

    fn format(&self) -> &Format {
        &self.shared.format
    }

    fn observers(&self) -> &Observers {
        &self.shared.store.observers
    }

    fn coalescer(&self) -> &Arc<Coalescer> {
        &self.shared.coalescer
    }

    fn propagated(&self) -> &Propagated {
        &self.shared.propagated
    }

    /// The handles to jobs that were just stored, in their order.
    fn handles<O>(&self, jobs: &[Label], answers: Vec<Enqueued>) -> Vec<Handle<O>> {
        let told = answers.into_iter().zip(jobs).map(|(enqueued, Label { job_type, queue })| {
            let (id, is_new) = (enqueued.id(), enqueued.is_new());
            self.observers().tell(&Event::Enqueued { id, job_type, queue, is_new });
            Handle::new(self.clone(), enqueued)
        });
        told.collect()
    }

    /// The current time for what is about to be enqueued, in a transaction of this driver or in none.
    async fn now(&self, within: Where) -> Result<Timestamp, EnqueueError> {
        let own = self.store().driver().driver_id();
        match within {
            Where::In(driver) if driver.is_none() || driver != own => {
                return Err(EnqueueError::OtherStore);
            }
            Where::In(_) | Where::Anywhere => {}
        }
        Ok(self.store().now().await?)
    }

    /// Stores one set of jobs; returns all of its handles.
    async fn send<O>(
        &self,
        mut set: JobSet,
        now: Timestamp,
        within: Option<Within<'_>>,
    ) -> Result<Vec<Handle<O>>, EnqueueError> {
        self.propagated().write(&mut set.jobs);
        let labels: Vec<Label> = set.jobs.iter().map(Label::of).collect();
        let request = Enqueue::new(vec![set], now);
        let answers = match within {
            Some(mut within) => self.store().enqueue_within(&mut within, request).await?,
            None => self.store().enqueue(request).await?,
        };
        match answers.into_iter().next() {
            Some(Ok(answers)) if answers.len() != labels.len() => {
                let text = "a job was stored and not answered".to_owned();
                Err(DriverError::ContractViolation(text).into())
            }
            Some(answer) => Ok(self.handles(&labels, answer?)),
            None => Err(DriverError::ContractViolation("a set has no answer".to_owned()).into()),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("format", self.format()).finish_non_exhaustive()
    }
}

/// The part of a job that observers are told, kept while the job itself is sent.
struct Label {
    job_type: JobType,
    queue: QueueName,
}

impl Label {
    fn of(job: &NewJob) -> Self {
        Self { job_type: job.job_type.clone(), queue: job.queue.clone() }
    }
}

/// Configures a [`Client`].
pub struct ClientBuilder {
    store: Store,
    format: Result<Format, HeaderError>,
    observers: Vec<Arc<dyn Observer>>,
    propagated: Propagated,
}

impl ClientBuilder {
    /// Writes jobs in this format. The workers that run them have to know it. Defaults to
    /// [`Json`](crate::Json).
    #[must_use]
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.format = Format::new(codec);
        self
    }

    /// Adds an observer, which receives events about enqueued jobs and calls to the store. Without
    /// one, events are only logged.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Writes the caller's context, such as its trace, into the headers of each enqueued job.
    /// Defaults to no such headers.
    #[must_use]
    pub fn propagate(mut self, propagate: impl Propagate) -> Self {
        self.propagated = Propagated::by(propagate);
        self
    }

    /// How long a call to the store may take before it counts as failed. Defaults to 30 s.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.store.call_timeout = timeout;
        self
    }

    /// Returns the client.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] if the codec's name cannot be stored with a job.
    pub fn build(self) -> Result<Client, HeaderError> {
        Ok(Client::with(self.store, self.format?, self.observers, self.propagated))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("format", &self.format).finish_non_exhaustive()
    }
}

/// Why a job was not enqueued.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The job is invalid; nothing was sent to the store.
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// The store refused the job; nothing was stored.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The transaction belongs to another store than the client's; nothing was done in it.
    #[error(
        "the transaction belongs to another store: make it with the driver that the client was built with"
    )]
    OtherStore,
    /// The call failed. After [`DriverError::Unavailable`] the job may have been stored. With an
    /// idempotency key or an id of your own it is safe to enqueue it again. In a transaction, roll
    /// it back.
    #[error(transparent)]
    Store(#[from] DriverError),
}

debug_as_display!(EnqueueError);
