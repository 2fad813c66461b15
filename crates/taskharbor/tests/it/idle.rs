//! The calls of an idle worker to its store, with wake-ups and without.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taskharbor::{Event, Operation, Schedule};
use taskharbor_core::driver::WakeHub;

use crate::{
    faulty_store::{Op, WakeUpSource},
    rig::{DONE, SECOND, WorkerRig, handler},
};

const TEN_MINUTES: std::time::Duration = std::time::Duration::from_secs(600);

/// How often each operation is called in ten minutes without a job.
async fn idle_calls(wake_ups: WakeUpSource) -> Vec<(Op, usize)> {
    let rig = WorkerRig::new();
    rig.store.wake_ups_from(wake_ups);
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(TEN_MINUTES).await;
    Op::ALL.map(|op| (op, rig.store.calls(op))).into_iter().filter(|it| it.1 > 0).collect()
}

fn count(calls: &[(Op, usize)], of: Op) -> usize {
    calls.iter().find(|(op, _)| *op == of).map_or(0, |(_, count)| *count)
}

#[tokio::test(start_paused = true)]
async fn with_wake_ups_an_idle_worker_calls_its_store_a_few_times_a_minute() {
    let calls = idle_calls(WakeUpSource::Store).await;
    let ops: Vec<Op> = calls.iter().map(|(op, _)| *op).collect();
    assert_eq!(ops, [Op::Reserve, Op::Watch, Op::Prune, Op::Due]);
    assert_eq!(count(&calls, Op::Watch), 1);
    assert!((20..=27).contains(&count(&calls, Op::Reserve)), "{calls:?}");
    assert!((13..=21).contains(&count(&calls, Op::Prune)), "{calls:?}");
    let in_all: usize = calls.iter().map(|(_, count)| count).sum();
    assert!(in_all <= 65, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn without_wake_ups_an_idle_worker_polls_about_once_a_second() {
    let calls = idle_calls(WakeUpSource::Nowhere).await;
    let ops: Vec<Op> = calls.iter().map(|(op, _)| *op).collect();
    assert_eq!(ops, [Op::Reserve, Op::Watch, Op::Prune, Op::Due]);
    assert_eq!(count(&calls, Op::Watch), 1);
    assert!((600..=800).contains(&count(&calls, Op::Reserve)), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_asks_for_schedules_at_most_five_times_in_two_minutes() {
    for (wake_ups, schedules) in
        [(WakeUpSource::Store, 0), (WakeUpSource::Nowhere, 0), (WakeUpSource::Store, 1_000)]
    {
        let rig = WorkerRig::new();
        rig.store.wake_ups_from(wake_ups);
        let yearly = |n: usize| Schedule::cron(format!("s{n}"), "@yearly").raw("digest", b"{}");
        rig.client.schedules().put_many((0..schedules).map(yearly)).await.unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let asking = Arc::clone(&asked);
        let count = move |event: &Event<'_>| {
            if let Event::Called { operation: Operation::DueSchedules, .. } = event {
                asking.fetch_add(1, Ordering::Relaxed);
            }
        };
        let worker = rig.worker(handler(|_, _| async { DONE })).observer(count);
        let _running = worker.build().unwrap().start();
        tokio::time::sleep(3_600 * SECOND).await;
        let asked = asked.load(Ordering::Relaxed);
        assert!((100..=150).contains(&asked), "{asked} in an hour with {schedules} schedules");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_polls_while_wake_ups_do_not_reach_it() {
    let rig = WorkerRig::new();
    let hub = WakeHub::new();
    rig.store.wake_ups_from(WakeUpSource::Hub(hub.clone()));
    let _running = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let looks = || rig.store.calls(Op::Reserve);
    tokio::time::sleep(300 * SECOND).await;
    let with_hints = looks();
    assert!((10..=15).contains(&with_hints), "{with_hints} in five minutes");

    // It looks at once, and from then on each second: the long pause it was in is over.
    hub.set_reaching(false);
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(looks(), with_hints + 1);
    let enqueued = rig.now();
    let id = rig.enqueue("a").await;
    let started = rig.finished(&id).await.started_at.unwrap();
    assert!(started.since(enqueued) <= SECOND);
    let before = looks();
    tokio::time::sleep(60 * SECOND).await;
    let polled = looks() - before;
    assert!((60..=81).contains(&polled), "{polled} in a minute");

    // It polls at once, for wake-ups that it missed, and then rarely.
    let before = looks();
    hub.set_reaching(true);
    tokio::time::sleep(SECOND / 100).await;
    assert_eq!(looks(), before + 1);
    tokio::time::sleep(300 * SECOND).await;
    let with_hints = looks() - before;
    assert!((10..=15).contains(&with_hints), "{with_hints} in five minutes");
}
