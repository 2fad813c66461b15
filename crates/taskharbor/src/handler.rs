//! [`Handlers`]: the functions that run jobs, by job type.
//!
//! The types of job, output and state are known where a handler is added and forgotten right
//! after: a worker sees functions from a call to bytes.

use std::{any::TypeId, fmt, future::Future, sync::Arc, time::Duration};

use taskharbor_core::Blob;

use crate::{
    BoxFuture, Call, CallResult, CodecError, Context, Data, IntoOutcome, Job, JobError, Outcome,
    RetryPolicy, codec::Format, flow::is_each,
};

/// Runs one job.
pub(crate) type Run<S> = Arc<dyn Fn(Call, Arc<S>) -> BoxFuture<CallResult> + Send + Sync>;

/// The functions that run jobs, by job type; `S` is the application's state that they share.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Context, Handlers, Job, JobResult};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "greet")]
/// struct Greet {
///     name: String,
/// }
///
/// struct App {
///     greeting: String,
/// }
///
/// async fn greet(job: Greet, cx: Context<App>) -> JobResult {
///     println!("{}, {}", cx.state().greeting, job.name);
///     Ok(())
/// }
///
/// let handlers = Handlers::new().on(greet).with_state(App { greeting: "Hello".into() });
/// ```
pub struct Handlers<S = ()> {
    entries: Vec<Entry<S>>,
}

pub(crate) struct Entry<S> {
    pub(crate) job_type: String,
    /// The queue that jobs of this type wait in unless told otherwise, if the type says.
    pub(crate) queue: Option<String>,
    /// How jobs of this type run that do not say so themselves.
    pub(crate) defaults: Defaults,
    /// What it wants to know of the step before it.
    pub(crate) reads: Reads,
    pub(crate) run: Run<S>,
}

/// What the type of a job says about how it runs.
#[derive(Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retry: Option<Arc<dyn RetryPolicy>>,
}

/// What a handler wants to know of the step before its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Nothing.
    Nothing,
    /// What it has produced.
    All,
    /// What it has produced, as bytes, and the failure of a step with the policy continue.
    Raw,
    /// What its members have produced, one by one when the handler asks.
    Each,
}

impl Reads {
    fn of<I: Data>() -> Self {
        if TypeId::of::<I>() == TypeId::of::<()>() {
            Self::Nothing
        } else if is_each::<I>() {
            Self::Each
        } else {
            Self::All
        }
    }
}

impl<S: Send + Sync + 'static> Handlers<S> {
    /// Creates an empty set of handlers.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Adds the handler of jobs of type `J`: `async fn(J, Context<S>) -> Result<R, E>`, where `R`
    /// is the job's output, a [`Flow`](crate::Flow) that will produce it, or an [`Outcome`], and
    /// `E` is any error.
    #[must_use]
    pub fn on<J, F, Fut, R, E>(mut self, handler: F) -> Self
    where
        J: Job,
        // Before `Fut`, or rustc takes the job's output for what is wrong, and not the handler's.
        R: IntoOutcome<J::Output>,
        E: Into<JobError>,
        F: Fn(J, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let run = move |call: Call, state| -> BoxFuture<CallResult> {
            let handler = Arc::clone(&handler);
            Box::pin(async move {
                let format = call.format()?.clone();
                let job = call.decode::<J>()?;
                let context = Context::new(call, state);
                let outcome = handler(job, context).await.map_err(Into::into)?.into_outcome();
                encoded(outcome, &format)
            })
        };
        let options = J::options();
        self.entries.push(Entry {
            job_type: J::TYPE.to_owned(),
            queue: Some(options.queue_name().to_owned()),
            defaults: Defaults {
                timeout: options.timeout,
                max_attempts: options.max_attempts,
                retry: J::retry_policy().map(Arc::from),
            },
            reads: Reads::of::<J::Input>(),
            run: Arc::new(run),
        });
        self
    }

    /// Adds the handler of a job type whose name is known only at run time. It gets the payload and
    /// returns the output as bytes: `async fn(Blob, Context<S>) -> Result<R, E>`, where `R` is
    /// `Option<Blob>` or an [`Outcome`] of it.
    ///
    /// It also runs after a step that failed with the policy
    /// [`FailurePolicy::Continue`](crate::FailurePolicy). Then it gets the codec's value for
    /// nothing in place of the step's output, `null` in JSON, and [`Call::failure`] returns the
    /// failure. A typed handler has no value for that, so its job fails; use
    /// [`Flow::gather`](crate::Flow::gather) before it.
    #[must_use]
    pub fn on_raw<F, Fut, R, E>(mut self, job_type: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Blob, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: IntoOutcome<Option<Blob>>,
        E: Into<JobError>,
    {
        let handler = Arc::new(handler);
        let run = move |call: Call, state| -> BoxFuture<CallResult> {
            let handler = Arc::clone(&handler);
            Box::pin(async move {
                let payload = call.payload().clone();
                let context = Context::new(call, state);
                Ok(handler(payload, context).await.map_err(Into::into)?.into_outcome())
            })
        };
        self.entries.push(Entry {
            job_type: job_type.into(),
            queue: None,
            defaults: Defaults::default(),
            reads: Reads::Raw,
            run: Arc::new(run),
        });
        self
    }

    /// Gives the handlers their state and forgets its type.
    #[must_use]
    pub fn with_state(self, state: S) -> Handlers {
        let state = Arc::new(state);
        let entries = self.entries.into_iter().map(|entry| {
            let state = Arc::clone(&state);
            let run = entry.run;
            Entry {
                job_type: entry.job_type,
                queue: entry.queue,
                defaults: entry.defaults,
                reads: entry.reads,
                run: Arc::new(move |call, _: Arc<()>| run(call, Arc::clone(&state))) as Run<()>,
            }
        });
        Handlers { entries: entries.collect() }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn entries(&self) -> &[Entry<S>] {
        &self.entries
    }

    pub(crate) fn into_entries(self) -> Vec<Entry<S>> {
        self.entries
    }
}

impl<S: Send + Sync + 'static> Default for Handlers<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> fmt::Debug for Handlers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.iter().map(|entry| &entry.job_type)).finish()
    }
}

fn encoded<O: Data>(outcome: Outcome<O>, format: &Format) -> CallResult {
    Ok(match outcome {
        Outcome::Done(output) => {
            Outcome::Done(encode(&output, format).map_err(JobError::unrecoverable)?)
        }
        Outcome::Continue(flow) => Outcome::Continue(flow.untyped()),
        Outcome::Snooze(delay) => Outcome::Snooze(delay),
        Outcome::Acked => Outcome::Acked,
    })
}

/// What is stored for an output: nothing for one that says nothing.
pub(crate) fn encode<O: Data>(output: &O, format: &Format) -> Result<Option<Blob>, CodecError> {
    if TypeId::of::<O>() == TypeId::of::<()>() {
        return Ok(None);
    }
    format.encode(output).map(Some)
}
