//! [`Call`] and [`Context`]: one execution of a job, as middleware and handlers see it.

use std::{any::TypeId, fmt, ops::Deref, sync::Arc, time::Duration};

use taskharbor_core::{
    AnyDriver, Blob, JobId, JobType, QueueName, Text, Timestamp,
    clock::Clock,
    job::{Headers, JobView as JobFields},
    name::{IdempotencyKey, LaneName},
};

use crate::{
    CancelReason, Data, Each, Failure, Inputs, Job, JobError, JobResult, codec::Format,
    flow::read::Source, header, inflight::Inflight, observe::Observers,
};

/// One execution of a job, as middleware sees it. Cheap to clone.
#[derive(Clone)]
pub struct Call {
    inflight: Arc<Inflight>,
    setting: Setting,
    input: Input,
}

/// What a worker sets up for an execution.
#[derive(Clone)]
pub(crate) struct Setting {
    /// The format of the job, if the worker knows it.
    pub(crate) format: Option<Format>,
    /// The driver in whose transactions the job can be acknowledged; `None` without a store, where
    /// any transaction will do.
    pub(crate) driver: Option<AnyDriver>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) max_attempts: u32,
}

/// The input of a job.
#[derive(Clone)]
pub(crate) enum Input {
    /// The job has no parents, or takes no input.
    None,
    /// The output of its parent.
    Output(Option<Blob>),
    /// The step before it has failed: the codec's value for nothing in place of its output, or for
    /// a failure job the failure itself.
    Failed(Option<Blob>, Arc<Failure>),
    /// Outputs that the handler reads one by one.
    Each(Source),
    /// Outputs that the handler reads one by one, given by a test.
    #[cfg(feature = "testing")]
    Given(Vec<Blob>),
}

impl Call {
    pub(crate) const fn new(inflight: Arc<Inflight>, setting: Setting, input: Input) -> Self {
        Self { inflight, setting, input }
    }

    pub(crate) fn inflight(&self) -> &Inflight {
        &self.inflight
    }

    pub(crate) const fn driver(&self) -> Option<&AnyDriver> {
        self.setting.driver.as_ref()
    }

    pub(crate) const fn observers(&self) -> &Observers {
        &self.setting.observers
    }

    /// The current time, on the store's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.setting.clock.now()
    }

    fn job(&self) -> &JobFields {
        &self.inflight.job
    }

    /// The job's id.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.job().id
    }

    /// The job's type.
    #[must_use]
    pub fn job_type(&self) -> &JobType {
        &self.job().job_type
    }

    /// The queue it came from.
    #[must_use]
    pub fn queue(&self) -> &QueueName {
        &self.job().queue
    }

    /// The lane that the job belongs to, if it was enqueued with one.
    #[must_use]
    pub fn lane(&self) -> Option<&LaneName> {
        self.job().lane.as_ref()
    }

    /// The number of this attempt, from 1: one more than the number of recorded failures.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.job().attempts.saturating_add(1)
    }

    /// How many executions of this job may fail before it is dead-lettered: the job's own maximum, or that
    /// of its type, or that of its retry policy. In the last attempt it is equal to
    /// [`Call::attempt`].
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.setting.max_attempts
    }

    /// How often the job was leased to a worker, this time included. Greater than [`Call::attempt`]
    /// if workers died while they held the job, or released it.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.job().deliveries
    }

    /// When it was enqueued.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.job().created_at
    }

    /// The earliest time at which the job was allowed to run, if one was set: when it was enqueued,
    /// or by the retry or snooze that put it back.
    #[must_use]
    pub fn run_at(&self) -> Option<Timestamp> {
        self.job().run_at
    }

    /// When the job became available to workers: its due time, or after a lost lease a time up to
    /// the end of that lease. The time from here to the start of the handler is what it waited for
    /// a worker.
    #[must_use]
    pub fn available_at(&self) -> Timestamp {
        self.job().available_at
    }

    /// The slot for which a schedule made the job: the instant that it stands for, however late it
    /// runs. `None` if no schedule made it.
    #[must_use]
    pub fn slot(&self) -> Option<Timestamp> {
        self.headers().get(header::SLOT)?.parse().ok()
    }

    /// The schedule that made the job.
    #[must_use]
    pub fn schedule(&self) -> Option<&str> {
        self.headers().get(header::SCHEDULE)
    }

    /// The headers it was enqueued with.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.job().headers
    }

    /// The idempotency key it was enqueued with.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.job().idempotency_key.as_ref()
    }

    /// The flow it belongs to.
    #[must_use]
    pub fn flow(&self) -> Option<&JobId> {
        self.job().flow.as_ref()
    }

    /// The error of the last attempt.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.job().last_error.as_ref().map(Text::as_str)
    }

    /// The payload of the job as it was stored.
    #[must_use]
    pub fn payload(&self) -> &Blob {
        &self.job().payload
    }

    /// How long this execution may take: the job's own timeout, or that of its type, or the
    /// worker's. `None` if none of these is set.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.setting.timeout
    }

    /// When the timeout ends this execution, on the store's clock.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.setting.deadline
    }

    /// The time that is left until [`Call::deadline`].
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.deadline()?.since(self.now()))
    }

    /// The reason why the handler should stop, if it should.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.inflight.cancellation.reason()
    }

    /// Whether the handler should stop. Check it from time to time in work that never awaits.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel_reason().is_some()
    }

    /// Waits until the handler should stop.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn cancelled(&self) -> CancelReason {
        self.inflight.cancellation.at_least(CancelReason::Requested).await
    }

    /// Reports the progress of the work. The latest report is stored with the next heartbeat, and
    /// `taskharbor inspect` and the dashboard show it.
    pub fn progress(&self, report: impl AsRef<str>) {
        self.inflight.report(Text::new(report));
    }

    /// Returns the output of the previous step of the flow. The job argument only gives the type.
    ///
    /// # Errors
    ///
    /// Unrecoverable if there was no such step, or if its output cannot be read as `J::Input`.
    pub fn input<J: Job>(&self, _: &J) -> JobResult<J::Input> {
        // A job that takes nothing runs without looking at failures.
        if let Some(nothing) = unit() {
            return Ok(nothing);
        }
        let bytes = self.input_raw().ok_or_else(no_input::<J>)?;
        self.format()?.decode(bytes).map_err(JobError::unrecoverable)
    }

    /// The output of the previous step of the flow as it is stored; for a group, the list of its
    /// members' outputs. `None` if there was no such step, or if it has no output.
    #[must_use]
    pub fn input_raw(&self) -> Option<&Blob> {
        match &self.input {
            Input::Output(output) | Input::Failed(output, _) => output.as_ref(),
            _ => None,
        }
    }

    /// The failure of the step before this one, or of the first of several that failed: for failure
    /// jobs ([`Flow::on_failure`](crate::Flow::on_failure)), and for handlers of raw bytes behind a
    /// step with the policy continue ([`Handlers::on_raw`](crate::Handlers::on_raw)). `None` if none
    /// has failed.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match &self.input {
            Input::Failed(_, failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the outputs of the group's members one by one, for a job whose input is [`Each`] of
    /// them. The job argument only gives the type.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use taskharbor::{Context, Each, Job, JobResult};
    /// # #[derive(Serialize, Deserialize, Job)]
    /// # #[job(type = "total", input = Each<u64>, output = u64)]
    /// # struct Total;
    /// async fn total(job: Total, cx: Context) -> JobResult<u64> {
    ///     let (mut sum, mut numbers) = (0, cx.inputs(&job)?);
    ///     while let Some(number) = numbers.next().await {
    ///         sum += number?;
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Unrecoverable if there was no such step.
    pub fn inputs<J, T>(&self, _: &J) -> JobResult<Inputs<T>>
    where
        J: Job<Input = Each<T>>,
        T: Data,
    {
        let format = self.format()?.clone();
        match &self.input {
            Input::Each(source) => Ok(Inputs::of(source.clone(), self.id().clone(), format)),
            #[cfg(feature = "testing")]
            Input::Given(items) => Ok(Inputs::given(items.clone().into(), format)),
            _ => Err(no_input::<J>()),
        }
    }

    pub(crate) fn decode<T: Data>(&self) -> JobResult<T> {
        self.format()?.decode(self.payload()).map_err(JobError::unreadable)
    }

    /// The format in which the job was written, or the name of one that this worker does not know.
    pub(crate) fn known_format(&self) -> Result<&Format, &str> {
        self.setting.format.as_ref().ok_or_else(|| Format::named_in(self.headers()))
    }

    /// The format in which the job was written, if this worker knows it.
    pub(crate) fn format(&self) -> JobResult<&Format> {
        self.known_format().map_err(|name| {
            JobError::unreadable(format!(
                "the job was written with codec {name:?}, which this worker does not know"
            ))
        })
    }
}

fn no_input<J: Job>() -> JobError {
    JobError::unrecoverable(format!("no step before {} has produced its input", J::TYPE))
}

/// The value of `T` if it is `()`, which is stored as nothing.
pub(crate) fn unit<T: Data>() -> Option<T> {
    if TypeId::of::<T>() != TypeId::of::<()>() {
        return None;
    }
    T::deserialize(serde::de::value::UnitDeserializer::<serde::de::value::Error>::new()).ok()
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("id", self.id())
            .field("job_type", self.job_type())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

/// The execution for which a handler is called: everything in [`Call`], and the application's
/// state.
///
/// ```
/// use std::time::Duration;
///
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Context, Job, JobResult};
///
/// # struct Database;
/// # impl Database { async fn index(&self, _: u32) -> Result<(), std::io::Error> { Ok(()) } }
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "search:index")]
/// struct Index {
///     pages: u32,
/// }
///
/// struct App {
///     db: Database,
/// }
///
/// async fn index(job: Index, cx: Context<App>) -> JobResult {
///     for page in 0..job.pages {
///         if cx.is_cancelled() {
///             return Err("stopped")?; // by a shutdown, a timeout or a person
///         }
///         cx.state().db.index(page).await?;
///         cx.progress(format!("{page} of {} pages", job.pages));
///     }
///     println!("{}: attempt {} of {}", cx.id(), cx.attempt(), cx.max_attempts());
///     Ok(())
/// }
/// ```
pub struct Context<S = ()> {
    call: Call,
    state: Arc<S>,
}

impl<S> Context<S> {
    pub(crate) const fn new(call: Call, state: Arc<S>) -> Self {
        Self { call, state }
    }

    /// The application's state, as given to [`Handlers::with_state`](crate::Handlers::with_state).
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }
}

impl<S> Deref for Context<S> {
    type Target = Call;
    fn deref(&self) -> &Call {
        &self.call
    }
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self { call: self.call.clone(), state: Arc::clone(&self.state) }
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.call, f)
    }
}
