//! Slots that come while the job of an earlier slot is not terminal.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taskharbor::{FailurePolicy, Flow, Handlers, JobError, Missed, Overlap, Schedule, State};
use taskharbor_core::admin::SlotTotals;

use super::HOUR;
use crate::rig::{DONE, SECOND, WorkerRig, handler, work};

/// Jobs that take two hours and a half, and how many run at once at most.
fn long(most: &Arc<AtomicUsize>) -> Handlers {
    let (most, running) = (Arc::clone(most), Arc::new(AtomicUsize::new(0)));
    handler(move |_, cx| {
        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        let running = Arc::clone(&running);
        async move {
            tokio::select! {
                () = tokio::time::sleep(2 * HOUR + HOUR / 2) => {}
                _ = cx.cancelled() => {}
            }
            running.fetch_sub(1, Ordering::SeqCst);
            DONE
        }
    })
}

async fn run(overlap: Overlap, missed: Missed) -> (WorkerRig, usize, SlotTotals) {
    let rig = WorkerRig::new();
    let most = Arc::new(AtomicUsize::new(0));
    let hourly = Schedule::every("s", HOUR).job(work("x")).overlap(overlap).missed(missed);
    rig.client.schedules().put(hourly).await.unwrap();
    let worker = rig.worker(long(&most)).build().unwrap().start();
    // Ten slots, and half an hour.
    let to_slot = rig.client.schedules().upcoming("s", 1).await.unwrap()[0].since(rig.now());
    tokio::time::sleep(to_slot + 9 * HOUR + HOUR / 2).await;
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    worker.abort();
    (rig, most.load(Ordering::SeqCst), record.totals)
}

#[tokio::test(start_paused = true)]
async fn slots_may_overlap() {
    let (_, most, totals) = run(Overlap::Allow, Missed::Latest).await;
    assert_eq!((most, totals), (3, SlotTotals::new(10, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_skipped_while_a_job_runs() {
    let (_, most, totals) = run(Overlap::Skip, Missed::Latest).await;
    // The slots at 0, 3, 6 and 9 hours run.
    assert_eq!((most, totals), (1, SlotTotals::new(4, 6, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_slot_waits_while_a_job_runs_and_starts_when_it_ends() {
    let (rig, most, totals) = run(Overlap::Queue, Missed::All { at_most: 100 }).await;
    // Starts at 0, 2.5, 5 and 7.5 hours, for the slots at 0, 1, 2 and 3.
    assert_eq!((most, totals), (1, SlotTotals::new(4, 0, 0)));
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    let slots: Vec<_> = record.firings.iter().map(|it| it.slot).collect();
    assert!(slots.windows(2).all(|two| two[1].since(two[0]) == HOUR), "{slots:?}");
    let fired: Vec<_> = record.firings.iter().map(|it| it.fired_at).collect();
    let between = fired.windows(2).map(|two| two[1].since(two[0]));
    assert!(between.into_iter().all(|it| it < 2 * HOUR + HOUR / 2 + SECOND), "{fired:?}");
}

#[tokio::test(start_paused = true)]
async fn of_the_slots_that_waited_the_latest_runs() {
    let (_, most, totals) = run(Overlap::Queue, Missed::Latest).await;
    // Starts at 0, 2.5, 5 and 7.5 hours, for the slots at 0, 2, 5 and 7: 1, 3, 4 and 6 are missed.
    assert_eq!((most, totals), (1, SlotTotals::new(4, 0, 4)));
}

#[tokio::test(start_paused = true)]
async fn a_new_slot_replaces_the_job_that_runs() {
    let (rig, _, totals) = run(Overlap::Replace, Missed::Latest).await;
    assert_eq!(totals, SlotTotals::new(10, 0, 0));
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    let (last, earlier) = record.firings.split_last().unwrap();
    for firing in earlier {
        // It was told to stop and did so, which counts as success.
        assert_eq!(rig.state(firing.job.id()).await, State::Done);
    }
    assert_eq!(rig.state(last.job.id()).await, State::Inflight);
}

#[tokio::test(start_paused = true)]
async fn a_dead_lettered_job_does_not_hold_up_the_next_slot() {
    for overlap in [Overlap::Skip, Overlap::Queue] {
        let rig = WorkerRig::new();
        let failing = handler(|_, _| async { Err(JobError::unrecoverable("broken")) });
        let hourly = Schedule::every("s", HOUR).job(work("x")).overlap(overlap);
        rig.client.schedules().put(hourly).await.unwrap();
        let worker = rig.worker(failing).build().unwrap().start();
        rig.log.until_count("dead-lettered s@", 5).await;
        let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
        assert_eq!(record.totals, SlotTotals::new(5, 0, 0), "{overlap:?}");
        worker.shutdown().await.unwrap();
    }
}

/// The results of five slots of a schedule whose flow fails at its first step.
async fn run_failing_flow(overlap: Overlap, policy: Option<FailurePolicy>) -> SlotTotals {
    let rig = WorkerRig::new();
    let failing = handler(|_, _| async { Err(JobError::unrecoverable("broken")) });
    let flow = Flow::first(work("a")).discard().then(work("b"));
    let flow = match policy {
        Some(policy) => flow.policy(policy),
        None => flow,
    };
    let hourly = Schedule::every("s", HOUR).flow(flow).overlap(overlap);
    rig.client.schedules().put(hourly).await.unwrap();
    let worker = rig.worker(failing).build().unwrap().start();
    let to_slot = rig.client.schedules().upcoming("s", 1).await.unwrap()[0].since(rig.now());
    tokio::time::sleep(to_slot + 4 * HOUR + HOUR / 2).await;
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    worker.shutdown().await.unwrap();
    record.totals
}

/// TRAPS F7.
#[tokio::test(start_paused = true)]
async fn f7_a_flow_that_fails_does_not_hold_up_the_next_slot() {
    for overlap in Overlap::ALL {
        for policy in [None, Some(FailurePolicy::Cancel), Some(FailurePolicy::FailFast)] {
            let totals = run_failing_flow(*overlap, policy).await;
            assert_eq!(totals, SlotTotals::new(5, 0, 0), "{overlap:?} {policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_to_stay_blocked_holds_up_the_slots_that_do_not_overlap() {
    let block = Some(FailurePolicy::Block);
    let totals = async |overlap| run_failing_flow(overlap, block).await;
    assert_eq!(totals(Overlap::Allow).await, SlotTotals::new(5, 0, 0));
    assert_eq!(totals(Overlap::Skip).await, SlotTotals::new(1, 4, 0));
    assert_eq!(totals(Overlap::Queue).await, SlotTotals::new(1, 0, 0));
    assert_eq!(totals(Overlap::Replace).await, SlotTotals::new(5, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn running_it_now_respects_the_overlap() {
    let rig = WorkerRig::new();
    let schedules = rig.client.schedules();
    schedules.put(Schedule::every("s", HOUR).job(work("x"))).await.unwrap();
    let first = schedules.run_now("s").await.unwrap();
    let second = schedules.run_now("s").await.unwrap();
    assert!(first.is_new() && !second.is_new());
    assert_eq!(first.id(), second.id());
}
