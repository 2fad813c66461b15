//! Limits that a worker declares when it starts.

use std::sync::Arc;

use taskharbor::{
    BuildError, DeclaredLimits, InvalidLimits, LaneLimits, QueueLimits, Rate, Schedule, Schedules,
    State, WorkerBuilder,
};

use super::{Lanes, counting, enqueue};
use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, SECOND, WorkerRig, handler, work},
};

fn worker(rig: &WorkerRig) -> WorkerBuilder {
    rig.worker(handler(|_, _| async { DONE }))
}

fn declared(version: u64, inflight: u32) -> DeclaredLimits {
    let limits = QueueLimits::new().inflight(inflight);
    DeclaredLimits::owned_by("billing").version(version).queue("default", limits)
}

async fn inflight(rig: &WorkerRig) -> Option<u32> {
    rig.client.queue("default").limits().await.unwrap()?.limits.inflight
}

#[tokio::test(start_paused = true)]
async fn limits_hold_from_the_first_job_of_the_worker_that_declares_them() {
    for refusals in 0..=4 {
        let (rig, lanes) = (WorkerRig::new(), Arc::new(Lanes::default()));
        rig.store.next(Op::Configure, vec![Fault::Refuse; refusals]);
        let ids = enqueue(&rig, "a", 6).await;
        let limits = DeclaredLimits::owned_by("billing")
            .queue("default", QueueLimits::new().lane("a", LaneLimits::new().inflight(1)));
        let worker = rig.worker(counting(&lanes)).limits(limits).build().unwrap().start();
        for id in &ids {
            rig.finished(id).await;
        }
        assert_eq!(lanes.most("a"), 1, "after {refusals} refusals");
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_no_limits_does_not_keep_a_worker_from_its_jobs() {
    let rig = WorkerRig::new();
    rig.store.down(&[Op::Configure]);
    let id = rig.enqueue("a").await;
    let worker = worker(&rig).limits(declared(1, 4)).build().unwrap().start();
    assert_eq!(rig.finished(&id).await.state, State::Done);
    assert_eq!(inflight(&rig).await, None);
    rig.store.up();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(inflight(&rig).await, Some(4));
    worker.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_may_not_declare_them_can_still_be_shut_down() {
    for fault in [Fault::Refuse, Fault::Hang] {
        let rig = WorkerRig::new();
        rig.store.next(Op::Configure, vec![fault; 100]);
        let worker = worker(&rig).limits(declared(1, 4)).build().unwrap().start();
        tokio::time::sleep(SECOND / 10).await;
        let asked = rig.now();
        worker.shutdown().await.unwrap();
        assert_eq!(rig.now(), asked, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_process_does_not_undo_limits_and_keeps_running() {
    let rig = WorkerRig::new();
    let new = worker(&rig).limits(declared(2, 20)).build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    new.shutdown().await.unwrap();
    let old = worker(&rig).limits(declared(1, 10)).build().unwrap().start();
    rig.log.until("limits denied billing: the owner has declared version 2 already").await;
    assert_eq!(inflight(&rig).await, Some(20));
    let id = rig.enqueue("a").await;
    assert_eq!(rig.finished(&id).await.state, State::Done);
    old.shutdown().await.unwrap();
    let newer = worker(&rig).limits(DeclaredLimits::owned_by("billing").version(3));
    let newer = newer.build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    assert_eq!(inflight(&rig).await, None);
    newer.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn schedules_and_limits_of_one_owner_and_version_are_both_declared() {
    let rig = WorkerRig::new();
    for version in [3, 3, 4] {
        let hourly = Schedule::every("hourly", 3_600 * SECOND).job(work("x"));
        let schedules = Schedules::owned_by("billing").version(version).add(hourly);
        let limits = u32::try_from(version).unwrap();
        let both = worker(&rig).schedules(schedules).limits(declared(version, limits));
        let both = both.build().unwrap().start();
        tokio::time::sleep(SECOND).await;
        both.shutdown().await.unwrap();
        assert_eq!(inflight(&rig).await, Some(limits));
        assert!(rig.client.schedules().get("hourly").await.unwrap().is_some());
    }
    assert_eq!(rig.log.count("denied") + rig.log.count("limits denied"), 0);
}

#[tokio::test(start_paused = true)]
async fn limits_that_cannot_be_are_refused_when_the_worker_is_built() {
    let rig = WorkerRig::new();
    let ours = || DeclaredLimits::owned_by("billing");
    let none = QueueLimits::new;
    let zero_rate = Rate::per(0, SECOND);
    for (limits, says) in [
        (DeclaredLimits::owned_by(""), "limits cannot be declared: owner name is empty"),
        (ours().version(u64::MAX), "limits of \"billing\": version 18446744073709551615 is out"),
        (ours().queue("", none()), "limits of queue \"\": queue name is empty"),
        (ours().queue("a", none()).queue("a", none()), "limits of queue \"a\" are given twice"),
        (
            ours().queue("a", none().inflight(0)),
            "limits of queue \"a\": the limit of inflight jobs is 0",
        ),
        (
            ours().queue("a", none().rate(zero_rate)),
            "limits of queue \"a\": the number of jobs of a rate",
        ),
        (ours().queue("a", none().weight("", 2)), "limits of queue \"a\": lane name is empty"),
        (
            ours().queue("a", none().weight("x", 0)),
            "limits of queue \"a\": the weight of a lane is 0",
        ),
    ] {
        let error = worker(&rig).limits(limits).build().unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
        assert!(matches!(error, BuildError::Limits(_)), "{error}");
    }
    let twice = ours().queue("a", none()).queue("a", none());
    let error = worker(&rig).limits(twice).build().unwrap_err();
    let BuildError::Limits(InvalidLimits::DuplicateQueue(queue)) = error else { panic!("{error}") };
    assert_eq!(queue, "a");
}

#[tokio::test(start_paused = true)]
async fn two_versions_of_one_owner_are_refused() {
    let rig = WorkerRig::new();
    for (schedules, limits) in [(Some(1), Some(2)), (Some(1), None), (None, Some(1))] {
        let declared = DeclaredLimits::owned_by("billing");
        let declared = limits.into_iter().fold(declared, DeclaredLimits::version);
        let ours = Schedules::owned_by("billing");
        let ours = schedules.into_iter().fold(ours, Schedules::version);
        let error = worker(&rig).schedules(ours).limits(declared).build().unwrap_err();
        assert!(matches!(error, BuildError::OwnerVersions(_)), "{error}");
    }
    let apart = worker(&rig).schedules(Schedules::owned_by("a").version(1));
    assert!(apart.limits(declared(2, 1)).build().is_ok());
}
