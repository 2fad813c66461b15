//! Gathering concurrent enqueues into one call to the store.
//!
//! Whoever finds no call in the air makes one at once, alone. Whoever comes while it is in the air
//! waits, and all who gathered go together as the next one. So a lone enqueue is never delayed,
//! and under load the calls grow as large as the store is slow.
//!
//! 1. A enqueues; nothing is in the air; A's call goes out.
//! 2. B and C enqueue meanwhile and wait.
//! 3. A is answered, or gives up. Its [`Turn`] ends, and a task takes over for B and C.
//! 4. The task sends what has gathered until nothing is left.
//!
//! What one caller did wrong is answered to that caller: a set of its own has an answer of its
//! own, and if the call as a whole is refused each job is sent again by itself.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use taskharbor_core::{
    AnyDriver, Driver, DriverError, Enqueue, Enqueued, JobSet, NewJob, Rejected, Timestamp,
};
use tokio::{runtime::Handle, sync::oneshot};

use crate::EnqueueError;

type Answer = Result<Enqueued, EnqueueError>;

/// A call carries at most this many gathered jobs, and stops gathering at this many bytes.
const BATCH_JOBS: usize = 1_000;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

pub(super) struct Coalescer {
    driver: AnyDriver,
    gathering: Mutex<Gathering>,
}

#[derive(Default)]
struct Gathering {
    in_the_air: bool,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    job: NewJob,
    answer: oneshot::Sender<Answer>,
}

impl Coalescer {
    pub(super) fn new(driver: AnyDriver) -> Self {
        Self { driver, gathering: Mutex::default() }
    }

    pub(super) async fn enqueue(self: &Arc<Self>, job: NewJob, now: Timestamp) -> Answer {
        // Only a task can send what others have gathered, so without a runtime each goes alone.
        let Ok(runtime) = Handle::try_current() else {
            return self.send_one(job, now).await;
        };
        let waiting = {
            let mut gathering = self.gathering();
            if gathering.in_the_air {
                let (answer, waiting) = oneshot::channel();
                gathering.waiting.push_back(Waiting { job, answer });
                Ok(waiting)
            } else {
                gathering.in_the_air = true;
                Err(job)
            }
        };
        match waiting {
            Ok(waiting) => waiting.await.unwrap_or_else(|_| Err(abandoned().into())),
            Err(job) => {
                let _turn = Turn { coalescer: Arc::clone(self), runtime };
                self.send_one(job, now).await
            }
        }
    }

    fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_one(&self, job: NewJob, now: Timestamp) -> Answer {
        let answers = self.driver.enqueue(Enqueue::new(vec![job.into()], now)).await?;
        answers.into_iter().next().map_or_else(|| Err(unanswered().into()), of_one)
    }

    /// What has gathered, up to the size of one call; `None` ends the turn.
    fn take(&self) -> Option<Vec<Waiting>> {
        let mut gathering = self.gathering();
        let mut bytes = 0;
        let mut batch = Vec::new();
        while batch.len() < BATCH_JOBS && bytes < BATCH_BYTES {
            let Some(waiting) = gathering.waiting.pop_front() else { break };
            bytes += waiting.job.payload.len();
            // Who has given up before the job was sent need not have it stored.
            if !waiting.answer.is_closed() {
                batch.push(waiting);
            }
        }
        if batch.is_empty() {
            gathering.in_the_air = false;
            return None;
        }
        Some(batch)
    }

    async fn send_all(&self) {
        while let Some(batch) = self.take() {
            self.send(batch).await;
        }
    }

    async fn send(&self, batch: Vec<Waiting>) {
        let now = match self.driver.now().await {
            Ok(now) => now,
            Err(error) => return answer_all(batch, &error),
        };
        let sets = batch.iter().map(|waiting| JobSet::from(waiting.job.clone())).collect();
        match self.driver.enqueue(Enqueue::new(sets, now)).await {
            Ok(answers) => {
                for (waiting, answer) in batch.into_iter().zip(answers) {
                    let _ = waiting.answer.send(of_one(answer));
                }
            }
            // The store cannot be reached; that is each caller's own error.
            Err(error @ (DriverError::Unavailable(_) | DriverError::Closed)) => {
                answer_all(batch, &error);
            }
            // Something about one of them may have spoilt the call for all.
            Err(_) => {
                for Waiting { job, answer } in batch {
                    let _ = answer.send(self.send_one(job, now).await);
                }
            }
        }
    }
}

fn answer_all(batch: Vec<Waiting>, error: &DriverError) {
    for waiting in batch {
        let _ = waiting.answer.send(Err(error.clone().into()));
    }
}

fn of_one(answer: Result<Vec<Enqueued>, Rejected>) -> Answer {
    answer?.pop().ok_or_else(|| unanswered().into())
}

fn unanswered() -> DriverError {
    DriverError::ContractViolation("a job was stored and not answered".to_owned())
}

fn abandoned() -> DriverError {
    DriverError::unavailable("the runtime that was sending the job has been shut down")
}

/// The right to have a call in the air. It ends however the call ends, also by being dropped, and
/// passes on to those who wait.
struct Turn {
    coalescer: Arc<Coalescer>,
    runtime: Handle,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut gathering = self.coalescer.gathering();
        if gathering.waiting.is_empty() {
            gathering.in_the_air = false;
            return;
        }
        drop(gathering);
        self.runtime.spawn(Sending(Some(Arc::clone(&self.coalescer))).run());
    }
}

/// The task that sends for others. If its runtime is shut down, those who wait learn it, and the
/// next one to enqueue starts afresh.
struct Sending(Option<Arc<Coalescer>>);

impl Sending {
    async fn run(mut self) {
        if let Some(coalescer) = &self.0 {
            coalescer.send_all().await;
        }
        // All was sent, and the turn may be somebody else's by now.
        self.0 = None;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(coalescer) = &self.0 {
            let mut gathering = coalescer.gathering();
            gathering.in_the_air = false;
            let waiting = std::mem::take(&mut gathering.waiting);
            drop(gathering);
            drop(waiting);
        }
    }
}
