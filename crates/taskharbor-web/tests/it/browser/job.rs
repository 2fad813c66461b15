//! Lists of jobs, and one job.

use std::time::Duration;

use taskharbor::{JobId, JobType, QueueName, State};
use taskharbor_core::{
    NewJob,
    job::{FailedAttempt, Headers},
};
use taskharbor_web::{Access, Role};

use super::site::Site;

const ROWS: &str = "document.querySelectorAll('main tbody tr').length";

#[tokio::test]
async fn jobs_are_filtered_and_the_filter_is_in_the_address() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 2).await;
    site.enqueue("images", "image:resize", 3).await;
    site.fail_all("images", "no such file").await;
    let page = site.visit("jobs").await;
    page.wait_for(&format!("{ROWS} === 5")).await;
    page.fill("[data-filter]", "email:send").await;
    page.press("Enter").await;
    page.wait_for(&format!("{ROWS} === 2")).await;
    page.reload().await;
    page.wait_for(&format!("{ROWS} === 2")).await;
    page.open(&format!("{}#/main/jobs?state=dlq&error=no%20such", site.url)).await;
    page.wait_for(&format!("{ROWS} === 3")).await;
    assert!(page.text().await.contains("no such file"));
    page.open(&format!("{}#/main/jobs?queue=nothing", site.url)).await;
    page.wait_for_text("No job matches").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_long_list_is_loaded_page_by_page_newest_first() {
    let site = Site::open().await;
    site.enqueue("mail", "email:old", 60).await;
    site.enqueue("mail", "email:new", 60).await;
    let page = site.visit("jobs").await;
    page.wait_for(&format!("{ROWS} === 50")).await;
    assert!(!page.text().await.contains("email:old"));
    page.click_text("Load more").await;
    page.wait_for(&format!("{ROWS} === 100")).await;
    page.click_text("Load more").await;
    page.wait_for(&format!("{ROWS} === 120")).await;
    page.wait_for_text("that is all").await;
    let ids = "new Set([...document.querySelectorAll('main tbody code.id')].map(it => it.innerText)).size";
    assert_eq!(page.eval(ids).await, 120);
    page.assert_no_complaints();
}

/// Stores one job that has failed twice and been dead-lettered.
async fn failed_job(site: &Site, payload: Vec<u8>) -> JobId {
    let now = site.now().await;
    let id = JobId::generate(now).unwrap();
    let (queue, job_type) = (QueueName::new("mail").unwrap(), JobType::new("email:send").unwrap());
    let headers = Headers::new().with("tenant", "acme").unwrap();
    let job = NewJob::new(id.clone(), queue, job_type, payload).max_attempts(3).headers(headers);
    site.driver.enqueue_job(job, now).await.unwrap();
    let leased = site.reserve("mail").await.unwrap();
    let failure = FailedAttempt::new(1, "connection refused by smtp-1", site.now().await);
    site.driver.retry(&leased, failure, None, site.now().await).await.unwrap();
    site.fail_all("mail", "mailbox is full").await;
    id
}

#[tokio::test]
async fn a_job_tells_what_happened_to_it() {
    let site = Site::open().await;
    let id = failed_job(&site, b"{\"to\":\"ada@example.com\"}".to_vec()).await;
    let page = site.visit(&format!("jobs/{id}")).await;
    page.wait_for_text("connection refused by smtp-1").await;
    page.wait_for_text("mailbox is full").await;
    let text = page.text().await;
    for part in ["email:send", "tenant", "acme", "2 of 3 attempts", id.as_str()] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("ada@example.com"), "the payload is shown only when it is asked for");
    page.click_text("Show").await;
    page.wait_for_text("ada@example.com").await;
    page.screenshot("job").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_large_payload_is_cut_and_says_so() {
    let site = Site::open().await;
    let text = "x".repeat(100_000);
    let id = failed_job(&site, format!("{{\"text\":\"{text}\"}}").into_bytes()).await;
    let page = site.visit(&format!("jobs/{id}")).await;
    page.click_text("Show").await;
    page.wait_for_text("Only the first 64 KiB are shown").await;
    let shown = page.eval("document.querySelector('pre.content').innerText.length").await;
    assert!(shown.as_u64().unwrap() <= 65_536, "{shown}");
    page.assert_no_complaints();
}

#[tokio::test]
async fn without_the_permission_a_payload_is_not_sent_at_all() {
    let site = Site::with_access(Access::new("eve", Role::Admin)).await;
    let id = failed_job(&site, b"{\"card\":\"4111-canary\"}".to_vec()).await;
    let page = site.visit(&format!("jobs/{id}")).await;
    page.wait_for_text("hidden: needs the permission to see payloads").await;
    let asked = page
        .eval(&format!("fetch('v1/main/jobs/{id}/payload').then(it => it.text().then(text => [it.status, text]))"))
        .await;
    assert_eq!(asked[0], 403);
    assert!(!asked[1].as_str().unwrap().contains("canary"));
    // The browser logs the answer that the test asked for.
    assert_eq!(page.take_complaints().len(), 1);
}

#[tokio::test]
async fn a_job_is_cancelled_and_requeued() {
    let site = Site::open().await;
    let id = site.enqueue("mail", "email:send", 1).await.remove(0);
    let page = site.visit(&format!("jobs/{id}")).await;
    page.click_text("Cancel").await;
    page.wait_for_text("A cancelled job does not run").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for("document.querySelector('h1 .state')?.innerText.toLowerCase() === 'cancelled'")
        .await;
    let state = async || {
        let record = site.client.job(&id).inspect().await.unwrap().unwrap();
        record.state
    };
    assert_eq!(state().await, State::Cancelled);
    page.click_text("Requeue").await;
    page.wait_for("document.querySelector('h1 .state')?.innerText.toLowerCase() === 'ready'").await;
    assert_eq!(state().await, State::Ready);
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_scheduled_job_runs_now_and_gets_a_priority() {
    let site = Site::open().await;
    let now = site.now().await;
    let id = JobId::generate(now).unwrap();
    let (queue, job_type) = (QueueName::new("mail").unwrap(), JobType::new("email:send").unwrap());
    let later = now.saturating_add(Duration::from_secs(3_600));
    let job = NewJob::new(id.clone(), queue, job_type, b"{}").run_at(later);
    site.driver.enqueue_job(job, now).await.unwrap();
    let page = site.visit(&format!("jobs/{id}")).await;
    page.click_text("Run now").await;
    page.wait_for("document.querySelector('h1 .state')?.innerText.toLowerCase() === 'ready'").await;
    page.click_text("Priority…").await;
    page.fill("dialog input[type=number]", "7").await;
    page.click_text("Set").await;
    page.wait_for_text("Priority set").await;
    let record = site.client.job(&id).inspect().await.unwrap().unwrap();
    assert_eq!(record.job.priority, 7);
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_job_moves_while_it_is_watched() {
    let site = Site::open().await;
    let id = site.enqueue("mail", "email:send", 1).await.remove(0);
    let page = site.visit(&format!("jobs/{id}")).await;
    page.wait_for("document.querySelector('h1 .state')?.innerText.toLowerCase() === 'ready'").await;
    let leased = site.reserve("mail").await.unwrap();
    page.wait_for_text("worker-1").await;
    site.driver.ack(&leased, None, site.now().await).await.unwrap();
    page.wait_for("document.querySelector('h1 .state')?.innerText.toLowerCase() === 'done'").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_million_jobs_do_not_slow_the_pages_down() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 1_000_000).await;
    let page = site.visit("overview").await;
    page.wait_for("document.querySelector('td[data-label=Ready]')").await;
    page.screenshot("a-million-jobs").await;
    page.open(&format!("{}#/main/jobs", site.url)).await;
    page.wait_for(&format!("{ROWS} === 50")).await;
    page.open(&format!("{}#/main/jobs?type=no:such", site.url)).await;
    // It looks back a bounded way, and says how far.
    page.wait_for_text("looked back to").await;
    page.assert_no_complaints();
}
