//! Handlers that are throttled by a service that they call.

use std::{sync::Arc, time::Duration};

use taskharbor::{Counters, Handlers, JobError, JobId, LaneStatus, ReleaseReason, State};

use super::enqueue;
use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, SECOND, WorkerRig, handler},
};

const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The first delivery of the first job of each lane is throttled.
fn throttled() -> Handlers {
    handler(|job, cx| async move {
        if job.name.ends_with('0') && cx.delivery() == 1 {
            Err(JobError::throttled(RETRY_AFTER))?;
        }
        DONE
    })
}

async fn lane(rig: &WorkerRig, name: &str) -> Option<LaneStatus> {
    let lanes = rig.client.queue("default").lanes(None, 10).await.unwrap().items;
    lanes.into_iter().find(|it| it.lane.as_ref().is_some_and(|it| it.as_str() == name))
}

#[tokio::test(start_paused = true)]
async fn a_throttled_job_is_released_without_a_charge_and_its_lane_waits() {
    let (rig, counters) = (WorkerRig::new(), Counters::new());
    let start = rig.now();
    let first = enqueue(&rig, "a", 1).await.remove(0);
    let worker = rig.worker(throttled()).observer(counters.clone()).name("w1");
    let _worker = worker.build().unwrap().start();
    rig.log.until("released Throttled").await;
    let until = start.saturating_add(RETRY_AFTER);
    let record = rig.record(&first).await;
    assert_eq!((record.state, record.job.attempts), (State::Scheduled, 0));
    assert_eq!(record.job.run_at, Some(until));
    let note = record.job.released.unwrap();
    assert_eq!(note.reason, ReleaseReason::Throttled);
    assert_eq!(note.text.as_str(), "its handler was throttled for 30s on worker w1");
    // The lane is held before the job is released, and that is not a failure.
    let lines = rig.log.lines();
    let at = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(at("throttled") < at("released Throttled"));
    let counts = counters.read();
    assert_eq!((counts.throttled, counts.released, counts.failed), (1, 1, 0));

    let same = rig.client.enqueue(crate::rig::work("a1")).lane("a").await.unwrap().id().clone();
    let other = rig.client.enqueue(crate::rig::work("b1")).lane("b").await.unwrap().id().clone();
    assert_eq!(rig.finished(&other).await.finished_at, Some(start));
    assert_eq!(lane(&rig, "a").await.unwrap().ready, 1);
    for id in [&same, &first] {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.attempts), (State::Done, 0));
        assert_eq!(record.finished_at, Some(until));
    }
    rig.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_job_without_a_lane_holds_its_queue() {
    let rig = WorkerRig::new();
    let start = rig.now();
    let _worker = rig.worker(throttled()).build().unwrap().start();
    let first = rig.enqueue("0").await;
    rig.log.until("released Throttled").await;
    let ids = [rig.enqueue("1").await, enqueue(&rig, "a", 2).await.remove(1), first];
    for id in &ids {
        let finished = rig.finished(id).await.finished_at.unwrap();
        assert_eq!(finished.since(start), RETRY_AFTER);
    }
}

/// The state of the first job after the hold has failed in this way.
async fn without_hold(fault: Fault) -> (WorkerRig, JobId) {
    let rig = WorkerRig::new();
    rig.store.next(Op::Configure, [fault]);
    let id = enqueue(&rig, "a", 1).await.remove(0);
    let _worker = rig.worker(throttled()).build().unwrap().start();
    rig.log.until("released Throttled").await;
    assert_eq!(rig.log.count("throttled, not held"), 1);
    let record = rig.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Scheduled, 0));
    assert_eq!(rig.finished(&id).await.state, State::Done);
    assert_eq!(rig.log.count("away"), 0);
    (rig, id)
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_fails_loses_no_outcome() {
    without_hold(Fault::Refuse).await;
    without_hold(Fault::LoseReply).await;
    without_hold(Fault::Hang).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_no_time_does_not_spin_and_a_long_one_ends() {
    for (retry_after, at_least) in [(Duration::ZERO, 1), (Duration::MAX, 0)] {
        let rig = WorkerRig::new();
        let throttle = handler(move |_, cx| async move {
            if cx.delivery() <= 3 { Err(JobError::throttled(retry_after)) } else { DONE }
        });
        let worker = rig.worker(throttle).build().unwrap().start();
        let id = rig.enqueue("a").await;
        rig.log.until("released Throttled").await;
        if at_least > 0 {
            let record = rig.finished(&id).await;
            assert_eq!((record.state, record.job.attempts), (State::Done, 0));
            assert!(record.finished_at.unwrap().since(record.job.created_at).as_millis() >= 3);
        } else {
            assert_eq!(rig.state(&id).await, State::Scheduled);
        }
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_more_than_a_day_counts_as_a_day() {
    let day = Duration::from_secs(86_400);
    for retry_after in [day + SECOND, Duration::MAX] {
        let (rig, counters) = (WorkerRig::new(), Counters::new());
        let throttle = handler(move |job, cx| async move {
            let is_throttled = job.name == "a" && cx.delivery() == 1;
            if is_throttled { Err(JobError::throttled(retry_after)) } else { DONE }
        });
        let start = rig.now();
        let worker = rig.worker(throttle).observer(counters.clone()).build().unwrap().start();
        let id = rig.enqueue("a").await;
        rig.log.until("released Throttled").await;
        let run_at = rig.record(&id).await.job.run_at.unwrap();
        assert_eq!(run_at.since(start).as_secs(), day.as_secs());
        // Its queue is held for as long.
        let other = rig.enqueue("b").await;
        for id in [&id, &other] {
            let waited = rig.finished(id).await.finished_at.unwrap().since(start);
            assert_eq!(waited.as_secs(), day.as_secs());
        }
        assert_eq!(counters.read().throttled, 1);
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_job_whose_cancellation_was_requested_is_cancelled() {
    let rig = WorkerRig::new();
    let started = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&started);
    let throttle = handler(move |_, _| {
        told.notify_one();
        async {
            tokio::time::sleep(SECOND).await;
            Err(JobError::throttled(RETRY_AFTER))
        }
    });
    let _worker = rig.worker(throttle).build().unwrap().start();
    let id = rig.enqueue("a").await;
    started.notified().await;
    rig.client.job(&id).cancel().await.unwrap();
    assert_eq!(rig.finished(&id).await.state, State::Cancelled);
}
