//! The loop that fills free slots with jobs.
//!
//! A slot is taken before a job is asked for, so no job waits here while its lease runs. One call
//! asks for all queues that have free slots. A queue that gave less than was asked has nothing
//! more to give, and is not asked again for every slot that comes free: only when the store hints
//! at work, when the next job falls due, or when it is time to look anyway.

use std::{future::pending, sync::Arc, time::Duration};

use taskharbor_core::{Demand, Driver, DriverError, Leased, Reserve, Reserved, Timestamp, Watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    executor,
    outage::Part,
    settler::Finished,
    shared::{Phase, Shared},
    slot::Slot,
    verdict,
};
use crate::{Event, ReleaseReason};

/// No more than this is asked of one queue in one call, to bound what a call brings.
const BATCH: usize = 1_000;
/// How much longer to go without looking where the store gives hints.
const WITH_HINTS: u32 = 30;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut reserver = Reserver {
        may_have_more: vec![true; shared.queues.len()],
        look_again: Instant::now(),
        watch: None,
        failures: 0,
        shared,
    };
    while reserver.ready().await {
        reserver.step().await;
    }
}

struct Reserver {
    shared: Arc<Shared>,
    /// For each queue, whether it may have jobs beyond those it gave.
    may_have_more: Vec<bool>,
    /// When to ask all queues again, hints or not.
    look_again: Instant,
    watch: Option<Watch>,
    failures: u32,
}

impl Reserver {
    /// Waits until there is a free slot in a queue that may have a job; `false` ends the loop.
    async fn ready(&mut self) -> bool {
        loop {
            if self.shared.phase() > Phase::Working {
                return false;
            }
            let queues = self.shared.queues.iter().zip(&self.may_have_more);
            if queues.into_iter().any(|(slots, more)| *more && slots.free() > 0) {
                return true;
            }
            let woken = async {
                match &mut self.watch {
                    Some(watch) => watch.woken().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.shared.reached(Phase::Draining) => return false,
                () = self.shared.freed.notified() => {}
                hint = woken => {
                    self.may_have_more.fill(true);
                    if !hint {
                        // The watch has ended; the next call says why.
                        self.watch = None;
                    }
                }
                () = sleep_until(self.look_again) => {
                    self.may_have_more.fill(true);
                    self.look_again = Instant::now() + self.shared.config.poll;
                }
            }
        }
    }

    /// Takes all free slots, reserves jobs for them, and starts those that came.
    async fn step(&mut self) {
        let taken: Vec<usize> = self.shared.queues.iter().map(|slots| slots.take(BATCH)).collect();
        let answer = self.reserve(&taken).await;
        let given = answer.as_ref().map_or(&[][..], |reserved| &reserved.jobs);
        for (at, (slots, taken)) in self.shared.queues.iter().zip(&taken).enumerate() {
            let used = given.iter().filter(|leased| leased.job.queue == slots.queue).count();
            slots.give_back(taken - used.min(*taken));
            if answer.is_ok() {
                // Of a queue that had no slot nothing was asked, so nothing is known.
                self.may_have_more[at] = used >= *taken;
            }
        }
        match answer {
            Ok(reserved) => {
                self.failures = 0;
                self.look_again = Instant::now() + self.until_next_look(reserved.next_due);
                self.begin(reserved.jobs).await;
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                let backoff = self.shared.backoff(self.failures);
                tokio::select! {
                    biased;
                    () = self.shared.reached(Phase::Draining) => {}
                    () = sleep(backoff) => {}
                }
            }
        }
    }

    async fn reserve(&mut self, taken: &[usize]) -> Result<Reserved, DriverError> {
        let shared = &self.shared;
        if self.watch.is_none() {
            // Before looking, so that no hint falls between the two.
            let queues = shared.queues.iter().map(|slots| slots.queue.clone()).collect();
            self.watch =
                Some(shared.call(Part::Reserver, "watch", shared.driver.watch(queues)).await?);
        }
        let asked = shared.queues.iter().zip(taken).filter(|(_, taken)| **taken > 0);
        let demands = asked.map(|(slots, taken)| Demand::new(slots.queue.clone(), *taken));
        let (demands, holder) = (demands.collect(), shared.config.holder.clone());
        let call = async {
            let now = shared.driver.now().await?;
            let request = Reserve::new(demands, holder, now, shared.config.lease_for);
            shared.driver.reserve(request).await
        };
        shared.call(Part::Reserver, "reserve", call).await
    }

    /// How long to sleep if no hint comes.
    fn until_next_look(&self, next_due: Option<Timestamp>) -> Duration {
        let has_hints = self.watch.as_ref().is_some_and(Watch::can_wake);
        let poll = self.shared.config.poll * if has_hints { WITH_HINTS } else { 1 };
        let poll = poll - poll.mul_f64(self.shared.chance() / 4.0);
        let due = next_due.map(|due| due.since(self.shared.now()));
        due.map_or(poll, |due| due.min(poll))
    }

    /// Starts the jobs, or gives them back if the worker was told to stop while they came.
    async fn begin(&self, jobs: Vec<Leased>) {
        let shared = &self.shared;
        for inflight in shared.registry.insert(jobs) {
            shared.tell(&Event::Reserved { job: &inflight.job });
            let queue = &inflight.job.queue;
            let Some(at) = shared.queues.iter().position(|slots| slots.queue == *queue) else {
                continue;
            };
            let slot = Slot::new(Arc::clone(shared), at);
            if shared.phase() > Phase::Working {
                let released = verdict::release(None, ReleaseReason::Shutdown);
                let _ = shared.outcomes.send(Finished::new(inflight, released)).await;
                continue;
            }
            tokio::spawn(executor::execute(Arc::clone(shared), inflight, slot));
        }
    }
}
