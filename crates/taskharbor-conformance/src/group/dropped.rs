//! Calls whose futures are dropped before they have answered.
//!
//! A timeout or a shutdown drops futures at any await. Each case drops a call after every small
//! number of polls, so that drivers which do their work in several steps are cut between them. A
//! call that has reached a server may still take effect a moment later; what is asked here is that
//! it never does so by half.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};

use taskharbor_core::{
    Admin, Driver, State,
    admin::{Action, Evict, Filter, Manage},
    driver::{Demand, Enqueue, Enqueued, Reserve, Settle, Settled},
    error::Refusal,
    job::JobSet,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, at, child, holder, id, job, queue, settlement},
    workers_under_test::worker,
};

group! {
    dropped {
        a_dropped_reserve_costs_no_more_than_a_lease ["DRO-1" "RES-4"]
        a_dropped_settle_can_be_repeated_with_its_token ["DRO-1" "SET-6"]
        a_dropped_eviction_ends_all_leases_or_none_and_can_be_repeated ["DRO-1" "EVI-1"]
    }
    flows {
        a_dropped_enqueue_stores_all_or_nothing_and_can_be_repeated ["DRO-1" "ENQ-2"]
        a_dropped_cancel_leaves_no_mixture ["DRO-1" "CAN-7"]
    }
}

/// After how many polls calls are dropped.
const POLLS: [usize; 8] = [0, 1, 2, 3, 5, 10, 50, 200];

/// Polls a call this often, then drops it; others get their turn in between.
async fn abandon(call: impl Future, polls: usize) {
    let mut call = pin!(call);
    for _ in 0..polls {
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn a_dropped_enqueue_stores_all_or_nothing_and_can_be_repeated(t: DriverUnderTest) {
    for (round, polls) in POLLS.into_iter().enumerate() {
        let (first, last) = (format!("{round}-first"), format!("{round}-last"));
        let set = JobSet::flow(vec![job(&first), child(&last, &[&first])]);
        abandon(t.driver.enqueue(Enqueue::new(vec![set.clone()], T0)), polls).await;
        let again = t.enqueue_set(set, T0).await.expect("whole or not at all, so no overlap");
        let ids = [id(&first), id(&last)];
        let inserted = ids.clone().map(Enqueued::Inserted);
        let existing = ids.map(Enqueued::Existing);
        assert!(again == inserted || again == existing, "{again:?}");
    }
    let stored = t.list(Filter::all(), 1_000, T0).await;
    assert_eq!(stored.len(), 2 * POLLS.len());
}

async fn a_dropped_reserve_costs_no_more_than_a_lease(t: DriverUnderTest) {
    t.put_all(POLLS.map(|polls| job(&polls.to_string())), T0).await;
    for polls in POLLS {
        let demands = vec![Demand::new(queue("q"), 1)];
        abandon(t.driver.reserve(Reserve::new(demands, holder(), T0, LEASE)), polls).await;
    }
    let mut granted = Vec::new();
    // One that took effect late holds its job until then too, and no longer.
    for _ in 0..1_000 {
        granted.extend(t.take_order(at(60)).await);
        if granted.len() == POLLS.len() {
            break;
        }
        tokio::task::yield_now().await;
    }
    granted.sort();
    let mut expected = POLLS.map(|polls| polls.to_string());
    expected.sort();
    assert_eq!(granted, expected);
}

async fn a_dropped_settle_can_be_repeated_with_its_token(t: DriverUnderTest) {
    for polls in POLLS {
        let text = polls.to_string();
        t.put(job(&text), T0).await;
        let leased = t.take_the(&text, T0).await;
        let request = Settle::new(vec![settlement(&leased, ack())], T0);
        abandon(t.driver.settle(request), polls).await;
        let again: Result<Settled, Refusal> = t.settle(&leased, ack(), T0).await;
        assert!(again.is_ok(), "{again:?}");
        assert_eq!(t.state(&text, T0).await, State::Done);
    }
}

async fn a_dropped_eviction_ends_all_leases_or_none_and_can_be_repeated(t: DriverUnderTest) {
    for polls in POLLS {
        let name = polls.to_string();
        t.put_all((0..3).map(|n| job(&format!("{name}-{n}"))), T0).await;
        let held = t.take_as(&name, "q", 3, T0).await;
        abandon(t.driver.evict(Evict::new(worker(&name), at(1))), polls).await;
        // One that takes effect late ends what this one would have ended.
        let ended = t.evict(&name, at(1)).await;
        assert!(ended == 0 || ended == held.len(), "{ended} of {} are left", held.len());
        for leased in &held {
            t.refuses(leased, Refusal::LeaseExpired, at(1)).await;
            t.act(leased.job.id.as_str(), Action::Cancel, at(1)).await;
        }
    }
}

async fn a_dropped_cancel_leaves_no_mixture(t: DriverUnderTest) {
    for polls in POLLS {
        let (first, last) = (format!("{polls}-first"), format!("{polls}-last"));
        t.put_flow([job(&first), child(&last, &[&first])], T0).await;
        let request = Manage::new(vec![id(&last)], Action::CancelFlow, T0);
        abandon(t.driver.manage(request), polls).await;
        let members = t.flow(&last, T0).await.members;
        let untouched = members.ready == 1 && members.blocked == 1;
        assert!(untouched || members.cancelled == 2, "{members:?}");
    }
}
