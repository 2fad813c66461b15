//! [`Middleware`]: code around every handler of a worker.
//!
//! Any `async fn(Call, Next) -> CallResult` is one. Two are built in and always outermost: a panic
//! is one failed attempt ([`recover`]), and so is an execution that takes longer than the job
//! allows ([`within`]).

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, LazyLock},
    task::Poll,
    time::Duration,
};

use taskharbor_core::Blob;

use crate::{
    Call, CancelReason, JobError, Outcome, cancel::Cancellation, handler::Run,
    worker::resolution::timed_out,
};

/// The result of one execution: the outcome with the output as bytes, or the error.
pub type CallResult = Result<Outcome<Option<Blob>>, JobError>;

/// A future that owns all it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Wraps every execution of a worker's handlers.
///
/// ```
/// use taskharbor::{Call, CallResult, Next};
///
/// async fn announce(call: Call, next: Next) -> CallResult {
///     println!("{} begins, attempt {}", call.job_type(), call.attempt());
///     let result = next.run(call).await;
///     println!("it {}", if result.is_ok() { "went well" } else { "failed" });
///     result
/// }
/// ```
pub trait Middleware: Send + Sync + 'static {
    /// Handles one execution. Call `next` to run the handler.
    fn handle(&self, call: Call, next: Next) -> BoxFuture<CallResult>;
}

impl<F, Fut> Middleware for F
where
    F: Fn(Call, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = CallResult> + Send + 'static,
{
    fn handle(&self, call: Call, next: Next) -> BoxFuture<CallResult> {
        Box::pin(self(call, next))
    }
}

/// The rest of the chain: the middleware inside this one, and the handler.
#[derive(Clone)]
pub struct Next {
    chain: Arc<[Arc<dyn Middleware>]>,
    at: usize,
    handler: Run<()>,
}

impl Next {
    pub(crate) fn new(chain: Arc<[Arc<dyn Middleware>]>, handler: Run<()>) -> Self {
        Self { chain, at: 0, handler }
    }

    /// Runs the rest of the chain.
    ///
    /// # Errors
    ///
    /// The error of the handler or of a middleware inside this one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the handler where it is.
    pub fn run(mut self, call: Call) -> BoxFuture<CallResult> {
        match self.chain.get(self.at).cloned() {
            Some(middleware) => {
                self.at += 1;
                middleware.handle(call, self)
            }
            None => (self.handler)(call, Arc::clone(&NO_STATE)),
        }
    }
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Next").field("left", &(self.chain.len() - self.at)).finish()
    }
}

/// The state of handlers that have none, or were given theirs already.
static NO_STATE: LazyLock<Arc<()>> = LazyLock::new(|| Arc::new(()));

/// Makes a panic an error, wherever in the execution it happens.
pub(crate) async fn recover<T>(execution: impl Future<Output = T>) -> Result<T, JobError> {
    let mut execution = pin!(execution);
    poll_fn(|context| {
        // After a panic the execution is not polled again, so no code sees it in a broken state.
        match catch_unwind(AssertUnwindSafe(|| execution.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panicked(&*panic))),
        }
    })
    .await
}

/// Ends an execution that takes longer than it may.
pub(crate) async fn within(
    timeout: Option<Duration>,
    cancellation: &Cancellation,
    execution: impl Future<Output = CallResult>,
) -> CallResult {
    let Some(timeout) = timeout else {
        return execution.await;
    };
    match Box::pin(tokio::time::timeout(timeout, execution)).await {
        Ok(result) => result,
        Err(_) => {
            cancellation.raise(CancelReason::TimedOut);
            Err(timed_out(timeout))
        }
    }
}

/// The failure that a panic is.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> JobError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    JobError::from(format!("panicked: {}", text.unwrap_or("the payload of the panic is not text")))
}
