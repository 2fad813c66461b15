//! Slots that are due while their schedule is defined anew.

use std::{future::pending, sync::Arc};

use taskharbor::{Handlers, Overlap, Schedule, Schedules, Timestamp};
use taskharbor_core::admin::SlotTotals;

use super::HOUR;
use crate::rig::{DONE, SECOND, WorkerRig, handler, work};

/// Handlers that note which job they run.
fn noting(rig: &WorkerRig) -> Handlers {
    let log = Arc::clone(&rig.log);
    handler(move |job, _| {
        log.note(format!("ran {}", job.name));
        async { DONE }
    })
}

/// Waits until a second after the next slot, which no worker fires; that slot.
async fn past_a_slot(rig: &WorkerRig, name: &str) -> Timestamp {
    let slot = rig.client.schedules().upcoming(name, 1).await.unwrap()[0];
    tokio::time::sleep(slot.since(rig.now()) + SECOND).await;
    slot
}

async fn next_slot(rig: &WorkerRig, name: &str) -> Option<Timestamp> {
    rig.client.schedules().get(name).await.unwrap().unwrap().record.next_slot
}

#[tokio::test(start_paused = true)]
async fn a_due_slot_is_kept_while_the_calendar_stays() {
    let rig = WorkerRig::new();
    let schedules = rig.client.schedules();
    let hourly = |name: &str, job: &str| Schedule::cron(name, "0 * * * *").job(work(job));
    let ours = |schedule| Schedules::owned_by("billing").add(schedule);
    schedules.put(hourly("s", "old")).await.unwrap();
    schedules.declare(ours(hourly("d", "old"))).await.unwrap();
    let slot = past_a_slot(&rig, "s").await;
    schedules.put(hourly("s", "new")).await.unwrap();
    schedules.declare(ours(hourly("d", "new").overlap(Overlap::Skip))).await.unwrap();
    for name in ["s", "d"] {
        assert_eq!(next_slot(&rig, name).await, Some(slot), "{name}");
    }
    let worker = rig.worker(noting(&rig)).build().unwrap().start();
    rig.log.until_count("ran new", 2).await;
    assert_eq!(rig.log.count("ran old"), 0);
    worker.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_due_slot_is_dropped_with_its_calendar() {
    let rig = WorkerRig::new();
    let schedules = rig.client.schedules();
    let hourly = || Schedule::cron("s", "0 * * * *").job(work("x"));
    schedules.put(hourly()).await.unwrap();
    for other in [
        hourly().zone("Asia/Kolkata"),
        Schedule::cron("s", "30 * * * *").job(work("x")),
        Schedule::every("s", HOUR).job(work("x")),
        Schedule::every("s", HOUR).job(work("x")).starts_at(rig.now()),
    ] {
        let slot = past_a_slot(&rig, "s").await;
        assert_eq!(next_slot(&rig, "s").await, Some(slot));
        schedules.put(other).await.unwrap();
        assert!(next_slot(&rig, "s").await > Some(rig.now()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deploy_keeps_a_slot_that_waits_for_an_earlier_job() {
    let rig = WorkerRig::new();
    let ours = |job: &str| {
        let hourly = Schedule::every("s", HOUR).job(work(job)).overlap(Overlap::Queue);
        Schedules::owned_by("billing").add(hourly)
    };
    let stuck = rig.worker(handler(|_, _| pending())).schedules(ours("old"));
    let stuck = stuck.build().unwrap().start();
    rig.log.until("started s@").await;
    past_a_slot(&rig, "s").await;
    stuck.abort();
    let deployed = rig.worker(noting(&rig)).schedules(ours("new")).build().unwrap().start();
    rig.log.until("ran new").await;
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    let slots: Vec<_> = record.firings.iter().map(|it| it.slot).collect();
    assert_eq!((slots.len(), slots[1].since(slots[0])), (2, HOUR));
    assert_eq!(record.totals, SlotTotals::new(2, 0, 0));
    deployed.shutdown().await.unwrap();
}
