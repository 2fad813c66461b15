//! Lists that are longer than a page.

use std::time::Duration;

use taskharbor::{Driver, Job, JobId, JobType, LaneName, QueueName, Schedule};
use taskharbor_core::{
    NewJob,
    driver::{Announce, Enqueue, Incarnation},
    job::JobSet,
    name::Holder,
};
use taskharbor_testkit::browser::Page;

use super::site::Site;

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(type = "report:build", queue = "reports")]
struct BuildReport;

/// Sees a hundred of them, asks for more, and sees all.
async fn load_all(page: &Page, rows: &str, what: &str, all: usize) {
    page.wait_for(&format!("document.querySelectorAll('{rows}').length === 100")).await;
    page.wait_for_text(&format!("100 {what} shown")).await;
    page.click_text("Load more").await;
    page.wait_for(&format!("document.querySelectorAll('{rows}').length === {all}")).await;
    page.wait_for_text(&format!("{all} {what} shown, that is all")).await;
}

#[tokio::test]
async fn a_hundred_and_fifty_schedules_are_all_reached() {
    let site = Site::open().await;
    for number in 0..150 {
        let name = format!("nightly-{number:03}");
        let schedule = Schedule::cron(&name, "0 3 * * *").job(BuildReport);
        site.client.schedules().put(schedule).await.unwrap();
    }
    let page = site.visit("schedules").await;
    load_all(&page, "main tbody tr", "schedules", 150).await;
    // What is done to one of the second page is seen there.
    page.click("main tbody tr:nth-child(150) td.end button:last-child").await;
    page.wait_for_text("nightly-149 is paused").await;
    page.wait_for("document.querySelector('main tbody tr:nth-child(150) .tag.warn')").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn long_lists_of_lanes_and_workers_are_all_reached() {
    let site = Site::open().await;
    let (now, queue) = (site.now().await, QueueName::new("mail").unwrap());
    let jobs = (0..130).map(|number| {
        let id = JobId::generate(now).unwrap();
        let lane = LaneName::new(format!("customer-{number:03}")).unwrap();
        let job = NewJob::new(id, queue.clone(), JobType::new("email:send").unwrap(), b"{}");
        JobSet::from(job.lane(lane))
    });
    site.driver.enqueue(Enqueue::new(jobs.collect(), now)).await.unwrap();
    for number in 0..110 {
        let holder = Holder::new(format!("worker-{number:03}")).unwrap();
        let (incarnation, info) = (Incarnation::from_bits(number), (&b"{}"[..]).into());
        let announce = Announce::new(holder, incarnation, info, Duration::from_secs(3_600), now);
        site.driver.announce(announce).await.unwrap();
    }
    let page = site.visit("queues/mail").await;
    load_all(&page, "main tbody tr", "lanes", 130).await;
    page.open(&format!("{}#/main/workers", site.url)).await;
    load_all(&page, "li.worker", "workers", 110).await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn queues_and_groups_that_are_not_shown_are_counted() {
    let site = Site::open().await;
    let now = site.now().await;
    for from in [0, 300] {
        let jobs = (from..from + 300).map(|number| {
            let queue = QueueName::new(format!("queue-{number:03}")).unwrap();
            let id = JobId::generate(now).unwrap();
            JobSet::from(NewJob::new(id, queue, JobType::new("email:send").unwrap(), b"{}"))
        });
        site.driver.enqueue(Enqueue::new(jobs.collect(), now)).await.unwrap();
    }
    // Errors that differ in their words are no group.
    site.enqueue("work", "email:send", 210).await;
    let word = |number: usize| {
        let letter = |digit: usize| char::from(b'a' + u8::try_from(digit).unwrap());
        format!("cause {}{}", letter(number / 20), letter(number % 20))
    };
    for number in 0..210 {
        let leased = site.reserve("work").await.unwrap();
        let (error, now) = (word(number), site.now().await);
        let failure = taskharbor_core::job::FailedAttempt::new(1, error.as_str(), now);
        site.driver.fail(&leased, failure, error.into(), now).await.unwrap();
    }
    let page = site.visit("overview").await;
    page.wait_for_text("500 queues shown. 101 more queues not shown").await;
    page.open(&format!("{}#/main/queues", site.url)).await;
    page.wait_for_text("101 more queues not shown").await;
    page.open(&format!("{}#/main/dlq", site.url)).await;
    page.wait_for("document.querySelectorAll('li.group').length === 200").await;
    page.wait_for_text("10 smaller groups not shown").await;
    page.assert_no_complaints();
}
