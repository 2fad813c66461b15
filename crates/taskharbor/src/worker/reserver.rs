//! The loop that fills free slots with jobs.
//!
//! A slot is taken before a job is asked for, so no job waits here while its lease runs. One call
//! asks for all queues that have free slots. A queue that gave less than was asked has nothing
//! more to give, and is not asked again for every slot that comes free: only when the store hints
//! at work, when the next job falls due, or when it is time to look anyway.

use std::{future::pending, sync::Arc, time::Duration};

use taskharbor_core::{
    Driver, DriverError, Timestamp,
    driver::{Demand, Leased, Reserve, Reserved, Watch},
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    executor,
    outage::Part,
    settler::Finished,
    shared::{Phase, Shared},
    slot::Slot,
    verdict,
};
use crate::{Event, Operation, ReleaseReason};

/// No more than this is asked of one queue in one call, to bound what a call brings, nor of all.
const BATCH: usize = 1_000;
const BATCH_OF_ALL: usize = 10_000;
/// How long to wait before asking again for what is said to be due and did not come: this long, and
/// twice as long each time, so many times.
const BREATH: Duration = Duration::from_millis(1);
const LONGEST_BREATH: u32 = 6;
/// How much longer to go without looking where the store gives hints.
const WITH_HINTS: u32 = 30;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut reserver = Reserver {
        may_have_more: vec![true; shared.queues.len()],
        look_again: Instant::now(),
        watch: None,
        watch_again: Instant::now(),
        watch_failures: 0,
        first: 0,
        in_vain: 0,
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
    /// When to ask for hints again, after so many failures to get them.
    watch_again: Instant,
    watch_failures: u32,
    /// The queue that takes its slots first, each time another.
    first: usize,
    /// Answers in a row that brought nothing although something was said to be due.
    in_vain: u32,
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
                // Where one handler ends others do; they may share the next call.
                () = self.shared.freed.notified() => tokio::task::yield_now().await,
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
        let taken = self.take_slots();
        let answer = self.reserve(&taken).await;
        let given = answer.as_ref().map_or(&[][..], |reserved| &reserved.jobs);
        for (at, (slots, taken)) in self.shared.queues.iter().zip(&taken).enumerate() {
            let used = given.iter().filter(|leased| leased.job.queue == slots.queue).count();
            slots.give_back(taken - used.min(*taken));
            if answer.is_ok() && *taken > 0 {
                self.may_have_more[at] = used >= *taken;
            } else if slots.free() == 0 {
                // It was not asked, so nothing is known.
                self.may_have_more[at] = true;
            }
        }
        match answer {
            Ok(reserved) => {
                self.failures = 0;
                let is_due = reserved.next_due.is_some_and(|due| due <= self.shared.now());
                let in_vain = is_due && reserved.jobs.is_empty();
                self.in_vain = if in_vain { self.in_vain.saturating_add(1) } else { 0 };
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

    /// Takes the free slots of all queues. Where there are more than one call can fill, the next one
    /// begins with the queue that was left out.
    fn take_slots(&mut self) -> Vec<usize> {
        let queues = &self.shared.queues;
        let (mut taken, mut left, start) = (vec![0; queues.len()], BATCH_OF_ALL, self.first);
        for at in (0..queues.len()).map(|n| (n + start) % queues.len()) {
            if left == 0 {
                self.first = at;
                break;
            }
            taken[at] = queues[at].take(BATCH.min(left));
            left -= taken[at];
        }
        taken
    }

    /// Asks for hints, if there are none. Jobs are reserved all the same where none can be had.
    async fn watch(&mut self) {
        let shared = &self.shared;
        if let Some(watch) = &self.watch {
            shared.outage.note_wake_ups(watch.problem().as_deref(), &shared.observers);
        }
        if self.watch.is_some() || Instant::now() < self.watch_again {
            return;
        }
        let queues: Vec<_> = shared.queues.iter().map(|slots| slots.queue.clone()).collect();
        let (count, call) = (queues.len(), shared.driver.watch(queues));
        match shared.call(Part::Watch, Operation::Watch, count, call).await {
            Ok(watch) => (self.watch, self.watch_failures) = (Some(watch), 0),
            Err(_) => {
                self.watch_failures = self.watch_failures.saturating_add(1);
                self.watch_again = Instant::now() + shared.backoff(self.watch_failures) * 6;
            }
        }
    }

    async fn reserve(&mut self, taken: &[usize]) -> Result<Reserved, DriverError> {
        // Before looking, so that no hint falls between the two.
        self.watch().await;
        let shared = &self.shared;
        let asked = shared.queues.iter().zip(taken).filter(|(_, taken)| **taken > 0);
        let demands = asked.map(|(slots, taken)| Demand::new(slots.queue.clone(), *taken));
        let (demands, holder) = (demands.collect(), shared.config.holder.clone());
        shared.sync_clock(&shared.driver).await;
        let request = Reserve::new(demands, holder, shared.now(), shared.config.lease_for);
        let (jobs, call) = (taken.iter().sum(), shared.driver.reserve(request));
        shared.call(Part::Reserver, Operation::Reserve, jobs, call).await
    }

    /// How long to sleep if no hint comes.
    fn until_next_look(&self, next_due: Option<Timestamp>) -> Duration {
        let has_hints = self.watch.as_ref().is_some_and(Watch::can_wake);
        let poll = self.shared.config.poll * if has_hints { WITH_HINTS } else { 1 };
        let poll = poll - poll.mul_f64(self.shared.chance() / 4.0);
        match next_due.map(|due| due.since(self.shared.now())) {
            // A job that is said to be due and does not come must not make this loop spin.
            Some(Duration::ZERO) => BREATH * (1 << self.in_vain.min(LONGEST_BREATH)),
            Some(due) => due.min(poll),
            None => poll,
        }
    }

    /// Starts the jobs, or gives them back if the worker was told to stop while they came.
    async fn begin(&self, jobs: Vec<Leased>) {
        let shared = &self.shared;
        let rest = shared.config.lease_for - shared.config.heartbeat;
        let too_soon = shared.now().saturating_add(shared.config.margin());
        for inflight in shared.registry.insert(jobs, rest, too_soon) {
            shared.tell(&Event::Reserved { job: &inflight.job });
            let queue = &inflight.job.queue;
            let Some(at) = shared.queues.iter().position(|slots| slots.queue == *queue) else {
                continue;
            };
            let slot = Slot::new(Arc::clone(shared), at);
            let reason = if inflight.has_ended() {
                Some(ReleaseReason::ArrivedLate)
            } else {
                (shared.phase() > Phase::Working).then_some(ReleaseReason::Shutdown)
            };
            if let Some(reason) = reason {
                let released = verdict::release(None, reason);
                let _ = shared.outcomes.send(Finished::new(inflight, released)).await;
                continue;
            }
            tokio::spawn(executor::execute(Arc::clone(shared), inflight, slot));
        }
    }
}
