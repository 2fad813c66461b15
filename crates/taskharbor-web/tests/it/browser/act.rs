//! Schedules, limits, workers and the action log.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{Driver, Job, QueueLimits, Schedule};
use taskharbor_core::{
    driver::{Announce, Incarnation},
    name::Holder,
};

use super::site::Site;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "report:build", queue = "reports")]
struct BuildReport;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_schedule_is_paused_run_now_and_removed() {
    let site = Site::open().await;
    let schedule = Schedule::cron("nightly", "0 3 * * *").zone("Europe/Berlin").job(BuildReport);
    site.client.schedules().put(schedule).await.unwrap();
    let page = site.visit("schedules").await;
    page.wait_for_text("0 3 * * *").await;
    page.wait_for_text("Europe/Berlin").await;
    page.screenshot("schedules").await;
    page.click_text("Run now").await;
    page.wait_for_text("nightly is enqueued").await;
    assert!(site.reserve("reports").await.is_some());
    page.click_text("Pause").await;
    page.wait_for_text("nightly is paused").await;
    page.click_text("nightly").await;
    page.wait_for("document.querySelector('h1')?.innerText.startsWith('nightly')").await;
    page.click_text("Resume").await;
    page.wait_for_text("nightly is resumed").await;
    page.wait_for("document.querySelectorAll('ol.slots li').length === 5").await;
    page.click_text("Remove").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for_text("No schedules yet").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_backfill_is_shown_before_it_is_done() {
    let site = Site::open().await;
    let schedule = Schedule::cron("hourly", "0 * * * *").job(BuildReport);
    site.client.schedules().put(schedule).await.unwrap();
    let page = site.visit("schedules/hourly").await;
    page.click_text("Backfill…").await;
    page.wait_for_element("dialog input").await;
    for (n, value) in [(1, "2026-01-05T00:30:00"), (2, "2026-01-05T05:30:00")] {
        page.choose(&format!("dialog label:nth-of-type({n}) input"), value).await;
    }
    page.click_text("Preview").await;
    page.wait_for_text("5 slots").await;
    assert!(site.reserve("reports").await.is_none(), "nothing is stored by a preview");
    page.click("dialog footer button.primary").await;
    page.wait_for_text("5 jobs enqueued").await;
    for _ in 0..5 {
        assert!(site.reserve("reports").await.is_some());
    }
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_queue_is_limited_and_its_lanes_tell_what_holds_them_back() {
    let site = Site::open().await;
    let limits = QueueLimits::new().per_lane(1);
    site.client.queue("mail").limit(limits).await.unwrap();
    let now = site.now().await;
    for lane in ["acme", "acme", "globex"] {
        let id = taskharbor::JobId::generate(now).unwrap();
        let queue = taskharbor::QueueName::new("mail").unwrap();
        let job_type = taskharbor::JobType::new("email:send").unwrap();
        let lane = taskharbor::LaneName::new(lane).unwrap();
        let job = taskharbor_core::NewJob::new(id, queue, job_type, b"{}").lane(lane);
        site.driver.enqueue_job(job, now).await.unwrap();
    }
    site.reserve("mail").await.unwrap();
    let page = site.visit("queues/mail").await;
    page.wait_for_text("acme").await;
    page.wait_for_text("globex").await;
    page.wait_for("document.querySelector('main tbody td.warn')?.innerText.length > 0").await;
    page.screenshot("lanes").await;
    page.click_text("Change…").await;
    page.fill("dialog .fields label:nth-of-type(1) input", "12").await;
    page.fill("dialog .fields label:nth-of-type(2) input", "90/10s").await;
    page.click_text("Set limits").await;
    page.wait_for_text("Limits of mail are set").await;
    let stored = site.client.queue("mail").limits().await.unwrap().unwrap();
    assert_eq!(stored.limits.inflight, Some(12));
    assert_eq!(
        stored.limits.rate.map(|rate| (rate.jobs, rate.per)),
        Some((90, Duration::from_secs(10)))
    );
    assert_eq!(stored.limits.per_lane, Some(1));
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_worker_is_listed_and_evicted() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 1).await;
    site.reserve("mail").await.unwrap();
    let info = br#"{"version":"2.1","host":"web-3","pid":4711,"phase":"working","wake_ups":true,
        "library":"0.1.0","types":["email:send"],
        "queues":[{"name":"mail","slots":4,"busy":1,"started":8,"done":7}]}"#;
    let holder = Holder::new("worker-1").unwrap();
    let (incarnation, now) = (Incarnation::from_bits(7), site.now().await);
    let announce = Announce::new(holder, incarnation, info.into(), HOUR, now);
    site.driver.announce(announce).await.unwrap();
    let page = site.visit("workers").await;
    page.wait_for_text("worker-1").await;
    page.wait_for_text("web-3, pid 4711, version 2.1").await;
    page.screenshot("workers").await;
    page.click_text("Evict").await;
    page.wait_for_text("the store refuses its outcomes").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for_text("The leases of worker-1 have ended").await;
    page.wait_for_text("No worker has announced itself").await;
    assert!(site.reserve("mail").await.is_some(), "its job can be reserved again");
    page.assert_no_complaints();
}

#[tokio::test]
async fn every_action_is_in_the_action_log() {
    let site = Site::open().await;
    let ids = site.enqueue("mail", "email:send", 2).await;
    let page = site.visit(&format!("jobs/{}", ids[0])).await;
    page.click_text("Cancel").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for("document.querySelector('h1 .state')?.innerText.toLowerCase() === 'cancelled'")
        .await;
    page.open(&format!("{}#/main/activity", site.url)).await;
    page.wait_for("document.querySelectorAll('main tbody tr').length === 1").await;
    let text = page.text().await;
    assert!(text.contains(ids[0].as_str()) && text.contains("test"), "{text}");
    page.assert_no_complaints();
}
