//! [`Call`]: one request on its way to the thread that serves it, and its answer back.

use taskharbor_core::DriverError;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{error::Fault, mailbox::Mailbox, store::Store};

/// One request. It is run in a transaction and answered after the commit.
///
/// DRO-1: a call whose future was dropped is not run, unless the thread has begun with it. Then it
/// takes part in the transaction like any other.
pub(crate) trait Call: Send {
    /// Does what is asked for. What it answers is kept until the transaction has committed.
    fn run(&mut self, store: &mut Store<'_>) -> Result<(), Fault>;
    /// Tells the caller that it is done, or what went wrong.
    fn answer(self: Box<Self>, error: Option<DriverError>);
    /// Whether the caller does not wait for the answer any more.
    fn is_abandoned(&self) -> bool;
    /// How many jobs it concerns.
    fn weight(&self) -> usize;
    /// Whether the store has to be of our version.
    fn needs_version(&self) -> bool;
}

pub(crate) type Calls = Mailbox<Box<dyn Call>>;

struct Request<T, F> {
    work: Option<F>,
    done: Option<T>,
    reply: oneshot::Sender<Result<T, DriverError>>,
    weight: usize,
    needs_version: bool,
    _room: OwnedSemaphorePermit,
}

impl<T: Send, F: FnOnce(&mut Store<'_>) -> Result<T, Fault> + Send> Call for Request<T, F> {
    fn run(&mut self, store: &mut Store<'_>) -> Result<(), Fault> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(store)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, error: Option<DriverError>) {
        let answer = match (error, self.done) {
            (Some(error), _) => Err(error),
            (None, Some(done)) => Ok(done),
            (None, None) => Err(ended()),
        };
        // The caller may have dropped its future.
        let _gone = self.reply.send(answer);
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn needs_version(&self) -> bool {
        self.needs_version
    }
}

/// What is asked of a thread.
pub(crate) struct Ask {
    pub(crate) weight: usize,
    pub(crate) needs_version: bool,
}

impl Ask {
    /// For a call that concerns this many jobs.
    pub(crate) const fn about(weight: usize) -> Self {
        Self { weight, needs_version: true }
    }
}

/// Has the thread behind `calls` do this, and waits for the answer.
///
/// Dropping the future before the thread has taken the call up means that it does not happen.
pub(crate) async fn ask<T: Send + 'static>(
    calls: &Calls,
    ask: Ask,
    work: impl FnOnce(&mut Store<'_>) -> Result<T, Fault> + Send + 'static,
) -> Result<T, DriverError> {
    let room = calls.room().await.ok_or(DriverError::Closed)?;
    let (reply, answer) = oneshot::channel();
    let Ask { weight, needs_version } = ask;
    let request =
        Request { work: Some(work), done: None, reply, weight, needs_version, _room: room };
    if !calls.put(Box::new(request)) {
        return Err(DriverError::Closed);
    }
    answer.await.unwrap_or_else(|_| Err(ended()))
}

fn ended() -> DriverError {
    DriverError::backend("the thread that serves the file has ended or could not finish the call")
}
