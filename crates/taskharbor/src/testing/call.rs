//! [`call`]: one handler by itself.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use taskharbor_core::{
    Blob, JobId, JobType, NewJob, QueueName, Timestamp,
    clock::Clock,
    driver::{Lease, LeaseToken, Leased},
    job::JobView as JobFields,
    life::Life,
    name::LaneName,
};

use super::clock::TokioClock;
use crate::{
    Call, CancelReason, CodecError, Context, Data, Each, Exponential, IntoOutcome, Job, JobError,
    JobResult, Options, Outcome,
    codec::Format,
    context::{Input, Setting, unit},
    handler::{Handlers, Run},
    inflight::Inflight,
    middleware::within,
    observe::Observers,
};

/// Runs a handler by itself, without store, worker and retries, and returns its outcome. Payload
/// and output are encoded and decoded as in production. A panic in the handler is a panic of the
/// test.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use taskharbor::{Context, Job, JobError, JobResult, Outcome};
/// use taskharbor::testing::call;
///
/// # #[derive(Serialize, Deserialize, Job)]
/// # #[job(type = "double", output = u64)]
/// # struct Double { number: u64 }
/// async fn double(job: Double, cx: Context<u64>) -> JobResult<u64> {
///     Ok(job.number * cx.state())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let outcome = call(double, Double { number: 21 }, 2).attempt(3).await;
/// assert!(matches!(outcome, Ok(Outcome::Done(42))));
/// # Ok(())
/// # }
/// ```
pub fn call<S, J, F, Fut, R, E>(handler: F, job: J, state: S) -> HandlerCall<S, J>
where
    S: Send + Sync + 'static,
    J: Job,
    R: IntoOutcome<J::Output>,
    E: Into<JobError>,
    F: Fn(J, Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
{
    let entry = Handlers::new().on(handler).into_entries().pop();
    HandlerCall {
        run: entry.map(|entry| entry.run),
        job,
        state: Arc::new(state),
        attempt: 1,
        delivery: 1,
        timeout: None,
        options: Options::new(),
        input: None,
        inputs: None,
        cancel: None,
    }
}

/// A handler about to be run by itself. Nothing happens until it is awaited.
#[must_use = "the handler does not run until this is awaited"]
pub struct HandlerCall<S, J: Job> {
    run: Option<Run<S>>,
    job: J,
    state: Arc<S>,
    attempt: u32,
    delivery: u32,
    timeout: Option<Duration>,
    options: Options,
    input: Option<J::Input>,
    inputs: Option<Result<Vec<Blob>, CodecError>>,
    cancel: Option<CancelReason>,
}

impl<S, J: Job> HandlerCall<S, J> {
    /// The number of the attempt. Defaults to 1.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt.max(1);
        self.delivery = self.delivery.max(self.attempt);
        self
    }

    /// How often the job was leased to a worker. Defaults to the number of the attempt.
    pub fn delivery(mut self, delivery: u32) -> Self {
        self.delivery = delivery;
        self
    }

    /// The timeout from which the context computes the deadline. Defaults to none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options = self.options.header(name, value);
        self
    }

    /// The lane of the job. Defaults to [`Job::lane`].
    pub fn lane(mut self, lane: impl AsRef<str>) -> Self {
        self.options = self.options.lane(lane);
        self
    }

    /// The output of the step before it. Defaults to none.
    pub fn input(mut self, input: J::Input) -> Self {
        self.input = Some(input);
        self
    }

    /// The outputs of the group before it, for a job that takes [`Each`] of them. Defaults to none.
    pub fn inputs<T: Data>(mut self, inputs: impl IntoIterator<Item = T>) -> Self
    where
        J: Job<Input = Each<T>>,
    {
        let format = Format::json();
        self.inputs = Some(inputs.into_iter().map(|it| format.encode(&it)).collect());
        self
    }

    /// Tells the handler to stop before it starts. By default it is not told to stop.
    pub fn cancelled(mut self, reason: CancelReason) -> Self {
        self.cancel = Some(reason);
        self
    }

    async fn run(self) -> JobResult<Outcome<J::Output>> {
        let format = Format::json();
        let clock = TokioClock::starting_at(Timestamp::EPOCH);
        let payload = format.encode(&self.job)?;
        let queue = QueueName::new(J::options().queue_name())?;
        let mut job = NewJob::new(JobId::new("test")?, queue, JobType::new(J::TYPE)?, payload);
        job.headers = format.headers().clone();
        let lane = self.options.lane.clone().or(Options::of(&self.job).lane);
        job.lane = lane.map(LaneName::new).transpose()?;
        for (name, value) in &self.options.headers {
            job.headers = job.headers.with(name, value)?;
        }
        let mut life = Life::new(&job, 0, None, clock.now());
        life.attempts = self.attempt - 1;
        life.deliveries = self.delivery;
        let job = JobFields::assemble(&job, clock.now(), &life);
        let lease = Lease::new(LeaseToken::from_bits(0), Timestamp::MAX);
        let inflight = Arc::new(Inflight::alone(Leased::new(job, lease)));
        if let Some(reason) = self.cancel {
            inflight.cancellation.raise(reason);
        }
        let input = match (&self.input, self.inputs) {
            (_, Some(inputs)) => Input::Given(inputs?),
            (Some(input), None) => Input::Output(Some(format.encode(input)?)),
            (None, None) => Input::None,
        };
        let cancellation = Arc::clone(&inflight);
        let deadline = self.timeout.map(|timeout| clock.now().saturating_add(timeout));
        let own_attempts = J::options().max_attempts;
        let setting = Setting {
            format: Some(format.clone()),
            driver: None,
            clock: Arc::new(clock),
            observers: Observers::new(Vec::new()),
            timeout: self.timeout,
            deadline,
            max_attempts: own_attempts.unwrap_or_else(|| {
                let policy = J::retry_policy().unwrap_or_else(|| Box::new(Exponential::new()));
                policy.max_attempts()
            }),
        };
        let call = Call::new(inflight, setting, input);
        let run = self.run.ok_or("there is no handler")?;
        let result = run(call, self.state);
        let result = within(self.timeout, &cancellation.cancellation, result).await?;
        Ok(match result {
            Outcome::Done(Some(bytes)) => Outcome::Done(format.decode(&bytes)?),
            Outcome::Done(None) => Outcome::Done(unit().ok_or("there is no output")?),
            Outcome::Continue(flow) => Outcome::Continue(flow.untyped()),
            Outcome::Snooze(delay) => Outcome::Snooze(delay),
            Outcome::Acked => Outcome::Acked,
        })
    }
}

impl<S: Send + Sync + 'static, J: Job> IntoFuture for HandlerCall<S, J> {
    type Output = JobResult<Outcome<J::Output>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<S, J: Job> fmt::Debug for HandlerCall<S, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerCall")
            .field("job_type", &J::TYPE)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
