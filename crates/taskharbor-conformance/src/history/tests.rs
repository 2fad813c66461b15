//! Histories that break an invariant, and others that look as if they did.

use std::time::Duration;

use taskharbor_core::{driver::Lease, life::Life};

use super::*;
use crate::fixture::{T0, at, holder, job};

fn lease(end: u64) -> Lease {
    Lease::new(LeaseToken::from_bits(1), at(end))
}

/// A job that was enqueued at the beginning and granted until ten seconds later.
fn granted() -> (History, Leased) {
    let new = job("a");
    let mut life = Life::new(&new, 0, None, T0);
    life.grant(lease(10), holder(), T0);
    let leased = Leased::new(taskharbor_core::job::JobView::assemble(&new, T0, &life), lease(10));
    let history = History::default();
    let answer = Ok(Enqueued::Inserted(new.id.clone()));
    history.end(history.begin(), T0, [What::Enqueue { job: new, answer }]);
    let what = What::Grant { holder: holder(), leased: leased.clone() };
    history.end(history.begin(), T0, [what]);
    (history, leased)
}

/// The invariants that a history breaks, apart from what is left in the store.
fn broken(history: History) -> Vec<String> {
    let found = history.contradictions(&HashMap::new()).into_iter();
    let names = found.map(|it| it.split(':').next().unwrap_or_default().to_owned());
    names.filter(|name| !["S1", "S8", "S11"].contains(&name.as_str())).collect()
}

/// The invariants that an extension at this time to that end breaks.
fn broken_by_extending(now: u64, end: u64) -> Vec<String> {
    let (history, leased) = granted();
    let answer = Ok(Extended::new(lease(end), false));
    let (id, token) = (leased.job.id, leased.lease.token);
    history.end(history.begin(), at(now), [What::Extend { id, token, answer }]);
    broken(history)
}

#[test]
fn an_extension_must_come_before_the_end_that_it_moves() {
    assert!(broken_by_extending(9, 20).is_empty());
    assert_eq!(broken_by_extending(10, 20), ["S4"]);
}

#[test]
fn an_extension_must_not_shorten() {
    assert_eq!(broken_by_extending(1, 9), ["S12"]);
}

#[test]
fn a_holder_must_not_be_refused_without_a_reason() {
    let refused = |now: Timestamp| {
        let (history, leased) = granted();
        let (id, token) = (leased.job.id, leased.lease.token);
        let answer = Err(Refusal::LeaseMismatch);
        let what = What::Settle { id, token, step: LifeStep::Ack, answer };
        history.end(history.begin(), now, [what]);
        broken(history)
    };
    assert!(refused(at(10)).is_empty());
    assert_eq!(refused(at(10).saturating_sub(Duration::from_micros(1))), ["S4"]);
}

#[test]
fn a_second_grant_must_wait_for_the_end_of_the_first() {
    let again = |now: u64| {
        let (history, mut leased) = granted();
        leased.job.deliveries = 2;
        leased.lease = Lease::new(LeaseToken::from_bits(2), at(100));
        let what = What::Grant { holder: holder(), leased };
        history.end(history.begin(), at(now), [what]);
        broken(history)
    };
    assert!(again(10).is_empty());
    assert_eq!(again(9), ["S2"]);
}

/// The invariants that are broken if a holder is evicted and the lease is used, or refused, after
/// that.
fn broken_by_evicting(evicted: &Holder, eviction: u64, ack: (u64, bool)) -> Vec<String> {
    let (history, first) = granted();
    history.end(history.begin(), at(eviction), [What::Evict(evicted.clone())]);
    let (now, is_applied) = ack;
    let answer = if is_applied { Ok(Settled::Applied) } else { Err(Refusal::LeaseExpired) };
    let (id, token) = (first.job.id.clone(), first.lease.token);
    let what = What::Settle { id, token, step: LifeStep::Ack, answer };
    history.end(history.begin(), at(now), [what]);
    broken(history)
}

#[test]
fn an_evicted_holder_must_be_refused_and_no_other() {
    let other = Holder::new("other").expect("a valid holder");
    assert!(broken_by_evicting(&holder(), 3, (3, false)).is_empty());
    assert_eq!(broken_by_evicting(&holder(), 3, (3, true)), ["S4"]);
    // By a slow clock the lease has not ended.
    assert!(broken_by_evicting(&holder(), 3, (2, true)).is_empty());
    assert_eq!(broken_by_evicting(&holder(), 3, (2, false)), ["S4"]);
    assert!(broken_by_evicting(&other, 3, (3, true)).is_empty());
    assert_eq!(broken_by_evicting(&other, 3, (3, false)), ["S4"]);
}

#[test]
fn a_grant_after_an_eviction_must_not_come_before_its_time() {
    let again = |now: u64| {
        let (history, mut leased) = granted();
        history.end(history.begin(), at(5), [What::Evict(holder())]);
        leased.job.deliveries = 2;
        leased.lease = Lease::new(LeaseToken::from_bits(2), at(100));
        let what = What::Grant { holder: holder(), leased };
        history.end(history.begin(), at(now), [what]);
        broken(history)
    };
    assert!(again(5).is_empty());
    assert_eq!(again(4), ["S2"]);
}
