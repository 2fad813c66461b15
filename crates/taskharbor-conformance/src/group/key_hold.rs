//! Holds of idempotency keys: until the job is terminal, or for a time of its own.

use std::time::Duration;

use taskharbor_core::{
    Admin, NewJob, State, Timestamp,
    admin::{Action, Prune, Requeue},
    driver::Enqueued,
    error::{Denied, Rejected},
    job::{FailurePolicy, KeyHold},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, ack, at, before, child, expand, fail, id, job, job_in, key, release, requeue},
};

group! {
    key_hold {
        a_key_until_terminal_is_free_as_soon_as_its_job_is_terminal ["KEY-7"]
        a_key_until_terminal_is_held_while_its_job_is_not ["KEY-7"]
        a_key_until_terminal_is_free_when_its_marked_job_is_reclaimed ["KEY-7" "LEA-5"]
        a_requeue_takes_a_key_until_terminal_again ["KEY-8"]
        a_requeue_is_denied_while_another_job_holds_the_key ["KEY-8"]
        a_requeue_takes_no_key_of_another_hold ["KEY-8" "KEY-5"]
        a_key_for_a_time_is_free_at_exactly_its_end ["KEY-9" "KEY-10"]
        a_key_for_a_time_outlives_a_purged_record ["KEY-9" "PRU-3" "KEY-1"]
        a_key_for_a_time_outlives_a_pruned_record ["KEY-9" "PRU-3" "KEY-1"]
        a_key_for_a_time_is_free_while_its_job_is_not_terminal ["KEY-10"]
        a_key_that_outlived_its_job_denies_a_requeue ["KEY-8" "KEY-9"]
        a_time_to_live_out_of_range_is_rejected ["KEY-11" "JOB-5"]
        the_longest_and_the_shortest_time_to_live_are_taken ["KEY-11" "KEY-9"]
        every_hold_is_stored ["JOB-1" "KEY-3"]
        racing_enqueues_of_a_key_that_falls_free_store_one_job ["KEY-6" "KEY-10"]
        racing_requeues_of_two_jobs_with_one_key_leave_one_holder ["KEY-8" "KEY-6"]
    }
    flows {
        a_key_until_terminal_is_free_when_its_job_is_cancelled_for_another ["KEY-7" "POL-2"]
        a_key_until_terminal_is_free_when_its_flow_is_cancelled ["KEY-7" "CAN-7"]
        a_key_until_terminal_waits_for_the_expansion_of_its_job ["KEY-7" "EXP-1"]
        a_requeued_tail_of_an_expansion_takes_the_key_again ["KEY-8" "EXP-5"]
        a_key_for_a_time_outlives_a_flow ["KEY-9" "ADM-8"]
    }
}

fn inserted(text: &str) -> Enqueued {
    Enqueued::Inserted(id(text))
}

fn existing(text: &str) -> Enqueued {
    Enqueued::Existing(id(text))
}

/// A job in the queue `q` with the key `k`.
fn keyed(text: &str, hold: KeyHold) -> NewJob {
    job(text).idempotency_key(key("k")).key_hold(hold)
}

fn until_terminal(text: &str) -> NewJob {
    keyed(text, KeyHold::UntilTerminal)
}

/// A job whose key is held for a hundred seconds.
fn for_a_time(text: &str) -> NewJob {
    keyed(text, KeyHold::For(Duration::from_secs(100)))
}

/// Whether the key `k` of the queue `q` is free: whether a job with it is stored.
async fn is_free(t: &DriverUnderTest, now: Timestamp) -> bool {
    let probe = format!("probe {now}");
    let answer = t.put(keyed(&probe, KeyHold::UntilPruned), now).await;
    if answer.is_new() {
        t.act(&probe, Action::Cancel, now).await;
        t.act(&probe, Action::Purge, now).await;
    }
    answer.is_new()
}

async fn a_key_until_terminal_is_free_as_soon_as_its_job_is_terminal(t: DriverUnderTest) {
    for state in [State::Done, State::Dlq, State::Cancelled] {
        let name = state.as_str();
        let keyed = |text| job_in(name, text).idempotency_key(key("k"));
        t.bring(keyed(name).key_hold(KeyHold::UntilTerminal), state).await;
        let second = format!("{name} second");
        assert_eq!(t.put(keyed(&second), T0).await, inserted(&second));
        assert_eq!(t.put(keyed("third"), T0).await, existing(&second));
        assert_eq!(t.record(name, T0).await.job.idempotency_key, Some(key("k")));
    }
}

async fn a_key_until_terminal_is_held_while_its_job_is_not(t: DriverUnderTest) {
    for state in t.job_states().into_iter().filter(|state| !state.is_terminal()) {
        let name = state.as_str();
        let keyed = |text| job_in(name, text).idempotency_key(key("k"));
        t.bring(keyed(name).key_hold(KeyHold::UntilTerminal), state).await;
        assert_eq!(t.put(keyed("second"), T0).await, existing(name));
    }
    t.put(until_terminal("a"), T0).await;
    t.run("a", release(Some(at(5))), T0).await;
    assert_eq!(t.put(until_terminal("b"), T0).await, existing("a"));
}

async fn a_key_until_terminal_is_free_when_its_job_is_cancelled_for_another(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Cancel);
    t.put_flow([a, until_terminal("end").after([id("a")])], T0).await;
    assert_eq!(t.put(until_terminal("b"), T0).await, existing("end"));
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.put(until_terminal("b"), T0).await, inserted("b"));
    let denied = t.manage("end", requeue(), T0).await;
    assert_eq!(denied, Err(Denied::KeyHeld(id("b"))));
}

async fn a_key_until_terminal_is_free_when_its_flow_is_cancelled(t: DriverUnderTest) {
    t.put_flow([job("a"), until_terminal("end").after([id("a")])], T0).await;
    t.act("end", Action::CancelFlow, T0).await;
    assert_eq!(t.put(until_terminal("b"), T0).await, inserted("b"));
}

async fn a_key_until_terminal_is_free_when_its_marked_job_is_reclaimed(t: DriverUnderTest) {
    t.put(until_terminal("a"), T0).await;
    t.take_the("a", T0).await;
    t.act("a", Action::Cancel, T0).await;
    assert_eq!(t.put(until_terminal("b"), at(59)).await, existing("a"));
    assert_eq!(t.take(at(60)).await, None);
    assert_eq!(t.put(until_terminal("b"), at(60)).await, inserted("b"));
}

async fn a_key_until_terminal_waits_for_the_expansion_of_its_job(t: DriverUnderTest) {
    t.put(until_terminal("a"), T0).await;
    t.run("a", expand([job("x"), child("y", &["x"])]), T0).await;
    assert_eq!(t.put(until_terminal("b"), T0).await, existing("a"));
    t.run("x", ack(), T0).await;
    assert_eq!(t.put(until_terminal("b"), T0).await, existing("a"));
    t.run("y", fail(T0), T0).await;
    assert_eq!(t.put(until_terminal("b"), T0).await, inserted("b"));
}

async fn a_requeue_takes_a_key_until_terminal_again(t: DriverUnderTest) {
    for state in [State::Dlq, State::Cancelled] {
        let name = state.as_str();
        let keyed =
            |text| job_in(name, text).idempotency_key(key("k")).key_hold(KeyHold::UntilTerminal);
        t.bring(keyed(name), state).await;
        t.act(name, requeue(), T0).await;
        assert_eq!(t.put(keyed("second"), T0).await, existing(name));
        let leased = t.take_from(name, T0).await.expect("a grant");
        t.apply(&leased, ack(), T0).await;
        let second = format!("{name} second");
        assert_eq!(t.put(keyed(&second), T0).await, inserted(&second));
    }
}

async fn a_requeue_is_denied_while_another_job_holds_the_key(t: DriverUnderTest) {
    t.bring(until_terminal("a"), State::Dlq).await;
    t.put(until_terminal("b"), T0).await;
    let stored = t.snapshot(T0).await;
    for wish in [Requeue::new(), Requeue::new().reset_attempts(), Requeue::new().run_at(at(9))] {
        let answer = t.manage("a", Action::Requeue(wish), T0).await;
        assert_eq!(answer, Err(Denied::KeyHeld(id("b"))));
    }
    assert_eq!(t.snapshot(T0).await, stored);
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.act("a", requeue(), T0).await, State::Ready);
    assert_eq!(t.manage("b", requeue(), T0).await, Err(Denied::KeyHeld(id("a"))));
}

async fn a_requeued_tail_of_an_expansion_takes_the_key_again(t: DriverUnderTest) {
    t.put(until_terminal("a"), T0).await;
    t.run("a", expand([job("x")]), T0).await;
    t.run("x", fail(T0), T0).await;
    t.put(until_terminal("b"), T0).await;
    assert_eq!(t.manage("x", requeue(), T0).await, Err(Denied::KeyHeld(id("b"))));
    t.run("b", ack(), T0).await;
    assert_eq!(t.act("x", requeue(), T0).await, State::Ready);
    assert_eq!(t.put(until_terminal("c"), T0).await, existing("a"));
    t.run("x", ack(), T0).await;
    assert_eq!(t.put(until_terminal("c"), T0).await, inserted("c"));
}

async fn a_requeue_takes_no_key_of_another_hold(t: DriverUnderTest) {
    t.bring(for_a_time("a"), State::Dlq).await;
    assert_eq!(t.put(until_terminal("b"), at(100)).await, inserted("b"));
    assert_eq!(t.act("a", requeue(), at(100)).await, State::Ready);
    assert_eq!(t.put(until_terminal("c"), at(100)).await, existing("b"));
}

async fn a_key_for_a_time_is_free_at_exactly_its_end(t: DriverUnderTest) {
    for state in [State::Done, State::Dlq, State::Cancelled, State::Ready, State::Scheduled] {
        let name = state.as_str();
        let keyed = |text| job_in(name, text).idempotency_key(key("k"));
        t.bring(keyed(name).key_hold(KeyHold::For(Duration::from_secs(100))), state).await;
        for now in [T0, at(50), before(at(100))] {
            assert_eq!(t.put(keyed("second"), now).await, existing(name), "at {now}");
        }
        let second = format!("{name} second");
        assert_eq!(t.put(keyed(&second), at(100)).await, inserted(&second));
        assert_eq!(t.put(keyed("third"), at(100)).await, existing(&second));
        // By the time of the call alone: at an earlier one the new holder holds it too.
        assert_eq!(t.put(keyed("third"), at(50)).await, existing(&second));
    }
}

async fn a_key_for_a_time_outlives_a_purged_record(t: DriverUnderTest) {
    t.bring(for_a_time("a"), State::Cancelled).await;
    t.act("a", Action::Purge, at(1)).await;
    assert_eq!(t.find("a", at(1)).await, None);
    for now in [at(1), before(at(100))] {
        assert_eq!(t.put(keyed("b", KeyHold::UntilPruned), now).await, existing("a"));
    }
    assert_eq!(t.find("b", at(1)).await, None);
    assert_eq!(t.put(job("a"), at(2)).await, inserted("a"), "its id is free");
    assert_eq!(t.put(keyed("b", KeyHold::UntilPruned), at(3)).await, existing("a"));
    assert_eq!(t.put(keyed("b", KeyHold::UntilPruned), at(100)).await, inserted("b"));
}

async fn a_key_for_a_time_outlives_a_pruned_record(t: DriverUnderTest) {
    t.bring(for_a_time("a"), State::Done).await;
    let request = Prune::new(10, at(60)).done_before(at(60));
    assert_eq!(t.driver.prune(request).await.expect("prune"), 1);
    assert_eq!(t.put(for_a_time("b"), before(at(100))).await, existing("a"));
    assert_eq!(t.put(for_a_time("b"), at(100)).await, inserted("b"));
    assert_eq!(t.put(for_a_time("c"), before(at(200))).await, existing("b"));
    assert_eq!(t.put(for_a_time("c"), at(200)).await, inserted("c"));
}

async fn a_key_for_a_time_outlives_a_flow(t: DriverUnderTest) {
    t.put_flow([job("a"), for_a_time("end").after([id("a")])], T0).await;
    t.act("end", Action::CancelFlow, T0).await;
    t.act("end", Action::PurgeFlow, T0).await;
    assert_eq!(t.put(for_a_time("b"), at(99)).await, existing("end"));
    let flow = [job("x"), for_a_time("y").after([id("x")])];
    assert_eq!(t.put_flow(flow.clone(), at(99)).await, vec![existing("end"); 2]);
    assert_eq!(t.put_flow(flow, at(100)).await, [inserted("x"), inserted("y")]);
}

async fn a_key_for_a_time_is_free_while_its_job_is_not_terminal(t: DriverUnderTest) {
    t.put(for_a_time("a"), T0).await;
    let leased = t.take_the("a", at(90)).await;
    assert_eq!(t.put(for_a_time("b"), at(100)).await, inserted("b"));
    t.apply(&leased, ack(), at(101)).await;
    assert_eq!(t.put(for_a_time("c"), at(101)).await, existing("b"));
    t.act("a", Action::Purge, at(102)).await;
    assert_eq!(t.put(for_a_time("c"), at(102)).await, existing("b"), "the key is not that of a");
}

async fn a_key_that_outlived_its_job_denies_a_requeue(t: DriverUnderTest) {
    t.bring(until_terminal("a"), State::Dlq).await;
    t.bring(for_a_time("b"), State::Cancelled).await;
    assert_eq!(t.manage("a", requeue(), T0).await, Err(Denied::KeyHeld(id("b"))));
    t.act("b", Action::Purge, T0).await;
    let answer = t.manage("a", requeue(), before(at(100))).await;
    assert_eq!(answer, Err(Denied::KeyHeld(id("b"))));
    assert_eq!(t.act("a", requeue(), at(100)).await, State::Ready);
    assert!(!is_free(&t, at(100)).await);
}

async fn a_time_to_live_out_of_range_is_rejected(t: DriverUnderTest) {
    let longest = Duration::from_nanos(i64::MAX.unsigned_abs());
    let bad = [
        Duration::ZERO,
        Duration::from_nanos(999),
        Duration::from_nanos(1_500),
        longest + Duration::from_micros(1),
        Duration::MAX,
    ];
    for time in bad {
        let set = keyed("a", KeyHold::For(time));
        let answer = t.enqueue_set(set, T0).await;
        assert_eq!(answer, Err(Rejected::KeyTimeOutOfRange { job: id("a") }), "{time:?}");
    }
    assert_eq!(t.find("a", T0).await, None);
    assert!(is_free(&t, T0).await);
}

async fn the_longest_and_the_shortest_time_to_live_are_taken(t: DriverUnderTest) {
    let shortest = keyed("a", KeyHold::For(Duration::from_micros(1)));
    t.put(shortest, T0).await;
    assert_eq!(t.put(for_a_time("b"), T0).await, existing("a"));
    let longest = Duration::from_micros(i64::MAX.unsigned_abs() / 1_000);
    let now = T0.saturating_add(Duration::from_micros(1));
    assert_eq!(t.put(keyed("b", KeyHold::For(longest)), now).await, inserted("b"));
    let years = Duration::from_secs(200 * 365 * 24 * 60 * 60);
    assert_eq!(t.put(for_a_time("c"), T0.saturating_add(years)).await, existing("b"));
    assert_eq!(t.record("b", now).await.key_hold, KeyHold::For(longest));
}

async fn every_hold_is_stored(t: DriverUnderTest) {
    let holds = [
        KeyHold::UntilPruned,
        KeyHold::UntilDone,
        KeyHold::UntilTerminal,
        KeyHold::For(Duration::from_micros(1_234_567)),
    ];
    for (n, hold) in holds.into_iter().enumerate() {
        let text = n.to_string();
        t.put(job(&text).idempotency_key(key(&text)).key_hold(hold), T0).await;
        assert_eq!(t.record(&text, T0).await.key_hold, hold);
    }
}

async fn racing_enqueues_of_a_key_that_falls_free_store_one_job(t: DriverUnderTest) {
    t.put(for_a_time("first"), T0).await;
    let answers = at_once((0..12).map(|n| {
        let t = t.clone();
        async move { t.put(for_a_time(&format!("job {n}")), at(100)).await }
    }))
    .await;
    let new: Vec<_> = answers.iter().filter(|it| it.is_new()).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    assert!(answers.iter().all(|it| it.id() == new[0].id()));
}

async fn racing_requeues_of_two_jobs_with_one_key_leave_one_holder(t: DriverUnderTest) {
    for round in 0..8 {
        let name = format!("round {round}");
        let names = ["a", "b"].map(|text| format!("{text}{round}"));
        for text in &names {
            let keyed = job_in(&name, text).idempotency_key(key("k"));
            t.bring(keyed.key_hold(KeyHold::UntilTerminal), State::Dlq).await;
        }
        let answers = at_once(names.clone().map(|text| {
            let t = t.clone();
            async move { t.manage(&text, requeue(), T0).await }
        }))
        .await;
        match &answers[..] {
            [Ok(State::Ready), Err(Denied::KeyHeld(holder))] => assert_eq!(*holder, id(&names[0])),
            [Err(Denied::KeyHeld(holder)), Ok(State::Ready)] => assert_eq!(*holder, id(&names[1])),
            other => panic!("{other:?}"),
        }
    }
}
