//! Enqueueing a flow that is there already, in whole or in part, by its ids or by its key.

use taskharbor_core::{
    NewJob, State,
    driver::Enqueued,
    error::Rejected,
    job::{JobSet, KeyHold},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, at, child, id, ids, job, job_in, key},
};

group! {
    flow_again {}
    flows {
        a_flow_is_answered_job_by_job_in_order ["ENQ-3" "FLO-1"]
        a_flow_enqueued_again_is_existing_and_unchanged ["FLO-5"]
        a_flow_enqueued_again_while_it_runs_goes_on_as_it_was ["FLO-5"]
        a_flow_named_twice_in_one_call_is_stored_once ["FLO-5" "ENQ-5"]
        a_flow_whose_ids_are_all_those_of_plain_jobs_is_existing ["FLO-5" "ENQ-4"]
        a_flow_that_shares_a_job_with_another_is_rejected ["FLO-5" "ENQ-2"]
        a_flow_with_more_jobs_than_when_it_was_stored_is_rejected ["FLO-5"]
        a_flow_that_meets_a_plain_job_in_any_state_is_rejected ["FLO-5"]
        two_flows_of_one_call_that_share_a_job_are_not_both_stored ["FLO-5" "ENQ-2"]
        a_flow_whose_key_a_flow_holds_is_existing_with_the_holders_id ["FLO-4" "KEY-1"]
        a_flow_whose_key_a_plain_job_holds_is_existing_with_its_id ["FLO-4" "KEY-1"]
        a_plain_job_whose_key_a_flow_holds_is_existing_with_the_tails_id ["FLO-4" "KEY-1"]
        flows_of_one_call_with_one_key_are_stored_once ["FLO-4" "ENQ-5"]
        a_flow_with_a_key_enqueued_again_is_existing_under_its_own_ids ["FLO-5" "KEY-1"]
        an_overlap_is_found_before_a_held_key ["FLO-5" "KEY-1"]
        a_flows_key_belongs_to_its_tails_queue ["FLO-4" "KEY-2"]
        a_flows_key_held_until_done_is_free_when_its_tail_is_done ["FLO-4" "KEY-4"]
    }
}

fn chain(texts: [&str; 2]) -> [NewJob; 2] {
    [job(texts[0]), child(texts[1], &[texts[0]])]
}

/// A chain whose last job carries the key `k`.
fn keyed_chain(texts: [&str; 2]) -> [NewJob; 2] {
    let [first, last] = chain(texts);
    [first, last.idempotency_key(key("k"))]
}

fn inserted(texts: &[&str]) -> Vec<Enqueued> {
    ids(texts).into_iter().map(Enqueued::Inserted).collect()
}

fn existing(texts: &[&str]) -> Vec<Enqueued> {
    ids(texts).into_iter().map(Enqueued::Existing).collect()
}

async fn a_flow_is_answered_job_by_job_in_order(t: DriverUnderTest) {
    let jobs = [child("b", &["a"]), job("a")];
    assert_eq!(t.put_flow(jobs, T0).await, inserted(&["b", "a"]));
    assert_eq!(t.states(&["a", "b"], T0).await, [State::Ready, State::Blocked]);
}

async fn a_flow_enqueued_again_is_existing_and_unchanged(t: DriverUnderTest) {
    t.put_flow(chain(["a", "b"]), T0).await;
    let before = t.snapshot(at(1)).await;
    let again = t.put_flow(chain(["a", "b"]), at(1)).await;
    assert_eq!(again, existing(&["a", "b"]));
    assert_eq!(t.snapshot(at(1)).await, before);
}

async fn a_flow_enqueued_again_while_it_runs_goes_on_as_it_was(t: DriverUnderTest) {
    t.put_flow(chain(["a", "b"]), T0).await;
    t.run("a", ack(), T0).await;
    let before = t.snapshot(at(1)).await;
    let again = t.put_flow(chain(["a", "b"]), at(1)).await;
    assert_eq!(again, existing(&["a", "b"]));
    assert_eq!(t.snapshot(at(1)).await, before);
    t.run("b", ack(), at(1)).await;
    let again = t.put_flow(chain(["a", "b"]), at(2)).await;
    assert_eq!(again, existing(&["a", "b"]));
    assert_eq!(t.take(at(2)).await, None);
}

async fn a_flow_named_twice_in_one_call_is_stored_once(t: DriverUnderTest) {
    let flow = || JobSet::flow(chain(["a", "b"]).into());
    let answers = t.enqueue_sets(vec![flow(), flow()], T0).await;
    assert_eq!(answers, [Ok(inserted(&["a", "b"])), Ok(existing(&["a", "b"]))]);
    assert_eq!(t.record("b", T0).await.pending, 1);
}

async fn a_flow_whose_ids_are_all_those_of_plain_jobs_is_existing(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    let before = t.snapshot(T0).await;
    let answers = t.put_flow(chain(["a", "b"]), T0).await;
    assert_eq!(answers, existing(&["a", "b"]));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_flow_that_shares_a_job_with_another_is_rejected(t: DriverUnderTest) {
    t.put_flow(chain(["a", "b"]), T0).await;
    let before = t.snapshot(T0).await;
    let jobs = [job("new"), child("a", &["new"]), child("c", &["a"])];
    let answer = t.enqueue_set(JobSet::flow(jobs.into()), T0).await;
    assert_eq!(answer, Err(Rejected::Overlap { job: id("a") }));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_flow_with_more_jobs_than_when_it_was_stored_is_rejected(t: DriverUnderTest) {
    t.put_flow(chain(["a", "b"]), T0).await;
    let before = t.snapshot(T0).await;
    let jobs = [job("a"), child("b", &["a"]), child("c", &["b"])];
    let answer = t.enqueue_set(JobSet::flow(jobs.into()), T0).await;
    assert_eq!(answer, Err(Rejected::Overlap { job: id("a") }));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_flow_that_meets_a_plain_job_in_any_state_is_rejected(t: DriverUnderTest) {
    t.put(job("b"), T0).await;
    t.run("b", ack(), T0).await;
    let before = t.snapshot(T0).await;
    let flow = JobSet::flow(chain(["a", "b"]).into());
    let answer = t.enqueue_set(flow, T0).await;
    assert_eq!(answer, Err(Rejected::Overlap { job: id("b") }));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn two_flows_of_one_call_that_share_a_job_are_not_both_stored(t: DriverUnderTest) {
    let flow = |texts| JobSet::flow(chain(texts).into());
    let sets = vec![flow(["a", "b"]), flow(["a", "c"]), flow(["d", "e"])];
    let answers = t.enqueue_sets(sets, T0).await;
    let rejected = Err(Rejected::Overlap { job: id("a") });
    assert_eq!(answers, [Ok(inserted(&["a", "b"])), rejected, Ok(inserted(&["d", "e"]))]);
    assert_eq!(t.find("c", T0).await, None);
}

async fn a_flow_whose_key_a_flow_holds_is_existing_with_the_holders_id(t: DriverUnderTest) {
    t.put_flow(keyed_chain(["a", "b"]), T0).await;
    let before = t.snapshot(T0).await;
    let answers = t.put_flow(keyed_chain(["c", "d"]), T0).await;
    assert_eq!(answers, existing(&["b", "b"]));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_flow_whose_key_a_plain_job_holds_is_existing_with_its_id(t: DriverUnderTest) {
    t.put(job("plain").idempotency_key(key("k")), T0).await;
    let before = t.snapshot(T0).await;
    let answers = t.put_flow(keyed_chain(["a", "b"]), T0).await;
    assert_eq!(answers, existing(&["plain", "plain"]));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_plain_job_whose_key_a_flow_holds_is_existing_with_the_tails_id(t: DriverUnderTest) {
    t.put_flow(keyed_chain(["a", "b"]), T0).await;
    let answer = t.put(job("plain").idempotency_key(key("k")), T0).await;
    assert_eq!(answer, Enqueued::Existing(id("b")));
    assert_eq!(t.find("plain", T0).await, None);
}

async fn flows_of_one_call_with_one_key_are_stored_once(t: DriverUnderTest) {
    let flow = |texts| JobSet::flow(keyed_chain(texts).into());
    let sets = vec![flow(["a", "b"]), flow(["c", "d"])];
    let answers = t.enqueue_sets(sets, T0).await;
    assert_eq!(answers, [Ok(inserted(&["a", "b"])), Ok(existing(&["b", "b"]))]);
    assert_eq!(t.find("c", T0).await, None);
}

async fn a_flow_with_a_key_enqueued_again_is_existing_under_its_own_ids(t: DriverUnderTest) {
    t.put_flow(keyed_chain(["a", "b"]), T0).await;
    let again = t.put_flow(keyed_chain(["a", "b"]), T0).await;
    assert_eq!(again, existing(&["a", "b"]));
}

async fn an_overlap_is_found_before_a_held_key(t: DriverUnderTest) {
    t.put_flow(keyed_chain(["a", "b"]), T0).await;
    let before = t.snapshot(T0).await;
    let flow = JobSet::flow(keyed_chain(["a", "c"]).into());
    let answer = t.enqueue_set(flow, T0).await;
    assert_eq!(answer, Err(Rejected::Overlap { job: id("a") }));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_flows_key_belongs_to_its_tails_queue(t: DriverUnderTest) {
    t.put_flow(keyed_chain(["a", "b"]), T0).await;
    let tail = job_in("other", "d").after([id("c")]);
    let jobs = [job("c"), tail.idempotency_key(key("k"))];
    assert_eq!(t.put_flow(jobs, T0).await, inserted(&["c", "d"]));
}

async fn a_flows_key_held_until_done_is_free_when_its_tail_is_done(t: DriverUnderTest) {
    let [first, last] = keyed_chain(["a", "b"]);
    t.put_flow([first, last.key_hold(KeyHold::UntilDone)], T0).await;
    t.run("a", ack(), T0).await;
    let answers = t.put_flow(keyed_chain(["c", "d"]), T0).await;
    assert_eq!(answers, existing(&["b", "b"]));
    t.run("b", ack(), T0).await;
    let answers = t.put_flow(keyed_chain(["c", "d"]), T0).await;
    assert_eq!(answers, inserted(&["c", "d"]));
}
