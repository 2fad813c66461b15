//! Calls that fail as a whole: how large they may be, and which fault is named first.

use std::time::Duration;

use taskharbor_core::{
    Admin, Blob, Driver, DriverError, JobId,
    admin::{Action, Filter, Manage},
    driver::{
        Demand, Enqueue, ExtendLeases, Extension, Limits, OutputQuery, Outputs, Reserve, Settle,
        Settlement, Transition,
    },
    error::InvalidRequest,
    flow::Expansion,
    job::JobSet,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, STRANGER, T0, ack, holder, id, invalid, job, queue, settlement},
};

group! {
    call {
        no_operation_takes_more_than_a_hundred_thousand_items ["ENQ-6"]
        outputs_of_one_settle_are_bounded_together ["ENQ-6"]
        an_invalid_lease_is_named_before_other_faults ["REF-5" "TIM-3"]
        a_number_out_of_range_is_named_before_a_repeat ["REF-5"]
        expansions_count_towards_the_size_of_a_call ["ENQ-6" "EXP-3"]
        a_call_with_too_many_edges_fails_as_a_whole ["ENQ-6"]
    }
    flows {}
}

fn too_many() -> Vec<JobId> {
    (0..=Limits::MAX_CALL_JOBS).map(|n| id(&n.to_string())).collect()
}

fn out_of_range(fault: &InvalidRequest) -> bool {
    matches!(fault, InvalidRequest::OutOfRange { .. })
}

async fn no_operation_takes_more_than_a_hundred_thousand_items(t: DriverUnderTest) {
    t.put(job("0"), T0).await;
    let before = t.snapshot(T0).await;
    let items = too_many().into_iter().map(|id| Settlement::new(id, STRANGER, ack())).collect();
    assert!(out_of_range(&invalid(t.driver.settle(Settle::new(items, T0)).await)));
    let items = too_many().into_iter().map(|id| Extension::new(id, STRANGER)).collect();
    let request = ExtendLeases::new(items, T0, LEASE);
    assert!(out_of_range(&invalid(t.driver.extend_leases(request).await)));
    let request = Manage::new(too_many(), Action::Cancel, T0);
    assert!(out_of_range(&invalid(t.driver.manage(request).await)));
    let items = too_many().into_iter().map(OutputQuery::of).collect();
    assert!(out_of_range(&invalid(t.driver.outputs(Outputs::new(items, 1)).await)));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn outputs_of_one_settle_are_bounded_together(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let output = Blob::from(vec![0; Limits::MAX_OUTPUT_BYTES]);
    let settlement = |n: usize| {
        let id = if n == 0 { leased.job.id.clone() } else { id(&n.to_string()) };
        let transition = Transition::Ack { output: Some(output.clone()) };
        Settlement::new(id, leased.lease.token, transition)
    };
    let most = Limits::MAX_CALL_BYTES / Limits::MAX_OUTPUT_BYTES;
    let before = t.snapshot(T0).await;
    let request = Settle::new((0..=most).map(settlement).collect(), T0);
    assert!(out_of_range(&invalid(t.driver.settle(request).await)));
    assert_eq!(t.snapshot(T0).await, before);
}

async fn an_invalid_lease_is_named_before_other_faults(t: DriverUnderTest) {
    let twice = vec![Demand::new(queue("q"), 0), Demand::new(queue("q"), 1)];
    let request = Reserve::new(twice, holder(), T0, Duration::ZERO);
    let failure = t.driver.reserve(request).await.expect_err("a failure");
    assert!(matches!(failure, DriverError::InvalidLeaseDuration), "{failure:?}");
    let twice = vec![Extension::new(id("a"), STRANGER), Extension::new(id("a"), STRANGER)];
    let request = ExtendLeases::new(twice, T0, Duration::ZERO);
    let failure = t.driver.extend_leases(request).await.expect_err("a failure");
    assert!(matches!(failure, DriverError::InvalidLeaseDuration), "{failure:?}");
}

async fn a_number_out_of_range_is_named_before_a_repeat(t: DriverUnderTest) {
    let twice = vec![Demand::new(queue("q"), 1), Demand::new(queue("q"), 0)];
    let request = Reserve::new(twice, holder(), T0, LEASE);
    assert!(out_of_range(&invalid(t.driver.reserve(request).await)));
    let mut ids = too_many();
    ids.push(id("0"));
    let request = Manage::new(ids, Action::Cancel, T0);
    assert!(out_of_range(&invalid(t.driver.manage(request).await)));
}

async fn expansions_count_towards_the_size_of_a_call(t: DriverUnderTest) {
    t.put_all((0..11).map(|n| job(&n.to_string())), T0).await;
    let leased = t.take_many(11, T0).await;
    let expansion = |n: usize| {
        let members: Vec<_> = (1..10_000).map(|m| id(&format!("{n}-{m}"))).collect();
        let mut jobs: Vec<_> = members.iter().map(|it| job(it.as_str())).collect();
        jobs.push(job(&format!("{n}-end")).after(members));
        Transition::Expand(Expansion::new(jobs))
    };
    let items = leased.iter().enumerate().map(|(n, it)| settlement(it, expansion(n)));
    let request = Settle::new(items.collect(), T0);
    assert!(out_of_range(&invalid(t.driver.settle(request).await)));
    assert_eq!(t.list(Filter::all(), 1_000, T0).await.len(), 11);
}

async fn a_call_with_too_many_edges_fails_as_a_whole(t: DriverUnderTest) {
    let width = 1_001;
    let ids = |layer: &str| -> Vec<_> { (0..width).map(|n| id(&format!("{layer}{n}"))).collect() };
    let (first, second) = (ids("a"), ids("b"));
    let mut jobs: Vec<_> = first.iter().map(|it| job(it.as_str())).collect();
    jobs.extend(second.iter().map(|it| job(it.as_str()).after(first.clone())));
    jobs.push(job("end").after(second));
    let request = Enqueue::new(vec![JobSet::flow(jobs)], T0);
    assert!(out_of_range(&invalid(t.driver.enqueue(request).await)));
    assert!(t.list(Filter::all(), 1_000, T0).await.is_empty());
}
