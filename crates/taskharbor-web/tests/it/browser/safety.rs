//! Failures that must not happen: scripts from data, changes without a role or from other sites, silence when
//! the server or the store is away.

use std::{fs, path::Path, time::Duration};

use serde_json::json;
use taskharbor::{Driver, Job, JobId, JobType, QueueLimits, QueueName, Schedule, State};
use taskharbor_core::{
    NewJob,
    driver::{Announce, Enqueue, ExtendLeases, Extension, Incarnation},
    job::{FailedAttempt, Headers, JobSet},
    name::{FlowName, Holder, IdempotencyKey, LaneName},
};
use taskharbor_testkit::browser::Page;
use taskharbor_web::{Access, Role, TokenFile, Web};

use super::site::{Site, page, serve_router};

const HOUR: Duration = Duration::from_secs(3_600);

/// Markup, quotes, an escape sequence, a text that reads backwards, and one that is very long.
const HOSTILE: [&str; 4] = [
    "<img src=x onerror=\"window.hacked=1\">",
    "\"'`;</script><script>window.hacked=1</script>",
    "javascript:window.hacked=1",
    "\u{202e}evil\u{1b}[31m",
];

#[tokio::test]
async fn hostile_texts_are_shown_as_texts() {
    let site = Site::open().await;
    let now = site.now().await;
    for (n, text) in HOSTILE.iter().enumerate() {
        // Names are validated, so they hold what their rules allow.
        let name: String = text.chars().filter(|it| !it.is_control()).take(60).collect();
        let queue = QueueName::new(&name).unwrap_or_else(|_| QueueName::new("plain").unwrap());
        let job_type = JobType::new(&name).unwrap_or_else(|_| JobType::new("plain").unwrap());
        let id =
            JobId::new(format!("{n}-{name}")).unwrap_or_else(|_| JobId::generate(now).unwrap());
        let mut headers = Headers::new();
        if let Ok(with) = headers.clone().with("x-note", text) {
            headers = with;
        }
        let mut job =
            NewJob::new(id.clone(), queue.clone(), job_type, text.as_bytes()).headers(headers);
        if let Ok(lane) = LaneName::new(&name) {
            job = job.lane(lane);
        }
        if let Ok(key) = IdempotencyKey::new(&name) {
            job = job.idempotency_key(key);
        }
        site.driver.enqueue_job(job, now).await.unwrap();
        let leased = site.reserve(queue.as_str()).await.unwrap();
        let failure = FailedAttempt::new(1, *text, now);
        site.driver.fail(&leased, failure, (*text).into(), now).await.unwrap();
    }
    let page = site.visit("overview").await;
    page.wait_for_element("main tbody tr").await;
    page.open(&format!("{}#/main/jobs", site.url)).await;
    page.wait_for("document.querySelectorAll('main tbody tr').length === 4").await;
    page.wait_for_text("onerror=").await;
    let links =
        "[...document.querySelectorAll('main tbody th a')].map(it => it.getAttribute('href'))";
    let links = page.eval(links).await;
    for link in links.as_array().unwrap() {
        page.open(&format!("{}{}", site.url, link.as_str().unwrap())).await;
        page.wait_for_text("Timeline").await;
        page.click_text("Show").await;
        page.wait_for_element("pre.content").await;
    }
    page.open(&format!("{}#/main/dlq", site.url)).await;
    page.wait_for_element("li.group").await;
    assert_harmless(&page).await;
}

/// Nothing of the texts has become an element or has run.
async fn assert_harmless(page: &Page) {
    assert_eq!(page.eval("window.hacked === undefined").await, true);
    assert_eq!(page.eval("document.querySelectorAll('img, iframe, object').length").await, 0);
    page.assert_no_complaints();
}

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(type = "report:build", queue = "reports")]
struct BuildReport;

/// Fills everything beside jobs with a text: schedule, worker, flow, progress, header, lane.
async fn store_hostile(site: &Site, text: &str) {
    let now = site.now().await;
    let name: String = text.chars().filter(|it| !it.is_control()).collect();
    let queue = QueueName::new(&name).unwrap();
    site.client.schedules().put(Schedule::cron(&name, "0 3 * * *").job(BuildReport)).await.unwrap();
    let info = json!({
        "library": name, "version": text, "host": text, "pid": 1, "phase": "working",
        "problems": [text], "wake_ups": false, "types": [text],
        "queues": [{"name": text, "slots": 1, "busy": 1, "started": 1, "done": 1}],
    });
    let (holder, incarnation) = (Holder::new(&name).unwrap(), Incarnation::from_bits(1));
    let info = info.to_string().into_bytes().into();
    let announce = Announce::new(holder.clone(), incarnation, info, HOUR, now);
    site.driver.announce(announce).await.unwrap();
    let headers = Headers::new().with(&name, text).unwrap();
    let job = |job_type: &str| {
        let (id, job_type) = (JobId::generate(now).unwrap(), JobType::new(job_type).unwrap());
        NewJob::new(id, queue.clone(), job_type, b"{}").headers(headers.clone())
    };
    let first = job(&name).lane(LaneName::new(&name).unwrap());
    let last = job("report:merge").after([first.id.clone()]);
    let flow = JobSet::named_flow(FlowName::new(&name).unwrap(), vec![first, last]);
    site.driver.enqueue(Enqueue::new(vec![flow], now)).await.unwrap().remove(0).unwrap();
    let reserve = site.driver.reserve_job(queue.clone(), holder, now, HOUR);
    let leased = reserve.await.unwrap().unwrap();
    let reported = Extension::new(leased.job.id.clone(), leased.lease.token).progress(text.into());
    let extended = site.driver.extend_leases(ExtendLeases::new(vec![reported], now, HOUR)).await;
    extended.unwrap().remove(0).unwrap();
    site.client.queue(queue.as_str()).limit(QueueLimits::new().per_lane(1)).await.unwrap();
}

#[tokio::test]
async fn hostile_names_are_shown_as_texts_on_every_page() {
    let caller = Access::new(HOSTILE[0], Role::Admin).with_payloads();
    let site = Site::with_access(caller).await;
    for text in HOSTILE {
        store_hostile(&site, text).await;
    }
    let page = site.visit("schedules").await;
    page.wait_for("document.querySelectorAll('main tbody tr').length === 4").await;
    // Its caller is in the action log.
    page.click("main tbody tr:nth-child(1) td.end button").await;
    page.wait_for_text("is enqueued").await;
    for (list, links) in [
        ("schedules", "main tbody th a"),
        ("flows", "main tbody th a"),
        ("queues", "main tbody th a"),
        ("jobs", "main tbody th a"),
    ] {
        page.open(&format!("{}#/main/{list}", site.url)).await;
        page.wait_for_element(links).await;
        let find =
            format!("[...document.querySelectorAll('{links}')].map(it => it.getAttribute('href'))");
        for link in page.eval(&find).await.as_array().unwrap() {
            page.open(&format!("{}{}", site.url, link.as_str().unwrap())).await;
            page.wait_for(&format!("location.hash === {link} && document.querySelector('h1')"))
                .await;
            page.wait_for("!document.querySelector('[aria-busy=true]')").await;
            assert!(!page.text().await.contains("Something failed"), "{link}");
        }
    }
    page.open(&format!("{}#/main/workers", site.url)).await;
    page.wait_for("document.querySelectorAll('li.worker').length === 4").await;
    page.wait_for("[...document.querySelectorAll('li.worker p.bad')].some(it => it.innerText.includes('onerror='))").await;
    page.open(&format!("{}#/main/activity", site.url)).await;
    page.wait_for(
        "document.querySelector('td[data-label=Caller]')?.innerText.includes('onerror=')",
    )
    .await;
    page.screenshot("hostile-activity").await;
    assert_harmless(&page).await;
}

#[tokio::test]
async fn the_pages_say_when_the_store_is_away_and_when_it_is_back() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 2).await;
    let page = site.visit("overview").await;
    page.wait_for_text("mail").await;
    site.outage.begin();
    page.wait_for_text("The store has been away since").await;
    // What was known before stays.
    assert!(page.text().await.contains("mail"));
    page.screenshot("store-away").await;
    site.outage.end();
    page.wait_for("!document.body.innerText.includes('The store has been away')").await;
    site.enqueue("mail", "email:send", 1).await;
    page.wait_for("document.querySelector('td[data-label=Ready]')?.innerText === '3'").await;
    assert!(!page.text().await.contains("db-7"), "what the store says stays on the server");
}

#[tokio::test]
async fn a_failed_change_says_why_and_nothing_of_the_store() {
    let site = Site::open().await;
    let id = site.enqueue("mail", "email:send", 1).await.remove(0);
    let page = site.visit(&format!("jobs/{id}")).await;
    page.wait_for_text("email:send").await;
    site.outage.begin();
    page.click_text("Cancel").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for("document.querySelector('.notice.bad')").await;
    assert!(!page.text().await.contains("db-7"));
    site.outage.end();
    let record = site.client.job(&id).inspect().await.unwrap().unwrap();
    assert_eq!(record.state, State::Ready);
}

#[tokio::test]
async fn the_pages_come_back_after_the_server_was_away() {
    let site = Site::open().await;
    site.enqueue("mail", "email:send", 1).await;
    let page = site.visit("overview").await;
    page.wait_for_text("Live").await;
    let stopped = site.stop().await;
    page.wait_for_text("The server does not answer").await;
    let web = Web::new().anonymous(Access::new("test", Role::Viewer));
    let site = stopped.restart(web).await;
    page.wait_for("!document.body.innerText.includes('The server does not answer')").await;
    site.enqueue("mail", "email:send", 1).await;
    page.wait_for("document.querySelector('td[data-label=Ready]')?.innerText === '2'").await;
}

#[tokio::test]
async fn a_viewer_sees_and_changes_nothing() {
    let site = Site::with_access(Access::new("vera", Role::Viewer)).await;
    let id = site.enqueue("mail", "email:send", 1).await.remove(0);
    let page = site.visit(&format!("jobs/{id}")).await;
    page.wait_for_text("email:send").await;
    page.wait_for("document.querySelectorAll('.head .actions button').length > 0").await;
    let usable =
        "[...document.querySelectorAll('.head .actions button')].filter(it => !it.disabled).length";
    assert_eq!(page.eval(usable).await, 0);
    page.assert_no_complaints();
    // The server refuses what the page does not offer.
    let status = page.eval(&post(&format!("v1/main/jobs/{id}/cancel"))).await;
    assert_eq!(status, 403);
    let record = site.client.job(&id).inspect().await.unwrap().unwrap();
    assert_eq!(record.state, State::Ready);
}

#[tokio::test]
async fn an_operator_cancels_and_does_not_purge() {
    let site = Site::with_access(Access::new("otto", Role::Operator)).await;
    let id = site.enqueue("mail", "email:send", 1).await.remove(0);
    let page = site.visit(&format!("jobs/{id}")).await;
    page.click_text("Cancel").await;
    page.click("dialog footer button:last-child").await;
    page.wait_for("document.querySelector('h1 .state')?.innerText.toLowerCase() === 'cancelled'")
        .await;
    let purge =
        "[...document.querySelectorAll('.actions button')].find(it => it.innerText === 'Purge')";
    page.wait_for(&format!("{purge}?.disabled")).await;
    let title = page.eval(&format!("{purge}.title")).await;
    assert!(title.as_str().unwrap().contains("needs the role admin"), "{title}");
    assert_eq!(page.eval(&post(&format!("v1/main/jobs/{id}/purge"))).await, 403);
}

#[tokio::test]
async fn a_person_signs_in_with_a_token_and_out_again() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-tokens.json");
    // It may be left from an earlier run.
    let _ = fs::remove_file(&path);
    let file = TokenFile::new(&path);
    let token =
        file.add(&Access::new("vera", Role::Viewer), "2026-01-01T00:00:00Z".into()).unwrap();
    let site = Site::with(Web::new().tokens(file)).await;
    site.enqueue("mail", "email:send", 1).await;
    let page = site.visit("overview").await;
    page.wait_for_text("Sign in").await;
    page.take_complaints();
    page.fill("input[type=password]", "th_wrong").await;
    page.click_text("Sign in").await;
    page.wait_for_element("[role=alert]").await;
    page.fill("input[type=password]", &token).await;
    page.click_text("Sign in").await;
    page.wait_for_text("mail").await;
    page.wait_for_text("vera").await;
    assert_eq!(page.eval("document.cookie").await, "", "no script can read the session");
    page.reload().await;
    page.wait_for_text("mail").await;
    page.click_text("Sign out").await;
    page.wait_for_text("Sign in").await;
    page.reload().await;
    page.wait_for_text("Sign in").await;
    assert!(!page.text().await.contains("mail"));
}

#[tokio::test]
async fn another_site_cannot_make_a_browser_change_anything() {
    let site = Site::open().await;
    let id = site.enqueue("mail", "email:send", 1).await.remove(0);
    let other = axum::Router::new().route("/", axum::routing::get(async || "another site"));
    let other = serve_router(other).await;
    let page = page().await;
    page.open(&other.replace("127.0.0.1", "localhost")).await;
    let target = format!("{}v1/main/jobs/{id}/cancel", site.url);
    for kind in ["application/json", "text/plain"] {
        let sent = format!(
            "fetch('{target}', {{ method: 'POST', credentials: 'include', mode: '{}',
                headers: {{ 'content-type': '{kind}' }}, body: '{{}}' }}).then(() => 'sent', () => 'refused')",
            if kind == "text/plain" { "no-cors" } else { "cors" }
        );
        page.eval(&sent).await;
    }
    let form = format!(
        "(() => {{ const form = document.createElement('form'); form.method = 'post';
            form.enctype = 'text/plain'; form.action = '{target}'; document.body.append(form);
            form.submit() }})()"
    );
    page.eval(&form).await;
    page.wait_for(&format!("location.href === '{target}'")).await;
    let record = site.client.job(&id).inspect().await.unwrap().unwrap();
    assert_eq!(record.state, State::Ready);
}

/// Sends an empty object as the page would, and answers the status.
fn post(path: &str) -> String {
    format!(
        "fetch('{path}', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: '{{}}' }})
            .then(it => it.status)"
    )
}
