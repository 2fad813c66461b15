//! Five workers that die, lose replies and go by clocks that differ: each slot is fired once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use taskharbor::{AnyDriver, Filter, Overlap, Schedule, Timestamp, Worker};
use taskharbor_core::{Admin, admin::List, clock::Clock};

use crate::{
    faulty_store::Op,
    rig::{DONE, SECOND, WorkerRig, handler, work},
    seed,
};

const SLOTS: u64 = 500;
const WORKERS: usize = 5;

/// A clock that runs before or after the store's.
#[derive(Debug)]
pub(super) struct Skewed {
    pub(super) clock: taskharbor::testing::TokioClock,
    pub(super) ahead: bool,
    pub(super) by: Duration,
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        if self.ahead { now.saturating_add(self.by) } else { now.saturating_sub(self.by) }
    }
}

async fn simulate(seed: u64) {
    let rig = WorkerRig::new();
    let mut random = fastrand::Rng::with_seed(seed);
    for (name, every, overlap) in [("a", 10, Overlap::Allow), ("b", 10, Overlap::Allow)] {
        let schedule = Schedule::every(name, every * SECOND).job(work(name)).overlap(overlap);
        let schedule = schedule.missed(taskharbor::Missed::All { at_most: 1_000 });
        rig.client.schedules().put(schedule).await.unwrap();
    }
    let first = rig.client.schedules().upcoming("a", 1).await.unwrap()[0];
    let start = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = Skewed {
            clock: rig.clock,
            ahead: random.bool(),
            by: Duration::from_millis(random.u64(..2_000)),
        };
        let driver = AnyDriver::new(rig.store.driver()).with_clock(Arc::new(clock));
        let worker = Worker::builder(&driver).handlers(handler(|_, _| async { DONE }));
        let worker = worker.queue("default", 8).call_timeout(5 * SECOND).seed(seed);
        worker.crash_limit(u32::MAX).build().unwrap().start()
    };
    rig.store.chaos(random.u64(..), 0.1);
    let mut workers: Vec<_> = (0..WORKERS).map(|_| start(random.u64(..))).collect();
    let end = first.saturating_add(Duration::from_secs(10 * (SLOTS / 2 - 1)));
    while rig.now() < end {
        tokio::time::sleep(Duration::from_millis(random.u64(..20_000))).await;
        let failing: Vec<Op> = Op::ALL.into_iter().filter(|_| random.u8(..8) == 0).collect();
        rig.store.down(&failing);
        // Killed between firing and reply, or anywhere else.
        let at = random.usize(..WORKERS);
        workers[at].abort();
        tokio::time::sleep(Duration::from_millis(random.u64(..3_000))).await;
        rig.store.up();
        workers[at] = start(random.u64(..));
    }
    rig.store.calm();
    tokio::time::sleep(60 * SECOND).await;
    for worker in &workers {
        worker.abort();
    }
    for name in ["a", "b"] {
        assert_each_slot_once(&rig, name, first, end).await;
    }
}

/// Each slot of a schedule that is due every ten seconds has one job, up to `end`, and the record has
/// counted them.
pub(super) async fn assert_each_slot_once(
    rig: &WorkerRig,
    name: &str,
    first: Timestamp,
    end: Timestamp,
) {
    let mut jobs: HashMap<String, usize> = HashMap::new();
    let mut request = List::new(Filter::all(), 1_000, rig.now());
    loop {
        let page = rig.driver.list(request.clone()).await.unwrap();
        for job in page.items {
            *jobs.entry(job.id.to_string()).or_default() += 1;
        }
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => break,
        }
    }
    let record = rig.client.schedules().get(name).await.unwrap().unwrap().record;
    let mut slot = first;
    while slot <= end {
        let id = format!("{name}@{}", slot.to_string().replace(".000000", ""));
        assert_eq!(jobs.get(&id), Some(&1), "{id}");
        slot = slot.saturating_add(10 * SECOND);
    }
    let of_schedule = jobs.keys().filter(|id| id.starts_with(&format!("{name}@"))).count();
    assert_eq!(record.totals.stored, of_schedule as u64, "{:?}", record.totals);
    assert_eq!((record.totals.skipped, record.totals.missed), (0, 0));
    rig.check().await;
}

#[test]
fn each_slot_is_fired_once_despite_faults_of_the_workers() {
    seed::play(&[], 10, simulate);
}
