//! Enqueues jobs and chords while everything breaks, each until that is acknowledged.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use fastrand::Rng;
use taskharbor::{AnyDriver, Client, Flow, JobId, State};
use tokio::time::{sleep, timeout};

use super::{
    job::{Behavior, Chore, Finalizer, Member},
    log, program,
};
use crate::Outcome;

/// An enqueue that is not answered in this time is tried again.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two enqueues.
const PAUSE: Duration = Duration::from_millis(15);

/// What was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    /// The jobs, and their expected states.
    pub(crate) jobs: Vec<(JobId, State)>,
    /// The chords by their finalizers, and what those have to produce.
    pub(crate) chords: Vec<(JobId, u32)>,
    /// The jobs that a program handles, which have to be done.
    pub(crate) programs: Vec<JobId>,
    /// The jobs with a delay, and when they were acknowledged by the machine's clock.
    pub(crate) delayed: Vec<(JobId, i64)>,
}

pub(super) struct Producer {
    client: Client,
    /// For jobs of the command, whose clock is not moved.
    unmoved: Client,
    random: Rng,
    made: u32,
    done: Acknowledged,
    /// Enqueues that were tried again.
    pub(super) repeated: Arc<AtomicUsize>,
}

impl Producer {
    pub(super) fn new(driver: &AnyDriver, unmoved: &AnyDriver, seed: u64) -> Self {
        Self {
            client: Client::new(driver),
            unmoved: Client::new(unmoved),
            random: Rng::with_seed(seed),
            made: 0,
            done: Acknowledged::default(),
            repeated: Arc::default(),
        }
    }

    /// Enqueues until it is told to stop.
    pub(super) async fn run(mut self, stop: Arc<AtomicBool>) -> Outcome<Acknowledged> {
        while !stop.load(Ordering::SeqCst) {
            match self.random.u8(..25) {
                0 => self.chord().await?,
                1..=3 => self.program().await?,
                _ => self.chore().await?,
            }
            sleep(PAUSE).await;
        }
        Ok(self.done)
    }

    fn millis(&mut self) -> u64 {
        match self.random.u8(..50) {
            // Longer than a lease.
            0 => self.random.u64(3_000..5_000),
            _ => self.random.u64(1..150),
        }
    }

    async fn chore(&mut self) -> Outcome {
        self.made += 1;
        let behavior = match self.random.u8(..20) {
            0 => Behavior::Fails,
            1..=2 => Behavior::FailsOnce,
            _ => Behavior::Succeeds,
        };
        let chore = Chore { millis: self.millis(), behavior };
        let id = JobId::new(format!("chore-{}", self.made))?;
        let delay = Duration::from_millis(if self.random.u8(..5) == 0 { 500 } else { 0 });
        loop {
            let enqueue = self.client.enqueue(chore.clone()).id(id.clone()).delay(delay);
            match timeout(CALL_TIMEOUT, enqueue.into_future()).await {
                Ok(Ok(_)) => break,
                Ok(Err(_)) | Err(_) => self.again().await,
            }
        }
        if !delay.is_zero() {
            self.done.delayed.push((id.clone(), log::now()));
        }
        let state = if behavior == Behavior::Fails { State::Dlq } else { State::Done };
        self.done.jobs.push((id, state));
        Ok(())
    }

    async fn program(&mut self) -> Outcome {
        self.made += 1;
        let (id, millis) = (JobId::new(format!("program-{}", self.made))?, self.millis());
        loop {
            let payload = millis.to_string().into_bytes();
            let enqueue = self.unmoved.enqueue_raw(program::JOB_TYPE, payload).id(id.clone());
            match timeout(CALL_TIMEOUT, enqueue.queue(program::QUEUE).into_future()).await {
                Ok(Ok(_)) => break,
                Ok(Err(_)) | Err(_) => self.again().await,
            }
        }
        self.done.programs.push(id);
        Ok(())
    }

    async fn chord(&mut self) -> Outcome {
        self.made += 1;
        let key = format!("chord-{}", self.made);
        let members: Vec<Member> = (0..self.random.u32(1..20))
            .map(|_| Member { number: self.random.u32(1..1_000), millis: self.random.u64(1..80) })
            .collect();
        let sum = members.iter().map(|member| member.number).sum();
        let finalizer = Finalizer { millis: self.random.u64(1..80) };
        loop {
            let flow = Flow::chord(members.clone(), finalizer.clone());
            let start = self.client.start(flow).idempotency_key(&key);
            match timeout(CALL_TIMEOUT, start.into_future()).await {
                Ok(Ok(handle)) => {
                    self.done.chords.push((handle.id().clone(), sum));
                    return Ok(());
                }
                Ok(Err(_)) | Err(_) => self.again().await,
            }
        }
    }

    async fn again(&self) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(50)).await;
    }
}
