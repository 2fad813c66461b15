//! Drivers that keep single jobs only.

use taskharbor_core::{
    Admin, Driver,
    admin::Action,
    error::{Denied, InvalidTransition, Refusal, Rejected},
    flow::ListFlows,
    job::JobSet,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, child, expand, id, job, join},
};

group! {
    flow_level {
        a_driver_without_flows_rejects_them ["FLO-9"]
        a_driver_without_flows_refuses_expansions ["FLO-9"]
        a_driver_without_flows_has_none_to_show ["FLO-9"]
    }
    flows {}
}

async fn a_driver_without_flows_rejects_them(t: DriverUnderTest) {
    let flows = [vec![job("a"), child("b", &["a"])], vec![job("c")], vec![join("d", &[])]];
    for jobs in flows {
        let answer = t.enqueue_set(JobSet::flow(jobs), T0).await;
        match t.driver.limits().has_flows() {
            true => assert!(answer.is_ok(), "{answer:?}"),
            false => assert_eq!(answer, Err(Rejected::FlowsNotSupported)),
        }
    }
    if !t.driver.limits().has_flows() {
        assert_eq!(t.snapshot(T0).await.records, []);
    }
}

async fn a_driver_without_flows_refuses_expansions(t: DriverUnderTest) {
    if t.driver.limits().has_flows() {
        return;
    }
    t.put(job("a"), T0).await;
    let leased = t.take_the("a", T0).await;
    let stored = t.snapshot(T0).await;
    let answer = t.settle(&leased, expand([job("x")]), T0).await;
    let refused = InvalidTransition::Expansion(Rejected::FlowsNotSupported);
    assert_eq!(answer, Err(Refusal::Invalid(refused)));
    assert_eq!(t.snapshot(T0).await, stored);
    t.apply(&leased, ack(), T0).await;
}

async fn a_driver_without_flows_has_none_to_show(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    assert_eq!(t.driver.flow(id("a"), T0).await.expect("flow"), None);
    let page = t.driver.list_flows(ListFlows::new(10, T0)).await.expect("list_flows");
    assert_eq!((page.items, page.next), (Vec::new(), None));
    for action in [Action::CancelFlow, Action::PurgeFlow] {
        assert_eq!(t.manage("a", action, T0).await, Err(Denied::JobNotFound));
    }
}
