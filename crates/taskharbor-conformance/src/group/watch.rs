//! Wake-ups for workers that wait for jobs, and for callers that wait for the end of a job.

use std::{future::Future, time::Duration};

use taskharbor_core::{
    Driver, NewJob,
    admin::{Action, Requeue},
    driver::{Leased, Watch, Woken},
    job::FailurePolicy,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, ack_with, at, child, expand, fail, id, job, job_in, join, queue, release, requeue,
        retry,
    },
};

group! {
    watch {
        a_job_enqueued_wakes ["WAK-1"]
        a_job_enqueued_for_later_wakes ["WAK-1"]
        a_retry_wakes ["WAK-1"]
        a_release_wakes ["WAK-1"]
        a_requeue_wakes ["WAK-1"]
        an_imported_job_wakes ["WAK-1" "MOV-7"]
        a_job_told_to_run_now_wakes ["WAK-1"]
        a_queue_that_is_resumed_wakes ["WAK-1"]
        a_watch_of_several_queues_is_woken_by_each ["WAK-1"]
        all_watches_of_a_queue_are_woken ["WAK-1"]
        a_watch_that_is_waited_for_is_woken ["WAK-1"]
        a_watch_can_be_woken_again_and_again ["WAK-1"]
        a_job_that_is_done_wakes_its_watch ["WAK-2"]
        a_job_that_is_dead_lettered_wakes_its_watch ["WAK-2"]
        a_job_that_is_cancelled_wakes_its_watch ["WAK-2"]
        all_watches_of_a_job_are_woken ["WAK-2"]
    }
    flows {
        a_flow_enqueued_wakes_for_its_first_members ["WAK-1"]
        a_flow_enqueued_wakes_for_dependants_of_an_empty_join ["WAK-1"]
        a_detached_job_wakes ["WAK-1"]
        a_parent_that_is_done_wakes_for_its_dependants ["WAK-1"]
        a_parent_that_is_done_wakes_through_a_join ["WAK-1"]
        a_parent_that_is_done_wakes_for_a_dependant_with_a_time ["WAK-1"]
        a_parent_that_fails_and_continues_wakes_for_its_dependants ["WAK-1"]
        a_parent_that_is_cancelled_and_continues_wakes_for_its_dependants ["WAK-1"]
        a_marked_parent_whose_lease_ends_wakes_for_the_jobs_it_unblocks ["WAK-1"]
        a_requeued_join_that_is_done_at_once_wakes_for_its_dependants ["WAK-1"]
        an_expansion_wakes_for_its_first_jobs ["WAK-1"]
        an_expansion_that_is_done_at_once_wakes_for_its_dependants ["WAK-1"]
        a_parent_that_fails_wakes_for_its_failure_job ["WAK-1" "FAI-1"]
        a_parent_that_is_done_wakes_the_watch_of_its_join ["WAK-2"]
        a_parent_that_fails_wakes_the_watch_of_a_dependant_it_cancels ["WAK-2"]
        the_tail_of_an_expansion_wakes_the_watch_of_the_job ["WAK-2"]
    }
}

async fn watch(t: &DriverUnderTest, names: &[&str]) -> Watch {
    let names = names.iter().map(|name| queue(name)).collect();
    t.driver.watch(names).await.expect("watch")
}

/// There was a wake-up, or will be one soon; a driver may have none to give.
async fn woken(mut watch: Watch) {
    if !watch.can_wake() {
        return;
    }
    // A broken driver fails the case instead of hanging it.
    let woken = tokio::time::timeout(Duration::from_secs(10), watch.woken()).await;
    assert!(matches!(woken, Ok(Some(_))), "no watch was woken");
}

/// A watch of `q` is woken by this.
pub(super) async fn wakes<T>(t: &DriverUnderTest, step: impl Future<Output = T>) {
    let watch = watch(t, &["q"]).await;
    step.await;
    woken(watch).await;
}

/// A job elsewhere, granted, and one in `q` that waits for it.
async fn waiting_for(t: &DriverUnderTest, parent: &str, policy: FailurePolicy) -> Leased {
    let first = job_in("elsewhere", parent).on_failure(policy);
    let then = child(&format!("after {parent}"), &[parent]);
    t.put_flow([first, then], T0).await;
    let leased = t.take_from("elsewhere", T0).await.expect("granted");
    assert_eq!(leased.job.id, id(parent));
    leased
}

async fn a_job_enqueued_wakes(t: DriverUnderTest) {
    wakes(&t, t.put(job("a"), T0)).await;
    wakes(&t, t.put_all([job_in("elsewhere", "b"), job("c")], T0)).await;
}

async fn a_job_enqueued_for_later_wakes(t: DriverUnderTest) {
    wakes(&t, t.put(job("a").run_at(at(99)), T0)).await;
}

async fn a_flow_enqueued_wakes_for_its_first_members(t: DriverUnderTest) {
    let end = job_in("elsewhere", "b").after([id("a")]);
    wakes(&t, t.put_flow([job("a"), end], T0)).await;
}

async fn a_flow_enqueued_wakes_for_dependants_of_an_empty_join(t: DriverUnderTest) {
    let empty = NewJob::join(id("j"), queue("elsewhere"), []);
    wakes(&t, t.put_flow([empty, child("a", &["j"])], T0)).await;
}

async fn a_retry_wakes(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    let leased = t.take_many(2, T0).await;
    wakes(&t, t.apply(&leased[0], retry(None, T0), T0)).await;
    wakes(&t, t.apply(&leased[1], retry(Some(at(9)), T0), T0)).await;
}

async fn a_release_wakes(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    let leased = t.take_many(2, T0).await;
    wakes(&t, t.apply(&leased[0], release(None), T0)).await;
    wakes(&t, t.apply(&leased[1], release(Some(at(9))), T0)).await;
}

async fn a_requeue_wakes(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("b", Action::Cancel, T0).await;
    wakes(&t, t.act("a", requeue(), T0)).await;
    let later = Action::Requeue(Requeue::new().run_at(at(9)));
    wakes(&t, t.act("b", later, T0)).await;
}

async fn a_detached_job_wakes(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.act("b", Action::CancelFlow, T0).await;
    let alone = Action::Requeue(Requeue::new().detach());
    wakes(&t, t.act("a", alone, T0)).await;
}

async fn a_parent_that_is_done_wakes_for_its_dependants(t: DriverUnderTest) {
    let leased = waiting_for(&t, "a", FailurePolicy::Block).await;
    wakes(&t, t.apply(&leased, ack(), T0)).await;
}

async fn a_parent_that_is_done_wakes_through_a_join(t: DriverUnderTest) {
    let between = NewJob::join(id("j"), queue("elsewhere"), [id("a")]);
    let jobs = [job_in("elsewhere", "a"), between, child("b", &["j"])];
    t.put_flow(jobs, T0).await;
    let leased = t.take_from("elsewhere", T0).await.expect("granted");
    wakes(&t, t.apply(&leased, ack(), T0)).await;
}

async fn a_parent_that_is_done_wakes_for_a_dependant_with_a_time(t: DriverUnderTest) {
    let later = child("b", &["a"]).run_at(at(99));
    t.put_flow([job_in("elsewhere", "a"), later], T0).await;
    let leased = t.take_from("elsewhere", T0).await.expect("granted");
    wakes(&t, t.apply(&leased, ack(), T0)).await;
}

async fn a_parent_that_fails_and_continues_wakes_for_its_dependants(t: DriverUnderTest) {
    let leased = waiting_for(&t, "a", FailurePolicy::Continue).await;
    wakes(&t, t.apply(&leased, fail(T0), T0)).await;
}

async fn a_parent_that_is_cancelled_and_continues_wakes_for_its_dependants(t: DriverUnderTest) {
    let leased = waiting_for(&t, "a", FailurePolicy::Continue).await;
    let expired = leased.lease.expires_at;
    wakes(&t, t.act("a", Action::Cancel, expired)).await;
}

async fn a_marked_parent_whose_lease_ends_wakes_for_the_jobs_it_unblocks(t: DriverUnderTest) {
    let leased = waiting_for(&t, "a", FailurePolicy::Continue).await;
    t.act("a", Action::Cancel, T0).await;
    let expired = leased.lease.expires_at;
    wakes(&t, t.take_from("elsewhere", expired)).await;
}

async fn a_requeued_join_that_is_done_at_once_wakes_for_its_dependants(t: DriverUnderTest) {
    let jobs = [job("a"), join("j", &["a"]), child("b", &["j"])];
    t.put_flow(jobs, T0).await;
    t.act("j", Action::Cancel, T0).await;
    t.run("a", ack(), T0).await;
    wakes(&t, t.act("j", requeue(), T0)).await;
}

async fn an_expansion_wakes_for_its_first_jobs(t: DriverUnderTest) {
    t.put(job_in("elsewhere", "g"), T0).await;
    let leased = t.take_from("elsewhere", T0).await.expect("granted");
    wakes(&t, t.apply(&leased, expand([job("x")]), T0)).await;
}

async fn an_expansion_that_is_done_at_once_wakes_for_its_dependants(t: DriverUnderTest) {
    let leased = waiting_for(&t, "g", FailurePolicy::Block).await;
    let empty = NewJob::join(id("j"), queue("elsewhere"), []);
    wakes(&t, t.apply(&leased, expand([empty]), T0)).await;
}

async fn a_job_told_to_run_now_wakes(t: DriverUnderTest) {
    t.put(job("a").run_at(at(99)), T0).await;
    wakes(&t, t.act("a", Action::RunNow, T0)).await;
}

async fn a_queue_that_is_resumed_wakes(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.driver.pause(queue("q"), T0).await.expect("pause");
    wakes(&t, t.driver.resume(queue("q"), T0)).await;
}

async fn a_watch_of_several_queues_is_woken_by_each(t: DriverUnderTest) {
    for (n, name) in ["one", "two", "three"].into_iter().enumerate() {
        let watch = watch(&t, &["one", "two", "three"]).await;
        t.put(job_in(name, &n.to_string()), T0).await;
        woken(watch).await;
    }
}

async fn all_watches_of_a_queue_are_woken(t: DriverUnderTest) {
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(watch(&t, &["q"]).await);
    }
    t.put(job("a"), T0).await;
    for watch in watches {
        woken(watch).await;
    }
}

async fn a_watch_that_is_waited_for_is_woken(t: DriverUnderTest) {
    let waiting = tokio::spawn(woken(watch(&t, &["q"]).await));
    tokio::task::yield_now().await;
    t.put(job("a"), T0).await;
    waiting.await.expect("woken");
}

async fn a_watch_can_be_woken_again_and_again(t: DriverUnderTest) {
    let mut watch = watch(&t, &["q"]).await;
    if !watch.can_wake() {
        return;
    }
    for n in 0..3 {
        t.put(job(&n.to_string()), T0).await;
        let woken = tokio::time::timeout(Duration::from_secs(10), watch.woken()).await;
        assert!(matches!(woken, Ok(Some(_))), "{n}");
    }
}

async fn a_parent_that_fails_wakes_for_its_failure_job(t: DriverUnderTest) {
    t.put_flow([job_in("elsewhere", "a"), job("f").after_failure_of([id("a")])], T0).await;
    let leased = t.take_from("elsewhere", T0).await.expect("a grant");
    wakes(&t, t.apply(&leased, fail(T0), T0)).await;
}

async fn an_imported_job_wakes(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let units = t.export(10).await;
    let other = t.another().await;
    wakes(&other, other.import(units)).await;
}

/// A watch of this job, through a driver that receives all wake-ups it ever will.
async fn watch_job(t: &DriverUnderTest, name: &str) -> Watch {
    // A driver may begin to listen with the first watch, which waits for that.
    let _listening = watch(t, &["q"]).await;
    t.driver.watch_job(id(name)).await.expect("watch_job")
}

/// A watch of this job is woken by this; answers with what.
async fn ends<T>(t: &DriverUnderTest, name: &str, step: impl Future<Output = T>) -> Option<Woken> {
    let watch = watch_job(t, name).await;
    step.await;
    ended(watch).await
}

async fn ended(mut watch: Watch) -> Option<Woken> {
    next(&mut watch).await
}

/// What wakes a watch next; `None` if nothing can.
async fn next(watch: &mut Watch) -> Option<Woken> {
    if !watch.can_wake() {
        return None;
    }
    let woken = tokio::time::timeout(Duration::from_secs(10), watch.woken()).await;
    let Ok(Some(woken)) = woken else { panic!("no watch was woken") };
    Some(woken)
}

/// A watch of this job is woken by this, and told that it was this job.
async fn ends_by_name<T>(t: &DriverUnderTest, name: &str, step: impl Future<Output = T>) {
    let watch = watch_job(t, name).await;
    step.await;
    is_named(watch).await;
}

/// The end of the job is told. A driver whose wake-ups have only begun to arrive wakes every watch first.
async fn is_named(mut watch: Watch) {
    while next(&mut watch).await.is_some_and(|woken| woken != Woken::Job) {}
}

async fn a_job_that_is_done_wakes_its_watch(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    let leased = t.take_many(2, T0).await;
    ends_by_name(&t, "a", t.apply(&leased[0], ack(), T0)).await;
    ends_by_name(&t, "b", t.apply(&leased[1], ack_with("1"), T0)).await;
}

async fn a_job_that_is_dead_lettered_wakes_its_watch(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take(T0).await.expect("granted");
    ends_by_name(&t, "a", t.apply(&leased, fail(T0), T0)).await;
}

async fn a_job_that_is_cancelled_wakes_its_watch(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    ends_by_name(&t, "a", t.act("a", Action::Cancel, T0)).await;
}

async fn all_watches_of_a_job_are_woken(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let watches = [watch_job(&t, "a").await, watch_job(&t, "a").await];
    t.run("a", ack(), T0).await;
    for watch in watches {
        is_named(watch).await;
    }
}

async fn a_parent_that_is_done_wakes_the_watch_of_its_join(t: DriverUnderTest) {
    t.put_flow([job("a"), join("j", &["a"])], T0).await;
    let leased = t.take(T0).await.expect("granted");
    ends(&t, "j", t.apply(&leased, ack(), T0)).await;
}

async fn a_parent_that_fails_wakes_the_watch_of_a_dependant_it_cancels(t: DriverUnderTest) {
    let first = job("a").on_failure(FailurePolicy::Cancel);
    t.put_flow([first, child("b", &["a"])], T0).await;
    let leased = t.take(T0).await.expect("granted");
    ends(&t, "b", t.apply(&leased, fail(T0), T0)).await;
}

async fn the_tail_of_an_expansion_wakes_the_watch_of_the_job(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.run("g", expand([job("x")]), T0).await;
    let leased = t.take(T0).await.expect("granted");
    ends(&t, "g", t.apply(&leased, ack(), T0)).await;
}
