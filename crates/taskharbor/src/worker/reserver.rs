//! The loop that reserves jobs.
//!
//! A job is asked for when a slot is free for it, or when one will be within the time for which
//! [`ahead`](crate::WorkerBuilder::ahead) allows, judged by how fast the jobs of its queue end. A queue
//! that gave less than was asked has nothing more to give, and is not asked again for every slot that
//! comes free: only when the store names it in a wake-up, when its next job falls due, or when it is
//! time to look anyway.

use std::{future::pending, sync::Arc, time::Duration};

use taskharbor_core::{
    Driver, DriverError, Timestamp,
    driver::{Demand, Leased, Reserve, Reserved, Watch, Woken},
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    ahead, executor,
    limits::Declaring,
    outage::Part,
    pace::Reach,
    pool::{Offer, Slot},
    resolution,
    set_back::ClockWatch,
    settler::Finished,
    shared::{Phase, Shared},
};
use crate::{Event, Operation, ReleaseReason, inflight::Inflight};

/// No more than this is asked of one queue in one call, to bound what a call brings, nor of all.
const BATCH: usize = 1_000;
const BATCH_OF_ALL: usize = 10_000;
/// How long to wait before asking again for jobs that are due and were not granted: this long, and
/// twice as long each time, this many times.
const BREATH: Duration = Duration::from_millis(1);
const LONGEST_BREATH: u32 = 6;
/// How much longer to go without looking where the store sends wake-ups.
const WITH_WAKE_UPS: u32 = 30;
/// But no longer than this, or `poll` if that is longer.
const MAX_POLL_WITH_WAKE_UPS: Duration = Duration::from_secs(30);
/// How long the store may take to have jobs back before a job starts in quarantine.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);
/// A job that falls due later than this is asked for by then.
const LONGEST_DUE: Duration = Duration::from_secs(86_400);

pub(super) async fn run(shared: Arc<Shared>) {
    let mut declaring = Declaring::new(&shared);
    declaring.begin().await;
    let mut reserver = Reserver::new(Arc::clone(&shared));
    let reserve = async {
        while let Some(demands) = reserver.ready().await {
            reserver.step(&demands).await;
        }
    };
    tokio::join!(reserve, ahead::sweep(&shared), declaring.finish());
    // Jobs that came in while the others were released.
    ahead::release_all(&shared, ReleaseReason::Shutdown).await;
    shared.reached(Phase::Draining).await;
}

/// What is known about the jobs of a queue.
#[derive(Clone, Debug)]
struct Known {
    /// Whether it may have jobs beyond those it gave.
    may_have_more: bool,
    /// When its next job falls due.
    due_at: Option<Instant>,
    /// How many jobs of it the last call brought.
    given: usize,
    /// Whether that was less than was asked: the queue has no more, or a limit keeps them back.
    gave_less: bool,
}

struct Reserver {
    shared: Arc<Shared>,
    /// For each pool.
    known: Vec<Known>,
    /// When to ask all queues again, with or without a wake-up.
    poll_at: Instant,
    watch: Option<Watch>,
    /// When to ask for wake-ups again, after this many failures to get them.
    watch_again: Instant,
    watch_failures: u32,
    /// The queue that is asked first, if one call cannot ask for all.
    first: usize,
    /// Answers in a row that brought nothing although something was said to be due.
    in_vain: u32,
    /// The time that the last reserve named.
    asked_at: Timestamp,
    failures: u32,
    /// How long a call takes, as a moving average.
    round_trip: Duration,
    clock: ClockWatch,
}

/// Whether the clock by which jobs were reserved was that of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockWas {
    Right,
    Ahead,
}

/// A pool, and how many jobs are asked of its queue.
type Asked = (usize, usize);

impl Reserver {
    fn new(shared: Arc<Shared>) -> Self {
        let known = Known { may_have_more: true, due_at: None, given: 0, gave_less: false };
        Self {
            known: vec![known; shared.pools.len()],
            poll_at: Instant::now() + shared.config.poll,
            watch: None,
            watch_again: Instant::now(),
            watch_failures: 0,
            first: 0,
            in_vain: 0,
            asked_at: Timestamp::EPOCH,
            failures: 0,
            round_trip: Duration::ZERO,
            clock: ClockWatch::new(),
            shared,
        }
    }

    /// Waits until jobs can be used of a queue that may have some; `None` ends the loop.
    async fn ready(&mut self) -> Option<Vec<Asked>> {
        loop {
            if self.shared.phase() > Phase::Working {
                return None;
            }
            self.note_time();
            // A queue that is always ready for more must not keep the others from being heard.
            let woken = match &mut self.watch {
                Some(watch) => tokio::select! {
                    biased;
                    woken = watch.woken() => Some(woken),
                    () = std::future::ready(()) => None,
                },
                None => None,
            };
            if let Some(woken) = woken {
                self.note_woken(woken).await;
            }
            let demands = self.demands();
            if !demands.is_empty() {
                return Some(demands);
            }
            let next_look = self.known.iter().filter_map(|it| it.due_at).min();
            let next_look = next_look.map_or(self.poll_at, |due| due.min(self.poll_at));
            // While nothing is reserved, nothing else can be done.
            let quarantine = self.shared.caution.quarantine_ends_at(Instant::now());
            let next_look = quarantine.unwrap_or(next_look);
            let woken = async {
                match &mut self.watch {
                    Some(watch) => watch.woken().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.shared.reached(Phase::Quiet) => return None,
                // Where one handler ends others do; they may share the next call.
                () = self.shared.freed.notified() => tokio::task::yield_now().await,
                woken = woken => self.note_woken(woken).await,
                () = sleep_until(next_look) => {}
            }
        }
    }

    /// Notes what is due by now.
    fn note_time(&mut self) {
        let now = Instant::now();
        if self.poll_at <= now {
            self.look_at_all();
        }
        for known in &mut self.known {
            if known.due_at.is_some_and(|due| due <= now) {
                (known.may_have_more, known.due_at) = (true, None);
            }
        }
    }

    async fn note_woken(&mut self, woken: Option<Woken>) {
        match woken {
            Some(Woken::Queues(queues)) => {
                for at in queues.iter().filter_map(|queue| self.shared.pools.find(queue)) {
                    self.known[at].may_have_more = true;
                }
            }
            Some(_) => self.look_at_all(),
            None => {
                // The watch has ended; the next call says why. No other may come for a long time
                // while all slots are taken.
                self.watch = None;
                self.look_at_all();
                self.watch().await;
            }
        }
    }

    fn look_at_all(&mut self) {
        for known in &mut self.known {
            known.may_have_more = true;
        }
        self.poll_at = self.next_poll();
    }

    /// When to ask all queues if no wake-up comes.
    fn next_poll(&self) -> Instant {
        let has_wake_ups = self.watch.as_ref().is_some_and(Watch::can_wake);
        let poll = self.shared.config.poll;
        // Jobs that fall due later than that are not announced.
        let with_wake_ups = (poll * WITH_WAKE_UPS).min(poll.max(MAX_POLL_WITH_WAKE_UPS));
        let poll = if has_wake_ups { with_wake_ups } else { poll };
        Instant::now() + (poll - poll.mul_f64(self.shared.chance() / 4.0))
    }

    /// How many jobs to ask for, of which queues. Where that is more than one call may bring, the next
    /// one begins with the queue that was left out.
    fn demands(&mut self) -> Vec<Asked> {
        let (now, pools) = (Instant::now(), &self.shared.pools);
        if self.shared.caution.quarantine_ends_at(now).is_some() {
            return Vec::new();
        }
        let reach = if self.shared.caution.is_careful(now) {
            Reach::NONE
        } else {
            Reach::new(self.shared.config.ahead, self.round_trip)
        };
        let (mut demands, mut left, start) = (Vec::new(), BATCH_OF_ALL, self.first);
        for at in (0..pools.len()).map(|n| (n + start) % pools.len()) {
            if !self.known[at].may_have_more {
                continue;
            }
            if left == 0 {
                self.first = at;
                break;
            }
            // A lease that waits here for a slot takes a place of a limit, and a charge of a rate, that
            // another worker could use at once.
            let reach = if self.known[at].gave_less { Reach::NONE } else { reach };
            let asked = pools[at].demand(reach, now).min(BATCH).min(left);
            if asked > 0 {
                demands.push((at, asked));
                left -= asked;
            }
        }
        demands
    }

    /// Reserves jobs, and starts those that have a slot.
    async fn step(&mut self, demands: &[Asked]) {
        match self.reserve(demands).await {
            Ok((reserved, clock)) => {
                self.failures = 0;
                let find = |leased: &Leased| self.shared.pools.find(&leased.job.queue);
                let pools: Vec<Option<usize>> = reserved.jobs.iter().map(find).collect();
                self.note_answer(demands, &pools, reserved.next_due);
                self.begin(reserved.jobs, &pools, clock).await;
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                let backoff = self.shared.backoff(self.failures);
                tokio::select! {
                    biased;
                    () = self.shared.reached(Phase::Quiet) => {}
                    () = sleep(backoff) => {}
                }
            }
        }
    }

    /// Notes which queues have no more jobs, and until when.
    fn note_answer(
        &mut self,
        demands: &[Asked],
        pools: &[Option<usize>],
        next_due: Option<Timestamp>,
    ) {
        for (at, _) in demands {
            self.known[*at].given = 0;
        }
        for at in pools.iter().flatten() {
            self.known[*at].given += 1;
        }
        // Due by the time that the call named: what fell due during a slow call was not withheld.
        let was_due = next_due.is_some_and(|due| due <= self.asked_at);
        let next_due = next_due.map(|due| due.since(self.shared.now()));
        let in_vain = was_due && pools.is_empty();
        self.in_vain = if in_vain { self.in_vain.saturating_add(1) } else { 0 };
        self.shared.health.reserved(in_vain, Instant::now());
        let wait = next_due.map(|due| match due {
            // A job that is said to be due and does not come must not make this loop spin.
            Duration::ZERO => BREATH * (1 << self.in_vain.min(LONGEST_BREATH)),
            due => due.min(LONGEST_DUE),
        });
        let due_at = wait.map(|wait| Instant::now() + wait);
        for (at, asked) in demands {
            let known = &mut self.known[*at];
            known.gave_less = known.given < *asked;
            known.may_have_more = !known.gave_less;
            known.due_at = if known.may_have_more { None } else { due_at };
        }
    }

    /// Asks for wake-ups, if there are none, and answers why none can be had. Jobs are reserved all
    /// the same.
    async fn watch(&mut self) -> Option<DriverError> {
        let shared = &self.shared;
        if let Some(watch) = &self.watch {
            shared.outage.note_wake_ups(watch.problem().as_deref(), &shared.observers);
        }
        if self.watch.is_some() || Instant::now() < self.watch_again {
            return None;
        }
        let queues: Vec<_> = shared.pools.iter().map(|pool| pool.queue.clone()).collect();
        let (count, call) = (queues.len(), shared.driver.watch(queues));
        match shared.call(Part::Watch, Operation::Watch, count, call).await {
            Ok(watch) => {
                (self.watch, self.watch_failures) = (Some(watch), 0);
                self.poll_at = self.next_poll();
                None
            }
            Err(error) => {
                self.watch_failures = self.watch_failures.saturating_add(1);
                self.watch_again = Instant::now() + shared.backoff(self.watch_failures) * 6;
                Some(error)
            }
        }
    }

    async fn reserve(&mut self, demands: &[Asked]) -> Result<(Reserved, ClockWas), DriverError> {
        // Before looking, so that no wake-up falls between the two.
        let no_wake_ups = self.watch().await;
        let shared = &self.shared;
        let queue = |at: usize| shared.pools[at].queue.clone();
        let asked = demands.iter().map(|(at, count)| Demand::new(queue(*at), *count)).collect();
        let holder = shared.config.holder.clone();
        self.clock.ask_soon(shared);
        let (now, started) = (shared.now(), Instant::now());
        self.asked_at = now;
        let request = Reserve::new(asked, holder, now, shared.config.lease_for);
        let jobs = demands.iter().map(|(_, count)| count).sum();
        let call = shared.driver.reserve(request);
        let answer = shared.call(Part::Reserver, Operation::Reserve, jobs, call).await;
        self.round_trip = (3 * self.round_trip + started.elapsed()) / 4;
        if answer.is_ok() {
            // A store that gives jobs and no wake-ups is not away; one that was away may have both.
            if let Some(error) = no_wake_ups {
                let problem = error.to_string();
                shared.outage.note_wake_ups(Some(&problem), &shared.observers);
            } else if self.failures > 0 {
                self.watch_again = Instant::now();
            }
        }
        let reserved = answer?;
        let may_be_early = reserved.jobs.iter().any(|leased| leased.job.may_be_reclaimed());
        let clock = if may_be_early { self.clock_at(now, started).await } else { ClockWas::Right };
        Ok((reserved, clock))
    }

    /// Compares the clock that showed `now` with the store's. By a clock that is ahead, leases have ended that
    /// are not. One that cannot be compared may be ahead.
    async fn clock_at(&self, now: Timestamp, then: Instant) -> ClockWas {
        match self.shared.sync_clock(&self.shared.driver, Duration::ZERO).await {
            Ok(Some(reading)) if reading.was_ahead(now, then.into_std()) => ClockWas::Ahead,
            Ok(_) => ClockWas::Right,
            Err(_) => ClockWas::Ahead,
        }
    }

    /// Starts the jobs, lets them wait for a slot, or gives them back.
    async fn begin(&self, jobs: Vec<Leased>, pools: &[Option<usize>], clock: ClockWas) {
        let (shared, now) = (&self.shared, Instant::now());
        let rest = shared.config.lease_for - shared.config.heartbeat;
        let too_soon = shared.now().saturating_add(shared.config.margin());
        // Before anything that takes time, so that their leases are extended meanwhile.
        let (jobs, mut quarantine) = (shared.registry.insert(jobs, rest, too_soon), Vec::new());
        if jobs.iter().any(|inflight| shared.caution.is_suspect(inflight.job.expirations)) {
            shared.caution.see(now);
            ahead::release_all(shared, ReleaseReason::Waited).await;
        }
        let may_wait = !shared.config.ahead.is_zero() && !shared.caution.is_careful(now);
        for (inflight, pool) in jobs.into_iter().zip(pools) {
            shared.tell(&Event::Reserved { job: &inflight.job });
            if clock == ClockWas::Ahead && inflight.job.may_be_reclaimed() {
                // Its holder learns of it at its next heartbeat, and has stopped by then.
                let delay = shared.config.lease_for;
                self.release_for(inflight, delay, ReleaseReason::ClockSetBack).await;
                continue;
            }
            if shared.caution.needs_quarantine(inflight.job.expirations)
                && let Some(delay) = shared.caution.keeps_away_for(now)
            {
                self.release_for(inflight, delay, ReleaseReason::KeptApart).await;
                continue;
            }
            let why = match self.place(&inflight, *pool, may_wait, now) {
                Ok(Some(slot)) if shared.caution.needs_quarantine(inflight.job.expirations) => {
                    quarantine.push((inflight, slot));
                    continue;
                }
                Ok(Some(slot)) => {
                    executor::start(shared, inflight, slot);
                    continue;
                }
                Ok(None) => continue,
                Err(why) => why,
            };
            self.release(inflight, why).await;
        }
        if may_wait {
            shared.buffered.notify_one();
        }
        self.quarantine(quarantine).await;
    }

    /// Releases a job to its old position.
    async fn release(&self, inflight: Arc<Inflight>, why: ReleaseReason) {
        let finished = Finished::new(inflight, resolution::release(why));
        let _ = self.shared.outcomes.send(finished).await;
    }

    /// Releases a job whose lease ran out before, not to run for a while.
    async fn release_for(&self, inflight: Arc<Inflight>, delay: Duration, why: ReleaseReason) {
        let (job, worker) = (&inflight.job, &self.shared.config.holder);
        let released = resolution::release_suspect(job, worker, delay, why, self.shared.now());
        let _ = self.shared.outcomes.send(Finished::new(inflight, released)).await;
    }

    /// Starts the first of these jobs once the store has the others back: one of them may kill this
    /// process, and then no other is charged for it again.
    async fn quarantine(&self, jobs: Vec<(Arc<Inflight>, Slot)>) {
        let shared = &self.shared;
        let mut jobs = jobs.into_iter();
        let Some((first, mut slot)) = jobs.next() else {
            return;
        };
        for (other, slot) in jobs {
            drop(slot);
            self.release(other, ReleaseReason::KeptApart).await;
        }
        // Other such jobs that have ended must be recorded in the store before the first one starts.
        let is_other = |it: &Arc<Inflight>| {
            it.has_ended()
                && shared.caution.needs_quarantine(it.job.expirations)
                && !Arc::ptr_eq(it, &first)
        };
        let others: Vec<_> = shared.registry.all().into_iter().filter(is_other).collect();
        let are_released = tokio::select! {
            biased;
            () = shared.reached(Phase::Quiet) => false,
            () = shared.registry.gone(&others) => true,
            () = sleep(RELEASED_WITHIN) => false,
        };
        if are_released {
            slot.set_suspect(shared.caution.begin(first.job.expirations, Instant::now()));
            executor::start(shared, first, slot);
        } else {
            drop(slot);
            self.release_for(first, RELEASED_WITHIN, ReleaseReason::KeptApart).await;
        }
    }

    /// The slot of a job, none if it waits for one, or why it is released.
    fn place(
        &self,
        inflight: &Arc<Inflight>,
        pool: Option<usize>,
        may_wait: bool,
        now: Instant,
    ) -> Result<Option<Slot>, ReleaseReason> {
        let (shared, expirations) = (&self.shared, inflight.job.expirations);
        if inflight.has_ended() {
            return Err(ReleaseReason::ArrivedLate);
        }
        if shared.phase() > Phase::Working {
            return Err(ReleaseReason::Shutdown);
        }
        // A driver may answer with a job of a queue that it was not asked for.
        let pool = pool.ok_or(ReleaseReason::Waited)?;
        match shared.pools[pool].offer(inflight, now, may_wait) {
            Offer::Waits => return Ok(None),
            Offer::Refused => return Err(ReleaseReason::Waited),
            Offer::Starts => {}
        }
        let (mut slot, caution) = (Slot::new(Arc::clone(shared), pool), &shared.caution);
        if caution.is_suspect(expirations) && !caution.needs_quarantine(expirations) {
            slot.set_suspect(caution.begin(expirations, now));
        }
        Ok(Some(slot))
    }
}
