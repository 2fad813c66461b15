//! [`Handle`]: a job or flow that was enqueued, and its output.

use std::{fmt, marker::PhantomData};

use taskharbor_core::{
    Blob, DriverError, JobId, State, Text, debug_as_display,
    driver::{Enqueued, Limits, OutputEntry, OutputQuery},
    error::Refusal,
};

use crate::{
    Client, CodecError, Data, EnqueueError, Failure,
    codec::Format,
    context::unit,
    flow::{
        graph::Records,
        read::{self, ReadError},
    },
};

use super::pause::Pause;

/// A job or flow that was enqueued; `O` is the type of its output.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use serde::{Deserialize, Serialize};
/// # use taskharbor::{Client, Context, Handlers, Job, JobId, JobResult, Worker};
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "text:count", output = usize)]
/// struct Count {
///     text: String,
/// }
/// # async fn count(job: Count, _: Context) -> JobResult<usize> {
/// #     Ok(job.text.split_whitespace().count())
/// # }
///
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// # let handlers = Handlers::new().on(count);
/// # let worker = Worker::builder(&driver).handlers(handlers).queue("default", 1).build()?.start();
/// let job = client.enqueue(Count { text: "to be or not".into() }).await?;
/// let id = job.id().to_string(); // give it to a browser, or store it
/// assert_eq!(job.wait().await?, 4);
///
/// // Later, or in another process: a handle by the id.
/// let same = client.handle::<Count>(JobId::new(id)?);
/// assert_eq!(same.wait().await?, 4);
/// # worker.shutdown().await?;
/// # Ok(())
/// # }
/// ```
pub struct Handle<O> {
    client: Client,
    id: JobId,
    is_new: bool,
    /// Whether its jobs are known to be written as the client writes.
    is_ours: bool,
    output: PhantomData<fn() -> O>,
}

/// Why there is no output.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The job was dead-lettered.
    #[error("the job was dead-lettered: {}", reason.as_ref().map_or("no reason was given", Text::as_str))]
    DeadLettered {
        /// Why.
        reason: Option<Text>,
    },
    /// The job was cancelled.
    #[error("the job was cancelled{}", reason.as_ref().map_or_else(String::new, |it| format!(": {it}")))]
    Cancelled {
        /// The reason that was recorded, if there is one.
        reason: Option<Text>,
    },
    /// The job is not stored: its record was removed, or it was never enqueued.
    #[error("no such job is stored: it was removed, or never enqueued")]
    Gone,
    /// The job is not terminal, and waiting for it needs a tokio runtime.
    #[error("there is no tokio runtime here: wait inside one")]
    NoRuntime,
    /// A member of the group has failed, and its failure policy let the flow continue.
    #[error("a member of the group is {0}")]
    Member(Failure),
    /// The outputs of the group are too large to be combined.
    #[error(
        "the outputs of the group are more than {} bytes together: let a step of the flow take them one by one",
        Limits::MAX_CALL_BYTES
    )]
    TooLarge,
    /// The job was not enqueued, or the flow not started. For functions that enqueue and wait.
    #[error(transparent)]
    NotStarted(#[from] EnqueueError),
    /// The output was written by a codec that this client does not know.
    #[error("the output was written with codec {0:?}, which this client does not know")]
    UnknownCodec(String),
    /// The output cannot be read as an `O`.
    #[error(transparent)]
    Decode(#[from] CodecError),
    /// The call to the store failed. The handle stays valid: wait again.
    #[error(transparent)]
    Store(#[from] DriverError),
}

debug_as_display!(WaitError);

impl From<ReadError> for WaitError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Failed(failure) => Self::Member(failure),
            ReadError::Refused(Refusal::JobNotFound) | ReadError::Missing => Self::Gone,
            ReadError::TooLarge | ReadError::EntryTooLarge => Self::TooLarge,
            ReadError::Codec(error) => Self::Decode(error),
            ReadError::Store(error) => Self::Store(error),
            ReadError::Pending | ReadError::NotFailed | ReadError::Refused(_) => {
                let text = "the output of what is done cannot be read".to_owned();
                Self::Store(DriverError::ContractViolation(text))
            }
        }
    }
}

impl<O> Handle<O> {
    pub(super) fn new(client: Client, enqueued: Enqueued) -> Self {
        let is_new = enqueued.is_new();
        let (Enqueued::Inserted(id) | Enqueued::Existing(id)) = enqueued;
        Self { client, id, is_new, is_ours: is_new, output: PhantomData }
    }

    /// The same, whose jobs were written in a format that is not the client's.
    pub(super) fn written_otherwise(mut self) -> Self {
        self.is_ours = false;
        self
    }

    pub(super) const fn to_existing(client: Client, id: JobId) -> Self {
        Self { client, id, is_new: false, is_ours: false, output: PhantomData }
    }

    /// The id of the job, or of the flow.
    #[must_use]
    pub const fn id(&self) -> &JobId {
        &self.id
    }

    /// Whether this call created the job (false if it already existed).
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until the job is done and returns its output as bytes. If the job was enqueued in a
    /// transaction, commit before you wait: until then the job is not stored, and this fails.
    ///
    /// # Errors
    ///
    /// [`WaitError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; waiting again is fine.
    pub async fn wait_raw(&self) -> Result<Option<Blob>, WaitError> {
        if let Some(output) = self.look().await? {
            return Ok(output);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(WaitError::NoRuntime);
        }
        let mut pause = Pause::new(self.client.store().watch_job(self.id.clone()).await);
        loop {
            // The watch was there before this look, so an end after the look wakes it.
            if let Some(output) = self.look().await? {
                return Ok(output);
            }
            pause.wait().await;
        }
    }

    /// The output, if the job is done.
    async fn look(&self) -> Result<Option<Option<Blob>>, WaitError> {
        let source = self.client.store().source();
        let page = read::page(&source, OutputQuery::of(self.id.clone())).await?;
        match read::only(page)? {
            OutputEntry::Done(output) => Ok(Some(output)),
            OutputEntry::Pending => Ok(None),
            OutputEntry::Failed { state: State::Cancelled, reason } => {
                Err(WaitError::Cancelled { reason })
            }
            OutputEntry::Failed { reason, .. } => Err(WaitError::DeadLettered { reason }),
            OutputEntry::Missing => Err(WaitError::Gone),
            group => {
                let format = self.format().await?;
                Ok(Some(read::value(&source, read::Input::Entry(group), &format).await?))
            }
        }
    }

    /// The format in which the job, and so its output, was written.
    async fn format(&self) -> Result<Format, WaitError> {
        let mine = self.client.format();
        if self.is_ours {
            return Ok(mine.clone());
        }
        let store = self.client.store();
        let now = store.now().await?;
        let record = store.inspect(self.id.clone(), now).await?.ok_or(WaitError::Gone)?;
        let name = Format::named_in(&record.job.headers);
        // The client's own goes first, so that it may replace a built-in one, as on a worker.
        let mut known = std::iter::once(mine.clone()).chain(Format::known());
        let known = known.find(|format| format.name() == name);
        known.ok_or_else(|| WaitError::UnknownCodec(name.to_owned()))
    }
}

impl<O: Data> Handle<O> {
    /// Waits until the job is done, together with the flow that its handler may have returned, and
    /// returns the output.
    ///
    /// A wake-up ends the wait: at once if the job ends in this process, and on PostgreSQL and
    /// SQLite soon after it ends in another one. Without wake-ups, the store is asked at growing
    /// intervals of up to half a second. On PostgreSQL the first wait of a driver opens one more
    /// connection, unless the URL says `listen=off`.
    ///
    /// A flow that is blocked, because a step of it was dead-lettered, is not terminal, so the wait
    /// goes on until the step is requeued or the flow is cancelled. Add a timeout where that may be
    /// too long. A handler that waits for a job of its own queue occupies a slot that the job may
    /// need: let it return a [`Flow`](crate::Flow) instead.
    ///
    /// # Errors
    ///
    /// [`WaitError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; waiting again is fine.
    pub async fn wait(&self) -> Result<O, WaitError> {
        match self.wait_raw().await? {
            Some(bytes) => Ok(self.format().await?.decode(&bytes)?),
            None => match unit() {
                Some(unit) => Ok(unit),
                // A handler that stored nothing where something was expected: say so as a codec
                // says that it found nothing to read.
                None => Ok(self.format().await?.decode(&[])?),
            },
        }
    }
}

impl<O> Clone for Handle<O> {
    fn clone(&self) -> Self {
        let (client, id) = (self.client.clone(), self.id.clone());
        Self { client, id, is_new: self.is_new, is_ours: self.is_ours, output: PhantomData }
    }
}

impl<O> fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("id", &self.id).field("is_new", &self.is_new).finish()
    }
}
