//! The slots of a queue, and the jobs that are reserved ahead and wait for one.
//!
//! A slot is one handler's right to run. A job that arrives gets a free slot, or waits here for the
//! next one. The task that ends a job passes its slot to the first job that waits, in one critical
//! section, so a slot is never free while a job waits for it.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskharbor_core::QueueName;
use tokio::time::Instant;

use super::{
    executor,
    pace::{Pace, Reach},
    shared::{Phase, Shared},
};
use crate::inflight::Inflight;

/// The pools of a worker, one for each queue.
#[derive(Debug)]
pub(super) struct SlotPools {
    pools: Vec<SlotPool>,
    places: HashMap<QueueName, usize>,
}

impl SlotPools {
    pub(super) fn new(pools: Vec<SlotPool>) -> Self {
        let places = pools.iter().enumerate().map(|(at, pool)| (pool.queue.clone(), at)).collect();
        Self { pools, places }
    }

    /// The place of the pool of this queue.
    pub(super) fn find(&self, queue: &QueueName) -> Option<usize> {
        self.places.get(queue).copied()
    }
}

impl Deref for SlotPools {
    type Target = [SlotPool];

    fn deref(&self) -> &[SlotPool] {
        &self.pools
    }
}

/// The slots of one queue, and the jobs that wait for them.
pub(super) struct SlotPool {
    pub(super) queue: QueueName,
    pub(super) concurrency: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// First in, first out, each with the time at which it arrived.
    waiting: VecDeque<(Arc<Inflight>, Instant)>,
    /// How many jobs have ended.
    ended: u64,
    pace: Pace,
    /// When a job last ended, or the first of those that wait arrived, whichever is later.
    moved_at: Option<Instant>,
    /// The reserver is woken when fewer jobs than this wait.
    low_water: usize,
}

/// Whether a job that is offered to a pool starts, waits or is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// A slot was free, and is taken now.
    Starts,
    Waits,
    /// No slot is free, and it may not wait.
    Refused,
}

/// Whether a slot whose job has ended is free or has the next job.
struct Passed {
    next: Option<Arc<Inflight>>,
    /// The reserver should look: a slot is free, or few jobs wait.
    is_low: bool,
}

/// How long jobs may wait for a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// While no job of the queue ends.
    pub(super) stalled: Duration,
    /// In any case.
    pub(super) longest: Duration,
}

impl SlotPool {
    pub(super) fn new(queue: QueueName, concurrency: usize) -> Self {
        let state = State {
            free: concurrency,
            waiting: VecDeque::new(),
            ended: 0,
            pace: Pace::default(),
            moved_at: None,
            low_water: 0,
        };
        Self { queue, concurrency, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many jobs to ask for: one for each free slot, and those that will start soon after. None
    /// while all slots are taken and enough jobs wait; then the pool says when that changes.
    pub(super) fn demand(&self, reach: Reach, now: Instant) -> usize {
        let mut state = self.state();
        let ended = state.ended;
        state.pace.sample(ended, now);
        let target = state.pace.target(reach);
        let (waiting, low) = (state.waiting.len(), target.div_ceil(2));
        if state.free == 0 && waiting >= low {
            state.low_water = low;
            return 0;
        }
        state.low_water = 0;
        state.free + target.saturating_sub(waiting)
    }

    /// Takes a free slot for this job, or lets it wait for one.
    pub(super) fn offer(&self, job: &Arc<Inflight>, now: Instant, may_wait: bool) -> Offer {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Offer::Starts;
        }
        if !may_wait {
            return Offer::Refused;
        }
        if state.waiting.is_empty() {
            state.moved_at = Some(now);
        }
        state.waiting.push_back((Arc::clone(job), now));
        Offer::Waits
    }

    /// A job has ended: the next one that waits has its slot, or the slot is free.
    fn pass(&self, now: Instant) -> Passed {
        let mut state = self.state();
        state.ended += 1;
        state.moved_at = Some(now);
        let Some((next, _)) = state.waiting.pop_front() else {
            state.free += 1;
            return Passed { next: None, is_low: true };
        };
        let is_low = state.waiting.len() < state.low_water;
        if is_low {
            // Once for each time that the reserver looks.
            state.low_water = 0;
        }
        Passed { next: Some(next), is_low }
    }

    /// How many slots are taken.
    pub(super) fn busy(&self) -> usize {
        self.concurrency - self.state().free.min(self.concurrency)
    }

    fn free_one(&self) {
        self.state().free += 1;
    }

    /// When the jobs that wait have done so for too long, if no job ends until then.
    pub(super) fn stalls_at(&self, limits: WaitLimits) -> Option<Instant> {
        let state = self.state();
        let (_, arrived) = state.waiting.front()?;
        let stalls = state.moved_at.unwrap_or(*arrived) + limits.stalled;
        Some(stalls.min(*arrived + limits.longest))
    }

    /// Takes out all jobs that wait. How fast jobs end is learned anew, so that they are not reserved
    /// again at once.
    pub(super) fn take_waiting(&self) -> Vec<Arc<Inflight>> {
        let mut state = self.state();
        if state.waiting.is_empty() {
            return Vec::new();
        }
        state.pace = Pace::default();
        state.low_water = 0;
        state.waiting.drain(..).map(|(job, _)| job).collect()
    }
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SlotPool")
            .field("queue", &self.queue)
            .field("concurrency", &self.concurrency)
            .field("free", &state.free)
            .field("waiting", &state.waiting.len())
            .finish_non_exhaustive()
    }
}

/// One handler's right to run. It ends when this is passed on or dropped.
pub(super) struct Slot {
    shared: Arc<Shared>,
    pool: usize,
    /// Set while a job runs in it whose lease has run out before.
    suspect: Option<u64>,
    is_passed: bool,
}

impl Slot {
    /// A slot that was taken with [`SlotPool::offer`].
    pub(super) const fn new(shared: Arc<Shared>, pool: usize) -> Self {
        Self { shared, pool, suspect: None, is_passed: false }
    }

    /// Runs a job in it whose lease has run out before.
    pub(super) fn set_suspect(&mut self, suspect: u64) {
        self.suspect = Some(suspect);
    }

    /// Before the reserver is woken, which may wait for this.
    fn clear_suspect(&mut self) {
        if let Some(suspect) = self.suspect.take() {
            self.shared.caution.end(suspect);
        }
    }

    /// The job has ended: starts the next one that waits, or frees the slot.
    pub(super) fn pass(mut self) {
        self.clear_suspect();
        if self.shared.phase() > Phase::Working {
            // The jobs that wait are released.
            return;
        }
        let passed = self.shared.pools[self.pool].pass(Instant::now());
        self.is_passed = true;
        if passed.is_low {
            self.shared.freed.notify_one();
        }
        if let Some(next) = passed.next {
            let slot = Self::new(Arc::clone(&self.shared), self.pool);
            executor::start(&self.shared, next, slot);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.clear_suspect();
        if !self.is_passed {
            self.shared.pools[self.pool].free_one();
            self.shared.freed.notify_one();
        }
    }
}
