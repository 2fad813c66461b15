//! The DLQ, grouped by what went wrong, and sweeps.

use taskharbor::{Admin, Counts, Filter, List, State};
use taskharbor_testkit::browser::Page;

use super::{flow::store_flow, site::Site};

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

/// Opens the editor for the sample of the only group.
async fn open_editor(page: &Page) {
    page.click("li.group summary").await;
    page.click_text("Edit and requeue…").await;
    page.wait_for_text("Valid JSON").await;
}

#[tokio::test]
async fn a_corrected_job_is_stored_once_also_if_an_answer_is_lost() {
    let site = Site::open().await;
    site.enqueue("work", "email:send", 1).await;
    site.fail_all("work", "not an address").await;
    let page = site.visit("dlq").await;
    open_editor(&page).await;
    // The first answer is lost on its way, after the job was stored.
    let lose = "(() => {
        const real = window.fetch;
        window.fetch = async (url, init) => {
            const answer = await real(url, init);
            if (init?.method === 'POST' && `${url}`.endsWith('/jobs') && !window.isLost) {
                window.isLost = true;
                throw new TypeError('lost');
            }
            return answer;
        };
    })()";
    page.eval(lose).await;
    page.click("dialog footer .primary").await;
    page.wait_for_text("The server does not answer").await;
    assert_eq!(page.eval("document.querySelector('dialog textarea').readOnly").await, true);
    page.click_text("Try again").await;
    page.wait_for_text("Enqueued with the new payload; the old job is purged").await;
    let request = List::new(Filter::default(), 10, site.now().await);
    let jobs = site.driver.list(request).await.unwrap().items;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(jobs[0].state, State::Ready);
    page.assert_no_complaints();
}

#[tokio::test]
async fn a_member_of_a_flow_is_copied_and_not_purged() {
    let site = Site::open().await;
    store_flow(&site, 2).await;
    site.fail_all("work", "no plan").await;
    let before = count(&site, State::Dlq).await;
    let page = site.visit("dlq").await;
    open_editor(&page).await;
    assert_eq!(page.eval("document.querySelectorAll('dialog input').length").await, 0);
    page.click("dialog footer .primary").await;
    page.wait_for_text("Enqueued with the new payload").await;
    page.wait_for("!document.querySelector('dialog')").await;
    assert_eq!(count(&site, State::Dlq).await, before);
    assert_eq!(count(&site, State::Ready).await, 1);
    page.assert_no_complaints();
}

#[tokio::test]
async fn all_that_match_a_filter_of_several_fields_are_requeued() {
    let site = Site::open().await;
    for (queue, job_type, count, error) in [
        ("work", "email:send", 1_200, "timed out after {n} ms"),
        ("work", "image:resize", 30, "timed out after {n} ms"),
        ("other", "email:send", 20, "timed out after {n} ms"),
    ] {
        site.enqueue(queue, job_type, count).await;
        site.fail_all(queue, error).await;
    }
    site.enqueue("work", "email:send", 15).await;
    site.fail_all("work", "refused").await;
    let page = site.visit("jobs?state=dlq&queue=work&type=email:send&error=timed%20out").await;
    page.click_text("Act on all that match…").await;
    page.wait_for_element("dialog select").await;
    page.choose("dialog select", "requeue").await;
    page.wait_for_text("1,200 jobs").await;
    page.click("dialog footer button.primary").await;
    page.wait_for_text("1,200 done of 1,200").await;
    assert_eq!(count(&site, State::Ready).await, 1_200);
    assert_eq!(count(&site, State::Dlq).await, 65);
    page.assert_no_complaints();
}
