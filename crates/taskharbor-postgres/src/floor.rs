//! [`Floors`]: where to begin to look for jobs while dead rows pile up at the front of the lines.
//!
//! A row that was deleted stays in the index until no snapshot can see it. While somebody keeps an
//! old snapshot open, the front of each line is thousands of such rows, and every reserve would
//! walk through all of them. So once walking takes long, the driver remembers up to which place it
//! has been granted jobs and begins there the next time. What others put in line before that place
//! meanwhile is found by looking at everything every now and then, and as soon as a short look
//! finds too little. While walking is quick, which is the rule, nothing of this happens.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskharbor_core::{Demand, QueueName};
use tokio::time::Instant;

/// From here on, walking takes long.
const LONG: Duration = Duration::from_millis(10);
/// Everything is looked at no less than this often, or as often as costs a twentieth of the time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// A place in the line of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) priority: i16,
    pub(crate) at: i64,
    pub(crate) seq: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Floors {
    queues: Mutex<HashMap<QueueName, Floor>>,
}

#[derive(Debug)]
struct Floor {
    places: BTreeMap<i16, (i64, i64)>,
    look_again: Instant,
}

impl Floors {
    /// Where to begin in these queues.
    pub(crate) fn of(&self, demands: &[Demand]) -> Vec<(QueueName, Place)> {
        let queues = self.lock();
        if queues.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let asked = demands.iter().filter_map(|demand| queues.get_key_value(&demand.queue));
        let due = asked.filter(|(_, floor)| now < floor.look_again);
        due.flat_map(|(queue, floor)| {
            let place = |(priority, (at, seq)): (&i16, &(i64, i64))| Place {
                priority: *priority,
                at: *at,
                seq: *seq,
            };
            floor.places.iter().map(move |it| (queue.clone(), place(it)))
        })
        .collect()
    }

    /// Learns from a call that began at `floors`, was granted these places and walked so long.
    pub(crate) fn learn(
        &self,
        demands: &[Demand],
        floors: &[(QueueName, Place)],
        granted: &[(QueueName, Place)],
        walked: Duration,
    ) {
        let mut queues = self.lock();
        if walked < LONG && queues.is_empty() {
            return;
        }
        for Demand { queue, limit, .. } in demands {
            let of_queue = || granted.iter().filter(|(of, _)| of == queue).map(|(_, place)| place);
            let was_short = floors.iter().any(|(of, _)| of == queue);
            let found_all = of_queue().count() == *limit;
            if !found_all || (!was_short && walked < LONG) {
                queues.remove(queue);
                continue;
            }
            let look_again = Instant::now() + LOOK_AGAIN.max(walked * SHARE);
            let new = || Floor { places: BTreeMap::new(), look_again };
            let floor = queues.entry(queue.clone()).or_insert_with(new);
            if !was_short {
                floor.places.clear();
                floor.look_again = look_again;
            }
            for place in of_queue() {
                let highest = floor.places.entry(place.priority).or_insert((place.at, place.seq));
                *highest = (*highest).max((place.at, place.seq));
            }
        }
    }

    /// Something was put in line in this queue by us, perhaps before the place where we would
    /// begin.
    pub(crate) fn lower<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>, at: i64) {
        let mut floors = self.lock();
        if floors.is_empty() {
            return;
        }
        for queue in queues {
            let is_before = |floor: &Floor| floor.places.values().any(|(floor, _)| at <= *floor);
            if floors.get(queue).is_some_and(is_before) {
                floors.remove(queue);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, Floor>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
