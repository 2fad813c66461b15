//! Known mistakes of other schedulers, with several workers and stores that fail.
//!
//! | trap | where else it is tested |
//! |---|---|
//! | F3, F6, F8 | `of_racing_firings_of_a_slot_one_is_applied`, `racing_firings_of_many_slots_fire_each_once`, on every driver |
//! | F5 | `each_slot_is_fired_once_despite_faults_of_the_workers`, and `cargo xtask chaos schedules` |
//! | F7 | `a_dead_lettered_job_does_not_hold_up_the_next_slot`, here and on every driver; of flows, `schedule_flow` on every driver, and `overlap.rs` |
//! | F10, F11, F13, F14 | `schedule/timing/tests.rs` and `schedule/timing/walk.rs` |
//! | F15 | `f15_two_schedules_with_one_expression_both_fire`; `two_schedules_alike_both_fire` on every driver |

use std::{sync::Arc, time::Duration};

use taskharbor::{
    AnyDriver, Missed, Overlap, Running, Schedule, Schedules, Timestamp, Worker,
    testing::TokioClock,
};
use taskharbor_core::admin::SlotTotals;

use super::{
    HOUR,
    simulation::{Skewed, assert_each_slot_once},
};
use crate::{
    faulty_store::{FaultyStore, Op},
    rig::{DONE, SECOND, WorkerRig, handler, work},
};

/// Stores a schedule that is due every ten seconds; answers its first slot.
async fn put(rig: &WorkerRig) -> Timestamp {
    let schedule = Schedule::every("s", 10 * SECOND).job(work("x")).overlap(Overlap::Allow);
    rig.client.schedules().put(schedule.missed(Missed::All { at_most: 100 })).await.unwrap();
    rig.client.schedules().upcoming("s", 1).await.unwrap()[0]
}

/// A worker with a connection of its own, whose handlers take 5 ms.
fn start(rig: &WorkerRig, link: &FaultyStore, clock: impl Into<Skewed>) -> Running {
    let driver = AnyDriver::new(link.driver()).with_clock(Arc::new(clock.into()));
    let handlers = handler(|_, _| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        DONE
    });
    let worker = Worker::builder(&driver).handlers(handlers).queue("default", 8).name("same");
    worker.observer(Arc::clone(&rig.log)).build().unwrap().start()
}

impl From<TokioClock> for Skewed {
    fn from(clock: TokioClock) -> Self {
        Self { clock, ahead: true, by: Duration::ZERO }
    }
}

fn link(rig: &WorkerRig) -> FaultyStore {
    FaultyStore::new(rig.store.store.clone())
}

async fn until(rig: &WorkerRig, time: Timestamp) {
    tokio::time::sleep(time.since(rig.now())).await;
}

/// TRAPS F1: a leader that had lost its database went on as a leader beside the new one.
#[tokio::test(start_paused = true)]
async fn f1_a_worker_that_was_cut_off_repeats_nothing() {
    let rig = WorkerRig::new();
    let first = put(&rig).await;
    let links = [link(&rig), link(&rig)];
    let workers = [&links[0], &links[1]].map(|link| start(&rig, link, rig.clock));
    // One is away, then the other, then both.
    for away in [&links[..1], &links[1..], &links[..]] {
        tokio::time::sleep(45 * SECOND).await;
        away.iter().for_each(|link| link.down(&Op::ALL));
        tokio::time::sleep(95 * SECOND).await;
        away.iter().for_each(FaultyStore::up);
    }
    let end = rig.now();
    tokio::time::sleep(60 * SECOND).await;
    workers.iter().for_each(Running::abort);
    assert_each_slot_once(&rig, "s", first, end).await;
}

/// TRAPS F2, F6, F8: processes with one name, or that looked in the same millisecond, fired a slot
/// each. On a clock of their own, workers look at the very instant of the slot.
#[tokio::test(start_paused = true)]
async fn f2_three_workers_of_one_name_fire_each_slot_once() {
    let rig = WorkerRig::new();
    let first = put(&rig).await;
    let workers = [(); 3].map(|()| start(&rig, &link(&rig), rig.clock));
    let end = first.saturating_add(1_000 * SECOND);
    until(&rig, end.saturating_add(SECOND)).await;
    workers.iter().for_each(Running::abort);
    assert_each_slot_once(&rig, "s", first, end).await;
    assert_eq!((rig.log.count("fired s@"), rig.log.count("started s@")), (101, 101));
}

/// TRAPS F4: a slot was not seen by a scheduler that was away for longer than it looked back.
#[tokio::test(start_paused = true)]
async fn f4_a_slot_that_no_worker_saw_is_fired_or_recorded_as_missed() {
    for (late, slots) in [(61, 1), (300, 1), (3_600 + 61, 2)] {
        let rig = WorkerRig::new();
        let policies = [
            ("latest", Missed::Latest, 1),
            ("skip", Missed::Skip, 0),
            ("all", Missed::All { at_most: 10 }, slots),
        ];
        for (name, missed, _) in policies {
            let hourly = Schedule::every(name, HOUR).job(work(name)).overlap(Overlap::Allow);
            rig.client.schedules().put(hourly.missed(missed)).await.unwrap();
        }
        let slot = rig.client.schedules().upcoming("all", 1).await.unwrap()[0];
        until(&rig, slot.saturating_add(late * SECOND)).await;
        let worker = start(&rig, &rig.store, rig.clock);
        tokio::time::sleep(SECOND).await;
        for (name, _, stored) in policies {
            let record = rig.client.schedules().get(name).await.unwrap().unwrap().record;
            let expected = SlotTotals::new(stored, 0, slots - stored);
            assert_eq!(record.totals, expected, "{name}, {late} s late");
        }
        worker.abort();
    }
}

/// TRAPS F5: the leader died before a slot, and the new one did not look back.
#[tokio::test(start_paused = true)]
async fn f5_a_worker_that_dies_two_seconds_before_each_of_500_slots_costs_none() {
    let rig = WorkerRig::new();
    let first = put(&rig).await;
    let mut workers = [(); 2].map(|()| start(&rig, &rig.store, rig.clock));
    let mut slot = first;
    for n in 0..500 {
        until(&rig, slot.saturating_sub(2 * SECOND)).await;
        workers[n % 2].abort();
        until(&rig, slot.saturating_add(SECOND)).await;
        workers[n % 2] = start(&rig, &rig.store, rig.clock);
        // The other has fired it.
        let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
        let last = record.firings.last().unwrap();
        assert_eq!((last.slot, last.fired_at), (slot, slot));
        slot = slot.saturating_add(10 * SECOND);
    }
    workers.iter().for_each(Running::abort);
    assert_each_slot_once(&rig, "s", first, slot.saturating_sub(10 * SECOND)).await;
}

/// TRAPS F9: a lock that was released when the job ended let a slower clock fire again.
#[tokio::test(start_paused = true)]
async fn f9_clocks_that_differ_by_more_than_a_handler_takes_fire_each_slot_once() {
    let rig = WorkerRig::new();
    let first = put(&rig).await;
    let skewed = |ahead| Skewed { clock: rig.clock, ahead, by: Duration::from_millis(200) };
    let workers = [true, false].map(|ahead| start(&rig, &link(&rig), skewed(ahead)));
    let end = first.saturating_add(1_000 * SECOND);
    until(&rig, end.saturating_add(SECOND)).await;
    workers.iter().for_each(Running::abort);
    assert_each_slot_once(&rig, "s", first, end).await;
    assert_eq!(rig.log.count("started s@"), 101);
}

/// TRAPS F12: the scheduler computed slots without end, and the process answered no call any more.
#[tokio::test(start_paused = true)]
async fn f12_a_client_is_answered_while_many_slots_are_evaluated() {
    let rig = WorkerRig::new();
    let minutely = |n: u32| {
        let schedule = Schedule::cron(format!("s{n}"), "* * * * *").zone("Europe/Berlin");
        schedule.raw("digest", b"{}")
    };
    rig.client.schedules().put_many((0..10).map(minutely)).await.unwrap();
    // Each has missed the slots of a week.
    tokio::time::sleep(7 * 24 * HOUR).await;
    let worker = start(&rig, &rig.store, rig.clock);
    while rig.store.calls(Op::Due) == 0 {
        tokio::task::yield_now().await;
    }
    rig.enqueue("meanwhile").await;
    assert_eq!(
        rig.log.count("fired s"),
        0,
        "the slots were evaluated before the client was answered"
    );
    rig.log.until_count("fired s", 10).await;
    worker.abort();
}

/// TRAPS F12: also the slots that one schedule has missed are counted in turns.
#[tokio::test(start_paused = true)]
async fn f12_other_tasks_run_while_the_missed_slots_of_one_schedule_are_counted() {
    let rig = WorkerRig::new();
    let minutely = Schedule::cron("s", "* * * * *").raw("digest", b"{}");
    rig.client.schedules().put(minutely).await.unwrap();
    tokio::time::sleep(30 * 24 * HOUR).await;
    let worker = start(&rig, &rig.store, rig.clock);
    let mut turns = 0;
    while rig.log.count("fired s") == 0 {
        turns += usize::from(rig.store.calls(Op::Due) > 0);
        tokio::task::yield_now().await;
    }
    assert!(turns > 40, "{turns}");
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    assert_eq!(record.totals, SlotTotals::new(1, 0, 30 * 24 * 60 - 1));
    worker.abort();
}

/// TRAPS F13: a read that failed was taken for a schedule that had never run.
#[tokio::test(start_paused = true)]
async fn f13_a_declaration_while_reads_fail_resets_no_schedule() {
    let rig = WorkerRig::new();
    let declare = || {
        let hourly = Schedule::every("s", HOUR).job(work("x")).overlap(Overlap::Allow);
        let hourly = hourly.missed(Missed::All { at_most: 100 });
        let worker = rig.worker(handler(|_, _| async { DONE }));
        let worker = worker.schedules(Schedules::owned_by("billing").add(hourly));
        worker.build().unwrap().start()
    };
    let worker = declare();
    rig.log.until_count("fired s@", 2).await;
    worker.shutdown().await.unwrap();
    rig.store.down(&[Op::Due]);
    let worker = declare();
    tokio::time::sleep(3 * HOUR + HOUR / 2).await;
    rig.store.up();
    rig.log.until_count("fired s@", 5).await;
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    assert_eq!(record.totals, SlotTotals::new(5, 0, 0));
    let slots: Vec<_> = record.firings.iter().map(|it| it.slot).collect();
    assert!(slots.windows(2).all(|two| two[1].since(two[0]) == HOUR), "{slots:?}");
    worker.shutdown().await.unwrap();
}

/// TRAPS F16: after a connection was lost and back, the next slot came hours late.
#[tokio::test(start_paused = true)]
async fn f16_a_connection_that_is_lost_between_slots_delays_none() {
    let rig = WorkerRig::new();
    rig.client.schedules().put(Schedule::every("s", 60 * SECOND).job(work("x"))).await.unwrap();
    let worker = start(&rig, &rig.store, rig.clock);
    for n in 1..20 {
        rig.log.until_count("fired s@", n).await;
        let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
        let last = record.firings.last().unwrap();
        assert!(last.fired_at.since(last.slot) < SECOND, "{last:?}");
        // Up to one second before the next slot, and in the time in which the worker asks.
        tokio::time::sleep(Duration::from_millis(24_000 + n as u64 * 1_250)).await;
        rig.store.down(&Op::ALL);
        tokio::time::sleep(10 * SECOND).await;
        rig.store.up();
    }
    assert!(rig.log.count("away") > 0);
    worker.abort();
}
