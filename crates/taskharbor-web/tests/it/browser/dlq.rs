//! The DLQ, grouped by what went wrong, and sweeps.

use taskharbor::{Admin, Counts, Filter, List, State};

use super::site::Site;

/// How many jobs are in this state.
async fn count(site: &Site, state: State) -> usize {
    let counts = site.driver.counts(Counts::new(site.now().await)).await.unwrap();
    counts.iter().map(|queue| queue.states.get(state)).sum()
}

#[tokio::test]
async fn two_thousand_failures_are_three_errors() {
    let site = Site::open().await;
    for (job_type, count, error) in [
        ("email:send", 1_200, "timeout after {n} ms talking to 10.0.0.7:25"),
        ("invoice:charge", 600, "card 42{n} of customer \"c-{n}\" was declined"),
        ("image:resize", 200, "no such file: /var/uploads/{n}.png"),
    ] {
        site.enqueue("work", job_type, count).await;
        site.fail_all("work", error).await;
    }
    let page = site.visit("dlq").await;
    page.wait_for("document.querySelectorAll('li.group').length === 3").await;
    let counts =
        page.eval("[...document.querySelectorAll('li.group b')].map(it => it.innerText)").await;
    assert_eq!(counts, serde_json::json!(["1,200", "600", "200"]));
    page.screenshot("dlq").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_group_is_requeued_and_others_are_left_alone() {
    let site = Site::open().await;
    site.enqueue("work", "email:send", 300).await;
    site.fail_all("work", "timeout after {n} ms").await;
    site.enqueue("work", "image:resize", 20).await;
    site.fail_all("work", "no such file {n}").await;
    let page = site.visit("dlq").await;
    page.wait_for("document.querySelectorAll('li.group').length === 2").await;
    page.click("li.group button.primary").await;
    page.wait_for_text("300 jobs").await;
    page.wait_for("document.querySelectorAll('dialog .preview tbody tr').length === 5").await;
    page.screenshot("sweep-preview").await;
    page.click("dialog footer button.primary").await;
    page.wait_for_text("300 done").await;
    assert_eq!(count(&site, State::Ready).await, 300);
    assert_eq!(count(&site, State::Dlq).await, 20);
    page.assert_no_complaints();
}

#[tokio::test]
async fn all_that_match_a_filter_are_purged_after_a_preview() {
    let site = Site::open().await;
    site.enqueue("work", "email:send", 1_500).await;
    site.fail_all("work", "gone").await;
    site.enqueue("other", "email:send", 7).await;
    site.fail_all("other", "gone").await;
    let page = site.visit("jobs?state=dlq&queue=work").await;
    page.click_text("Act on all that match…").await;
    page.wait_for_element("dialog select").await;
    page.choose("dialog select", "purge").await;
    page.wait_for_text("1,500 jobs").await;
    page.wait_for_text("This cannot be undone").await;
    page.click("dialog footer button.danger").await;
    page.wait_for_text("1,500 done").await;
    assert_eq!(count(&site, State::Dlq).await, 7);
    page.open(&format!("{}#/main/activity", site.url)).await;
    page.wait_for_text("Purge").await;
    page.wait_for_text("1,500 done").await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_paced_sweep_is_watched_and_stopped() {
    let site = Site::open().await;
    site.enqueue("work", "email:send", 4_000).await;
    let page = site.visit("jobs?state=ready").await;
    page.click_text("Act on all that match…").await;
    page.choose("dialog select", "cancel").await;
    page.wait_for_text("4,000 jobs").await;
    page.fill("dialog .fields label:nth-of-type(2) input", "100").await;
    page.click("dialog footer button.primary").await;
    page.wait_for_text("done of 4,000").await;
    page.click_text("Stop").await;
    page.wait_for("document.querySelector('dialog .state')?.innerText.toLowerCase() === 'stopped'")
        .await;
    let cancelled = count(&site, State::Cancelled).await;
    assert!((1..4_000).contains(&cancelled), "{cancelled}");
    page.wait_for_text(&format!("{cancelled} done").replace("000", ",000")).await;
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_selection_is_requeued_one_by_one() {
    let site = Site::open().await;
    site.enqueue("work", "email:send", 5).await;
    site.fail_all("work", "gone").await;
    let page = site.visit("jobs?state=dlq").await;
    page.wait_for("document.querySelectorAll('main tbody tr').length === 5").await;
    for row in [1, 3] {
        page.click(&format!("main tbody tr:nth-child({row}) input")).await;
    }
    page.wait_for_text("2 jobs selected").await;
    page.click_text("Requeue").await;
    page.wait_for_text("2 jobs requeued").await;
    assert_eq!(count(&site, State::Ready).await, 2);
    assert_eq!(count(&site, State::Dlq).await, 3);
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_payload_is_corrected_and_every_digit_of_the_rest_stays() {
    let site = Site::open().await;
    site.enqueue("work", "email:send", 1).await;
    site.fail_all("work", "not an address").await;
    let page = site.visit("dlq").await;
    page.click("li.group summary").await;
    page.click_text("Edit and requeue…").await;
    page.wait_for_text("Valid JSON").await;
    page.fill("dialog textarea", "{\"id\": 9007199254740993,").await;
    page.wait_for("document.querySelector('dialog footer .primary').disabled").await;
    page.fill("dialog textarea", "{\"id\": 9007199254740993}").await;
    page.click("dialog footer .primary").await;
    page.wait_for_text("Enqueued with the new payload").await;
    let request = List::new(Filter::default(), 10, site.now().await);
    let jobs = site.driver.list(request).await.unwrap().items;
    assert_eq!(jobs.len(), 1, "the old job is purged");
    let record = site.client.job(&jobs[0].id).inspect().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&record.job.payload).contains("9007199254740993"));
    assert_eq!(record.job.job_type.as_str(), "email:send");
    page.assert_no_complaints();
}
