//! Flows as graphs.

use taskharbor::{Admin, Driver, JobId, JobType, QueueName};
use taskharbor_core::{NewJob, driver::Enqueue, job::JobSet, name::FlowName};

use super::site::Site;

/// Stores a flow: one job, then `width` jobs of a type, then one that waits for all of them.
pub(super) async fn store_flow(site: &Site, width: usize) -> JobId {
    let now = site.now().await;
    let queue = QueueName::new("work").unwrap();
    let job = |job_type: &str| {
        let id = JobId::generate(now).unwrap();
        NewJob::new(id, queue.clone(), JobType::new(job_type).unwrap(), b"{}")
    };
    let first = job("report:plan");
    let parts: Vec<_> = (0..width).map(|_| job("report:part").after([first.id.clone()])).collect();
    let last = job("report:merge").after(parts.iter().map(|part| part.id.clone()));
    let jobs = [first].into_iter().chain(parts).chain([last]).collect();
    let set = JobSet::named_flow(FlowName::new("nightly report").unwrap(), jobs);
    let stored =
        site.driver.enqueue(Enqueue::new(vec![set], now)).await.unwrap().remove(0).unwrap();
    let record = site.client.job(stored[0].id()).inspect().await.unwrap().unwrap();
    record.job.flow.unwrap()
}

const NODES: &str = "document.querySelectorAll('.graph svg .node').length";

#[tokio::test]
async fn a_flow_is_drawn_and_moves() {
    let site = Site::open().await;
    let flow = store_flow(&site, 3).await;
    let page = site.visit("flows").await;
    page.click_text("nightly report").await;
    page.wait_for(&format!("{NODES} === 5")).await;
    page.wait_for("document.querySelectorAll('.graph svg path').length === 6").await;
    page.wait_for("document.querySelectorAll('svg .s-ready').length === 1").await;
    let leased = site.reserve("work").await.unwrap();
    site.driver.ack(&leased, None, site.now().await).await.unwrap();
    page.wait_for("document.querySelectorAll('svg .s-done').length === 1").await;
    page.wait_for("document.querySelectorAll('svg .s-ready').length === 3").await;
    page.screenshot("flow").await;
    let address = page.eval("location.hash").await;
    assert!(address.as_str().unwrap().ends_with(flow.as_str()));
    // A node leads to its job.
    page.eval("document.querySelector('svg a.node').dispatchEvent(new MouseEvent('click', { bubbles: true })), null").await;
    page.wait_for_text("report:plan").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn ten_thousand_members_are_drawn_by_step() {
    let site = Site::open().await;
    let flow = store_flow(&site, 10_000).await;
    let page = site.visit(&format!("flows/{flow}")).await;
    page.wait_for(&format!("{NODES} === 3")).await;
    page.wait_for_text("This flow is large").await;
    page.wait_for("document.querySelector('.graph svg').textContent.includes('10000 blocked')")
        .await;
    page.screenshot("flow-of-10000").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_flow_is_cancelled_and_purged() {
    let site = Site::open().await;
    let flow = store_flow(&site, 2).await;
    let page = site.visit(&format!("flows/{flow}")).await;
    page.click_text("Cancel").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for_text("The flow is cancelled").await;
    page.click_text("Purge").await;
    page.wait_for_text("This cannot be undone").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for_text("The flow is purged").await;
    assert!(site.driver.flow(flow, site.now().await).await.unwrap().is_none());
}
