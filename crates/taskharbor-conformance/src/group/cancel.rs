//! Cancelling jobs and flows.

use taskharbor_core::{
    State,
    admin::Action,
    driver::{Leased, Settled},
    error::{Denied, Refusal},
    flow::FlowState,
    job::FailurePolicy,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        LEASE, T0, ack, ack_with, at, before, child, expand, fail, failure, id, job, job_in, join,
        release, requeue, retry, with_token,
    },
};

use State::{Blocked, Cancelled, Dlq, Done, Inflight, Ready, Scheduled};

group! {
    cancel {
        a_terminal_job_is_not_cancelled ["CAN-1"]
        a_job_that_is_unknown_is_not_cancelled ["CAN-1" "CAN-8"]
        the_holder_of_a_cancelled_job_is_told_when_it_extends ["CAN-2"]
        an_ack_wins_over_the_mark ["CAN-3"]
        a_marked_job_that_is_released_is_cancelled ["CAN-4"]
        a_marked_job_that_fails_is_cancelled_with_its_failure ["CAN-4"]
        a_marked_job_whose_lease_ends_is_cancelled_by_reserve ["CAN-4" "LEA-5"]
        a_mark_does_not_outlive_its_job ["CAN-2" "REQ-1"]
        a_job_whose_lease_has_ended_is_cancelled_at_once ["CAN-6"]
        a_job_released_with_a_time_keeps_it_when_it_is_cancelled ["CAN-1" "SET-4"]
        a_mark_racing_an_ack_never_undoes_it ["CAN-9" "CAN-3"]
    }
    flows {
        a_job_that_waits_is_cancelled_at_once ["CAN-1"]
        the_token_that_ended_a_marked_job_may_repeat_the_call ["CAN-4" "SET-6"]
        dependants_unblocked_by_an_expiry_compete_in_the_same_call ["CAN-4" "POL-4" "LEA-5"]
        dependants_unblocked_by_an_expiry_compete_in_later_queues_of_the_call ["CAN-4" "LEA-5"]
        a_cancelled_flow_stops_what_waits_and_marks_what_runs ["CAN-7"]
        a_cancelled_flow_unblocks_no_dependant ["CAN-7"]
        a_cancelled_flow_ends_expired_members_at_once ["CAN-7" "CAN-6"]
        a_cancelled_flow_lets_an_inflight_tail_be_acked ["CAN-7" "CAN-3"]
        a_blocked_flow_can_be_cancelled ["CAN-7"]
        a_flow_with_nothing_left_to_cancel_is_denied ["CAN-8"]
        a_flow_is_cancelled_by_its_first_tails_id_after_an_expansion ["CAN-8" "EXP-1"]
        cancelling_races_an_ack_to_one_end_or_the_other ["CAN-9" "CAN-6"]
        a_flow_cancelled_while_a_member_is_acked_leaves_no_member_behind ["CAN-7" "CAN-9"]
        a_flow_cancelled_while_a_member_expands_leaves_no_member_behind ["CAN-7" "CAN-5"]
    }
}

/// The job `a` is inflight, and its cancellation was asked for.
async fn marked(t: &DriverUnderTest) -> Leased {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    assert_eq!(t.act("a", Action::Cancel, T0).await, Inflight);
    leased
}

async fn a_job_that_waits_is_cancelled_at_once(t: DriverUnderTest) {
    let later = job("scheduled").run_at(at(9));
    let jobs = [job("ready"), later, child("blocked", &["ready", "scheduled"])];
    t.put_flow(jobs, T0).await;
    for text in ["scheduled", "ready", "blocked"] {
        assert_eq!(t.act(text, Action::Cancel, at(1)).await, Cancelled);
        let record = t.record(text, at(1)).await;
        assert_eq!(record.state, Cancelled, "{text}");
        assert_eq!(record.finished_at, Some(at(1)), "{text}");
        assert_eq!(record.due_at, None, "{text}");
    }
    assert_eq!(t.take(at(99)).await, None);
}

async fn a_terminal_job_is_not_cancelled(t: DriverUnderTest) {
    t.put_all([job("a"), job("b"), job("c")], T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", fail(T0), T0).await;
    t.act("c", Action::Cancel, T0).await;
    let before = t.snapshot(at(1)).await;
    for (text, state) in [("a", Done), ("b", Dlq), ("c", Cancelled)] {
        let answer = t.manage(text, Action::Cancel, at(1)).await;
        assert_eq!(answer, Err(Denied::WrongState(state)));
    }
    assert_eq!(t.snapshot(at(1)).await, before);
}

async fn a_job_that_is_unknown_is_not_cancelled(t: DriverUnderTest) {
    let answer = t.manage("ghost", Action::Cancel, T0).await;
    assert_eq!(answer, Err(Denied::JobNotFound));
    let answer = t.manage("ghost", Action::CancelFlow, T0).await;
    assert_eq!(answer, Err(Denied::JobNotFound));
}

async fn the_holder_of_a_cancelled_job_is_told_when_it_extends(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let mut leased = t.take_the("a", T0).await;
    let extended = t.extend(&leased, T0, LEASE).await.expect("held");
    assert!(!extended.cancel_requested);
    leased.lease = extended.lease;
    assert_eq!(t.act("a", Action::Cancel, T0).await, Inflight);
    assert_eq!(t.act("a", Action::Cancel, T0).await, Inflight);
    let record = t.record("a", T0).await;
    assert!(record.cancel_requested);
    assert_eq!(record.state, Inflight);
    for _ in 0..2 {
        let extended = t.extend(&leased, at(1), LEASE).await.expect("held");
        assert!(extended.cancel_requested);
        assert_eq!(extended.lease.expires_at, at(61));
        leased.lease = extended.lease;
    }
}

async fn an_ack_wins_over_the_mark(t: DriverUnderTest) {
    let leased = marked(&t).await;
    t.apply(&leased, ack_with("done"), at(1)).await;
    let record = t.record("a", at(1)).await;
    assert_eq!(record.state, Done);
    assert!(record.output.is_some());
    assert!(!record.cancel_requested);
}

async fn a_marked_job_that_is_released_is_cancelled(t: DriverUnderTest) {
    for (n, run_at) in [None, Some(at(9))].into_iter().enumerate() {
        let text = format!("a{n}");
        t.put(job(&text), T0).await;
        let leased = t.take_the(&text, T0).await;
        t.act(&text, Action::Cancel, T0).await;
        t.apply(&leased, release(run_at), at(1)).await;
        let record = t.record(&text, at(1)).await;
        assert_eq!(record.state, Cancelled);
        assert_eq!(record.finished_at, Some(at(1)));
        assert_eq!(record.errors, []);
        assert!(!record.cancel_requested);
    }
    assert_eq!(t.take(at(99)).await, None);
}

async fn a_marked_job_that_fails_is_cancelled_with_its_failure(t: DriverUnderTest) {
    for (n, transition) in [retry(Some(at(5)), at(1)), fail(at(1))].into_iter().enumerate() {
        let text = format!("a{n}");
        t.put(job(&text), T0).await;
        let leased = t.take_the(&text, T0).await;
        t.act(&text, Action::Cancel, T0).await;
        t.apply(&leased, transition, at(1)).await;
        let record = t.record(&text, at(1)).await;
        assert_eq!(record.state, Cancelled);
        assert_eq!(record.finished_at, Some(at(1)));
        assert_eq!(record.errors, [failure(1, at(1))]);
        assert_eq!(record.job.attempts, 1);
        assert_eq!(record.job.failed_at, Some(at(1)));
        assert_eq!(record.due_at, None);
    }
    assert_eq!(t.take(at(99)).await, None);
}

async fn the_token_that_ended_a_marked_job_may_repeat_the_call(t: DriverUnderTest) {
    let leased = marked(&t).await;
    t.apply(&leased, release(None), T0).await;
    let before = t.snapshot(T0).await;
    for again in [release(None), fail(T0), retry(None, T0), expand([job("x")])] {
        let answer = t.settle(&leased, again, T0).await;
        assert_eq!(answer, Ok(Settled::AlreadyTerminal));
    }
    assert_eq!(t.snapshot(T0).await, before);
}

async fn a_marked_job_whose_lease_ends_is_cancelled_by_reserve(t: DriverUnderTest) {
    let leased = marked(&t).await;
    assert_eq!(t.take(before(at(60))).await, None);
    assert_eq!(t.state("a", at(59)).await, Inflight);
    assert_eq!(t.take(at(60)).await, None);
    let record = t.record("a", at(60)).await;
    assert_eq!(record.state, Cancelled);
    assert_eq!(record.finished_at, Some(at(60)));
    assert_eq!(record.held, None);
    let late = t.settle(&leased, ack(), at(60)).await;
    assert_eq!(late, Err(Refusal::JobNotInflight));
}

async fn dependants_unblocked_by_an_expiry_compete_in_the_same_call(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Continue);
    t.put_flow([a, child("b", &["a"])], T0).await;
    t.take_the("a", T0).await;
    t.act("a", Action::Cancel, T0).await;
    t.take_the("b", at(60)).await;
    assert_eq!(t.state("a", at(60)).await, Cancelled);
}

async fn dependants_unblocked_by_an_expiry_compete_in_later_queues_of_the_call(t: DriverUnderTest) {
    let a = job_in("first", "a").on_failure(FailurePolicy::Continue);
    t.put_flow([a, job_in("second", "b").after([id("a")])], T0).await;
    t.take_from("first", T0).await.expect("granted");
    t.act("a", Action::Cancel, T0).await;
    let reserved = t.reserve(&[("first", 1), ("second", 1)], at(60), LEASE).await;
    let granted = reserved.expect("reserve").jobs;
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].job.id, id("b"));
}

async fn a_mark_does_not_outlive_its_job(t: DriverUnderTest) {
    let leased = marked(&t).await;
    t.apply(&leased, release(None), T0).await;
    t.act("a", requeue(), T0).await;
    let again = t.take_the("a", T0).await;
    assert!(!t.record("a", T0).await.cancel_requested);
    let extended = t.extend(&again, T0, LEASE).await.expect("held");
    assert!(!extended.cancel_requested);
    let again = with_token(&again, extended.lease.token);
    t.apply(&again, retry(None, T0), T0).await;
    assert_eq!(t.state("a", T0).await, Ready);
}

async fn a_job_whose_lease_has_ended_is_cancelled_at_once(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let expired = leased.lease.expires_at;
    assert_eq!(t.act("a", Action::Cancel, before(expired)).await, Inflight);
    assert_eq!(t.act("a", Action::Cancel, expired).await, Cancelled);
    assert_eq!(t.record("a", expired).await.finished_at, Some(expired));
    let late = t.settle(&leased, ack(), expired).await;
    assert_eq!(late, Err(Refusal::JobNotInflight));
    assert_eq!(t.take(expired).await, None);
}

async fn a_job_released_with_a_time_keeps_it_when_it_is_cancelled(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    t.apply(&leased, release(Some(at(30))), T0).await;
    assert_eq!(t.act("a", Action::Cancel, at(1)).await, Cancelled);
    let record = t.record("a", at(1)).await;
    assert_eq!((record.job.run_at, record.job.deliveries), (Some(at(30)), 1));
}

async fn a_cancelled_flow_stops_what_waits_and_marks_what_runs(t: DriverUnderTest) {
    let jobs = [
        job("done"),
        job("dlq"),
        job("inflight"),
        job("ready"),
        job("scheduled").run_at(at(9)),
        child("end", &["done", "dlq", "inflight", "ready", "scheduled"]),
    ];
    t.put_flow(jobs, T0).await;
    t.put(job("outside").run_at(at(9)), T0).await;
    let leased = t.take_many(3, T0).await;
    t.apply(&leased[0], ack(), T0).await;
    t.apply(&leased[1], fail(T0), T0).await;
    let over = (t.record("done", T0).await, t.record("dlq", T0).await);
    assert_eq!(t.act("end", Action::CancelFlow, at(1)).await, Cancelled);
    let waited = t.states(&["ready", "scheduled", "end"], at(1)).await;
    assert_eq!(waited, [Cancelled; 3]);
    assert!(t.record("inflight", at(1)).await.cancel_requested);
    assert_eq!(t.record("done", at(1)).await, over.0);
    assert_eq!(t.record("dlq", at(1)).await, over.1);
    assert_eq!(t.state("outside", at(1)).await, Scheduled);
    assert_eq!(t.flow_state("end", at(1)).await, FlowState::Running);
    t.apply(&leased[2], retry(None, at(1)), at(1)).await;
    assert_eq!(t.flow_state("end", at(1)).await, FlowState::Cancelled);
}

async fn a_cancelled_flow_unblocks_no_dependant(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Continue);
    let jobs = [a, child("b", &["a"]), join("j", &["a"]), child("c", &["b", "j"])];
    t.put_flow(jobs, T0).await;
    t.act("c", Action::CancelFlow, T0).await;
    assert_eq!(t.states(&["a", "b", "j", "c"], T0).await, [Cancelled; 4]);
    assert_eq!(t.take(T0).await, None);
}

async fn a_cancelled_flow_ends_expired_members_at_once(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.take_the("a", T0).await;
    t.act("b", Action::CancelFlow, at(60)).await;
    assert_eq!(t.states(&["a", "b"], at(60)).await, [Cancelled; 2]);
    let flow = t.flow("b", at(60)).await;
    assert_eq!(flow.state, FlowState::Cancelled);
    assert_eq!(flow.finished_at, Some(at(60)));
}

async fn a_cancelled_flow_lets_an_inflight_tail_be_acked(t: DriverUnderTest) {
    t.put_flow([job("a")], T0).await;
    let leased = t.take_the("a", T0).await;
    assert_eq!(t.act("a", Action::CancelFlow, T0).await, Inflight);
    t.apply(&leased, ack(), T0).await;
    assert_eq!(t.flow_state("a", T0).await, FlowState::Done);
}

async fn a_blocked_flow_can_be_cancelled(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.state("b", T0).await, Blocked);
    assert_eq!(t.act("b", Action::CancelFlow, T0).await, Cancelled);
    assert_eq!(t.flow_state("b", T0).await, FlowState::Cancelled);
}

async fn a_flow_with_nothing_left_to_cancel_is_denied(t: DriverUnderTest) {
    for (text, transition, state) in [("a", ack(), Done), ("b", fail(T0), Dlq)] {
        t.put_flow([job(text)], T0).await;
        t.run(text, transition, T0).await;
        let answer = t.manage(text, Action::CancelFlow, T0).await;
        assert_eq!(answer, Err(Denied::WrongState(state)));
    }
    t.put_flow([job("c")], T0).await;
    t.act("c", Action::CancelFlow, T0).await;
    let answer = t.manage("c", Action::CancelFlow, T0).await;
    assert_eq!(answer, Err(Denied::WrongState(Cancelled)));
}

async fn a_flow_is_cancelled_by_its_first_tails_id_after_an_expansion(t: DriverUnderTest) {
    t.put(job("g"), T0).await;
    t.run("g", expand([job("x"), child("y", &["x"])]), T0).await;
    let answer = t.manage("y", Action::CancelFlow, T0).await;
    assert_eq!(answer, Err(Denied::JobNotFound), "its tail is not its id");
    assert_eq!(t.act("g", Action::CancelFlow, T0).await, Cancelled);
    assert_eq!(t.states(&["g", "x", "y"], T0).await, [Done, Cancelled, Cancelled]);
}

async fn cancelling_races_an_ack_to_one_end_or_the_other(t: DriverUnderTest) {
    for round in 0..24 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let first = job(&a).on_failure(FailurePolicy::Cancel);
        let then = job_in("other", &b).after([id(&a)]);
        t.put_flow([first, then], T0).await;
        let leased = t.take_the(&a, T0).await;
        // At the end of the lease a cancellation is immediate; an instant before, an ack holds.
        let expired = leased.lease.expires_at;
        let raced = at_once([false, true].map(|cancels| {
            let (t, a, leased) = (t.clone(), a.clone(), leased.clone());
            async move {
                if cancels {
                    return t.manage(&a, Action::Cancel, expired).await == Ok(Cancelled);
                }
                let acked = t.settle(&leased, ack_with("x"), before(expired)).await;
                acked == Ok(Settled::Applied)
            }
        }));
        let raced = raced.await;
        let record = t.record(&a, expired).await;
        let after = t.state(&b, expired).await;
        match raced[..] {
            [true, false] => {
                assert_eq!((record.state, after), (Done, Ready));
                assert!(record.output.is_some());
            }
            [false, true] => {
                assert_eq!((record.state, after), (Cancelled, Cancelled));
                assert_eq!(record.output, None);
            }
            ref both => panic!("acked, cancelled: {both:?}"),
        }
    }
}

async fn a_mark_racing_an_ack_never_undoes_it(t: DriverUnderTest) {
    for round in 0..24 {
        let a = format!("a{round}");
        t.put(job(&a), T0).await;
        let leased = t.take_the(&a, T0).await;
        let raced = at_once([false, true].map(|cancels| {
            let (t, a, leased) = (t.clone(), a.clone(), leased.clone());
            async move {
                if cancels {
                    let answer = t.manage(&a, Action::Cancel, T0).await;
                    return matches!(answer, Ok(Inflight) | Err(Denied::WrongState(Done)));
                }
                t.settle(&leased, ack(), T0).await == Ok(Settled::Applied)
            }
        }));
        assert_eq!(raced.await, [true, true]);
        let record = t.record(&a, T0).await;
        assert_eq!((record.state, record.cancel_requested), (Done, false));
    }
}

async fn a_flow_cancelled_while_a_member_is_acked_leaves_no_member_behind(t: DriverUnderTest) {
    for round in 0..24 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        t.put_flow([job(&a), job(&b).after([id(&a)])], T0).await;
        let leased = t.take_the(&a, T0).await;
        let raced = at_once([false, true].map(|cancels| {
            let (t, b, leased) = (t.clone(), b.clone(), leased.clone());
            async move {
                if cancels {
                    return t.manage(&b, Action::CancelFlow, T0).await == Ok(Cancelled);
                }
                t.settle(&leased, ack(), T0).await == Ok(Settled::Applied)
            }
        }));
        assert_eq!(raced.await, [true, true]);
        assert_eq!(t.states(&[&a, &b], T0).await, [Done, Cancelled]);
        assert_eq!(t.take(T0).await, None);
    }
}

async fn a_flow_cancelled_while_a_member_expands_leaves_no_member_behind(t: DriverUnderTest) {
    for round in 0..24 {
        let (a, b, x) = (format!("a{round}"), format!("b{round}"), format!("x{round}"));
        t.put_flow([job(&a), job(&b).after([id(&a)])], T0).await;
        let leased = t.take_the(&a, T0).await;
        let raced = at_once([false, true].map(|cancels| {
            let (t, b, x, leased) = (t.clone(), b.clone(), x.clone(), leased.clone());
            async move {
                if cancels {
                    return t.manage(&b, Action::CancelFlow, T0).await == Ok(Cancelled);
                }
                t.settle(&leased, expand([job(&x)]), T0).await == Ok(Settled::Applied)
            }
        }));
        assert_eq!(raced.await, [true, true]);
        let expansion = t.find(&x, T0).await.map(|it| it.state);
        match t.state(&a, T0).await {
            Done => assert_eq!(expansion, Some(Cancelled), "it expanded first"),
            ended => assert_eq!((ended, expansion), (Cancelled, None), "it was marked first"),
        }
        assert_eq!(t.flow_state(&b, T0).await, FlowState::Cancelled);
        assert_eq!(t.take(T0).await, None);
    }
}
