//! Expansions that are refused or come too late: everything is as it was.

use taskharbor_core::{
    NewJob, State,
    admin::Action,
    driver::{Settled, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    flow::Expansion,
    job::FailurePolicy,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, at, before, child, expand, id, job, join, key, settlement},
};

group! {
    expansion_refused {}
    flows {
        an_expansion_without_jobs_is_refused ["EXP-3"]
        an_expansion_with_a_key_is_refused_even_on_its_tail ["EXP-3"]
        an_expansion_with_two_jobs_of_one_id_is_refused ["EXP-3"]
        an_expansion_that_waits_for_a_job_outside_it_is_refused ["EXP-3"]
        an_expansion_that_waits_for_the_expanded_job_is_refused ["EXP-3"]
        an_expansion_that_names_a_parent_twice_is_refused ["EXP-3"]
        an_expansion_that_waits_for_itself_is_refused ["EXP-3"]
        an_expansion_with_a_cycle_is_refused ["EXP-3"]
        an_expansion_with_two_tails_is_refused ["EXP-3"]
        an_expansion_with_a_job_that_no_set_may_have_is_refused ["EXP-3"]
        an_expansion_with_the_id_of_a_stored_job_is_refused ["EXP-3"]
        an_expansion_with_the_id_of_the_expanded_job_is_refused ["EXP-3"]
        an_expansion_with_the_id_of_a_dependant_is_refused ["EXP-3"]
        expansions_of_one_call_that_share_an_id_are_not_both_applied ["EXP-3" "SET-9" "REF-3"]
        an_expansion_of_ten_thousand_jobs_is_applied ["EXP-3" "EXP-1"]
        an_expansion_of_more_than_ten_thousand_jobs_is_refused ["EXP-3"]
        an_expansion_after_the_end_of_the_lease_is_refused ["LEA-1" "EXP-1"]
        a_worker_that_lost_its_lease_cannot_expand ["LEA-10"]
        a_fault_of_the_expansion_itself_is_named_before_one_of_the_lease ["REF-1"]
        a_fault_of_the_lease_is_named_before_a_stored_job ["REF-1"]
        an_expansion_under_a_cancel_mark_ends_as_cancelled ["CAN-4" "POL-2"]
        a_plain_jobs_expansion_under_a_cancel_mark_makes_no_flow ["CAN-5"]
        a_marked_job_is_cancelled_even_if_its_expansion_is_refused ["CAN-5" "REF-1"]
    }
}

/// The refusal of an expansion for this reason.
fn invalid(reason: Rejected) -> Refusal {
    Refusal::Invalid(InvalidTransition::Expansion(reason))
}

/// The job `g` of a flow expands so and is refused for this reason; the store is as it was, and `g`
/// can still be acked.
async fn refuses(t: &DriverUnderTest, expansion: Transition, reason: Rejected) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    let leased = t.take_the("g", T0).await;
    let as_it_was = t.snapshot(T0).await;
    let answer = t.settle(&leased, expansion, T0).await;
    assert_eq!(answer, Err(invalid(reason)));
    assert_eq!(t.snapshot(T0).await, as_it_was);
    t.apply(&leased, ack(), T0).await;
    assert_eq!(t.state("end", T0).await, State::Ready);
}

/// This many jobs, and the last waits for all others.
fn wide(count: usize) -> Vec<NewJob> {
    let mut jobs: Vec<NewJob> = (1..count).map(|n| job(&format!("x{n}"))).collect();
    let parents: Vec<_> = jobs.iter().map(|job| job.id.clone()).collect();
    jobs.push(join("tail", &[]).after(parents));
    jobs
}

async fn an_expansion_without_jobs_is_refused(t: DriverUnderTest) {
    refuses(&t, expand([]), Rejected::EmptyFlow).await;
}

async fn an_expansion_with_a_key_is_refused_even_on_its_tail(t: DriverUnderTest) {
    let keyed = child("y", &["x"]).idempotency_key(key("k"));
    let expansion = expand([job("x"), keyed]);
    refuses(&t, expansion, Rejected::KeyInsideFlow { job: id("y") }).await;
}

async fn an_expansion_with_two_jobs_of_one_id_is_refused(t: DriverUnderTest) {
    let expansion = expand([job("x"), child("x", &["x"])]);
    refuses(&t, expansion, Rejected::DuplicateId { job: id("x") }).await;
}

async fn an_expansion_that_waits_for_a_job_outside_it_is_refused(t: DriverUnderTest) {
    t.put(job("outside").run_at(at(9)), T0).await;
    let (waits, parent) = (id("x"), id("outside"));
    let reason = Rejected::UnknownParent { job: waits, parent };
    refuses(&t, expand([child("x", &["outside"])]), reason).await;
}

async fn an_expansion_that_waits_for_the_expanded_job_is_refused(t: DriverUnderTest) {
    let (waits, parent) = (id("x"), id("g"));
    let reason = Rejected::UnknownParent { job: waits, parent };
    refuses(&t, expand([child("x", &["g"])]), reason).await;
}

async fn an_expansion_that_names_a_parent_twice_is_refused(t: DriverUnderTest) {
    let (twice, parent) = (id("y"), id("x"));
    let expansion = expand([job("x"), child("y", &["x", "x"])]);
    let reason = Rejected::DuplicateParent { job: twice, parent };
    refuses(&t, expansion, reason).await;
}

async fn an_expansion_that_waits_for_itself_is_refused(t: DriverUnderTest) {
    let expansion = expand([child("x", &["x"])]);
    refuses(&t, expansion, Rejected::OwnParent { job: id("x") }).await;
}

async fn an_expansion_with_a_cycle_is_refused(t: DriverUnderTest) {
    let expansion = expand([child("x", &["y"]), child("y", &["x"]), child("z", &["y"])]);
    refuses(&t, expansion, Rejected::Cycle { job: id("x") }).await;
}

async fn an_expansion_with_two_tails_is_refused(t: DriverUnderTest) {
    let (first, second) = (id("x"), id("y"));
    let expansion = expand([job("x"), job("y")]);
    refuses(&t, expansion, Rejected::SeveralTails { first, second }).await;
}

async fn an_expansion_with_a_job_that_no_set_may_have_is_refused(t: DriverUnderTest) {
    let expansion = expand([job("x"), child("y", &["x"]).max_attempts(0)]);
    let reason = Rejected::MaxAttemptsOutOfRange { job: id("y") };
    refuses(&t, expansion, reason).await;
}

async fn an_expansion_with_the_id_of_a_stored_job_is_refused(t: DriverUnderTest) {
    t.put(job("x"), T0).await;
    t.run("x", ack(), T0).await;
    let expansion = expand([job("w"), child("x", &["w"])]);
    refuses(&t, expansion, Rejected::Overlap { job: id("x") }).await;
}

async fn an_expansion_with_the_id_of_the_expanded_job_is_refused(t: DriverUnderTest) {
    refuses(&t, expand([job("g")]), Rejected::Overlap { job: id("g") }).await;
}

async fn an_expansion_with_the_id_of_a_dependant_is_refused(t: DriverUnderTest) {
    refuses(&t, expand([job("end")]), Rejected::Overlap { job: id("end") }).await;
}

async fn expansions_of_one_call_that_share_an_id_are_not_both_applied(t: DriverUnderTest) {
    t.put_all([job("g"), job("h")], T0).await;
    let leased = t.take_many(2, T0).await;
    let items = leased.iter().map(|it| settlement(it, expand([job("x")])));
    let answers = t.settle_all(items.collect(), T0).await;
    let overlap = invalid(Rejected::Overlap { job: id("x") });
    assert_eq!(answers, [Ok(Settled::Applied), Err(overlap)]);
    assert_eq!(t.states(&["g", "h"], T0).await, [State::Done, State::Inflight]);
    assert_eq!(t.record("x", T0).await.job.flow, Some(id("g")));
}

async fn an_expansion_of_ten_thousand_jobs_is_applied(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    t.run("g", expand(wide(10_000)), T0).await;
    let flow = t.flow("end", T0).await;
    assert_eq!(flow.members.total(), 10_002);
    assert_eq!(flow.members.ready, 9_999);
    assert_eq!(t.record("tail", T0).await.pending, 9_999);
}

async fn an_expansion_of_more_than_ten_thousand_jobs_is_refused(t: DriverUnderTest) {
    let expansion = Transition::Expand(Expansion::new(wide(10_001)));
    refuses(&t, expansion, Rejected::ExpansionTooLarge { count: 10_001 }).await;
}

async fn an_expansion_after_the_end_of_the_lease_is_refused(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    let leased = t.take_the("g", T0).await;
    let as_it_was = t.snapshot(at(60)).await;
    let late = t.settle(&leased, expand([job("x")]), at(60)).await;
    assert_eq!(late, Err(Refusal::LeaseExpired));
    assert_eq!(t.snapshot(at(60)).await, as_it_was);
    let in_time = before(at(60));
    t.apply(&leased, expand([job("x")]), in_time).await;
    assert_eq!(t.record("x", in_time).await.due_at, Some(in_time));
}

async fn a_worker_that_lost_its_lease_cannot_expand(t: DriverUnderTest) {
    t.put_flow([job("g"), child("end", &["g"])], T0).await;
    let stale = t.take_the("g", T0).await;
    let current = t.take_the("g", at(60)).await;
    let as_it_was = t.snapshot(at(60)).await;
    let answer = t.settle(&stale, expand([job("x")]), at(60)).await;
    assert_eq!(answer, Err(Refusal::LeaseMismatch));
    assert_eq!(t.snapshot(at(60)).await, as_it_was);
    t.apply(&current, expand([job("x")]), at(60)).await;
    let answer = t.settle(&stale, expand([job("z")]), at(60)).await;
    assert_eq!(answer, Err(Refusal::JobNotInflight));
    assert_eq!(t.find("z", at(60)).await, None);
}

async fn a_fault_of_the_expansion_itself_is_named_before_one_of_the_lease(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    let leased = t.take_the("g", T0).await;
    let answer = t.settle(&leased, expand([]), at(60)).await;
    assert_eq!(answer, Err(invalid(Rejected::EmptyFlow)));
}

async fn a_fault_of_the_lease_is_named_before_a_stored_job(t: DriverUnderTest) {
    t.put_all([job("g"), job("x")], T0).await;
    let leased = t.take_the("g", T0).await;
    let answer = t.settle(&leased, expand([job("x")]), at(60)).await;
    assert_eq!(answer, Err(Refusal::LeaseExpired));
}

async fn an_expansion_under_a_cancel_mark_ends_as_cancelled(t: DriverUnderTest) {
    let g = job("g").on_failure(FailurePolicy::Cancel);
    t.put_flow([g, child("end", &["g"])], T0).await;
    let leased = t.take_the("g", T0).await;
    t.act("g", Action::Cancel, T0).await;
    t.apply(&leased, expand([job("x")]), at(1)).await;
    assert_eq!(t.find("x", at(1)).await, None, "nothing of it is stored");
    let record = t.record("g", at(1)).await;
    assert_eq!(record.state, State::Cancelled);
    assert_eq!(record.expanded_into, None);
    assert_eq!(t.state("end", at(1)).await, State::Cancelled);
    let again = t.settle(&leased, expand([job("x")]), at(1)).await;
    assert_eq!(again, Ok(Settled::AlreadyTerminal));
}

async fn a_plain_jobs_expansion_under_a_cancel_mark_makes_no_flow(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    let leased = t.take_the("g", T0).await;
    t.act("g", Action::Cancel, T0).await;
    t.apply(&leased, expand([job("x")]), T0).await;
    let stored = t.snapshot(T0).await;
    assert_eq!(stored.flows, []);
    assert_eq!(stored.records.len(), 1);
    assert_eq!(stored.records[0].job.flow, None);
}

async fn a_marked_job_is_cancelled_even_if_its_expansion_is_refused(t: DriverUnderTest) {
    t.put_all([job("a"), job("stored")], T0).await;
    let leased = t.take_the("a", T0).await;
    t.act("a", Action::Cancel, T0).await;
    t.apply(&leased, expand([job("stored")]), T0).await;
    assert_eq!(t.states(&["a", "stored"], T0).await, [State::Cancelled, State::Ready]);
}
