//! The end of a lease: what its holder may do until then, and the next grant of the job.

use taskharbor_core::{
    Admin, State, Timestamp,
    admin::{Action, Manage},
    driver::{Extended, LeaseMark, LeaseToken, Leased, Settled},
    error::Refusal,
    job::FailurePolicy,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        LEASE, STRANGER, T0, ack, after, at, before, child, extension, fail, id, job, job_in, join,
        release, release_started, requeue, retry, settlement, transitions, with_token,
    },
};

group! {
    lease {
        a_holder_may_settle_its_job_in_the_last_instant ["LEA-1"]
        a_holder_may_extend_its_lease_in_the_last_instant ["LEA-1" "LEA-7"]
        a_holder_may_do_nothing_from_the_end_on ["LEA-1" "REF-2"]
        another_may_have_the_job_from_the_end_on ["RES-4"]
        nothing_happens_to_an_expired_job_by_itself ["LEA-1" "LEA-3"]
        a_reclaimed_job_forgets_its_time_and_counts_an_expiration ["LEA-4"]
        a_job_put_back_after_a_reclaim_has_no_time ["LEA-4" "SET-4"]
        a_granted_job_says_when_it_became_available ["JOB-8" "ORD-2"]
        a_reclaimed_job_stands_between_its_old_position_and_the_end_of_its_lease
            ["LEA-2" "ORD-1" "JOB-8"]
        a_job_whose_lease_has_ended_goes_before_one_that_fell_due_after_it ["LEA-2" "LEA-3"]
        a_released_job_keeps_the_position_that_its_reclaim_gave_it ["LEA-2" "SET-4" "ORD-3"]
        any_number_of_expired_jobs_is_granted_again ["LEA-2" "JOB-8"]
        reserve_goes_no_further_than_its_demand ["LEA-3" "RES-5"]
        only_the_demanded_queues_are_reclaimed ["LEA-3"]
        only_leases_that_have_ended_are_reclaimed ["LEA-3"]
        a_reclaimed_job_competes_in_the_same_call ["LEA-2"]
        expirations_are_counted_and_attempts_are_not ["LEA-4" "LEA-6" "LEA-12"]
        leases_that_no_worker_marked_count_once ["LEA-12"]
        a_lease_of_a_worker_that_announced_its_shutdown_does_not_count ["LEA-12"]
        a_mark_stays_until_another_is_given ["LEA-11"]
        a_mark_is_gone_with_its_lease ["LEA-11"]
        a_retry_forgets_the_expirations ["LEA-6"]
        a_release_after_the_start_forgets_the_expirations ["LEA-6"]
        a_requeue_forgets_the_expirations ["LEA-6"]
        nothing_else_forgets_the_expirations ["LEA-6"]
        tokens_of_all_earlier_grants_are_worthless ["LEA-10" "REF-1"]
        a_token_counts_in_all_its_bits ["LEA-10"]
        the_token_of_another_job_is_a_strangers ["LEA-10"]
        a_token_settles_its_job_alone_in_a_call_that_shows_it_twice ["LEA-10" "REF-2"]
        thousands_of_marked_jobs_keep_no_job_behind_them_from_its_worker ["LEA-5" "RES-5"]
        an_ack_racing_the_end_of_its_lease_wins_or_loses ["LEA-1" "RES-4"]
        an_extension_racing_the_end_of_its_lease_wins_or_loses ["LEA-1" "RES-4"]
    }
    flows {
        marked_jobs_are_cancelled_in_the_order_in_which_reserve_reaches_them ["LEA-5" "CAN-4"]
    }
}

/// Where leases end that are granted at the beginning.
const END: Timestamp = match Timestamp::from_micros(T0.as_micros() + 60_000_000) {
    Ok(end) => end,
    Err(_) => panic!("within the range"),
};

async fn a_holder_may_settle_its_job_in_the_last_instant(t: DriverUnderTest) {
    let now = before(END);
    for (n, transition) in transitions(now).into_iter().enumerate() {
        let name = n.to_string();
        let leased = t.bring(job_in(&name, &name), State::Inflight).await;
        let leased = leased.expect("a grant");
        assert_eq!(leased.lease.expires_at, END);
        t.apply(&leased, transition, now).await;
    }
    let states = t.states(&["0", "1", "2", "3"], now).await;
    let expected = [State::Done, State::Ready, State::Dlq, State::Ready];
    assert_eq!(states, expected);
}

async fn a_holder_may_extend_its_lease_in_the_last_instant(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let extended = t.extend(&leased, before(END), LEASE).await.expect("not refused");
    assert_eq!(extended.lease.expires_at, before(END).saturating_add(LEASE));
    assert!(!extended.cancel_requested);
}

async fn a_holder_may_do_nothing_from_the_end_on(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    for now in [END, after(END), at(1_000_000)] {
        t.refuses(&leased, Refusal::LeaseExpired, now).await;
    }
}

async fn another_may_have_the_job_from_the_end_on(t: DriverUnderTest) {
    for (name, now) in [("at the end", END), ("after it", after(END))] {
        t.put(job_in(name, name), T0).await;
        t.take_from(name, T0).await.expect("a grant");
        assert_eq!(t.take_from(name, before(END)).await, None);
        let leased = t.take_from(name, now).await.expect("a grant");
        assert_eq!(leased.lease.expires_at, now.saturating_add(LEASE));
    }
}

async fn nothing_happens_to_an_expired_job_by_itself(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.take_the("a", T0).await;
    let held = t.record("a", T0).await;
    t.take_from("another queue", at(1_000)).await;
    assert_eq!(t.record("a", at(1_000)).await, held);
}

async fn a_reclaimed_job_forgets_its_time_and_counts_an_expiration(t: DriverUnderTest) {
    t.put(job("a").run_at(T0).max_attempts(9), T0).await;
    t.run("a", retry(Some(at(1)), T0), T0).await;
    let mut expected = t.take_the("a", at(1)).await.job;
    assert_eq!((expected.attempts, expected.deliveries), (1, 2));
    let again = t.take_the("a", at(100)).await.job;
    (expected.run_at, expected.expirations, expected.deliveries) = (None, 1, 3);
    expected.available_at = again.available_at;
    assert_eq!(again, expected);
    assert_eq!(t.record("a", at(100)).await.job, expected, "as it is stored");
}

async fn a_job_put_back_after_a_reclaim_has_no_time(t: DriverUnderTest) {
    t.put(job("a").run_at(T0), T0).await;
    t.take_the("a", T0).await;
    let again = t.take_the("a", at(100)).await;
    t.apply(&again, release(None), at(101)).await;
    let record = t.record("a", at(101)).await;
    assert_eq!((record.job.run_at, record.job.expirations), (None, 1));
    assert_eq!(record.due_at, Some(again.job.available_at));
}

async fn a_granted_job_says_when_it_became_available(t: DriverUnderTest) {
    t.put(job("at once"), T0).await;
    assert_eq!(t.take_the("at once", at(9)).await.job.available_at, T0);
    t.put(job("scheduled").run_at(at(5)), T0).await;
    let scheduled = t.take_the("scheduled", at(9)).await;
    assert_eq!(scheduled.job.available_at, at(5));
    t.apply(&scheduled, retry(Some(at(11)), at(10)), at(10)).await;
    let retried = t.take_the("scheduled", at(20)).await;
    assert_eq!(retried.job.available_at, at(11));
    t.apply(&retried, release(None), at(21)).await;
    let released = t.take_the("scheduled", at(22)).await;
    assert_eq!(released.job.available_at, at(11));
    let record = t.record("scheduled", at(22)).await;
    assert_eq!(record.job.available_at, at(11), "as long as it is inflight");
}

async fn a_reclaimed_job_stands_between_its_old_position_and_the_end_of_its_lease(
    t: DriverUnderTest,
) {
    t.put(job("hung").run_at(at(2)), T0).await;
    t.take_the("hung", at(5)).await;
    let end = at(65);
    t.put(job("before").run_at(before(at(2))), T0).await;
    for (text, due) in [("between", at(30)), ("after", after(end))] {
        t.put(job(text), due).await;
    }
    let jobs = t.take_many(10, at(100)).await;
    let order: Vec<_> = jobs.iter().map(|it| it.job.id.as_str()).collect();
    let hung = jobs.iter().position(|it| it.job.id.as_str() == "hung").expect("granted");
    let position = jobs[hung].job.available_at;
    assert!(at(2) <= position && position <= end, "{position}");
    let first = if position <= at(30) { ["hung", "between"] } else { ["between", "hung"] };
    assert_eq!(order, ["before", first[0], first[1], "after"]);
}

async fn a_job_whose_lease_has_ended_goes_before_one_that_fell_due_after_it(t: DriverUnderTest) {
    t.put(job("hung"), T0).await;
    t.take_the("hung", T0).await;
    t.put(job("urgent").priority(1), at(70)).await;
    t.take_the("urgent", at(70)).await;
    assert_eq!(t.state("hung", at(70)).await, State::Inflight);
    t.put(job("later"), at(71)).await;
    assert_eq!(t.take_order(at(100)).await, ["hung", "later"]);
}

async fn a_released_job_keeps_the_position_that_its_reclaim_gave_it(t: DriverUnderTest) {
    t.put(job("hung"), T0).await;
    t.take_the("hung", T0).await;
    let again = t.take_the("hung", at(90)).await;
    t.apply(&again, release(None), at(90)).await;
    let position = t.record("hung", at(90)).await.due_at;
    assert_eq!(position, Some(again.job.available_at));
    assert!(Some(T0) <= position && position <= Some(END), "{position:?}");
}

async fn any_number_of_expired_jobs_is_granted_again(t: DriverUnderTest) {
    t.put_all((0..300).map(|n| job(&n.to_string())), T0).await;
    assert_eq!(t.take_many(300, T0).await.len(), 300);
    let mut order = Vec::new();
    while let Some(leased) = t.take(END).await {
        assert_eq!((leased.job.expirations, leased.job.deliveries), (1, 2));
        assert!(T0 <= leased.job.available_at && leased.job.available_at <= END);
        order.push(leased.job.id.to_string());
    }
    order.sort_by_key(|id| id.parse::<u32>().expect("a number"));
    let expected: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    assert_eq!(order, expected);
}

async fn marked_jobs_are_cancelled_in_the_order_in_which_reserve_reaches_them(t: DriverUnderTest) {
    // The second would stop the whole flow; the first, of a higher priority, completes the join.
    let jobs = [
        job("releases").on_failure(FailurePolicy::Continue).priority(1),
        job("stops").on_failure(FailurePolicy::FailFast),
        join("behind", &["releases"]),
        child("end", &["behind", "stops"]),
    ];
    t.put_flow(jobs, T0).await;
    t.take_the("releases", T0).await;
    t.take_the("stops", at(1)).await;
    t.act("releases", Action::Cancel, at(1)).await;
    t.act("stops", Action::Cancel, at(1)).await;
    assert_eq!(t.take(at(61)).await, None);
    let states = t.states(&["releases", "stops", "behind", "end"], at(61)).await;
    assert_eq!(states, [State::Cancelled, State::Cancelled, State::Done, State::Cancelled]);
}

async fn thousands_of_marked_jobs_keep_no_job_behind_them_from_its_worker(t: DriverUnderTest) {
    const MARKED: usize = 3_000;
    let names: Vec<String> = (0..MARKED).map(|n| format!("marked {n}")).collect();
    t.put_all(names.iter().map(|it| job(it)), T0).await;
    let leased = t.take_many(MARKED, T0).await;
    let ids = leased.iter().map(|it| it.job.id.clone()).collect();
    let answers = t.driver.manage(Manage::new(ids, Action::Cancel, T0)).await.expect("manage");
    assert!(answers.iter().all(|it| *it == Ok(State::Inflight)));
    t.put(job("behind"), END).await;
    // A call may stop when it has cancelled 500 of them, and asks to be repeated then.
    for _ in 0..=MARKED / 500 {
        let reserved = t.reserve(&[("q", 10)], END, LEASE).await.expect("reserve");
        if let [leased] = reserved.jobs.as_slice() {
            assert_eq!(leased.job.id, id("behind"));
            assert_eq!(t.counts(END).await[0].states.cancelled, MARKED);
            return;
        }
        assert_eq!(reserved.next_due, Some(after(END)));
    }
    panic!("the job was not granted");
}

async fn reserve_goes_no_further_than_its_demand(t: DriverUnderTest) {
    t.put_all([job("a").priority(1), job("b")], T0).await;
    assert_eq!(t.take_many(2, T0).await.len(), 2);
    t.act("b", Action::Cancel, T0).await;
    t.take_the("a", END).await;
    assert_eq!(t.state("b", END).await, State::Inflight);
    assert_eq!(t.take(END).await, None);
    assert_eq!(t.state("b", END).await, State::Cancelled);
}

async fn only_the_demanded_queues_are_reclaimed(t: DriverUnderTest) {
    for name in ["a", "b"] {
        t.bring(job_in(name, name), State::Inflight).await;
    }
    t.take_from("a", END).await.expect("a grant");
    let record = t.record("b", END).await;
    assert_eq!((record.state, record.job.expirations), (State::Inflight, 0));
}

async fn only_leases_that_have_ended_are_reclaimed(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    t.take_the("a", T0).await;
    t.take_the("b", after(T0)).await;
    t.take_the("a", END).await;
    let record = t.record("b", END).await;
    assert_eq!((record.state, record.job.expirations), (State::Inflight, 0));
}

async fn a_reclaimed_job_competes_in_the_same_call(t: DriverUnderTest) {
    t.put(job("hung").priority(5), T0).await;
    t.take_the("hung", T0).await;
    t.put(job("low"), T0).await;
    let leased = t.take_the("hung", END).await;
    assert_eq!((leased.job.deliveries, leased.job.expirations), (2, 1));
    assert_eq!(leased.job.run_at, None);
}

async fn expirations_are_counted_and_attempts_are_not(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    for n in 0..4 {
        let leased = t.take_the("a", at(n * 100)).await;
        assert_eq!(u64::from(leased.job.expirations), n);
        assert_eq!(u64::from(t.record("a", at(n * 100)).await.job.expirations), n);
        assert_eq!(leased.job.attempts, 0);
        assert_eq!(leased.job.failed_at, None);
        mark(&t, &leased, LeaseMark::Started, at(n * 100)).await;
    }
}

/// The same job, with a lease that its holder has marked.
pub(super) async fn mark(
    t: &DriverUnderTest,
    leased: &Leased,
    mark: LeaseMark,
    now: Timestamp,
) -> Leased {
    let mut answers = t.extend_all(vec![extension(leased).mark(mark)], now, LEASE).await;
    let extended = answers.remove(0).expect("not refused");
    Leased::new(leased.job.clone(), extended.lease)
}

async fn leases_that_no_worker_marked_count_once(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    for n in 0..4 {
        let leased = t.take_the("a", at(n * 100)).await;
        assert_eq!(u64::from(leased.job.expirations), n.min(1));
    }
}

async fn a_lease_of_a_worker_that_announced_its_shutdown_does_not_count(t: DriverUnderTest) {
    let leased = expired_once(&t).await;
    mark(&t, &leased, LeaseMark::Started, at(100)).await;
    let leased = t.take_the("a", at(200)).await;
    assert_eq!(leased.job.expirations, 2);
    let leased = mark(&t, &leased, LeaseMark::Started, at(200)).await;
    mark(&t, &leased, LeaseMark::Leaving, at(210)).await;
    assert_eq!(t.record("a", at(210)).await.job.expirations, 2);
    let leased = t.take_the("a", at(300)).await;
    assert_eq!(leased.job.expirations, 0);
    assert_eq!(t.record("a", at(300)).await.job.expirations, 0);
}

async fn a_mark_stays_until_another_is_given(t: DriverUnderTest) {
    let leased = expired_once(&t).await;
    let leased = mark(&t, &leased, LeaseMark::Started, at(100)).await;
    t.extend(&leased, at(110), LEASE).await.expect("not refused");
    let leased = t.take_the("a", at(200)).await;
    assert_eq!(leased.job.expirations, 2);
    let leased = mark(&t, &leased, LeaseMark::Leaving, at(200)).await;
    t.extend(&leased, at(210), LEASE).await.expect("not refused");
    assert_eq!(t.take_the("a", at(300)).await.job.expirations, 0);
}

async fn a_mark_is_gone_with_its_lease(t: DriverUnderTest) {
    let leased = expired_once(&t).await;
    mark(&t, &leased, LeaseMark::Started, at(100)).await;
    // Reclaimed, and granted without a mark.
    assert_eq!(t.take_the("a", at(200)).await.job.expirations, 2);
    let leased = t.take_the("a", at(300)).await;
    assert_eq!(leased.job.expirations, 2);
    let leased = mark(&t, &leased, LeaseMark::Started, at(300)).await;
    t.apply(&leased, release(None), at(300)).await;
    t.take_the("a", at(300)).await;
    assert_eq!(t.take_the("a", at(400)).await.job.expirations, 2);
}

/// The job `a`, inflight after its lease ran out once, until `at(160)`.
async fn expired_once(t: &DriverUnderTest) -> Leased {
    t.put(job("a"), T0).await;
    t.take_the("a", T0).await;
    let leased = t.take_the("a", at(100)).await;
    assert_eq!(leased.job.expirations, 1);
    leased
}

async fn a_retry_forgets_the_expirations(t: DriverUnderTest) {
    let leased = expired_once(&t).await;
    t.apply(&leased, retry(None, at(100)), at(100)).await;
    assert_eq!(t.record("a", at(100)).await.job.expirations, 0);
}

async fn a_release_after_the_start_forgets_the_expirations(t: DriverUnderTest) {
    let leased = expired_once(&t).await;
    t.apply(&leased, release_started(None), at(100)).await;
    assert_eq!(t.record("a", at(100)).await.job.expirations, 0);
    t.take_the("a", at(100)).await;
    let leased = t.take_the("a", at(200)).await;
    assert_eq!(leased.job.expirations, 1);
    t.apply(&leased, release_started(Some(at(210))), at(200)).await;
    let leased = t.take_the("a", at(210)).await;
    assert_eq!((leased.job.expirations, leased.job.attempts), (0, 0));
}

async fn a_requeue_forgets_the_expirations(t: DriverUnderTest) {
    let leased = expired_once(&t).await;
    t.apply(&leased, fail(at(100)), at(100)).await;
    assert_eq!(t.record("a", at(100)).await.job.expirations, 1);
    t.act("a", requeue(), at(100)).await;
    assert_eq!(t.record("a", at(100)).await.job.expirations, 0);
}

async fn nothing_else_forgets_the_expirations(t: DriverUnderTest) {
    let leased = expired_once(&t).await;
    mark(&t, &leased, LeaseMark::Started, at(110)).await;
    assert_eq!(t.record("a", at(110)).await.job.expirations, 1);
    let leased = t.take_the("a", at(170)).await;
    t.apply(&leased, release(None), at(170)).await;
    assert_eq!(t.record("a", at(170)).await.job.expirations, 2);
    t.run("a", release(Some(at(180))), at(170)).await;
    let leased = t.take_the("a", at(180)).await;
    assert_eq!(leased.job.expirations, 2);
    t.apply(&leased, ack(), at(180)).await;
    assert_eq!(t.record("a", at(180)).await.job.expirations, 2);
}

async fn tokens_of_all_earlier_grants_are_worthless(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let mut grants = Vec::new();
    for n in 0..4 {
        grants.push(t.take_the("a", at(n * 100)).await);
    }
    let current = grants.pop().expect("four grants");
    for stale in &grants {
        // By its own lease as well as by the current one, and when that is over too.
        for now in [before(stale.lease.expires_at), at(301), at(1_000)] {
            t.refuses(stale, Refusal::LeaseMismatch, now).await;
        }
    }
    t.apply(&current, ack(), at(301)).await;
    for stale in &grants {
        t.refuses(stale, Refusal::JobNotInflight, at(302)).await;
    }
}

async fn a_token_counts_in_all_its_bits(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let stored = t.snapshot(T0).await;
    for bit in 0..128 {
        let token = leased.lease.token.to_bits() ^ (1 << bit);
        let other = with_token(&leased, LeaseToken::from_bits(token));
        let answer = t.settle(&other, ack(), T0).await;
        assert_eq!(answer, Err(Refusal::LeaseMismatch), "bit {bit}");
    }
    assert_eq!(t.snapshot(T0).await, stored);
    t.apply(&leased, ack(), T0).await;
}

async fn the_token_of_another_job_is_a_strangers(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    let (a, b) = (t.take_the("a", T0).await, t.take_the("b", T0).await);
    t.refuses(&with_token(&a, b.lease.token), Refusal::LeaseMismatch, T0).await;
    t.refuses(&with_token(&b, STRANGER), Refusal::LeaseMismatch, T0).await;
    t.apply(&a, ack(), T0).await;
    t.apply(&b, ack(), T0).await;
}

async fn a_token_settles_its_job_alone_in_a_call_that_shows_it_twice(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    let (a, b) = (t.take_the("a", T0).await, t.take_the("b", T0).await);
    let stolen = with_token(&b, a.lease.token);
    let items = vec![settlement(&a, ack()), settlement(&stolen, ack())];
    let answers = t.settle_all(items, T0).await;
    assert_eq!(answers, [Ok(Settled::Applied), Err(Refusal::LeaseMismatch)]);
    assert_eq!(t.states(&["a", "b"], T0).await, [State::Done, State::Inflight]);
    t.apply(&b, ack(), T0).await;
}

/// What came of a meeting at the end of a lease.
#[derive(Debug)]
enum Met {
    Settled(Result<Settled, Refusal>),
    Extended(Result<Extended, Refusal>),
    Granted(Option<Box<Leased>>),
}

async fn an_ack_racing_the_end_of_its_lease_wins_or_loses(t: DriverUnderTest) {
    for round in 0..40 {
        let name = round.to_string();
        let leased = t.bring(job_in(&name, &name), State::Inflight).await;
        let answers = at_once([true, false].map(|acks| {
            let (t, leased, name) = (t.clone(), leased.clone(), name.clone());
            async move {
                if acks {
                    let leased = leased.expect("a grant");
                    return Met::Settled(t.settle(&leased, ack(), before(END)).await);
                }
                Met::Granted(t.take_from(&name, END).await.map(Box::new))
            }
        }))
        .await;
        let state = match &answers[..] {
            [Met::Settled(Ok(Settled::Applied)), Met::Granted(None)] => State::Done,
            [Met::Settled(Err(_)), Met::Granted(Some(_))] => State::Inflight,
            other => panic!("{other:?}"),
        };
        let record = t.record(&name, END).await;
        assert_eq!(record.state, state);
        assert_eq!(record.job.expirations, u32::from(state == State::Inflight));
    }
}

async fn an_extension_racing_the_end_of_its_lease_wins_or_loses(t: DriverUnderTest) {
    for round in 0..40 {
        let name = round.to_string();
        let leased = t.bring(job_in(&name, &name), State::Inflight).await;
        let answers = at_once([true, false].map(|extends| {
            let (t, leased, name) = (t.clone(), leased.clone(), name.clone());
            async move {
                if extends {
                    let leased = leased.expect("a grant");
                    return Met::Extended(t.extend(&leased, before(END), LEASE).await);
                }
                Met::Granted(t.take_from(&name, END).await.map(Box::new))
            }
        }))
        .await;
        let end = match &answers[..] {
            [Met::Extended(Ok(it)), Met::Granted(None)] => it.lease.expires_at,
            [Met::Extended(Err(_)), Met::Granted(Some(it))] => it.lease.expires_at,
            other => panic!("{other:?}"),
        };
        let held = t.record(&name, END).await.held.expect("held");
        assert_eq!(held.expires_at, end);
    }
}
