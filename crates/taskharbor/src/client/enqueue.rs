//! [`EnqueueBuilder`] and [`EnqueueMany`]: jobs about to be stored, which are awaited.

use std::{
    borrow::Cow,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    time::Duration,
};

use taskharbor_core::{
    Blob, JobId, NewJob, Timestamp,
    driver::OpenTransaction,
    job::{JobSet, KeyHold},
};

use super::{
    Label,
    within::{Where, Within},
};
use crate::{
    Client, CodecError, EnqueueError, Handle, IntoStep, InvalidJob, Job, Options, Step,
    codec::Format, draft,
};

/// A future that ends with the answer to a call of the client's.
type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, EnqueueError>> + Send + 'a>>;

/// A job about to be stored, with the output type `O`. Nothing happens until it is awaited.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// # use taskharbor::{Client, Job};
/// # #[derive(Serialize, Deserialize, Job)]
/// # #[job(type = "email:send", queue = "mail")]
/// # struct SendEmail { to: String }
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// let job = client
///     .enqueue(SendEmail { to: "ada@example.com".into() })
///     .delay(Duration::from_secs(60))
///     .idempotency_key("welcome:42") // a second one returns the first job
///     .header("tenant", "acme")
///     .await?;
/// println!("{}", job.id());
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped after it was polled, the job may be stored or not, but never in part.
/// In a transaction ([`EnqueueBuilder::within`]), roll the transaction back.
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueBuilder<'a, O> {
    client: &'a Client,
    job_type: Cow<'static, str>,
    payload: Result<Blob, CodecError>,
    codec: Option<Cow<'static, str>>,
    options: Options,
    id: Option<JobId>,
    within: Option<Within<'a>>,
    output: PhantomData<fn() -> O>,
}

impl<'a, O> EnqueueBuilder<'a, O> {
    pub(super) fn typed<J: Job<Output = O>>(client: &'a Client, job: &J) -> Self {
        let payload = client.format().encode(job);
        Self::new(client, J::TYPE.into(), payload, Options::of(job))
    }

    fn new(
        client: &'a Client,
        job_type: Cow<'static, str>,
        payload: Result<Blob, CodecError>,
        options: Options,
    ) -> Self {
        Self {
            client,
            job_type,
            payload,
            codec: None,
            options,
            id: None,
            within: None,
            output: PhantomData,
        }
    }

    fn change(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        self.options = change(self.options);
        self
    }

    /// Sets several options at once. Options that are not set there stay as they are.
    pub fn options(self, options: Options) -> Self {
        self.change(|base| options.over(base))
    }

    /// The queue of the job. Defaults to that of its type.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.change(|options| options.queue(queue))
    }

    /// The earliest time at which the job may run. Defaults to at once.
    pub fn run_at(self, run_at: Timestamp) -> Self {
        self.change(|options| options.run_at(run_at))
    }

    /// The time that has to pass before the job may run. Defaults to at once.
    pub fn delay(self, delay: Duration) -> Self {
        self.change(|options| options.delay(delay))
    }

    /// How long one execution may take. Defaults to what its type or the worker allows.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.change(|options| options.timeout(timeout))
    }

    /// How many executions may fail. Defaults to what its type or the worker's policy says.
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.change(|options| options.max_attempts(max_attempts))
    }

    /// The priority of the job; jobs with a higher one run first. Defaults to that of its type, or
    /// 0.
    pub fn priority(self, priority: i16) -> Self {
        self.change(|options| options.priority(priority))
    }

    /// The lane of its queue that it belongs to: its tenant, host or account. Lanes of a queue take
    /// turns, so that a tenant with many jobs does not keep the others waiting. Defaults to what
    /// [`Job::lane`] says, or none.
    ///
    /// ```
    /// # use taskharbor::{Client, EnqueueError, Job};
    /// # async fn send<J: Job<Input = ()>>(client: &Client, job: J, tenant: String) -> Result<(), EnqueueError> {
    /// client.enqueue(job).lane(&tenant).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When awaited, [`InvalidJob::Name`] if the name is invalid.
    pub fn lane(self, lane: impl AsRef<str>) -> Self {
        self.change(|options| options.lane(lane))
    }

    /// Adds a small text that travels with the job.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|options| options.header(name, value))
    }

    /// Prevents duplicates: while a job holds this key in the same queue, enqueueing returns that
    /// job, whatever its type, and stores nothing. Types share the keys of a queue, so start a key
    /// with its subject, as in `invoice:42`. Defaults to none.
    pub fn idempotency_key(self, key: impl fmt::Display) -> Self {
        self.change(|options| options.idempotency_key(key))
    }

    /// How long the job holds its key. Defaults to [`KeyHold::UntilPruned`].
    pub fn key_hold(self, hold: KeyHold) -> Self {
        self.change(|options| options.key_hold(hold))
    }

    /// The id of the job; enqueueing the same id again changes nothing. Defaults to a new id.
    pub fn id(mut self, id: JobId) -> Self {
        self.id = Some(id);
        self
    }

    /// Enqueues the job in your open transaction on the store: the job is stored if and only if the
    /// transaction commits. Until then no other connection sees the job, no worker can run it, and
    /// waiting for its output fails ([`WaitError::Gone`](crate::WaitError::Gone)). Observers are
    /// told of it at once. Defaults to none.
    ///
    /// ```
    /// # use taskharbor::{Client, EnqueueError, Job, Transaction};
    /// # async fn welcome<J: Job<Input = ()>>(client: Client, mut tx: impl Transaction, job: J) -> Result<(), EnqueueError> {
    /// client.enqueue(job).within(&mut tx).await?;
    /// // Then commit.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It takes transactions of `tokio_postgres` and `deadpool_postgres`, of sqlx with `use
    /// taskharbor_sqlx as _;`, and of `SqliteDriver::begin`.
    ///
    /// # Errors
    ///
    /// When awaited, [`EnqueueError::OtherStore`] if the transaction belongs to another store than
    /// the client's.
    pub fn within<M>(mut self, transaction: impl OpenTransaction<M, Transaction: 'a>) -> Self {
        self.within = Some(Within::new(transaction, self.client.store().driver()));
        self
    }

    fn draft(self, now: Timestamp) -> Result<NewJob, InvalidJob> {
        let headers = match self.codec {
            Some(name) => Format::headers_of(&name)?,
            None => self.client.format().headers().clone(),
        };
        let id = match self.id {
            Some(id) => id,
            None => JobId::generate(now)?,
        };
        draft::job(id, &self.job_type, self.payload?, headers, &self.options, now)
    }

    async fn send(mut self) -> Result<Handle<O>, EnqueueError> {
        let client = self.client;
        let within = self.within.take();
        let now = client.now(Where::of(within.as_ref())).await?;
        // A job with a key or id of its own may be stored already, so it is sent alone. Jobs in a
        // transaction are not batched with others either.
        let has_key = self.options.idempotency_key.is_some();
        let alone = has_key || self.id.is_some() || within.is_some();
        let mut job = self.draft(now)?;
        let handles = if alone {
            client.send(JobSet::from(job), now, within).await?
        } else {
            client.propagated().write([&mut job]);
            let label = Label::of(&job);
            let enqueued = client.coalescer().enqueue(job, now).await?;
            client.handles(&[label], vec![enqueued])
        };
        one(handles)
    }
}

impl<'a> EnqueueBuilder<'a, Blob> {
    pub(super) fn raw(client: &'a Client, job_type: String, payload: Blob) -> Self {
        let raw = Self::new(client, job_type.into(), Ok(payload), Options::new());
        raw.codec(Format::UNNAMED)
    }

    /// The codec with which the bytes were written. Defaults to JSON.
    pub fn codec(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.codec = Some(name.into());
        self
    }
}

impl<'a, O: 'a> IntoFuture for EnqueueBuilder<'a, O> {
    type Output = Result<Handle<O>, EnqueueError>;
    type IntoFuture = Answer<'a, Handle<O>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<O> fmt::Debug for EnqueueBuilder<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueBuilder")
            .field("job_type", &self.job_type)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Many jobs of one type about to be stored in one call. Nothing happens until it is awaited.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use serde::{Deserialize, Serialize};
/// # use taskharbor::{Client, Job, Options};
/// # #[derive(Serialize, Deserialize, Job)]
/// # #[job(type = "email:send", queue = "mail")]
/// # struct SendEmail { to: String }
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// let mails = ["ada", "bob"].map(|name| SendEmail { to: format!("{name}@example.com") });
/// let jobs = client.enqueue_many(mails).options(Options::new().priority(-1)).await?;
/// assert_eq!(jobs.len(), 2);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// As [`EnqueueBuilder`].
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueMany<'a, O> {
    client: &'a Client,
    job_type: &'static str,
    items: Vec<Item>,
    /// Those of the type.
    defaults: Options,
    /// Those that were set for all of them.
    options: Options,
    within: Option<Within<'a>>,
    output: PhantomData<fn() -> O>,
}

/// One of many jobs.
struct Item {
    payload: Result<Blob, CodecError>,
    /// Its own options, if it has any.
    options: Option<Options>,
    lane: Option<String>,
}

impl Item {
    /// Its payload, and its options if they are not those of all.
    fn resolve(
        self,
        all: &Options,
        defaults: &Options,
    ) -> (Result<Blob, CodecError>, Option<Options>) {
        if self.options.is_none() && self.lane.is_none() {
            return (self.payload, None);
        }
        let mut base = defaults.clone();
        base.lane = self.lane.or(base.lane);
        let own = self.options.unwrap_or_default();
        (self.payload, Some(own.over(all.clone()).over(base)))
    }
}

impl<'a, O> EnqueueMany<'a, O> {
    pub(super) fn new<S: IntoStep<Output = O>>(
        client: &'a Client,
        jobs: impl IntoIterator<Item = S>,
    ) -> Self {
        let unset = Options::new();
        let items = jobs.into_iter().map(|job| {
            let Step { job, options } = job.into_step();
            let options = (options != unset).then_some(options);
            Item { payload: client.format().encode(&job), options, lane: job.lane() }
        });
        let (job_type, defaults) = (<S::Job as Job>::TYPE, <S::Job as Job>::options());
        let items = items.collect();
        let options = Options::new();
        Self { client, job_type, items, defaults, options, within: None, output: PhantomData }
    }

    /// Sets options for all of these jobs. Options of a single job override them, and they override
    /// those of the type.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options.over(self.options);
        self
    }

    /// Enqueues all of them in this open transaction, as [`EnqueueBuilder::within`] does.
    pub fn within<M>(mut self, transaction: impl OpenTransaction<M, Transaction: 'a>) -> Self {
        self.within = Some(Within::new(transaction, self.client.store().driver()));
        self
    }

    async fn send(self) -> Result<Vec<Handle<O>>, EnqueueError> {
        let (client, within) = (self.client, self.within);
        let now = client.now(Where::of(within.as_ref())).await?;
        let ids = JobId::generate_many(now, self.items.len()).map_err(InvalidJob::from)?;
        let common = self.options.clone().over(self.defaults.clone());
        // What the jobs have in common is checked once.
        let mut first: Option<NewJob> = None;
        let draft = |(item, id): (Item, JobId)| {
            let (payload, own) = item.resolve(&self.options, &self.defaults);
            if let (Some(first), None) = (&first, &own) {
                let mut job = first.clone();
                (job.id, job.payload) = (id, payload?);
                return Ok(job);
            }
            let headers = client.format().headers().clone();
            let options = own.as_ref().unwrap_or(&common);
            let job = draft::job(id, self.job_type, payload?, headers, options, now)?;
            if own.is_none() {
                first = Some(job.clone());
            }
            Ok(job)
        };
        let jobs = self.items.into_iter().zip(ids).map(draft);
        let jobs = jobs.collect::<Result<_, InvalidJob>>()?;
        client.send(JobSet::plain(jobs), now, within).await
    }
}

impl<'a, O: 'a> IntoFuture for EnqueueMany<'a, O> {
    type Output = Result<Vec<Handle<O>>, EnqueueError>;
    type IntoFuture = Answer<'a, Vec<Handle<O>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<O> fmt::Debug for EnqueueMany<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueMany")
            .field("job_type", &self.job_type)
            .field("jobs", &self.items.len())
            .finish_non_exhaustive()
    }
}

/// The last handle: that of the only job, or of the flow's tail.
pub(super) fn one<O>(mut handles: Vec<Handle<O>>) -> Result<Handle<O>, EnqueueError> {
    handles.pop().ok_or_else(|| {
        let text = "a job was stored and not answered".to_owned();
        taskharbor_core::DriverError::ContractViolation(text).into()
    })
}
