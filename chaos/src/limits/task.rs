//! One task: a caller that does one random thing after another with jobs of limited queues.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use taskharbor_core::{
    Admin, AnyDriver, Driver, DriverError, JobId, NewJob, Timestamp,
    admin::{Action, Manage, Requeue},
    driver::{Demand, Enqueue, LeaseToken, Reserve, Settle, Settled, Settlement, Transition},
    job::{FailedAttempt, JobSet},
    name::Holder,
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    history::Stored,
    observer::Observer,
    queue::{Kind, Maker},
    setting::Settings,
};
use crate::Outcome;

/// No call takes longer, unless it hangs.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Some leases run out while their jobs are settled.
const LEASE_MS: std::ops::Range<u64> = 200..1_000;
/// How long a task waits that was granted nothing.
const PAUSE_MS: std::ops::Range<u64> = 1..30;
/// One of this many calls is dropped before long.
const DROPPED: u8 = 20;
/// Above this many live jobs, tasks work instead of enqueueing.
const MAX_LIVE: i64 = 2_000;

/// The way to the store, and whether it may be cut.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) driver: AnyDriver,
    pub(crate) is_cut: bool,
}

pub(crate) struct Task {
    line: Line,
    observer: Arc<Observer>,
    settings: Arc<Settings>,
    random: Rng,
    maker: Maker,
    held: Vec<Held>,
    /// With so few live jobs left, the work is over.
    few: i64,
}

/// A job that this task holds, or held.
struct Held {
    id: JobId,
    token: LeaseToken,
    attempts: u32,
}

impl Task {
    pub(crate) fn new(
        number: usize,
        line: Line,
        (observer, settings): (Arc<Observer>, Arc<Settings>),
        (seed, few): (u64, i64),
    ) -> Self {
        let random = Rng::with_seed(seed ^ ((number as u64) << 40));
        let (maker, held) = (Maker::new(number), Vec::new());
        Self { line, observer, settings, random, maker, held, few }
    }

    /// Works until most jobs have ended, or until the deadline.
    pub(crate) async fn run(mut self, deadline: Instant) -> Outcome {
        while !self.observer.is_nearly_done(self.few) && Instant::now() < deadline {
            match self.random.u8(..100) {
                0..=19 if self.observer.live() < MAX_LIVE => self.enqueue().await?,
                20..=54 if self.held.len() < 8 => self.reserve().await?,
                0..=89 if !self.held.is_empty() => self.settle().await?,
                90..=92 => self.manage().await?,
                93..=95 => self.settings.change(&self.observer, &mut self.random).await?,
                96..=97 if !self.held.is_empty() => self.forget(),
                _ => self.reserve().await?,
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Makes a call; `None` if its future was dropped, or its connection was cut.
    async fn call<T>(
        &mut self,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Outcome<Option<T>> {
        let is_dropped = self.random.u8(..DROPPED) == 0;
        let limit = match is_dropped {
            true => Duration::from_micros(self.random.u64(..5_000)),
            false => CALL_TIMEOUT,
        };
        match timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(DriverError::Unavailable(_))) if self.line.is_cut => {
                self.observer.count("cut");
                Ok(None)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) if is_dropped => {
                self.observer.count("dropped");
                Ok(None)
            }
            Err(_) => Err(format!("no answer for {CALL_TIMEOUT:?}").into()),
        }
    }

    /// Enqueues some jobs. A call without an answer is repeated.
    async fn enqueue(&mut self) -> Outcome {
        let count = self.observer.take_jobs(self.random.usize(1..6));
        let (now, driver) = (self.observer.now(), self.line.driver.clone());
        let jobs = (0..count).map(|_| self.maker.job(&mut self.random, now));
        let jobs = jobs.collect::<Result<Vec<NewJob>, _>>()?;
        if jobs.is_empty() {
            return self.reserve().await;
        }
        self.observer.add_live(count as i64);
        loop {
            let sent = self.observer.send("enqueue");
            let sets = jobs.iter().cloned().map(JobSet::from).collect();
            if let Some(answers) = self.call(driver.enqueue(Enqueue::new(sets, sent.at))).await? {
                for answer in answers {
                    answer?;
                }
                break;
            }
        }
        for job in &jobs {
            if job.run_at.is_some() {
                self.observer.remember(job.id.clone());
            }
        }
        self.observer.answer(|history, moment| {
            for job in jobs {
                let stored = Stored {
                    queue: job.queue,
                    lane: job.lane,
                    acknowledged: moment,
                    is_due: job.run_at.is_none(),
                };
                history.jobs.insert(job.id, stored);
            }
        });
        Ok(())
    }

    async fn reserve(&mut self) -> Outcome {
        let mut kinds = Kind::ALL;
        self.random.shuffle(&mut kinds);
        let mut demands = Vec::new();
        for kind in &kinds[..self.random.usize(1..=2)] {
            demands.push(Demand::new(kind.queue()?, self.random.usize(1..=7)));
        }
        let lease = Duration::from_millis(self.random.u64(LEASE_MS));
        let driver = self.line.driver.clone();
        let sent = self.observer.send("reserve");
        let request = Reserve::new(demands, Holder::new("task")?, sent.at, lease);
        let Some(reserved) = self.call(driver.reserve(request)).await? else { return Ok(()) };
        self.observer.granted(sent, &reserved);
        for leased in &reserved.jobs {
            if &*leased.job.payload != leased.job.id.as_str().as_bytes() {
                return Err(format!("{} has the payload of another job", leased.job.id).into());
            }
        }
        if reserved.jobs.is_empty() {
            sleep(Duration::from_millis(self.random.u64(PAUSE_MS))).await;
        }
        // A lease that ran out may be followed by one on the same job.
        self.held.retain(|held| reserved.jobs.iter().all(|leased| leased.job.id != held.id));
        self.held.extend(reserved.jobs.into_iter().map(|leased| Held {
            id: leased.job.id,
            token: leased.lease.token,
            attempts: leased.job.attempts,
        }));
        Ok(())
    }

    /// Lets a lease run out.
    fn forget(&mut self) {
        let at = self.random.usize(..self.held.len());
        self.held.swap_remove(at);
        self.observer.count("left to run out");
    }

    fn transition(&mut self, held: &Held, now: Timestamp) -> Transition {
        let later = now.saturating_add(Duration::from_millis(self.random.u64(1..200)));
        let run_at = self.random.bool().then_some(later);
        let failure = FailedAttempt::new(held.attempts + 1, "it failed", now);
        match self.random.u8(..20) {
            0..=2 => Transition::Retry { failure, run_at },
            3..=4 => Transition::Fail { failure, reason: "it failed".into() },
            5..=6 => Transition::Release { run_at, started: self.random.bool(), note: None },
            _ => Transition::Ack { output: None },
        }
    }

    async fn settle(&mut self) -> Outcome {
        self.random.shuffle(&mut self.held);
        let kept = self.held.len().saturating_sub(self.random.usize(1..8));
        let held = self.held.split_off(kept);
        let sent = self.observer.send_end(held.iter().map(|held| held.token));
        let mut items = Vec::new();
        for held in &held {
            let transition = self.transition(held, sent.at);
            items.push(Settlement::new(held.id.clone(), held.token, transition));
        }
        let driver = self.line.driver.clone();
        let answer = self.call(driver.settle(Settle::new(items.clone(), sent.at))).await?;
        for (item, answer) in items.into_iter().zip(answer.unwrap_or_default()) {
            let is_end =
                matches!(item.transition, Transition::Ack { .. } | Transition::Fail { .. });
            match answer {
                Ok(Settled::Applied) if is_end => self.observer.add_live(-1),
                Ok(_) => {}
                Err(_) => self.observer.count("refused"),
            }
            if matches!(item.transition, Transition::Fail { .. }) {
                self.observer.remember(item.id);
            }
        }
        Ok(())
    }

    /// Requeues a job that was dead-lettered, or runs one that waits for its time.
    async fn manage(&mut self) -> Outcome {
        let random = &mut self.random;
        let Some(id) = self.observer.recall(|count| random.usize(..count)) else { return Ok(()) };
        let (action, is_requeue) = match random.u8(..3) {
            0 => (Action::RunNow, false),
            _ => (Action::Requeue(Requeue::new().reset_attempts()), true),
        };
        let driver = self.line.driver.clone();
        let sent = self.observer.send(if is_requeue { "requeue" } else { "run now" });
        let answer = self.call(driver.manage(Manage::new(vec![id], action, sent.at))).await?;
        let done = answer.unwrap_or_default().into_iter().filter(Result::is_ok).count();
        if is_requeue {
            self.observer.add_live(done as i64);
        }
        Ok(())
    }
}
