//! Removing flows: as a whole, and not before the last member is over.

use taskharbor_core::{
    Admin, NewJob, State, Timestamp,
    admin::{Action, Prune},
    driver::Enqueued,
    job::FailurePolicy,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, TICK, ack, at, before, child, expand, fail, id, job, job_in, key, requeue},
};

group! {
    prune_flow {}
    flows {
        a_member_is_not_pruned_before_its_flow_is_terminal ["PRU-4"]
        a_blocked_flow_is_not_pruned ["PRU-4"]
        a_terminal_flow_is_pruned_whole ["PRU-4"]
        a_done_flow_is_pruned_as_done_with_members_of_every_state ["PRU-4"]
        a_flow_that_failed_goes_as_dead_lettered ["PRU-4"]
        a_flow_that_was_cancelled_goes_as_cancelled ["PRU-4"]
        a_flow_goes_by_the_time_at_which_its_last_member_ended ["PRU-4"]
        a_flow_is_kept_until_every_members_lease_would_have_run_out ["PRU-4" "PRU-2"]
        a_flow_is_not_split_by_the_limit ["PRU-4" "PRU-1"]
        a_pruned_flows_ids_and_key_are_free ["PRU-3" "KEY-3"]
        an_expansion_is_pruned_with_its_job ["PRU-4" "KEY-3"]
        flows_beside_a_pruned_one_stay ["PRU-4"]
    }
}

async fn prune(t: &DriverUnderTest, request: Prune) -> usize {
    t.driver.prune(request).await.expect("prune")
}

/// Prunes all jobs and flows that are terminal by now.
fn all(now: Timestamp) -> Prune {
    let request = Prune::new(100, now).done_before(now);
    request.cancelled_before(now).dlq_before(now)
}

fn pair(policy: FailurePolicy) -> [NewJob; 2] {
    [job("a").on_failure(policy), child("b", &["a"])]
}

async fn a_member_is_not_pruned_before_its_flow_is_terminal(t: DriverUnderTest) {
    t.put_flow(pair(FailurePolicy::Block), T0).await;
    t.run("a", ack(), T0).await;
    let later = at(1_000_000);
    assert_eq!(prune(&t, all(later)).await, 0);
    t.take_the("b", later).await;
    assert_eq!(prune(&t, all(later)).await, 0);
    assert_eq!(t.states(&["a", "b"], later).await, [State::Done, State::Inflight]);
}

async fn a_blocked_flow_is_not_pruned(t: DriverUnderTest) {
    t.put_flow(pair(FailurePolicy::Block), T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(prune(&t, all(at(1_000_000))).await, 0);
    t.act("a", requeue(), at(1_000_000)).await;
    t.run("a", ack(), at(1_000_000)).await;
    t.take_the("b", at(1_000_000)).await;
}

async fn a_terminal_flow_is_pruned_whole(t: DriverUnderTest) {
    t.put_flow(pair(FailurePolicy::Block), T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", ack(), T0).await;
    assert_eq!(prune(&t, all(before(at(60)))).await, 0);
    assert_eq!(prune(&t, all(at(60))).await, 2);
    let stored = t.snapshot(at(60)).await;
    assert_eq!((stored.records.len(), stored.flows.len()), (0, 0));
    assert_eq!(t.driver.flow(id("b"), at(60)).await.expect("flow"), None);
}

async fn a_done_flow_is_pruned_as_done_with_members_of_every_state(t: DriverUnderTest) {
    t.put_flow(pair(FailurePolicy::Continue), T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("b", ack(), T0).await;
    let request = Prune::new(10, at(60));
    let others = request.dlq_before(at(60)).cancelled_before(at(60));
    assert_eq!(prune(&t, others).await, 0);
    assert_eq!(prune(&t, request.done_before(at(60))).await, 2);
}

async fn a_flow_that_failed_goes_as_dead_lettered(t: DriverUnderTest) {
    t.put_flow(pair(FailurePolicy::Block), T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", fail(T0), T0).await;
    let request = Prune::new(10, at(60));
    let others = request.done_before(at(60)).cancelled_before(at(60));
    assert_eq!(prune(&t, others).await, 0);
    assert_eq!(prune(&t, request.dlq_before(at(60))).await, 2);
}

async fn a_flow_that_was_cancelled_goes_as_cancelled(t: DriverUnderTest) {
    t.put_flow(pair(FailurePolicy::Cancel), T0).await;
    t.run("a", fail(T0), T0).await;
    let request = Prune::new(10, at(60));
    let others = request.done_before(at(60)).dlq_before(at(60));
    assert_eq!(prune(&t, others).await, 0);
    assert_eq!(prune(&t, request.cancelled_before(at(60))).await, 2);
}

async fn a_flow_goes_by_the_time_at_which_its_last_member_ended(t: DriverUnderTest) {
    t.put_flow(pair(FailurePolicy::Continue), T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("a", requeue(), at(1)).await;
    t.run("b", ack(), at(1)).await;
    t.act("a", Action::Cancel, at(500)).await;
    let request = Prune::new(10, at(900));
    let too_early = request.done_before(before(at(500)));
    assert_eq!(prune(&t, too_early).await, 0);
    assert_eq!(prune(&t, request.done_before(at(500))).await, 2);
}

async fn a_flow_is_kept_until_every_members_lease_would_have_run_out(t: DriverUnderTest) {
    t.put_flow([job_in("slow", "a"), job("b").after([id("a")])], T0).await;
    let reserved = t.reserve(&[("slow", 1)], T0, TICK * 1_000_000_000).await;
    let leased = reserved.expect("reserve").jobs.remove(0);
    t.apply(&leased, ack(), T0).await;
    t.run("b", ack(), T0).await;
    let end = leased.lease.expires_at;
    assert_eq!(end, at(1_000));
    assert_eq!(prune(&t, all(before(end))).await, 0);
    assert!(t.settle(&leased, ack(), before(end)).await.is_ok());
    assert_eq!(prune(&t, all(end)).await, 2);
}

async fn a_flow_is_not_split_by_the_limit(t: DriverUnderTest) {
    let jobs = [job("a"), child("b", &["a"]), child("c", &["b"])];
    t.put_flow(jobs, T0).await;
    t.act("c", Action::CancelFlow, T0).await;
    t.put(job("plain"), T0).await;
    t.act("plain", Action::Cancel, at(1)).await;
    let request = Prune::new(1, at(2)).cancelled_before(at(2));
    assert_eq!(prune(&t, request).await, 3);
    assert_eq!(t.snapshot(at(2)).await.records.len(), 1);
    assert_eq!(prune(&t, request).await, 1);
}

async fn a_pruned_flows_ids_and_key_are_free(t: DriverUnderTest) {
    let flow = || {
        let [a, b] = pair(FailurePolicy::Block);
        [a, b.idempotency_key(key("k"))]
    };
    t.put_flow(flow(), T0).await;
    t.act("b", Action::CancelFlow, T0).await;
    let holder = Enqueued::Existing(id("b"));
    let keyed = |text| job(text).idempotency_key(key("k"));
    assert_eq!(t.put(keyed("c"), T0).await, holder);
    assert_eq!(prune(&t, all(T0)).await, 2);
    let answers = t.put_flow(flow(), at(1)).await;
    assert!(answers.iter().all(Enqueued::is_new), "{answers:?}");
}

async fn an_expansion_is_pruned_with_its_job(t: DriverUnderTest) {
    t.put(job("g").idempotency_key(key("k")), T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), T0).await;
    t.run("x", ack(), T0).await;
    assert_eq!(prune(&t, all(at(600))).await, 0);
    t.run("y", ack(), at(600)).await;
    assert_eq!(prune(&t, all(at(600))).await, 0);
    assert_eq!(prune(&t, all(at(660))).await, 3);
    let again = t.put(job("g").idempotency_key(key("k")), at(660)).await;
    assert_eq!(again, Enqueued::Inserted(id("g")));
}

async fn flows_beside_a_pruned_one_stay(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.put_flow([job("c"), child("d", &["c"])], T0).await;
    t.act("b", Action::CancelFlow, T0).await;
    let other = (t.flow("d", T0).await, t.record("d", T0).await);
    assert_eq!(prune(&t, all(T0)).await, 2);
    assert_eq!((t.flow("d", T0).await, t.record("d", T0).await), other);
    t.run("c", ack(), T0).await;
    t.run("d", ack(), T0).await;
}
