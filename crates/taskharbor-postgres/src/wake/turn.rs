//! The decision which drivers look for announced jobs: a few look at once, and the others only if those
//! leave jobs.
//!
//! Without this, one job wakes every idle worker of a fleet, and all but one look in vain. No driver
//! assigns turns: each decides for itself, from messages that all drivers receive in the same
//! order:
//!
//! 1. An announcement of `n` jobs arrives. It puts the `N` drivers that listen into an order, which
//!    each of them works out from its number and its own rank among the connections. The first two
//!    for each job look at once; the number of drivers that have begun to look grows by a factor of e
//!    in every `pace`. If only some drivers are idle, the first of them so waits for
//!    `pace × ln(N / idle)`, at most some 40 ms in a fleet of 100. Drivers that have counted each
//!    other at different times may share a place or leave one empty, and the next ones look then.
//! 2. A driver whose look brings fewer jobs than it asked for has left none that is due. It tells
//!    the others so, with the last announcement that it had received before the look, and how long
//!    it takes the others to learn this: the look, and a message, which a driver measures by its
//!    own that comes back. The pace of all drivers follows that, so that they wait longer where the
//!    store is slow or has many listeners to tell.
//! 3. A driver that is still waiting drops its wake-up if that covers all announcements it knows.
//!    Otherwise it goes on waiting for its turn.
//!
//! A wake-up is dropped only on the word of a driver that looked after the jobs were announced and
//! found nothing more. If that message is lost, or the driver dies before it sends it, the others
//! look in vain. A full look proves nothing and is not told.
//!
//! Jobs for later are not looked for when they are announced. Each driver notes when they fall due
//! and takes turns then. What is due in more than [`HORIZON`] is left to the workers' own polls.
//!
//! The distribution of the delays is known from multicast protocols as exponential feedback
//! suppression: the number of answers hardly depends on the number of listeners.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use taskharbor_core::QueueName;
use tokio::time::Instant;

use super::message::{Announced, Drained, Id};

/// This many drivers look at once for one job. With one, a driver that is busy or has died would make
/// the job wait.
const AT_ONCE: f64 = 2.0;
/// How long it takes until e times as many drivers have begun to look: this multiple of the average
/// time that a look and the message about it take together, within bounds.
const LOOKS_IN_PACE: u32 = 2;
const MIN_PACE: Duration = Duration::from_millis(8);
const MAX_PACE: Duration = Duration::from_millis(60);
/// Each look counts for one part in this many of the average.
const AVERAGE_OVER: u32 = 4;
/// Due times further ahead are not remembered: polls find those jobs in time. The end of a lease,
/// which is a due time as well, is further ahead by default.
const HORIZON: Duration = Duration::from_secs(30);
/// How many due times and unresolved announcements are remembered for a queue.
const MAX_DUE: usize = 64;
const MAX_OPEN: usize = 64;

/// The turns of all queues that are watched here.
#[derive(Debug)]
pub(super) struct Turns {
    sender: u64,
    random: Random,
    /// How long a look and the message about it take together, on average.
    look: Duration,
    /// How long a message takes to come back, on average, and when the last one was sent.
    message: Option<Duration>,
    told_at: Option<Instant>,
    queues: HashMap<QueueName, Turn>,
}

#[derive(Debug)]
struct Turn {
    /// How many drivers listen for jobs of this queue, this one included, and how many of them stand
    /// before this one.
    listeners: u32,
    before: u32,
    /// Announcements that no look is known to have resolved, in the order of their arrival.
    open: VecDeque<Id>,
    /// The latest unresolved announcement of our own, which need not have come back yet.
    own: Option<u64>,
    /// The latest announcement of our own that a look of our own has resolved.
    own_resolved: u64,
    /// When it is our turn.
    wake_at: Option<Instant>,
    /// When jobs fall due.
    due: BTreeSet<Instant>,
}

/// What was announced of a queue when a look began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) queue: QueueName,
    last: Option<Id>,
}

impl Turns {
    pub(super) fn new(sender: u64, seed: u64) -> Self {
        let look = MIN_PACE / LOOKS_IN_PACE;
        let (random, queues) = (Random(seed), HashMap::new());
        Self { sender, random, look, message: None, told_at: None, queues }
    }

    /// A worker waits for jobs of this queue. Announcements of other queues are ignored.
    pub(super) fn serve(&mut self, queue: &QueueName) {
        self.queues.entry(queue.clone()).or_insert_with(Turn::new);
    }

    pub(super) fn served(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.keys()
    }

    /// How many drivers listen for jobs of a queue, this one included, and how many of them stand
    /// before this one.
    pub(super) fn set_listeners(&mut self, queue: &QueueName, listeners: u32, before: u32) {
        if let Some(turn) = self.queues.get_mut(queue) {
            turn.listeners = listeners.max(1);
            turn.before = before;
        }
    }

    /// Forgets everything that was announced: the connection was lost, or begins anew, and all
    /// workers look anyway.
    pub(super) fn reset(&mut self) {
        for turn in self.queues.values_mut() {
            *turn = Turn { listeners: turn.listeners, before: turn.before, ..Turn::new() };
        }
    }

    /// Jobs were announced by this driver. Its own workers were woken before.
    pub(super) fn announced_here(&mut self, queue: &QueueName, id: Id) {
        if let Some(turn) = self.queues.get_mut(queue) {
            turn.own = Some(id.number);
        }
    }

    /// An announcement has arrived.
    pub(super) fn announced(&mut self, announced: &Announced, now: Instant) {
        let Announced { id, queue, count, due_in, .. } = announced;
        let pace = self.pace();
        let Some(turn) = self.queues.get_mut(queue) else { return };
        let is_own = id.sender == self.sender;
        if !due_in.is_zero() {
            // Our own workers have looked and know.
            if !is_own {
                turn.note_due(now, *due_in);
            }
            return;
        }
        if is_own && id.number <= turn.own_resolved {
            return;
        }
        turn.open.push_back(*id);
        if !is_own {
            turn.wake_no_later_than(now + delay(pace, turn.place(*id), *count));
        }
        if turn.open.len() > MAX_OPEN {
            turn.open.clear();
            turn.wake_no_later_than(now);
        }
    }

    /// Another driver has found a queue drained.
    pub(super) fn drained(&mut self, drained: &Drained, now: Instant) {
        self.learn(drained.took);
        let Some(turn) = self.queues.get_mut(&drained.queue) else { return };
        turn.resolve(drained.last);
        if drained.last.is_some_and(|last| last.sender == self.sender) {
            turn.own = turn.own.filter(|own| drained.last.is_some_and(|it| *own > it.number));
        }
        turn.open.retain(|id| id.sender != drained.own.sender || id.number > drained.own.number);
        turn.drop_if_resolved();
        if let Some(next) = drained.next_due_in {
            turn.note_due(now, next);
        }
    }

    /// The driver's own message about a look has arrived.
    pub(super) fn came_back(&mut self, now: Instant) {
        if let Some(told_at) = self.told_at.take() {
            let took = now.duration_since(told_at);
            self.message = Some(averaged(self.message.unwrap_or(took), took));
        }
    }

    /// A look at these queues begins. Returns those of which something was announced.
    pub(super) fn begin_look<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
    ) -> Vec<Seen> {
        let turns = queues.into_iter().filter_map(|queue| self.queues.get_key_value(queue));
        let open = turns.filter(|(_, turn)| !turn.is_resolved() || turn.wake_at.is_some());
        open.map(|(queue, turn)| Seen { queue: queue.clone(), last: turn.open.back().copied() })
            .collect()
    }

    /// The look has left no job that is due in a queue. `own` is our latest announcement when it
    /// began at that time. Returns what to tell, and whether that is news to other drivers.
    pub(super) fn end_look(
        &mut self,
        seen: Seen,
        own: Id,
        next_due_in: Option<Duration>,
        (began, now): (Instant, Instant),
    ) -> (Drained, bool) {
        let look = now.duration_since(began);
        // A driver that has not measured a message yet goes by what others have told.
        let took = self.message.map_or(look.max(self.look), |message| look + message);
        self.learn(took);
        let mut is_news = false;
        if let Some(turn) = self.queues.get_mut(&seen.queue) {
            let was_own = turn.own.is_some_and(|number| number <= own.number);
            turn.own = turn.own.filter(|number| *number > own.number);
            turn.own_resolved = own.number;
            is_news = (turn.resolve(seen.last) || was_own) && turn.listeners > 1;
            turn.drop_if_resolved();
        }
        if is_news {
            self.told_at = Some(now);
        }
        let next_due_in = next_due_in.filter(|it| *it <= HORIZON);
        (Drained { queue: seen.queue, own, last: seen.last, next_due_in, took }, is_news)
    }

    /// The queues of which it is our turn now. Each is answered once.
    pub(super) fn take(&mut self, now: Instant) -> Vec<QueueName> {
        let (mut taken, pace) = (Vec::new(), self.pace());
        for (queue, turn) in &mut self.queues {
            while turn.due.first().is_some_and(|due| *due <= now) {
                turn.due.pop_first();
                let place = f64::from(turn.listeners) * self.random.unit();
                turn.wake_no_later_than(now + delay(pace, place, 1));
            }
            if turn.wake_at.is_some_and(|at| at <= now) {
                turn.wake_at = None;
                taken.push(queue.clone());
            }
        }
        taken
    }

    /// When to call [`Turns::take`] next, unless a message comes before.
    pub(super) fn next(&self) -> Option<Instant> {
        let times = |turn: &Turn| turn.wake_at.into_iter().chain(turn.due.first().copied()).min();
        self.queues.values().filter_map(times).min()
    }

    fn learn(&mut self, took: Duration) {
        self.look = averaged(self.look, took);
    }

    fn pace(&self) -> Duration {
        (self.look * LOOKS_IN_PACE).clamp(MIN_PACE, MAX_PACE)
    }
}

impl Turn {
    fn new() -> Self {
        let (open, due) = (VecDeque::new(), BTreeSet::new());
        Self { listeners: 1, before: 0, open, own: None, own_resolved: 0, wake_at: None, due }
    }

    /// The place of this driver in the order in which an announcement makes drivers look, from one.
    fn place(&self, id: Id) -> f64 {
        let (listeners, bits) = (u64::from(self.listeners), mixed(id.sender ^ mixed(id.number)));
        let (mut step, start) = ((bits >> 32) % listeners, (bits & 0xffff_ffff) % listeners);
        // Neighbours, which may have become idle together, are far apart in most orders. A step that
        // has no divisor in common with the number of listeners gives each a place of its own.
        while gcd(step, listeners) != 1 {
            step += 1;
        }
        let place = (start + step * u64::from(self.before)) % listeners;
        f64::from(u32::try_from(place).unwrap_or(u32::MAX)) + 1.0
    }

    fn is_resolved(&self) -> bool {
        self.open.is_empty() && self.own.is_none()
    }

    /// All announcements up to this one are resolved; returns whether there were any.
    fn resolve(&mut self, last: Option<Id>) -> bool {
        let Some(at) = self.open.iter().position(|id| Some(*id) == last) else { return false };
        self.open.drain(..=at);
        true
    }

    /// Announcements of our own have not made us wait.
    fn drop_if_resolved(&mut self) {
        if self.open.is_empty() {
            self.wake_at = None;
        }
    }

    fn wake_no_later_than(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    fn note_due(&mut self, now: Instant, due_in: Duration) {
        if due_in > HORIZON {
            return;
        }
        self.due.insert(now + due_in);
        if self.due.len() > MAX_DUE {
            // The look at an earlier one tells when the next is due.
            self.due.pop_last();
        }
    }
}

/// An average, with one more value in it.
fn averaged(average: Duration, value: Duration) -> Duration {
    (average * (AVERAGE_OVER - 1) + value.min(MAX_PACE)) / AVERAGE_OVER
}

/// How long the driver at this place waits with this many jobs to look for; an unknown number counts as
/// one.
fn delay(pace: Duration, place: f64, count: u32) -> Duration {
    let share = place / (AT_ONCE * f64::from(count.max(1)));
    if share <= 1.0 { Duration::ZERO } else { pace.mul_f64(share.ln()) }
}

/// A generator of pseudo-random numbers (splitmix64): turns need to differ, not to be secret.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// Above zero, up to one.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit into the mantissa")]
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((mixed(self.0) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Bits that depend on all of the given ones, the same in every driver.
const fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
