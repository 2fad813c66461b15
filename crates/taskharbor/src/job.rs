//! [`Job`]: a kind of work and the data it needs, and [`Options`]: how it is run.

use std::{fmt, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use taskharbor_core::{
    Timestamp,
    job::{FailurePolicy, KeyHold},
};

use crate::RetryPolicy;

/// Data that can be stored with a job: every type that serde can serialize and deserialize.
pub trait Data: Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Data for T {}

/// A kind of work and the data it needs.
///
/// With the feature `derive` (on by default):
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use taskharbor::Job;
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "email:send", queue = "mail", max_attempts = 5)]
/// struct SendEmail {
///     to: String,
/// }
/// ```
///
/// Without it:
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use taskharbor::{Job, Options};
///
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail {
///     to: String,
/// }
///
/// impl Job for SendEmail {
///     const TYPE: &'static str = "email:send";
///     type Input = ();
///     type Output = ();
///     fn options() -> Options {
///         Options::new().queue("mail").max_attempts(5)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    note = "derive it: `#[derive(Serialize, Deserialize, Job)]` with `#[job(type = \"…\")]`"
)]
pub trait Job: Data {
    /// The name by which workers find the handler. It is stored with every job, so the struct can
    /// be renamed while its jobs are stored.
    const TYPE: &'static str;

    /// The output of the step before it in a flow; `()` if it needs none.
    type Input: Data;

    /// The output of its handler.
    type Output: Data;

    /// The options of jobs of this kind, unless the caller that enqueues one sets others. A worker applies
    /// `timeout` and `max_attempts` also to jobs that were enqueued without them: by name, from SQL or
    /// with the command.
    #[must_use]
    fn options() -> Options {
        Options::new()
    }

    /// The retry policy of jobs of this kind, in place of the worker's. It is called once, when a
    /// worker is built. Defaults to `None`: the worker's policy applies.
    ///
    /// With the derive it is an expression:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use serde::{Deserialize, Serialize};
    /// use taskharbor::{Exponential, Job};
    ///
    /// #[derive(Serialize, Deserialize, Job)]
    /// #[job(type = "webhook", retry = Exponential::new().base(Duration::from_secs(30)))]
    /// struct Webhook {
    ///     url: String,
    /// }
    /// ```
    #[must_use]
    fn retry_policy() -> Option<Box<dyn RetryPolicy>> {
        None
    }

    /// The lane of its queue that this job belongs to: its tenant, host or account. Lanes of a
    /// queue take turns, so that a lane with many jobs does not keep the others waiting. An invalid
    /// name is an error when the job is enqueued. A lane in the options with which a job is
    /// enqueued overrides this one. Defaults to `None`.
    ///
    /// With the derive it is the value of a field:
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use taskharbor::Job;
    ///
    /// #[derive(Serialize, Deserialize, Job)]
    /// #[job(type = "invoice:send", lane = "account_id")]
    /// struct SendInvoice {
    ///     account_id: u64,
    /// }
    ///
    /// assert_eq!(SendInvoice { account_id: 42 }.lane().as_deref(), Some("42"));
    /// ```
    #[must_use]
    fn lane(&self) -> Option<String> {
        None
    }

    /// Returns this job with options of its own, as a step of a flow or as one of many jobs to
    /// enqueue.
    fn with(self, options: Options) -> Step<Self> {
        Step { job: self, options }
    }
}

/// A job with options of its own: a step of a flow, or one of many jobs to enqueue.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Flow, Job, Options};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "photo:scale")]
/// struct Scale {
///     width: u32,
/// }
///
/// let widths = [64, 128, 256].map(|width| {
///     Scale { width }.with(Options::new().label(format!("{width} pixels")))
/// });
/// let sizes = Flow::group(widths);
/// # drop(sizes);
/// ```
#[derive(Clone, Debug)]
pub struct Step<J> {
    pub(crate) job: J,
    pub(crate) options: Options,
}

/// How a job is run. For an option that is not set, the job's type decides, then the worker.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// use taskharbor::{Client, Job, Options};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "email:send", queue = "mail")]
/// struct SendEmail {
///     to: String,
/// }
///
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// let newsletter = Options::new().delay(Duration::from_secs(3_600)).priority(-1).max_attempts(3);
/// client.enqueue(SendEmail { to: "ada@example.com".into() }).options(newsletter).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub(crate) queue: Option<String>,
    pub(crate) when: Option<When>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) priority: Option<i16>,
    pub(crate) lane: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) failure_policy: Option<FailurePolicy>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) key_hold: Option<KeyHold>,
    pub(crate) label: Option<String>,
}

/// When a job may run at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    At(Timestamp),
    After(Duration),
}

impl Options {
    /// The queue of jobs that name none.
    pub const DEFAULT_QUEUE: &str = "default";

    /// Creates options of which none is set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The queue of the job. Defaults to [`Options::DEFAULT_QUEUE`].
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// The earliest time at which the job may run. Defaults to at once.
    #[must_use]
    pub fn run_at(mut self, run_at: Timestamp) -> Self {
        self.when = Some(When::At(run_at));
        self
    }

    /// The time that has to pass before the job may run. For a step of a flow it counts from the
    /// start of the flow, or from the time at which a handler returned the flow, not from the end
    /// of the step before it. Defaults to at once.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.when = Some(When::After(delay));
        self
    }

    /// How long one execution may take. Defaults to the worker's timeout.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many executions may fail before it is dead-lettered. Defaults to the worker's policy.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// The priority of the job; jobs with a higher one run first. Defaults to 0.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The lane of its queue that the job belongs to: its tenant, host or account. Lanes of a queue
    /// take turns. Defaults to [`Job::lane`].
    ///
    /// ```
    /// # use taskharbor::Options;
    /// let options = Options::new().queue("mail").lane("acme");
    /// ```
    #[must_use]
    pub fn lane(mut self, lane: impl AsRef<str>) -> Self {
        self.lane = Some(lane.as_ref().to_owned());
        self
    }

    /// Adds a small text that travels with the job: trace context, tenant.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// What happens to the steps that wait for this one if it fails. Defaults to
    /// [`FailurePolicy::Block`]: they stay blocked. A job that runs if a flow fails is added with
    /// [`Flow::on_failure`](crate::Flow::on_failure).
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = Some(policy);
        self
    }

    /// Prevents duplicates: while a job holds this key in the same queue, enqueueing returns that
    /// job, whatever its type, and stores nothing. Types share the keys of a queue, so start a key
    /// with its subject, as in `invoice:42`. Only the last step of a flow may have a key, which is
    /// then the flow's. Defaults to none.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl fmt::Display) -> Self {
        self.idempotency_key = Some(key.to_string());
        self
    }

    /// How long the job holds its key. Defaults to [`KeyHold::UntilPruned`].
    #[must_use]
    pub fn key_hold(mut self, hold: KeyHold) -> Self {
        self.key_hold = Some(hold);
        self
    }

    /// The label of this step, which diagrams and lists show beside the job's type: a row or a
    /// size, for example. Defaults to none.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// These options where they are set, those of `base` elsewhere; headers of both.
    #[must_use]
    pub(crate) fn over(self, base: Self) -> Self {
        Self {
            queue: self.queue.or(base.queue),
            when: self.when.or(base.when),
            timeout: self.timeout.or(base.timeout),
            max_attempts: self.max_attempts.or(base.max_attempts),
            priority: self.priority.or(base.priority),
            lane: self.lane.or(base.lane),
            headers: base.headers.into_iter().chain(self.headers).collect(),
            failure_policy: self.failure_policy.or(base.failure_policy),
            idempotency_key: self.idempotency_key.or(base.idempotency_key),
            key_hold: self.key_hold.or(base.key_hold),
            label: self.label.or(base.label),
        }
    }

    /// The options of this job, unless the caller that enqueues it sets others.
    pub(crate) fn of<J: Job>(job: &J) -> Self {
        let mut options = J::options();
        options.lane = job.lane().or(options.lane);
        options
    }

    pub(crate) fn queue_name(&self) -> &str {
        self.queue.as_deref().unwrap_or(Self::DEFAULT_QUEUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_step_go_before_those_of_its_type() {
        let base = Options::new().queue("a").priority(1).header("x", "base").header("y", "base");
        let step = Options::new().queue("b").max_attempts(2).header("x", "step");
        let both = step.over(base);
        assert_eq!(both.queue_name(), "b");
        assert_eq!((both.priority, both.max_attempts), (Some(1), Some(2)));
        // Of two headers with one name the later counts.
        let names: Vec<_> = both.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(names, [("x", "base"), ("y", "base"), ("x", "step")]);
    }
}
