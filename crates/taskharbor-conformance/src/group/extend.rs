//! Extending leases: never shorter, with progress, and with the token of the answer.

use std::time::Duration;

use taskharbor_core::{
    Driver, DriverError, Text, Timestamp,
    admin::Action,
    driver::{ExtendLeases, Extension, Leased},
    error::Refusal,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, STRANGER, T0, TICK, ack, after, at, before, extension, fail, job, release, requeue,
        retry,
    },
};

group! {
    extend {
        a_lease_is_extended_to_now_and_its_length ["LEA-7" "LEA-8"]
        a_lease_is_never_shortened ["LEA-7"]
        an_extended_lease_lasts_until_its_new_end ["LEA-1" "LEA-7"]
        another_has_the_job_at_the_new_end ["LEA-7" "RES-4"]
        only_the_token_of_the_answer_counts ["LEA-8"]
        many_leases_are_extended_in_one_call ["LEA-7" "LEA-8"]
        an_invalid_lease_duration_is_refused_and_changes_nothing ["TIM-3"]
        a_lease_may_be_extended_to_the_last_instant ["TIM-3" "LEA-7"]
        nothing_is_extended_by_an_empty_call ["LEA-8"]
        progress_is_kept_until_other_is_given ["LEA-9"]
        progress_is_stored_when_the_lease_stays_as_it_is ["LEA-7" "LEA-9"]
        progress_is_forgotten_at_the_next_grant ["LEA-9"]
        progress_is_forgotten_when_an_expired_job_is_granted ["LEA-9"]
        progress_stays_with_a_terminal_job ["LEA-9"]
        progress_of_an_earlier_life_is_kept_until_the_next_grant ["LEA-9"]
        a_refused_report_is_not_stored ["LEA-9" "REF-2"]
    }
    flows {}
}

/// Extends a lease with a report of progress.
async fn report(t: &DriverUnderTest, leased: &Leased, progress: &str, now: Timestamp) -> Leased {
    let item = extension(leased).progress(Text::new(progress));
    let answer = t.extend_all(vec![item], now, LEASE).await.remove(0);
    Leased::new(leased.job.clone(), answer.expect("not refused").lease)
}

async fn progress(t: &DriverUnderTest, now: Timestamp) -> Option<Text> {
    t.record("a", now).await.progress
}

async fn a_lease_is_extended_to_now_and_its_length(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let mut leased = t.take_the("a", T0).await;
    let mut expected = t.record("a", T0).await;
    for (now, lease_for, end) in [
        (at(30), Duration::from_secs(60), at(90)),
        (at(30), Duration::from_micros(60_000_001), after(at(90))),
        (at(90), Duration::from_secs(1), at(91)),
    ] {
        leased = t.keep(&leased, now, lease_for).await;
        assert_eq!(leased.lease.expires_at, end);
        expected.held.as_mut().expect("held").expires_at = end;
        assert_eq!(t.record("a", now).await, expected);
    }
}

async fn a_lease_is_never_shortened(t: DriverUnderTest) {
    t.put(job("a"), at(100)).await;
    let mut leased = t.take_the("a", at(100)).await;
    for (now, lease_for) in [
        (at(100), TICK),
        (at(110), Duration::from_secs(50)),
        (before(at(160)), TICK),
        // A worker whose clock is behind.
        (at(10), LEASE),
        (Timestamp::EPOCH, TICK),
    ] {
        leased = t.keep(&leased, now, lease_for).await;
        assert_eq!(leased.lease.expires_at, at(160), "{lease_for:?} at {now}");
        let held = t.record("a", now).await.held.expect("held");
        assert_eq!(held.expires_at, at(160));
    }
}

async fn an_extended_lease_lasts_until_its_new_end(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let leased = t.keep(&leased, at(30), LEASE).await;
    assert_eq!(t.take(at(60)).await, None);
    assert_eq!(t.take(before(at(90))).await, None);
    t.refuses(&leased, Refusal::LeaseExpired, at(90)).await;
    t.apply(&leased, ack(), before(at(90))).await;
}

async fn another_has_the_job_at_the_new_end(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let leased = t.keep(&leased, at(30), LEASE).await;
    let second = t.take_the("a", at(90)).await;
    assert_eq!((second.job.deliveries, second.job.expirations), (2, 1));
    t.refuses(&leased, Refusal::LeaseMismatch, at(91)).await;
}

async fn only_the_token_of_the_answer_counts(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let first = t.take_the("a", T0).await;
    let second = t.keep(&first, at(30), LEASE).await;
    let third = t.keep(&second, at(60), LEASE).await;
    for stale in [&first, &second] {
        // A driver that does not change tokens has only one to give.
        if stale.lease.token != third.lease.token {
            t.refuses(stale, Refusal::LeaseMismatch, at(61)).await;
        }
    }
    t.apply(&third, ack(), at(61)).await;
}

async fn many_leases_are_extended_in_one_call(t: DriverUnderTest) {
    t.put_all((0..100).map(|n| job(&n.to_string())), T0).await;
    let jobs = t.take_many(100, T0).await;
    let items = jobs.iter().rev().map(extension).collect();
    let answers = t.extend_all(items, at(30), LEASE).await;
    assert_eq!(answers.len(), 100);
    let mut kept = Vec::new();
    for (leased, answer) in jobs.iter().rev().zip(answers) {
        let lease = answer.expect("not refused").lease;
        assert_eq!(lease.expires_at, at(90));
        kept.push(Leased::new(leased.job.clone(), lease));
    }
    t.apply_all(&kept, ack(), at(89)).await;
}

async fn an_invalid_lease_duration_is_refused_and_changes_nothing(t: DriverUnderTest) {
    t.put_all([job("a"), job("late").run_at(before(Timestamp::MAX))], T0).await;
    let leased = t.take_the("a", T0).await;
    let past_the_end = Timestamp::MAX.since(at(1)) + TICK;
    for (now, lease_for) in [
        (at(1), Duration::ZERO),
        (at(1), Duration::from_nanos(999)),
        (at(1), Duration::MAX),
        (at(1), Duration::from_micros(u64::MAX)),
        (at(1), past_the_end),
        (Timestamp::MAX, TICK),
    ] {
        let stored = t.snapshot(now).await;
        for items in [vec![extension(&leased).progress("half".into())], Vec::new()] {
            let request = ExtendLeases::new(items, now, lease_for);
            let answer = t.driver.extend_leases(request).await;
            let is_right = matches!(answer, Err(DriverError::InvalidLeaseDuration));
            assert!(is_right, "{lease_for:?} at {now}: {answer:?}");
        }
        assert_eq!(t.snapshot(now).await, stored);
    }
}

async fn a_lease_may_be_extended_to_the_last_instant(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let lease_for = Timestamp::MAX.since(at(1));
    let leased = t.keep(&leased, at(1), lease_for).await;
    assert_eq!(leased.lease.expires_at, Timestamp::MAX);
    t.apply(&leased, ack(), before(Timestamp::MAX)).await;
}

async fn nothing_is_extended_by_an_empty_call(t: DriverUnderTest) {
    assert_eq!(t.extend_all(Vec::new(), T0, LEASE).await, []);
}

async fn progress_is_kept_until_other_is_given(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    assert_eq!(progress(&t, T0).await, None);
    let leased = report(&t, &leased, "1 of 3", at(1)).await;
    assert_eq!(progress(&t, at(1)).await, Some("1 of 3".into()));
    let leased = t.keep(&leased, at(2), LEASE).await;
    assert_eq!(progress(&t, at(2)).await, Some("1 of 3".into()));
    let leased = report(&t, &leased, "2 of 3", at(3)).await;
    assert_eq!(progress(&t, at(3)).await, Some("2 of 3".into()));
    let leased = report(&t, &leased, "", at(4)).await;
    assert_eq!(progress(&t, at(4)).await, Some("".into()));
    report(&t, &leased, "3 of 3", at(5)).await;
    assert_eq!(progress(&t, at(5)).await, Some("3 of 3".into()));
}

async fn progress_is_stored_when_the_lease_stays_as_it_is(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let item = extension(&leased).progress("early".into());
    let answer = t.extend_all(vec![item], at(1), TICK).await.remove(0);
    assert_eq!(answer.expect("not refused").lease.expires_at, at(60));
    assert_eq!(progress(&t, at(1)).await, Some("early".into()));
}

async fn progress_is_forgotten_at_the_next_grant(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    for (now, transition) in [(T0, retry(None, T0)), (at(100), release(None))] {
        let leased = t.take_the("a", now).await;
        let leased = report(&t, &leased, "half", now).await;
        t.apply(&leased, transition, now).await;
        assert_eq!(progress(&t, now).await, Some("half".into()));
        let leased = t.take_the("a", after(now)).await;
        assert_eq!(progress(&t, after(now)).await, None);
        t.apply(&leased, release(None), after(now)).await;
    }
}

async fn progress_is_forgotten_when_an_expired_job_is_granted(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    report(&t, &leased, "half", T0).await;
    assert_eq!(progress(&t, at(60)).await, Some("half".into()));
    t.take_the("a", at(60)).await;
    assert_eq!(progress(&t, at(60)).await, None);
}

async fn progress_stays_with_a_terminal_job(t: DriverUnderTest) {
    for (now, transition) in [(T0, ack()), (at(1), fail(at(1)))] {
        t.put(job("a"), now).await;
        let leased = t.take_the("a", now).await;
        let leased = report(&t, &leased, "all of it", now).await;
        t.apply(&leased, transition, now).await;
        assert_eq!(progress(&t, now).await, Some("all of it".into()));
        t.act("a", Action::Purge, now).await;
    }
}

async fn progress_of_an_earlier_life_is_kept_until_the_next_grant(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let leased = report(&t, &leased, "half", T0).await;
    t.apply(&leased, fail(T0), T0).await;
    t.act("a", requeue(), at(1)).await;
    assert_eq!(progress(&t, at(1)).await, Some("half".into()));
    t.take_the("a", at(1)).await;
    assert_eq!(progress(&t, at(1)).await, None);
}

async fn a_refused_report_is_not_stored(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let leased = report(&t, &leased, "half", T0).await;
    let stranger = Extension::new(leased.job.id.clone(), STRANGER);
    for (item, now, refusal) in [
        (stranger, T0, Refusal::LeaseMismatch),
        (extension(&leased), at(60), Refusal::LeaseExpired),
    ] {
        let item = item.progress("all of it".into());
        assert_eq!(t.extend_all(vec![item], now, LEASE).await, [Err(refusal)]);
        assert_eq!(progress(&t, now).await, Some("half".into()));
    }
}
