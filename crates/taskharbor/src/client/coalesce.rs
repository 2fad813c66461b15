//! Batching concurrent enqueues into one call to the store.
//!
//! A caller that finds no call in flight makes one at once, for its own job. Callers that come while
//! it is in flight wait, and their jobs go together in the next call. So a lone enqueue is never
//! delayed, and under load the batches are as large as the store is slow.
//!
//! 1. A enqueues and no call is in flight. A's call is sent, and if it is not answered at the first
//!    poll, a task takes it over.
//! 2. B and C enqueue meanwhile and wait.
//! 3. A is answered. The task sends what is pending until nothing is left.
//!
//! It is a task because no caller may depend on another one being polled: A may give up, or keep its
//! future for later and await B's first, which would then wait for ever. For the same reason callers
//! are batched by runtime: a runtime that is shut down, or runs only inside `block_on`, delays only
//! its own callers.
//!
//! A mistake of one caller is answered to that caller alone: its set has an answer of its own, and if
//! the call as a whole is refused, each job is sent again by itself.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    future::poll_fn,
    iter::repeat_with,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use taskharbor_core::{
    DriverError, NewJob, Timestamp,
    driver::{Enqueue, Enqueued},
    error::Rejected,
    job::JobSet,
};
use tokio::{
    runtime::{Handle, Id},
    sync::oneshot,
};

use super::store::Store;
use crate::EnqueueError;

type Answer = Result<Enqueued, EnqueueError>;

/// A call carries at most this many jobs, and takes no more of them at this many bytes.
const BATCH_JOBS: usize = 1_000;
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// How often other tasks run before the next call goes out.
const YIELDS: usize = 3;

pub(super) struct Coalescer {
    store: Store,
    /// The callers that wait, by runtime, for each runtime that has a call in flight.
    pending: Mutex<HashMap<Id, VecDeque<Waiting>>>,
}

struct Waiting {
    job: NewJob,
    answer: oneshot::Sender<Answer>,
}

impl Coalescer {
    pub(super) fn new(store: Store) -> Self {
        Self { store, pending: Mutex::default() }
    }

    pub(super) async fn enqueue(self: &Arc<Self>, job: NewJob, now: Timestamp) -> Answer {
        // Only a task can send the jobs of others, so without a runtime each job goes alone.
        let Ok(runtime) = Handle::try_current() else {
            return self.send_one(job, now).await;
        };
        let waiting = match self.pending().entry(runtime.id()) {
            Entry::Occupied(mut pending) => {
                let (answer, waiting) = oneshot::channel();
                pending.get_mut().push_back(Waiting { job, answer });
                Ok(waiting)
            }
            Entry::Vacant(idle) => {
                idle.insert(VecDeque::new());
                Err(job)
            }
        };
        match waiting {
            Ok(waiting) => answer_to(waiting).await,
            Err(job) => {
                let turn =
                    Turn { coalescer: Arc::clone(self), runtime: runtime.id(), is_over: false };
                turn.begin(job, now, &runtime).await
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<Id, VecDeque<Waiting>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_one(&self, job: NewJob, now: Timestamp) -> Answer {
        let answers = self.store.enqueue(Enqueue::new(vec![job.into()], now)).await?;
        answers.into_iter().next().map_or_else(|| Err(unanswered().into()), of_one)
    }
}

async fn answer_to(waiting: oneshot::Receiver<Answer>) -> Answer {
    waiting.await.unwrap_or_else(|_| Err(abandoned().into()))
}

fn of_one(answer: Result<Vec<Enqueued>, Rejected>) -> Answer {
    answer?.pop().ok_or_else(|| unanswered().into())
}

fn unanswered() -> DriverError {
    DriverError::ContractViolation("a job was stored and not answered".to_owned())
}

fn abandoned() -> DriverError {
    DriverError::unavailable(
        "the task that was sending the job is gone: its runtime was shut down, or the driver panicked",
    )
}

/// The right to have a call in flight. If its task is dropped, because its runtime is shut down or
/// the driver panicked, the waiting callers get an error, and the next enqueue starts afresh.
struct Turn {
    coalescer: Arc<Coalescer>,
    runtime: Id,
    is_over: bool,
}

impl Turn {
    /// Makes the first call, for the caller itself.
    async fn begin(self, job: NewJob, now: Timestamp, runtime: &Handle) -> Answer {
        let mut call = Box::pin(async move {
            let answer = self.coalescer.send_one(job, now).await;
            (self, answer)
        });
        match poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
            Poll::Ready((mut turn, answer)) => {
                if let Some(batch) = turn.take() {
                    runtime.spawn(turn.send_all(batch));
                }
                answer
            }
            Poll::Pending => {
                let (answer, waiting) = oneshot::channel();
                runtime.spawn(async move {
                    let (mut turn, answered) = call.await;
                    let all = turn.waiting() + 1;
                    let _ = answer.send(answered);
                    turn.wait_for_more(all).await;
                    if let Some(batch) = turn.take() {
                        turn.send_all(batch).await;
                    }
                });
                answer_to(waiting).await
            }
        }
    }

    async fn send_all(mut self, mut batch: Vec<Waiting>) {
        loop {
            let all = self.send(batch).await;
            self.wait_for_more(all).await;
            match self.take() {
                Some(next) => batch = next,
                None => return,
            }
        }
    }

    /// Sends jobs together and answers their callers. Tells how many wait when each of them enqueues
    /// again.
    async fn send(&self, batch: Vec<Waiting>) -> usize {
        let store = &self.coalescer.store;
        let to_all = |batch: Vec<Waiting>, answers: &mut dyn Iterator<Item = Answer>| {
            let all = self.waiting() + batch.len();
            for (waiting, answer) in batch.into_iter().zip(answers) {
                let _ = waiting.answer.send(answer);
            }
            all
        };
        let now = match store.now().await {
            Ok(now) => now,
            Err(error) => return to_all(batch, &mut repeat_with(|| Err(error.clone().into()))),
        };
        let sets = batch.iter().map(|waiting| JobSet::from(waiting.job.clone())).collect();
        match store.enqueue(Enqueue::new(sets, now)).await {
            Ok(answers) => to_all(batch, &mut answers.into_iter().map(of_one)),
            // The store cannot be reached; that is each caller's own error.
            Err(error @ (DriverError::Unavailable(_) | DriverError::Closed)) => {
                to_all(batch, &mut repeat_with(|| Err(error.clone().into())))
            }
            // One of them may have made the call invalid for all.
            Err(_) => {
                for Waiting { job, answer } in batch {
                    let _ = answer.send(self.coalescer.send_one(job, now).await);
                }
                self.waiting()
            }
        }
    }

    /// Lets the callers that were just answered enqueue their next jobs. A caller that enqueues one
    /// job after another would otherwise just miss each call, and every second call would carry few
    /// jobs. `all` is how many wait when each of them has.
    async fn wait_for_more(&self, all: usize) {
        for _ in 0..YIELDS {
            if self.waiting() >= all.min(BATCH_JOBS) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn waiting(&self) -> usize {
        self.coalescer.pending().get(&self.runtime).map_or(0, VecDeque::len)
    }

    /// The pending jobs, up to the size of one call; `None` ends the turn.
    fn take(&mut self) -> Option<Vec<Waiting>> {
        let mut by_runtime = self.coalescer.pending();
        let pending = by_runtime.get_mut(&self.runtime)?;
        let mut bytes = 0;
        let mut batch = Vec::new();
        while batch.len() < BATCH_JOBS && bytes < BATCH_BYTES {
            let Some(waiting) = pending.pop_front() else { break };
            // A job whose caller gave up before it was sent is not stored.
            if !waiting.answer.is_closed() {
                bytes += waiting.job.payload.len();
                batch.push(waiting);
            }
        }
        if batch.is_empty() {
            by_runtime.remove(&self.runtime);
            // From here on another call may have begun.
            self.is_over = true;
            return None;
        }
        Some(batch)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            let waiting = self.coalescer.pending().remove(&self.runtime);
            drop(waiting);
        }
    }
}
