//! [`Floors`]: where to begin to look for jobs while dead rows pile up at the front of the lines.
//!
//! A row that was deleted stays in the index until no snapshot can see it. While somebody keeps an
//! old snapshot open, the front of each line is thousands of such rows, and every reserve would
//! walk through all of them. So once walking takes long, the driver remembers up to which place it
//! has been granted jobs and begins there the next time. What others put in line before that place
//! meanwhile is found by looking at everything every now and then, and as soon as a short look
//! finds too little. While walking is quick, which is the rule, nothing of this happens.
//!
//! Several calls may be under way at once. What one of them learns counts only if the floor from
//! which it began is still there: else a call that looks at everything, or somebody who puts a job
//! in line before the floor, would be outdone by calls that began earlier, again and again, and
//! what lies before the floor would never be found.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskharbor_core::{QueueName, driver::Demand};
use tokio::time::Instant;

/// From here on, walking takes long.
const LONG: Duration = Duration::from_millis(10);
/// Everything is looked at no less than this often, or as often as costs a twentieth of the time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;
/// However long it takes, since that long a job may have to wait for it.
const LOOK_AGAIN_AT_LAST: Duration = Duration::from_secs(30);

/// A place in the line of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) priority: i16,
    pub(crate) at: i64,
    pub(crate) seq: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Floors {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<QueueName, Floor>,
    /// How many floors were made.
    made: u64,
}

#[derive(Debug)]
struct Floor {
    places: BTreeMap<i16, (i64, i64)>,
    look_again: Instant,
    /// Which of all that were made this is.
    number: u64,
}

/// Where a call begins.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// Behind these places, or at the very front of the queues that are not among them.
    pub(crate) floors: Vec<(QueueName, Place)>,
    /// How many floors had been made.
    made: u64,
}

impl Floors {
    /// Where to begin in these queues.
    pub(crate) fn of(&self, demands: &[Demand]) -> Beginning {
        let state = self.lock();
        let made = state.made;
        if state.queues.is_empty() {
            return Beginning { floors: Vec::new(), made };
        }
        let now = Instant::now();
        let asked = demands.iter().filter_map(|demand| state.queues.get_key_value(&demand.queue));
        let due = asked.filter(|(_, floor)| now < floor.look_again);
        let floors = due.flat_map(|(queue, floor)| {
            let place = |(priority, (at, seq)): (&i16, &(i64, i64))| Place {
                priority: *priority,
                at: *at,
                seq: *seq,
            };
            floor.places.iter().map(move |it| (queue.clone(), place(it)))
        });
        Beginning { floors: floors.collect(), made }
    }

    /// Learns from a call that began there, was granted these places and walked so long.
    pub(crate) fn learn(
        &self,
        demands: &[Demand],
        beginning: &Beginning,
        granted: &[(QueueName, Place)],
        walked: Duration,
    ) {
        let mut state = self.lock();
        let State { queues, made } = &mut *state;
        if walked < LONG && queues.is_empty() {
            return;
        }
        for Demand { queue, limit, .. } in demands {
            let of_queue = || granted.iter().filter(|(of, _)| of == queue).map(|(_, place)| place);
            let was_short = beginning.floors.iter().any(|(of, _)| of == queue);
            let found_all = of_queue().count() == *limit;
            if !found_all || (!was_short && walked < LONG) {
                queues.remove(queue);
                continue;
            }
            if was_short {
                let floor = queues.get_mut(queue).filter(|floor| floor.number <= beginning.made);
                floor.into_iter().for_each(|floor| floor.raise(of_queue()));
            } else {
                *made += 1;
                let wait = LOOK_AGAIN.max(walked * SHARE).min(LOOK_AGAIN_AT_LAST);
                let look_again = Instant::now() + wait;
                let mut floor = Floor { places: BTreeMap::new(), look_again, number: *made };
                floor.raise(of_queue());
                queues.insert(queue.clone(), floor);
            }
        }
    }

    /// Something was put in line in this queue by us, perhaps before the place where we would
    /// begin.
    pub(crate) fn lower<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>, at: i64) {
        let mut state = self.lock();
        for queue in queues {
            let is_before = |floor: &Floor| floor.places.values().any(|(floor, _)| at <= *floor);
            if state.queues.get(queue).is_some_and(is_before) {
                state.queues.remove(queue);
            }
        }
    }

    /// Something may have been put in line anywhere.
    pub(crate) fn clear(&self) {
        self.lock().queues.clear();
    }

    /// Jobs of these priorities were put in line by us. Nobody looks for the more urgent ones among
    /// them while there is no floor for their priority.
    pub(crate) fn add<'a>(&self, jobs: impl IntoIterator<Item = (&'a QueueName, i16)>) {
        let mut state = self.lock();
        if state.queues.is_empty() {
            return;
        }
        for (queue, priority) in jobs {
            let is_passed_by = |floor: &Floor| {
                let lowest = floor.places.keys().next();
                lowest.is_some_and(|lowest| *lowest < priority)
                    && !floor.places.contains_key(&priority)
            };
            if state.queues.get(queue).is_some_and(is_passed_by) {
                state.queues.remove(queue);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Floor {
    /// Jobs were granted up to these places.
    fn raise<'a>(&mut self, granted: impl Iterator<Item = &'a Place>) {
        for place in granted {
            let highest = self.places.entry(place.priority).or_insert((place.at, place.seq));
            *highest = (*highest).max((place.at, place.seq));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(20);
    const QUICK: Duration = Duration::from_millis(1);

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn ask(limit: usize) -> Vec<Demand> {
        vec![Demand::new(queue("a"), limit)]
    }

    /// A place of priority zero.
    fn at(at: i64) -> (QueueName, Place) {
        of(0, at)
    }

    fn of(priority: i16, at: i64) -> (QueueName, Place) {
        (queue("a"), Place { priority, at, seq: at })
    }

    fn begins(floors: &Floors) -> Vec<(i16, i64)> {
        let places = floors.of(&ask(1)).floors;
        places.iter().map(|(_, place)| (place.priority, place.at)).collect()
    }

    /// Floors of a queue of which everything was looked at, with this granted.
    fn after(granted: &[(QueueName, Place)]) -> Floors {
        let floors = Floors::default();
        let beginning = floors.of(&ask(granted.len()));
        floors.learn(&ask(granted.len()), &beginning, granted, SLOW);
        floors
    }

    #[tokio::test(start_paused = true)]
    async fn while_walking_is_quick_there_are_no_floors() {
        let floors = Floors::default();
        floors.learn(&ask(1), &floors.of(&ask(1)), &[at(5)], QUICK);
        assert_eq!(begins(&floors), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_call_begins_behind_the_last_grant_of_each_priority() {
        let floors = after(&[of(2, 7), at(3), at(5)]);
        assert_eq!(begins(&floors), [(0, 5), (2, 7)]);
        let beginning = floors.of(&ask(1));
        floors.learn(&ask(1), &beginning, &[at(9)], QUICK);
        assert_eq!(begins(&floors), [(0, 9), (2, 7)]);
        let elsewhere = floors.of(&[Demand::new(queue("b"), 1)]);
        assert_eq!(elsewhere.floors, []);
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_looked_at_after_a_while_and_when_too_little_was_found() {
        let floors = after(&[at(5)]);
        tokio::time::advance(LOOK_AGAIN).await;
        assert_eq!(begins(&floors), []);
        let floors = after(&[at(5)]);
        floors.learn(&ask(2), &floors.of(&ask(2)), &[at(6)], QUICK);
        assert_eq!(begins(&floors), []);
    }

    #[tokio::test(start_paused = true)]
    async fn short_looks_do_not_put_off_the_next_look_at_everything() {
        let floors = after(&[at(5)]);
        for step in 1..=10 {
            let beginning = floors.of(&ask(1));
            tokio::time::advance(LOOK_AGAIN / 10).await;
            floors.learn(&ask(1), &beginning, &[at(5 + step)], SLOW);
        }
        assert_eq!(begins(&floors), []);
    }

    #[tokio::test(start_paused = true)]
    async fn however_long_a_look_takes_the_next_comes_in_time() {
        let floors = Floors::default();
        let hour = Duration::from_secs(3600);
        floors.learn(&ask(1), &floors.of(&ask(1)), &[at(5)], hour);
        assert_eq!(begins(&floors), [(0, 5)]);
        tokio::time::advance(LOOK_AGAIN_AT_LAST).await;
        assert_eq!(begins(&floors), []);
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_put_before_a_floor_removes_it() {
        let floors = after(&[at(5)]);
        floors.lower(&[queue("a")], 6);
        floors.lower(&[queue("b")], 0);
        assert_eq!(begins(&floors), [(0, 5)]);
        floors.lower(&[queue("a")], 5);
        assert_eq!(begins(&floors), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_more_urgent_than_others_is_not_passed_by() {
        for (priority, begin) in [
            (-1, vec![(0, 5), (4, 5)]),
            (0, vec![(0, 5), (4, 5)]),
            (3, vec![]),
            (4, vec![(0, 5), (4, 5)]),
            (5, vec![]),
        ] {
            let floors = after(&[at(5), of(4, 5)]);
            floors.add([(&queue("a"), priority)]);
            floors.add([(&queue("b"), 9)]);
            assert_eq!(begins(&floors), begin, "{priority}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_began_earlier_does_not_bring_a_floor_back() {
        let floors = after(&[at(5)]);
        // Each call is overtaken by somebody who gives a job back, for longer than it takes to look
        // at everything.
        for step in 1..=30 {
            let beginning = floors.of(&ask(1));
            floors.lower(&[queue("a")], 0);
            tokio::time::advance(LOOK_AGAIN / 10).await;
            floors.learn(&ask(1), &beginning, &[at(5 + step)], QUICK);
            assert_eq!(begins(&floors), [], "after {step} calls");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_began_earlier_does_not_raise_what_a_look_at_everything_found() {
        let floors = after(&[at(50)]);
        let earlier = floors.of(&ask(1));
        tokio::time::advance(LOOK_AGAIN).await;
        let everything = floors.of(&ask(1));
        assert_eq!(everything.floors, []);
        floors.learn(&ask(1), &everything, &[at(3)], SLOW);
        floors.learn(&ask(1), &earlier, &[at(51)], QUICK);
        assert_eq!(begins(&floors), [(0, 3)]);
    }
}
