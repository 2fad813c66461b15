//! A closed driver, and the store's own time.

use std::{fmt::Debug, time::Duration};

use taskharbor_core::{
    Admin, Driver, DriverError, Timestamp,
    admin::{
        Action, Configure, Counts, Evict, Filter, List, ListLanes, ListSettings, ListWorkers,
        Manage, Prune,
    },
    driver::{
        DueSchedules, Enqueue, ExtendLeases, Fire, Limits, OutputQuery, Outputs, Reserve, Settle,
    },
    error::CallError,
    flow::ListFlows,
    job::JobSet,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{LEASE, T0, ack, at, extension, failure, holder, id, ids, job, queue, settlement},
    workers_under_test::announcement,
};

group! {
    close {
        every_operation_for_workers_fails_after_close ["CLO-1"]
        every_call_for_one_job_fails_after_close ["CLO-1"]
        every_operation_for_people_fails_after_close ["CLO-1"]
        requests_about_nothing_fail_after_close_too ["CLO-1"]
        invalid_requests_fail_as_closed_after_close ["CLO-1"]
        closing_again_is_fine ["CLO-1"]
        watches_end_with_the_driver ["CLO-1"]
        calls_that_race_the_close_happen_or_fail_as_closed ["CLO-1"]
        the_store_tells_a_time_that_does_not_run_backwards ["STO-1"]
        the_store_goes_by_its_own_time_and_not_by_that_of_callers ["STO-1" "TIM-1"]
    }
    flows {}
}

fn assert_closed<T: Debug, E: Into<CallError>>(operation: &str, answer: Result<T, E>) {
    let answer = answer.map_err(Into::into);
    let is_closed = matches!(answer, Err(CallError::Failed(DriverError::Closed)));
    assert!(is_closed, "{operation}: {answer:?}");
}

async fn close(t: &DriverUnderTest) {
    t.driver.close().await.expect("close");
}

async fn every_operation_for_workers_fails_after_close(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    close(&t).await;
    let driver = &t.driver;
    let enqueue = Enqueue::new(vec![job("b").into()], T0);
    assert_closed("enqueue", driver.enqueue(enqueue).await);
    assert_closed("reserve", t.reserve(&[("q", 1)], T0, LEASE).await);
    let extend = ExtendLeases::new(vec![extension(&leased)], T0, LEASE);
    assert_closed("extend_leases", driver.extend_leases(extend).await);
    let settle = Settle::new(vec![settlement(&leased, ack())], T0);
    assert_closed("settle", driver.settle(settle).await);
    let outputs = Outputs::new(vec![OutputQuery::of(id("a"))], 10);
    assert_closed("outputs", driver.outputs(outputs).await);
    assert_closed("watch", driver.watch(vec![queue("q")]).await);
    assert_closed("store_time", driver.store_time().await);
    assert_closed("due_schedules", driver.due_schedules(DueSchedules::new(10, T0)).await);
    assert_closed("fire", driver.fire(Fire::new(Vec::new(), T0)).await);
    assert_closed("announce", driver.announce(announcement("w", 1, T0)).await);
}

async fn every_call_for_one_job_fails_after_close(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    close(&t).await;
    let driver = &t.driver;
    let leased = &leased;
    assert_closed("enqueue_job", driver.enqueue_job(job("b"), T0).await);
    let reserved = driver.reserve_job(queue("q"), holder(), T0, LEASE).await;
    assert_closed("reserve_job", reserved);
    let extended = driver.extend_lease(leased, T0, LEASE).await;
    assert_closed("extend_lease", extended);
    let settled = driver.settle_job(leased, ack(), T0).await;
    assert_closed("settle_job", settled);
    assert_closed("ack", driver.ack(leased, None, T0).await);
    let retried = driver.retry(leased, failure(1, T0), None, T0).await;
    assert_closed("retry", retried);
    let failed = driver.fail(leased, failure(1, T0), "enough".into(), T0).await;
    assert_closed("fail", failed);
    assert_closed("release", driver.release(leased, None, T0).await);
}

async fn every_operation_for_people_fails_after_close(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    close(&t).await;
    let driver = &t.driver;
    assert_closed("migrate", driver.migrate().await);
    assert_closed("inspect", driver.inspect(id("a"), T0).await);
    assert_closed("list", driver.list(List::new(Filter::all(), 10, T0)).await);
    assert_closed("counts", driver.counts(Counts::new(T0)).await);
    let manage = Manage::new(ids(&["a"]), Action::Cancel, T0);
    assert_closed("manage", driver.manage(manage).await);
    assert_closed("pause", driver.pause(queue("q"), T0).await);
    assert_closed("resume", driver.resume(queue("q"), T0).await);
    let configure = Configure::new(Vec::new(), T0);
    assert_closed("configure", driver.configure(configure).await);
    assert_closed("settings", driver.settings(ListSettings::new(10)).await);
    assert_closed("lanes", driver.lanes(ListLanes::new(queue("q"), 10, T0)).await);
    assert_closed("workers", driver.workers(ListWorkers::new(10, T0)).await);
    assert_closed("evict", driver.evict(Evict::new(holder(), T0)).await);
    assert_closed("export", driver.export(None, 10).await);
    assert_closed("import", driver.import(Vec::new()).await);
    let prune = Prune::new(10, T0).done_before(T0);
    assert_closed("prune", driver.prune(prune).await);
    assert_closed("flow", driver.flow(id("a"), T0).await);
    assert_closed("list_flows", driver.list_flows(ListFlows::new(10, T0)).await);
    assert_closed("check", driver.check().await);
}

async fn requests_about_nothing_fail_after_close_too(t: DriverUnderTest) {
    close(&t).await;
    let driver = &t.driver;
    assert_closed("enqueue", driver.enqueue(Enqueue::new(Vec::new(), T0)).await);
    let set = vec![JobSet::plain(Vec::new())];
    assert_closed("enqueue of an empty set", driver.enqueue(Enqueue::new(set, T0)).await);
    assert_closed("reserve", t.reserve(&[], T0, LEASE).await);
    let extend = ExtendLeases::new(Vec::new(), T0, LEASE);
    assert_closed("extend_leases", driver.extend_leases(extend).await);
    assert_closed("settle", driver.settle(Settle::new(Vec::new(), T0)).await);
    assert_closed("outputs", driver.outputs(Outputs::new(Vec::new(), 10)).await);
    assert_closed("watch", driver.watch(Vec::new()).await);
    let manage = Manage::new(Vec::new(), Action::Cancel, T0);
    assert_closed("manage", driver.manage(manage).await);
    assert_closed("prune", driver.prune(Prune::new(10, T0)).await);
}

async fn invalid_requests_fail_as_closed_after_close(t: DriverUnderTest) {
    close(&t).await;
    let driver = &t.driver;
    assert_closed("reserve", t.reserve(&[("q", 0)], T0, LEASE).await);
    assert_closed("reserve for no time", t.reserve(&[("q", 1)], T0, Duration::ZERO).await);
    let late = Reserve::new(Vec::new(), holder(), Timestamp::MAX, LEASE);
    assert_closed("reserve at the end of time", driver.reserve(late).await);
    let extend = ExtendLeases::new(Vec::new(), T0, Duration::ZERO);
    assert_closed("extend_leases", driver.extend_leases(extend).await);
    assert_closed("outputs", driver.outputs(Outputs::new(Vec::new(), 0)).await);
    assert_closed("list", driver.list(List::new(Filter::all(), 0, T0)).await);
    assert_closed("list_flows", driver.list_flows(ListFlows::new(0, T0)).await);
    let manage = Manage::new(ids(&["a", "a"]), Action::Cancel, T0);
    assert_closed("manage", driver.manage(manage).await);
    assert_closed("prune", driver.prune(Prune::new(0, T0)).await);
    assert_closed("lanes", driver.lanes(ListLanes::new(queue("q"), 0, T0)).await);
    assert_closed("workers", driver.workers(ListWorkers::new(0, T0)).await);
    let mut announced = announcement("w", 1, T0);
    announced.valid_for = Duration::MAX;
    assert_closed("announce", driver.announce(announced).await);
}

async fn closing_again_is_fine(t: DriverUnderTest) {
    let limits: Limits = t.driver.limits();
    for _ in 0..3 {
        close(&t).await;
    }
    let answers = at_once([t.driver.clone(), t.driver.clone()].map(async |it| it.close().await));
    assert!(answers.await.iter().all(Result::is_ok));
    assert_eq!(t.driver.limits(), limits);
}

async fn watches_end_with_the_driver(t: DriverUnderTest) {
    let mut watch = t.driver.watch(vec![queue("q")]).await.expect("watch");
    if !watch.can_wake() {
        return;
    }
    let waiting = tokio::spawn(async move { while watch.woken().await.is_some() {} });
    close(&t).await;
    // Only a driver that breaks the clause ever waits for this long.
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    ended.expect("the watch did not end").expect("no panic");
}

async fn calls_that_race_the_close_happen_or_fail_as_closed(t: DriverUnderTest) {
    let answers = at_once((0..17).map(|nth| {
        let t = t.clone();
        async move {
            if nth == 8 {
                close(&t).await;
                return Vec::new();
            }
            let mut answers = Vec::new();
            for n in 0..10 {
                let job = job(&format!("{nth}.{n}"));
                answers.push(t.driver.enqueue_job(job, at(n)).await);
            }
            answers
        }
    }))
    .await;
    for of_task in answers {
        for answer in &of_task {
            let is_right = matches!(answer, Ok(_) | Err(CallError::Failed(DriverError::Closed)));
            assert!(is_right, "{answer:?}");
        }
        let stored = of_task.iter().take_while(|it| it.is_ok()).count();
        assert!(of_task[stored..].iter().all(Result::is_err), "{of_task:?}");
    }
}

/// Unless the clock of the machine is set back meanwhile.
async fn the_store_tells_a_time_that_does_not_run_backwards(t: DriverUnderTest) {
    let mut last = t.driver.store_time().await.expect("store_time");
    assert!(last > Timestamp::EPOCH);
    for _ in 0..200 {
        let now = t.driver.store_time().await.expect("store_time");
        assert!(last <= now, "{last}, then {now}");
        last = now;
    }
}

async fn the_store_goes_by_its_own_time_and_not_by_that_of_callers(t: DriverUnderTest) {
    let earlier = t.driver.store_time().await.expect("store_time");
    t.put(job("a"), Timestamp::MAX).await;
    t.put(job("b"), Timestamp::EPOCH).await;
    let later = t.driver.store_time().await.expect("store_time");
    assert!(earlier <= later && later < Timestamp::MAX, "{earlier}, then {later}");
}
