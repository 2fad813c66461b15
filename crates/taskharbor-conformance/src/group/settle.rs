//! Recording the outcomes of inflight jobs.

use taskharbor_core::{
    Blob, Driver, DriverError, State, Text,
    driver::{Leased, Limits, LockWait, Settle, Settled, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    job::{FailedAttempt, JobRecord},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        LEASE, T0, ack, ack_with, at, done_with, expand, fail, id, job, job_in, release, requeue,
        retry, settlement, transitions,
    },
};

group! {
    settle {
        an_ack_makes_the_job_done_with_its_output ["SET-1"]
        an_output_may_be_absent_and_an_empty_one_is_not ["SET-1"]
        a_retry_puts_the_job_back_until_its_time ["SET-2"]
        a_retry_without_a_time_is_due_now ["SET-2"]
        a_failed_job_is_dead_lettered_with_its_reason ["SET-3"]
        a_released_job_is_back_in_its_old_position ["SET-4"]
        a_job_released_until_later_waits_with_nothing_charged ["SET-4"]
        a_job_put_back_is_granted_at_once ["SET-2" "SET-4"]
        attempts_become_what_was_given ["SET-2" "SET-3"]
        the_last_ten_failures_are_kept ["JOB-7"]
        the_worker_sees_the_last_failure ["JOB-7"]
        deliveries_count_grants_and_nothing_else ["JOB-6"]
        one_call_may_settle_in_every_way ["SET-9" "REF-3"]
        nothing_is_settled_by_an_empty_call ["SET-9"]
        an_output_of_the_greatest_size_is_stored ["SET-1" "SET-11"]
        a_larger_output_is_refused ["SET-11" "REF-3"]
        more_attempts_than_can_be_stored_are_refused ["SET-11"]
        of_racing_settlements_of_one_kind_one_is_applied ["SET-10"]
        racing_calls_in_opposite_orders_settle_every_job_once ["SET-10"]
        the_time_of_the_last_grant_is_kept ["JOB-6"]
        a_settlement_that_is_refused_as_busy_changed_nothing ["REF-6" "SET-10"]
    }
    flows {
        items_are_settled_in_the_order_given ["SET-9"]
        of_racing_settlements_of_all_kinds_one_is_applied ["SET-10"]
        concurrent_settlements_in_one_flow_are_all_applied ["REF-6" "FLO-8"]
    }
}

/// The job `a`, which has a time of its own and an attempt behind it, reserved at `at(10)`; and
/// its record.
async fn inflight(t: &DriverUnderTest) -> (Leased, JobRecord) {
    t.put(job("a").run_at(at(1)).max_attempts(5), T0).await;
    t.run("a", retry(Some(at(5)), at(2)), at(2)).await;
    let leased = t.take_the("a", at(10)).await;
    let record = t.record("a", at(10)).await;
    assert_eq!((record.job.deliveries, record.errors.len()), (2, 1));
    (leased, record)
}

/// The failure of the second attempt, which was noticed a little before it was reported.
fn second_failure() -> FailedAttempt {
    FailedAttempt::new(2, "it broke", at(19))
}

/// The record with the failure noted.
fn note(record: &mut JobRecord, failure: FailedAttempt) {
    record.job.attempts = failure.attempts;
    record.job.last_error = Some(failure.error.clone());
    record.job.failed_at = Some(failure.failed_at);
    record.errors.push(failure);
}

async fn an_ack_makes_the_job_done_with_its_output(t: DriverUnderTest) {
    let (leased, mut expected) = inflight(&t).await;
    t.apply(&leased, ack_with("result"), at(20)).await;
    expected.state = State::Done;
    expected.held = None;
    expected.output = Some(Blob::from(b"result"));
    expected.finished_at = Some(at(20));
    expected.job.available_at = expected.job.created_at;
    assert_eq!(t.record("a", at(20)).await, expected);
    assert_eq!(t.output("a").await, [done_with("result")]);
}

async fn an_output_may_be_absent_and_an_empty_one_is_not(t: DriverUnderTest) {
    t.put_all(["none", "empty"].map(job), T0).await;
    t.run("none", ack(), T0).await;
    t.run("empty", ack_with(""), T0).await;
    assert_eq!(t.record("none", T0).await.output, None);
    assert_eq!(t.record("empty", T0).await.output, Some(Blob::from(b"")));
}

async fn a_retry_puts_the_job_back_until_its_time(t: DriverUnderTest) {
    let (leased, mut expected) = inflight(&t).await;
    let (failure, run_at) = (second_failure(), Some(at(30)));
    t.apply(&leased, Transition::Retry { failure, run_at }, at(20)).await;
    note(&mut expected, second_failure());
    expected.state = State::Scheduled;
    expected.held = None;
    expected.due_at = run_at;
    expected.job.run_at = run_at;
    expected.job.available_at = at(30);
    assert_eq!(t.record("a", at(20)).await, expected);
    expected.state = State::Ready;
    assert_eq!(t.record("a", at(30)).await, expected);
}

async fn a_retry_without_a_time_is_due_now(t: DriverUnderTest) {
    let (leased, mut expected) = inflight(&t).await;
    let (failure, run_at) = (second_failure(), None);
    t.apply(&leased, Transition::Retry { failure, run_at }, at(20)).await;
    note(&mut expected, second_failure());
    expected.state = State::Ready;
    expected.held = None;
    expected.due_at = Some(at(20));
    expected.job.run_at = None;
    expected.job.available_at = at(20);
    assert_eq!(t.record("a", at(20)).await, expected);
}

async fn a_failed_job_is_dead_lettered_with_its_reason(t: DriverUnderTest) {
    let (leased, mut expected) = inflight(&t).await;
    let (failure, reason) = (second_failure(), Text::new("no attempts left"));
    let transition = Transition::Fail { failure, reason };
    t.apply(&leased, transition, at(20)).await;
    note(&mut expected, second_failure());
    expected.state = State::Dlq;
    expected.held = None;
    expected.reason = Some(Text::new("no attempts left"));
    expected.finished_at = Some(at(20));
    expected.job.available_at = expected.job.created_at;
    assert_eq!(t.record("a", at(20)).await, expected);
}

async fn a_released_job_is_back_in_its_old_position(t: DriverUnderTest) {
    let (leased, mut expected) = inflight(&t).await;
    t.apply(&leased, release(None), at(20)).await;
    expected.state = State::Ready;
    expected.held = None;
    expected.due_at = Some(at(5));
    assert_eq!(t.record("a", at(20)).await, expected);
}

async fn a_job_released_until_later_waits_with_nothing_charged(t: DriverUnderTest) {
    let (leased, mut expected) = inflight(&t).await;
    t.apply(&leased, release(Some(at(30))), at(20)).await;
    expected.state = State::Scheduled;
    expected.held = None;
    expected.due_at = Some(at(30));
    expected.job.run_at = Some(at(30));
    expected.job.available_at = at(30);
    assert_eq!(t.record("a", at(20)).await, expected);
}

async fn a_job_put_back_is_granted_at_once(t: DriverUnderTest) {
    for (text, transition) in [("retried", retry(None, at(1))), ("released", release(None))] {
        t.put(job_in(text, text), T0).await;
        let leased = t.take_from(text, T0).await.expect("a grant");
        t.apply(&leased, transition, at(1)).await;
        let again = t.take_from(text, at(1)).await.expect("a grant");
        assert_eq!(again.lease.expires_at, at(1).saturating_add(LEASE));
        t.apply(&again, ack(), at(2)).await;
    }
}

async fn attempts_become_what_was_given(t: DriverUnderTest) {
    t.put(job("a").max_attempts(2), T0).await;
    // The caller decides: nothing is added up, and no maximum ends the job by itself.
    for attempts in [1, 7, 3, 0, Limits::MAX_ATTEMPTS] {
        let failure = FailedAttempt::new(attempts, "error", T0);
        t.run("a", Transition::Retry { failure, run_at: None }, T0).await;
        let record = t.record("a", T0).await;
        assert_eq!((record.state, record.job.attempts), (State::Ready, attempts));
        assert_eq!(record.job.max_attempts, Some(2));
    }
    let failure = FailedAttempt::new(4, "error", T0);
    let reason = Text::new("enough");
    t.run("a", Transition::Fail { failure, reason }, T0).await;
    assert_eq!(t.record("a", T0).await.job.attempts, 4);
}

async fn the_last_ten_failures_are_kept(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let failures: Vec<_> = (1..=13_u32)
        .map(|n| FailedAttempt::new(n, format!("error {n}"), at(u64::from(100 - n))))
        .collect();
    let (last, retried) = failures.split_last().expect("thirteen");
    for (n, failure) in retried.iter().enumerate() {
        let (failure, run_at) = (failure.clone(), None);
        t.run("a", Transition::Retry { failure, run_at }, T0).await;
        let record = t.record("a", T0).await;
        assert_eq!(record.errors, failures[(n + 1).saturating_sub(10)..=n]);
    }
    let (failure, reason) = (last.clone(), Text::new("enough"));
    t.run("a", Transition::Fail { failure, reason }, T0).await;
    let record = t.record("a", T0).await;
    assert_eq!(record.errors, failures[3..]);
    assert_eq!(record.job.last_error, Some(Text::new("error 13")));
    assert_eq!(record.job.failed_at, Some(at(87)));
}

async fn the_worker_sees_the_last_failure(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", Transition::Retry { failure: second_failure(), run_at: None }, T0).await;
    let seen = t.take_the("a", at(30)).await.job;
    assert_eq!(seen.attempts, 2);
    assert_eq!(seen.last_error, Some(Text::new("it broke")));
    assert_eq!(seen.failed_at, Some(at(19)));
}

async fn deliveries_count_grants_and_nothing_else(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let deliveries = async |now| t.record("a", now).await.job.deliveries;
    assert_eq!(deliveries(T0).await, 0);
    t.run("a", retry(None, T0), T0).await;
    assert_eq!(deliveries(T0).await, 1);
    t.run("a", release(None), at(1)).await;
    assert_eq!(deliveries(at(1)).await, 2);
    let leased = t.take_the("a", at(2)).await;
    assert_eq!(leased.job.deliveries, 3);
    t.extend(&leased, at(3), LEASE).await.expect("not refused");
    assert_eq!(t.take(at(4)).await, None);
    assert_eq!(deliveries(at(4)).await, 3);
    // Taken back behind another job, it is not granted again yet.
    t.put(job("first").priority(1), at(4)).await;
    t.take_the("first", at(100)).await;
    assert_eq!(deliveries(at(100)).await, 3);
    t.run("a", fail(at(100)), at(100)).await;
    t.act("a", requeue(), at(100)).await;
    assert_eq!(deliveries(at(100)).await, 4);
    t.run("a", ack(), at(100)).await;
    assert_eq!(deliveries(at(100)).await, 5);
}

async fn items_are_settled_in_the_order_given(t: DriverUnderTest) {
    t.put_all(["a", "b", "c", "d"].map(job), T0).await;
    let jobs = t.take_many(4, T0).await;
    // The first item stores the job; for the second it is stored already.
    let expanding = |nth: usize, text: &str| settlement(&jobs[nth], expand([job(text)]));
    let overlap = |text: &str| Rejected::Overlap { job: id(text) };
    let refused = |text| Err(Refusal::Invalid(InvalidTransition::Expansion(overlap(text))));
    let answers = t.settle_all(vec![expanding(0, "x"), expanding(1, "x")], T0).await;
    assert_eq!(answers, [Ok(Settled::Applied), refused("x")]);
    let answers = t.settle_all(vec![expanding(3, "y"), expanding(2, "y")], T0).await;
    assert_eq!(answers, [Ok(Settled::Applied), refused("y")]);
    let states = t.states(&["a", "b", "c", "d"], T0).await;
    let expected = [State::Done, State::Inflight, State::Inflight, State::Done];
    assert_eq!(states, expected);
}

async fn one_call_may_settle_in_every_way(t: DriverUnderTest) {
    t.put_all((0..4).map(|n| job(&n.to_string())), T0).await;
    let jobs = t.take_many(4, T0).await;
    let items = jobs.iter().zip(transitions(at(1)));
    let items = items.map(|(leased, transition)| settlement(leased, transition)).rev();
    let answers = t.settle_all(items.collect(), at(1)).await;
    assert_eq!(answers, [const { Ok(Settled::Applied) }; 4]);
    let states = t.states(&["0", "1", "2", "3"], at(1)).await;
    let expected = [State::Done, State::Ready, State::Dlq, State::Ready];
    assert_eq!(states, expected);
}

async fn nothing_is_settled_by_an_empty_call(t: DriverUnderTest) {
    assert_eq!(t.settle_all(Vec::new(), T0).await, []);
}

async fn an_output_of_the_greatest_size_is_stored(t: DriverUnderTest) {
    let output: Vec<u8> = (0..Limits::MAX_OUTPUT_BYTES).map(|n| n.to_le_bytes()[0]).collect();
    let output = Some(Blob::from(output));
    t.put(job("a"), T0).await;
    t.run("a", Transition::Ack { output: output.clone() }, T0).await;
    assert_eq!(t.record("a", T0).await.output, output);
}

async fn a_larger_output_is_refused(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    let jobs = t.take_many(2, T0).await;
    let stored = t.record("a", T0).await;
    let (bytes, max) = (Limits::MAX_OUTPUT_BYTES + 1, Limits::MAX_OUTPUT_BYTES);
    let output = Some(Blob::from(vec![0; bytes]));
    let large = settlement(&jobs[0], Transition::Ack { output });
    let answers = t.settle_all(vec![large, settlement(&jobs[1], ack())], T0).await;
    let refused = Refusal::Invalid(InvalidTransition::OutputTooLarge { bytes, max });
    assert_eq!(answers, [Err(refused), Ok(Settled::Applied)]);
    assert_eq!(t.record("a", T0).await, stored);
    t.apply(&jobs[0], ack_with("smaller"), T0).await;
}

async fn more_attempts_than_can_be_stored_are_refused(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let stored = t.snapshot(T0).await;
    for attempts in [Limits::MAX_ATTEMPTS + 1, u32::MAX] {
        let failure = FailedAttempt::new(attempts, "error", T0);
        let reason = Text::new("enough");
        let refused = Refusal::Invalid(InvalidTransition::AttemptsOutOfRange(attempts));
        for transition in [
            Transition::Retry { failure: failure.clone(), run_at: None },
            Transition::Fail { failure, reason },
        ] {
            assert_eq!(t.settle(&leased, transition, T0).await, Err(refused.clone()));
        }
    }
    assert_eq!(t.snapshot(T0).await, stored);
}

/// Settles one job in twelve ways at once; the way that was applied.
async fn one_of(
    t: &DriverUnderTest,
    round: usize,
    ways: impl Fn(usize) -> Transition,
) -> Transition {
    let name = format!("job {round}");
    let leased = t.bring(job_in(&name, &name), State::Inflight).await.expect("a grant");
    let answers = at_once((0..12).map(|nth| {
        let (t, leased, way) = (t.clone(), leased.clone(), ways(nth));
        async move { t.settle(&leased, way, at(1)).await }
    }))
    .await;
    let applied: Vec<_> = (0..12).filter(|nth| answers[*nth] == Ok(Settled::Applied)).collect();
    let [winner] = applied[..] else { panic!("applied {applied:?} of {answers:?}") };
    let record = t.record(&name, at(1)).await;
    for (nth, answer) in answers.iter().enumerate().filter(|(nth, _)| *nth != winner) {
        let repeats = record.state.is_terminal() && ways(nth).step() == ways(winner).step();
        let expected = match repeats {
            true => Ok(Settled::AlreadyTerminal),
            false => Err(Refusal::JobNotInflight),
        };
        assert_eq!(*answer, expected, "{:?} after {:?}", ways(nth), ways(winner));
    }
    let expected = match ways(winner) {
        Transition::Ack { .. } => (State::Done, 0),
        Transition::Fail { failure, .. } => (State::Dlq, failure.attempts),
        Transition::Retry { failure, .. } => (State::Ready, failure.attempts),
        _ => (State::Ready, 0),
    };
    assert_eq!((record.state, record.job.attempts), expected);
    assert_eq!(record.errors.len(), usize::from(expected.1 > 0));
    ways(winner)
}

async fn of_racing_settlements_of_one_kind_one_is_applied(t: DriverUnderTest) {
    for (round, way) in transitions(at(1)).into_iter().enumerate() {
        for repeat in 0..3 {
            one_of(&t, round * 3 + repeat, |_| way.clone()).await;
        }
    }
}

async fn of_racing_settlements_of_all_kinds_one_is_applied(t: DriverUnderTest) {
    for round in 0..16 {
        let won = one_of(&t, round, |nth| match transitions(at(1))[nth % 4].clone() {
            Transition::Ack { .. } => ack_with(&nth.to_string()),
            other => other,
        })
        .await;
        if let Transition::Ack { output } = won {
            let record = t.record(&format!("job {round}"), at(1)).await;
            assert_eq!(record.output, output);
        }
    }
}

async fn racing_calls_in_opposite_orders_settle_every_job_once(t: DriverUnderTest) {
    t.put_all((0..40).map(|n| job(&n.to_string())), T0).await;
    let jobs = t.take_many(40, T0).await;
    let answers = at_once((0..6).map(|nth| {
        let (t, mut jobs) = (t.clone(), jobs.clone());
        let is_reversed = nth % 2 == 1;
        if is_reversed {
            jobs.reverse();
        }
        async move {
            let items = jobs.iter().map(|it| settlement(it, ack())).collect();
            let mut answers = t.settle_all(items, T0).await;
            if is_reversed {
                answers.reverse();
            }
            answers
        }
    }))
    .await;
    for n in 0..40 {
        let of_job: Vec<_> = answers.iter().map(|of_call| of_call[n].clone()).collect();
        let count = |wanted| of_job.iter().filter(|it| **it == Ok(wanted)).count();
        let counts = (count(Settled::Applied), count(Settled::AlreadyTerminal));
        assert_eq!(counts, (1, 5), "{of_job:?}");
    }
}

async fn the_time_of_the_last_grant_is_kept(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    assert_eq!(t.record("a", T0).await.started_at, None);
    t.run("a", retry(None, at(1)), at(1)).await;
    assert_eq!(t.record("a", at(1)).await.started_at, Some(at(1)));
    let leased = t.take_the("a", at(5)).await;
    assert_eq!(t.record("a", at(6)).await.started_at, Some(at(5)));
    t.apply(&leased, ack(), at(7)).await;
    let record = t.record("a", at(8)).await;
    assert_eq!((record.started_at, record.finished_at), (Some(at(5)), Some(at(7))));
}

/// Settles a job with a short lock wait, and repeats this until it is not refused as busy.
async fn settle_until_not_busy(t: &DriverUnderTest, leased: &Leased) -> Result<Settled, Refusal> {
    for _ in 0..10_000 {
        let request = Settle::new(vec![settlement(leased, ack())], T0).lock_wait(LockWait::Short);
        match t.driver.settle(request).await {
            Ok(mut answers) => match answers.remove(0) {
                Err(Refusal::Busy) => {}
                answer => return answer,
            },
            Err(DriverError::Unavailable(_)) => {}
            Err(error) => panic!("settle: {error}"),
        }
        tokio::task::yield_now().await;
    }
    panic!("the job stays busy");
}

async fn a_settlement_that_is_refused_as_busy_changed_nothing(t: DriverUnderTest) {
    for round in 0..4 {
        let name = format!("round {round}");
        let jobs = (0..6).map(|n| job_in(&name, &format!("{n} of {name}")));
        t.put_all(jobs, T0).await;
        let leased = t.reserve(&[(&name, 6)], T0, LEASE).await.expect("reserve").jobs;
        let answers = at_once(leased.into_iter().map(|leased| {
            let t = t.clone();
            async move { settle_until_not_busy(&t, &leased).await }
        }));
        // What was refused left nothing behind, so that each is applied once and not repeated.
        assert_eq!(answers.await, vec![Ok(Settled::Applied); 6]);
    }
}

async fn concurrent_settlements_in_one_flow_are_all_applied(t: DriverUnderTest) {
    for round in 0..4 {
        let names: Vec<_> = (0..6).map(|n| format!("{n} of {round}")).collect();
        let end = format!("end of {round}");
        let jobs = names.iter().map(|text| job(text));
        let end_job = job_in("ends", &end).after(names.iter().map(|text| id(text)));
        t.put_flow(jobs.chain([end_job]), T0).await;
        let leased = t.take_many(6, T0).await;
        let answers = at_once(leased.into_iter().map(|leased| {
            let t = t.clone();
            async move { settle_until_not_busy(&t, &leased).await }
        }));
        assert_eq!(answers.await, vec![Ok(Settled::Applied); 6]);
        let leased = t.take_from("ends", T0).await.expect("a grant");
        assert_eq!(leased.job.id, id(&end));
    }
}
