//! [`ScanStarts`]: where to begin to look for jobs while dead rows pile up at the front of a queue.
//!
//! A row that was deleted stays in the index until it is vacuumed, and until no snapshot can see it. While a transaction
//! keeps an old snapshot open, the front of each queue is thousands of such rows, and every reserve would walk through all
//! of them. The same goes for jobs under long leases. So once a call has walked through many, the driver remembers up to
//! which position there is nothing to grant, and begins there the next time.
//!
//! Nothing that is stored later gets a position before the time of its call. What other processes put before a start all
//! the same is found by looking at everything again: after a second or, where that takes long, as often as costs a
//! hundredth of the time, 30 s at most; and when the first lease ends that was seen before the start. Those are a job that
//! was released or got another priority, a lease that ran out, and a transaction that was slow to commit. ORD-1.
//!
//! Several calls may be in flight at once. What one of them learns counts only if the start from which it began is still
//! there: else a call that looks at everything, or a job that is put before the start, would be outdone by calls that
//! began earlier, again and again, and what lies before the start would never be found.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskharbor_core::{QueueName, driver::Demand};
use tokio::time::Instant;

/// Everything is looked at no less often than this, or as often as costs a hundredth of the time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const MIN_IDLE_RATIO: u32 = 100;
/// However long it takes, since that long a job may have to wait for it.
const MAX_LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How long before now a start lies at least: a transaction that stores jobs may take so long to commit.
const COMMIT_SLACK_US: i64 = 1_000_000;

/// A position in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) priority: i16,
    pub(crate) at: i64,
    pub(crate) seq: i64,
}

/// What a call has seen.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The time of the call, in microseconds.
    pub(crate) now: i64,
    /// The positions of the jobs that were granted.
    pub(crate) granted: Vec<(QueueName, Position)>,
    /// When the leases end that were granted.
    pub(crate) expires_at: i64,
    /// Priorities of which nothing more is due, by the position of the queue among the demands, and when the next lease
    /// ends there.
    pub(crate) exhausted: Vec<(usize, i16, Option<i64>)>,
    /// Whether there was much to pass, and how long that took.
    pub(crate) is_long: bool,
    pub(crate) walked: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct ScanStarts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<QueueName, Start>,
    /// How many starts were made.
    made: u64,
    /// How often a job was put in front of others, in any queue.
    lowered: u64,
}

#[derive(Debug)]
struct Start {
    positions: BTreeMap<i16, (i64, i64)>,
    look_again: Instant,
    /// When the first lease ends that was seen before the start, in the store's time.
    lease_end: i64,
    /// Which of all that were made this is.
    number: u64,
}

/// Where a call begins.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// Behind these positions, in the order of the demands whose queues they are in; or at the very front of the others.
    pub(crate) starts: Vec<(usize, Position)>,
    /// When to look at everything again at the latest, in the store's time.
    pub(crate) look_again: Option<i64>,
    /// How many starts had been made, and how often a job had been put in front of others.
    made: u64,
    lowered: u64,
}

impl Beginning {
    fn is_behind(&self, demand: usize) -> bool {
        self.starts.iter().any(|(of, _)| *of == demand)
    }
}

impl ScanStarts {
    /// Where to begin in these queues at this time.
    pub(crate) fn of(&self, demands: &[Demand], now: i64) -> Beginning {
        let state = self.lock();
        let State { made, lowered, .. } = *state;
        let mut beginning = Beginning { made, lowered, ..Beginning::default() };
        if state.queues.is_empty() {
            return beginning;
        }
        let instant = Instant::now();
        for (at, demand) in demands.iter().enumerate() {
            let Some(start) = state.queues.get(&demand.queue) else { continue };
            if instant >= start.look_again || now >= start.lease_end {
                continue;
            }
            let positions = start.positions.iter();
            let position = |(priority, (at, seq)): (&i16, &(i64, i64))| Position {
                priority: *priority,
                at: *at,
                seq: *seq,
            };
            beginning.starts.extend(positions.map(|it| (at, position(it))));
            let wait = (start.look_again - instant).as_micros();
            let again =
                now.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX)).min(start.lease_end);
            beginning.look_again = Some(beginning.look_again.map_or(again, |it| it.min(again)));
        }
        beginning
    }

    /// Learns from a call that began there.
    pub(crate) fn learn(&self, demands: &[Demand], beginning: &Beginning, walk: &Walk) {
        let mut state = self.lock();
        let State { queues, made, lowered } = &mut *state;
        if !walk.is_long && queues.is_empty() {
            return;
        }
        for (at, Demand { queue, .. }) in demands.iter().enumerate() {
            if beginning.is_behind(at) {
                let start = queues.get_mut(queue).filter(|start| start.number <= beginning.made);
                start.into_iter().for_each(|start| start.raise(at, queue, walk));
            } else if walk.is_long && *lowered == beginning.lowered {
                *made += 1;
                let wait = LOOK_AGAIN.max(walk.walked * MIN_IDLE_RATIO).min(MAX_LOOK_AGAIN);
                let look_again = Instant::now() + wait;
                let (positions, lease_end) = (BTreeMap::new(), i64::MAX);
                let mut start = Start { positions, look_again, lease_end, number: *made };
                start.raise(at, queue, walk);
                queues.insert(queue.clone(), start);
            } else {
                queues.remove(queue);
            }
        }
        queues.retain(|_, start| !start.positions.is_empty());
    }

    /// A job was put in line in each of these queues, perhaps before the start.
    pub(crate) fn lower<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>, at: i64) {
        let mut state = self.lock();
        for queue in queues {
            state.lowered += u64::from(at == 0);
            let is_before = |start: &Start| start.positions.values().any(|(start, _)| at <= *start);
            if state.queues.get(queue).is_some_and(is_before) {
                state.queues.remove(queue);
            }
        }
    }

    /// A job may have been put in line in any queue, before the start.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.lowered += 1;
        state.queues.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Start {
    /// A call has granted all there was up to some positions.
    fn raise(&mut self, demand: usize, queue: &QueueName, walk: &Walk) {
        let highest = (walk.now.saturating_sub(COMMIT_SLACK_US), 0);
        let mut raise = |priority, position: (i64, i64)| {
            let start = self.positions.entry(priority).or_insert((-1, 0));
            *start = (*start).max(position.min(highest));
        };
        for (_, position) in walk.granted.iter().filter(|(of, _)| of == queue) {
            raise(position.priority, (position.at, position.seq));
            self.lease_end = self.lease_end.min(walk.expires_at);
        }
        for (_, priority, lease_end) in walk.exhausted.iter().filter(|(of, ..)| *of == demand) {
            raise(*priority, highest);
            self.lease_end = self.lease_end.min(lease_end.unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 10 * COMMIT_SLACK_US;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn ask() -> Vec<Demand> {
        vec![Demand::new(queue("a"), 1)]
    }

    fn at(priority: i16, at: i64) -> (QueueName, Position) {
        (queue("a"), Position { priority, at, seq: at })
    }

    fn walk(granted: &[(QueueName, Position)]) -> Walk {
        let granted = granted.to_vec();
        Walk { now: NOW, granted, expires_at: 2 * NOW, is_long: true, ..Walk::default() }
    }

    fn begins(starts: &ScanStarts) -> Vec<(i16, i64)> {
        let positions = starts.of(&ask(), NOW).starts;
        positions.iter().map(|(_, position)| (position.priority, position.at)).collect()
    }

    /// Starts of a queue of which everything was looked at.
    fn after(walk: &Walk) -> ScanStarts {
        let starts = ScanStarts::default();
        starts.learn(&ask(), &starts.of(&ask(), NOW), walk);
        starts
    }

    #[tokio::test(start_paused = true)]
    async fn while_there_is_little_to_pass_there_are_no_starts() {
        let starts = after(&Walk { is_long: false, ..walk(&[at(0, 5)]) });
        assert_eq!(begins(&starts), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_call_begins_behind_the_last_grant_of_each_priority() {
        let starts = after(&walk(&[at(2, 7), at(0, 3), at(0, 5)]));
        assert_eq!(begins(&starts), [(0, 5), (2, 7)]);
        let short = Walk { is_long: false, ..walk(&[at(0, 9)]) };
        starts.learn(&ask(), &starts.of(&ask(), NOW), &short);
        assert_eq!(begins(&starts), [(0, 9), (2, 7)]);
        assert_eq!(starts.of(&[Demand::new(queue("b"), 1)], NOW).starts, []);
    }

    #[tokio::test(start_paused = true)]
    async fn an_exhausted_priority_begins_a_while_before_now() {
        let starts = after(&Walk { exhausted: vec![(0, 3, None)], ..walk(&[]) });
        assert_eq!(begins(&starts), [(3, NOW - COMMIT_SLACK_US)]);
        let starts = after(&walk(&[at(0, NOW)]));
        assert_eq!(begins(&starts), [(0, NOW - COMMIT_SLACK_US)]);
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_looked_at_after_a_while() {
        let starts = after(&walk(&[at(0, 5)]));
        for step in 1..=10 {
            let beginning = starts.of(&ask(), NOW);
            assert_eq!(beginning.starts.len(), 1, "after {step} calls");
            tokio::time::advance(LOOK_AGAIN / 10).await;
            starts.learn(&ask(), &beginning, &walk(&[at(0, 5 + step)]));
        }
        assert_eq!(begins(&starts), []);
    }

    #[tokio::test(start_paused = true)]
    async fn however_long_a_look_takes_the_next_comes_in_time() {
        let starts = after(&Walk { walked: Duration::from_hours(1), ..walk(&[at(0, 5)]) });
        assert_eq!(begins(&starts), [(0, 5)]);
        tokio::time::advance(MAX_LOOK_AGAIN).await;
        assert_eq!(begins(&starts), []);
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_looked_at_when_a_lease_ends_before_the_start() {
        let starts = after(&Walk { exhausted: vec![(0, 0, Some(NOW + 7))], ..walk(&[]) });
        let beginning = starts.of(&ask(), NOW + 6);
        assert_eq!((beginning.starts.len(), beginning.look_again), (1, Some(NOW + 7)));
        assert_eq!(starts.of(&ask(), NOW + 7).starts, []);
        // The leases that were granted are before the start, too.
        let starts = after(&walk(&[at(0, 5)]));
        assert_eq!(starts.of(&ask(), 2 * NOW).starts, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_put_before_a_start_removes_it() {
        let starts = after(&walk(&[at(0, 5)]));
        starts.lower(&[queue("a")], 6);
        starts.lower(&[queue("b")], 0);
        assert_eq!(begins(&starts), [(0, 5)]);
        starts.lower(&[queue("a")], 5);
        assert_eq!(begins(&starts), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_put_in_front_during_a_look_at_everything_keeps_it_from_making_a_start() {
        let starts = ScanStarts::default();
        let beginning = starts.of(&ask(), NOW);
        starts.lower(&[queue("a")], 0);
        starts.learn(&ask(), &beginning, &walk(&[at(0, 5)]));
        assert_eq!(begins(&starts), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_began_earlier_does_not_bring_a_start_back() {
        let starts = after(&walk(&[at(0, 5)]));
        for step in 1..=30 {
            let beginning = starts.of(&ask(), NOW);
            starts.lower(&[queue("a")], 0);
            let short = Walk { is_long: false, ..walk(&[at(0, 5 + step)]) };
            starts.learn(&ask(), &beginning, &short);
            assert_eq!(begins(&starts), [], "after {step} calls");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_began_earlier_does_not_raise_what_a_look_at_everything_found() {
        let starts = after(&walk(&[at(0, 50)]));
        let earlier = starts.of(&ask(), NOW);
        tokio::time::advance(LOOK_AGAIN).await;
        let everything = starts.of(&ask(), NOW);
        assert_eq!(everything.starts, []);
        starts.learn(&ask(), &everything, &walk(&[at(0, 3)]));
        starts.learn(&ask(), &earlier, &walk(&[at(0, 51)]));
        assert_eq!(begins(&starts), [(0, 3)]);
    }
}
