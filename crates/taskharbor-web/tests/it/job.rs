//! Jobs: lists, records, contents and actions.

use std::{collections::HashSet, time::Duration};

use axum::{
    body::Body,
    http::{Method, header},
};
use serde_json::{Value, json};
use taskharbor::{Headers, IdempotencyKey, JobId, LaneName};
use taskharbor_core::job::FailedAttempt;
use taskharbor_web::{Access, Role, Web};

use crate::{
    rig::{Rig, request},
    stock::{enqueue, fail_all, new_job, reserve, store},
};

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap();
    items.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

/// A cursor as an address carries it.
fn encoded(cursor: &str) -> String {
    cursor.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_filtered() {
    let rig = Rig::new();
    let mail = enqueue(&rig, "mail", "email:send", 2).await;
    rig.clock.advance(Duration::from_secs(60));
    let images = enqueue(&rig, "images", "image:resize", 3).await;
    fail_all(&rig, "images", "no such file {n}").await;
    let text = |ids: &[JobId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    let all = rig.get("jobs?limit=50").await.ok();
    assert_eq!(ids(&all)[0], images[2].as_str());
    assert_eq!(ids(&all).len(), 5);
    assert_eq!(all["next"], Value::Null);
    assert_eq!(all["looked_back_to"], Value::Null);
    assert_eq!(ids(&rig.get("jobs?order=oldest&limit=2").await.ok()), text(&mail));
    for (query, count) in [
        ("queue=mail", 2),
        ("type=image:resize", 3),
        ("state=dlq", 3),
        ("state=dlq&error=no%20such%20file%202", 1),
        ("state=ready&queue=images", 0),
        ("created_after=2027-01-15T08:00:30Z", 3),
        ("created_before=2027-01-15T08:00:30.000Z", 2),
        ("finished_after=2027-01-15T08:00:30Z", 3),
        ("finished_before=2027-01-15T08:00:30Z", 0),
        ("lane=acme", 0),
    ] {
        let found = rig.get(&format!("jobs?{query}")).await.ok();
        assert_eq!(ids(&found).len(), count, "{query}");
    }
}

#[tokio::test]
async fn jobs_are_found_by_key_header_lane_and_flow() {
    let rig = Rig::new();
    enqueue(&rig, "mail", "email:send", 3).await;
    let job = new_job(&rig, "mail", "email:send", "{}").await;
    let mut job = job.headers(Headers::new().with("tenant", "a=b").unwrap());
    job.lane = Some(LaneName::new("acme").unwrap());
    job.idempotency_key = Some(IdempotencyKey::new("welcome 42").unwrap());
    let id = store(&rig, job).await;
    for query in ["key=welcome%2042", "header=tenant%3Da%3Db", "lane=acme"] {
        assert_eq!(ids(&rig.get(&format!("jobs?{query}")).await.ok()), [id.as_str()], "{query}");
    }
    assert!(ids(&rig.get(&format!("jobs?flow={id}")).await.ok()).is_empty());
}

#[tokio::test]
async fn pages_of_a_thousand_jobs_have_each_of_them_once() {
    let rig = Rig::new();
    enqueue(&rig, "mail", "email:send", 1_050).await;
    for order in ["newest", "oldest"] {
        let (mut seen, mut after, mut pages) = (HashSet::new(), String::new(), 0);
        loop {
            let page = rig.get(&format!("jobs?limit=100&order={order}{after}")).await.ok();
            seen.extend(ids(&page));
            pages += 1;
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", encoded(next)),
                None => break,
            }
        }
        assert_eq!((seen.len(), pages), (1_050, 11), "{order}");
    }
}

#[tokio::test]
async fn a_page_that_stops_at_its_scan_budget_says_how_far_it_looked() {
    let rig = Rig::new();
    enqueue(&rig, "mail", "email:old", 1).await;
    rig.clock.advance(Duration::from_secs(60));
    enqueue(&rig, "mail", "email:send", 30).await;
    let page = rig.get("jobs?type=email:old&scan=20").await.ok();
    assert!(ids(&page).is_empty());
    assert_eq!(page["looked_back_to"], "2027-01-15T08:01:00.000000Z");
    let next = encoded(page["next"].as_str().unwrap());
    let page = rig.get(&format!("jobs?type=email:old&scan=20&after={next}")).await.ok();
    assert_eq!(ids(&page).len(), 1);
    assert_eq!(page["looked_back_to"], Value::Null);
    // A page that is full has not stopped for that.
    let full = rig.get("jobs?limit=10").await.ok();
    assert_eq!(full["looked_back_to"], Value::Null);
    assert!(full["next"].is_string());
}

#[tokio::test]
async fn an_invalid_list_is_refused() {
    let rig = Rig::new();
    for (query, code) in [
        ("limit=0", "out_of_range"),
        ("limit=1001", "out_of_range"),
        ("limit=9223372036854775808", "out_of_range"),
        ("limit=-1", "invalid_request"),
        ("scan=0", "out_of_range"),
        ("scan=50001", "out_of_range"),
        ("state=asleep", "invalid_request"),
        ("queue=", "invalid_request"),
        ("order=sideways", "invalid_request"),
        ("colour=red", "invalid_request"),
        ("error=a%00b", "invalid_request"),
        ("header=tenant", "invalid_request"),
        ("created_after=yesterday", "invalid_request"),
        (
            "created_after=2027-01-02T00:00:00Z&created_before=2027-01-01T00:00:00Z",
            "invalid_request",
        ),
        ("after=%27%3B--", "invalid_cursor"),
    ] {
        let problem = rig.get(&format!("jobs?{query}")).await.problem();
        assert_eq!(problem, (400, code.to_owned()), "{query}");
    }
}

#[tokio::test]
async fn a_long_error_is_cut_in_a_list_and_whole_in_the_record() {
    let rig = Rig::new();
    let id = enqueue(&rig, "mail", "email:send", 1).await.remove(0);
    fail_all(&rig, "mail", &"no space ".repeat(400)).await;
    let listed = rig.get("jobs").await.ok();
    assert_eq!(listed["items"][0]["last_error"].as_str().unwrap().len(), 1_024);
    let record = rig.get(&format!("jobs/{id}")).await.ok();
    assert_eq!(record["errors"][0]["error"].as_str().unwrap().len(), 3_600);
}

/// Stores a job that has failed, was tried again and was dead-lettered.
async fn failed_job(rig: &Rig, payload: &str) -> JobId {
    let job = new_job(rig, "mail", "email:send", payload).await.max_attempts(3);
    let id = store(rig, job.headers(Headers::new().with("tenant", "acme").unwrap())).await;
    let leased = reserve(rig, "mail").await.unwrap();
    let now = rig.clock.advance(Duration::from_secs(5));
    let failure = FailedAttempt::new(1, "connection refused", now);
    rig.driver.retry(&leased, failure, None, now).await.unwrap();
    rig.clock.advance(Duration::from_secs(5));
    fail_all(rig, "mail", "mailbox is full").await;
    id
}

#[tokio::test]
async fn a_record_tells_all_but_payload_and_output() {
    let rig = Rig::new();
    let id = failed_job(&rig, "{\"to\":\"canary\"}").await;
    let reply = rig.get(&format!("jobs/{id}")).await;
    assert!(!reply.text.contains("canary"), "{}", reply.text);
    let record = reply.ok();
    assert_eq!(record["job"]["id"], id.as_str());
    assert_eq!(record["job"]["type"], "email:send");
    assert_eq!(record["job"]["headers"], json!({"tenant": "acme"}));
    assert_eq!(record["job"]["max_attempts"], 3);
    assert_eq!(record["job"]["condition"], "parents_done");
    assert_eq!(record["job"]["on_failure"], "block");
    assert_eq!(record["job"]["flow"], Value::Null);
    assert_eq!(record["state"], "dlq");
    assert_eq!(record["reason"], "mailbox is full");
    assert_eq!(record["key_hold"], "until_pruned");
    assert_eq!(record["payload_bytes"], 15);
    assert_eq!(record["output_bytes"], Value::Null);
    assert_eq!(record["why_code"], "dlq");
    assert!(record["why"].as_str().unwrap().contains("mailbox is full"));
    let timeline = record["timeline"].as_array().unwrap();
    let what: Vec<_> = timeline.iter().map(|it| it["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["enqueued", "failed", "started", "failed", "dead_lettered"]);
    assert_eq!(timeline[1]["detail"], "connection refused");
    assert_eq!(timeline[1]["at"], record["errors"][0]["failed_at"]);
}

#[tokio::test]
async fn a_job_inflight_tells_its_worker_and_the_end_of_its_lease() {
    let rig = Rig::new();
    let id = enqueue(&rig, "mail", "email:send", 1).await.remove(0);
    reserve(&rig, "mail").await.unwrap();
    let record = rig.get(&format!("jobs/{id}")).await.ok();
    assert_eq!(record["held"]["holder"], "worker-1");
    let timeline = record["timeline"].as_array().unwrap();
    let what: Vec<_> = timeline.iter().map(|it| it["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["enqueued", "started", "lease_ends"]);
    assert_eq!(timeline[1]["detail"], "by worker-1");
}

#[tokio::test]
async fn a_payload_takes_a_permission_of_its_own() {
    let rig = Rig::new();
    let id = failed_job(&rig, "{\"to\":\"canary\"}").await;
    let content = rig.get(&format!("jobs/{id}/payload")).await.ok();
    assert_eq!(content, json!({"text": "{\"to\":\"canary\"}", "truncated": false}));
    let eve = Web::new().anonymous(Access::new("eve", Role::Admin));
    let eve = Rig::of(rig.driver.clone(), eve);
    for path in ["payload", "output", "payload?download=1"] {
        let reply = eve.get(&format!("jobs/{id}/{path}")).await;
        assert_eq!(reply.problem(), (403, "needs_payloads".to_owned()));
        assert!(!reply.text.contains("canary"));
    }
}

#[tokio::test]
async fn a_long_payload_is_cut_and_downloaded_whole() {
    let rig = Rig::new();
    let payload = format!("{{\"html\":\"<script>{}</script>\"}}", "x".repeat(100_000));
    let id = store(&rig, new_job(&rig, "mail", "email:send", &payload).await).await;
    let content = rig.get(&format!("jobs/{id}/payload")).await.ok();
    assert_eq!(content["truncated"], true);
    assert_eq!(content["text"].as_str().unwrap().len(), 65_536);
    let file = rig.get(&format!("jobs/{id}/payload?download=1")).await;
    assert_eq!(file.text, payload);
    assert_eq!(file.headers[header::CONTENT_TYPE], "application/octet-stream");
    assert_eq!(file.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    let name = format!("attachment; filename=\"{id}.payload\"");
    assert_eq!(file.headers[header::CONTENT_DISPOSITION], name.as_str());
    assert_eq!(rig.get(&format!("jobs/{id}/payload?download=2")).await.problem().0, 400);
}

#[tokio::test]
async fn an_output_is_shown_if_there_is_one() {
    let rig = Rig::new();
    let id = enqueue(&rig, "mail", "email:send", 1).await.remove(0);
    let path = format!("jobs/{id}/output");
    assert_eq!(rig.get(&path).await.problem(), (404, "no_output".to_owned()));
    let (leased, now) = (reserve(&rig, "mail").await.unwrap(), rig.driver.now().await.unwrap());
    rig.driver.ack(&leased, Some(vec![0xff, 0x00].into()), now).await.unwrap();
    assert_eq!(rig.get(&path).await.ok(), json!({"base64": "/wA=", "truncated": false}));
    assert_eq!(rig.get(&format!("jobs/{id}")).await.ok()["output_bytes"], 2);
}

#[tokio::test]
async fn the_name_of_a_file_is_plain_for_every_id() {
    let rig = Rig::new();
    let mut job = new_job(&rig, "mail", "email:send", "{}").await;
    job.id = JobId::new("a\"; filename=\"é/../x").unwrap();
    store(&rig, job).await;
    let path = "jobs/a%22%3B%20filename%3D%22%C3%A9%2F..%2Fx/payload?download=1";
    let disposition = rig.get(path).await.headers[header::CONTENT_DISPOSITION].clone();
    assert_eq!(disposition, "attachment; filename=\"a___filename____.._x.payload\"");
}

#[tokio::test]
async fn jobs_are_acted_on_one_by_one() {
    let rig = Rig::new();
    let id = enqueue(&rig, "mail", "email:send", 1).await.remove(0);
    let nothing = json!({});
    let act =
        async |action: &str, body: &Value| rig.post(&format!("jobs/{id}/{action}"), body).await;
    assert_eq!(act("priority", &json!({"priority": -7})).await.ok()["state"], "ready");
    assert_eq!(rig.get(&format!("jobs/{id}")).await.ok()["job"]["priority"], -7);
    assert_eq!(act("cancel", &nothing).await.ok()["state"], "cancelled");
    assert_eq!(act("cancel", &nothing).await.problem(), (409, "wrong_state".to_owned()));
    let later = json!({"run_at": "2027-02-01T00:00:00Z", "reset_attempts": true});
    assert_eq!(act("requeue", &later).await.ok()["state"], "scheduled");
    assert_eq!(act("run_now", &nothing).await.ok()["state"], "ready");
    assert_eq!(act("purge", &nothing).await.problem(), (409, "wrong_state".to_owned()));
    act("cancel", &nothing).await.ok();
    assert_eq!(act("purge", &nothing).await.ok()["state"], "cancelled");
    assert_eq!(act("purge", &nothing).await.problem(), (404, "job_not_found".to_owned()));
    assert_eq!(rig.get(&format!("jobs/{id}")).await.problem(), (404, "job_not_found".to_owned()));
    let log = rig.get("actions").await.ok();
    let log: Vec<_> = log["items"].as_array().unwrap().iter().collect();
    assert_eq!(log.len(), 9, "refused ones are in it, too");
    assert_eq!(log[0]["result"], "job_not_found");
    assert_eq!(log[8]["action"], "job.priority");
    assert_eq!(log[8]["details"], json!({"priority": -7}));
    assert_eq!(log[8]["target"], json!({"id": id.as_str()}));
    assert_eq!(log[5]["details"]["reset_attempts"], true);
}

#[tokio::test]
async fn an_action_with_a_wrong_body_changes_nothing() {
    let rig = Rig::new();
    let id = enqueue(&rig, "mail", "email:send", 1).await.remove(0);
    for (action, body) in [
        ("priority", json!({})),
        ("priority", json!({"priority": 32_768})),
        ("priority", json!({"priority": "high"})),
        ("cancel", json!({"force": true})),
        ("requeue", json!({"run_at": 7})),
        ("requeue", json!([])),
    ] {
        let reply = rig.post(&format!("jobs/{id}/{action}"), &body).await;
        assert_eq!(reply.problem(), (400, "invalid_request".to_owned()), "{action} {body}");
    }
    let long = "x".repeat(2_000);
    let reply = rig.post(&format!("jobs/{long}/cancel"), &json!({})).await;
    assert_eq!(reply.problem(), (400, "invalid_name".to_owned()));
    let record = rig.get(&format!("jobs/{id}")).await.ok();
    assert_eq!((&record["state"], &record["job"]["priority"]), (&json!("ready"), &json!(0)));
}

#[tokio::test]
async fn each_action_takes_its_role() {
    let rig = Rig::new();
    let id = enqueue(&rig, "mail", "email:send", 1).await.remove(0);
    let with = |role| Rig::of(rig.driver.clone(), Web::new().anonymous(Access::new("eve", role)));
    let (viewer, operator) = (with(Role::Viewer), with(Role::Operator));
    let too_low = (403, "role_too_low".to_owned());
    for action in ["requeue", "run_now", "cancel", "purge"] {
        let reply = viewer.post(&format!("jobs/{id}/{action}"), &json!({})).await;
        assert_eq!(reply.problem(), too_low, "{action}");
    }
    let priority = format!("jobs/{id}/priority");
    assert_eq!(viewer.post(&priority, &json!({"priority": 1})).await.problem(), too_low);
    assert_eq!(viewer.post("jobs", &json!({"type": "a"})).await.problem(), too_low);
    assert_eq!(viewer.get(&format!("jobs/{id}")).await.ok()["state"], "ready");
    operator.post(&format!("jobs/{id}/cancel"), &json!({})).await.ok();
    assert_eq!(operator.post(&format!("jobs/{id}/purge"), &json!({})).await.problem(), too_low);
}

#[tokio::test]
async fn a_job_is_enqueued_with_its_payload_byte_for_byte() {
    let rig = Rig::new();
    let payload = "{\"id\": 130775545883395173,\n \"rate\":1.10, \"a\":1, \"a\":2}";
    let body = format!(
        "{{\"payload\":{payload},\"type\":\"email:send\",\"queue\":\"mail\",\"priority\":3,\
         \"max_attempts\":4,\"timeout_seconds\":1.5,\"headers\":{{\"tenant\":\"acme\"}}}}"
    );
    let reply = rig.send(request(Method::POST, "jobs", Body::from(body))).await.ok();
    assert_eq!(reply["existed"], false);
    let id = reply["id"].as_str().unwrap();
    let file = rig.get(&format!("jobs/{id}/payload?download=1")).await;
    assert_eq!(file.text, payload);
    let job = rig.get(&format!("jobs/{id}")).await.ok()["job"].clone();
    assert_eq!((&job["priority"], &job["max_attempts"]), (&json!(3), &json!(4)));
    assert_eq!(job["timeout_nanos"], 1_500_000_000_u64);
    let log = rig.get("actions").await.ok()["items"][0].clone();
    assert_eq!(log["action"], "job.enqueue");
    assert_eq!(log["ids"], json!([id]));
    assert_eq!(log["details"], json!({"type": "email:send", "queue": "mail"}));
}

#[tokio::test]
async fn a_job_that_no_store_takes_is_not_enqueued() {
    let rig = Rig::new();
    for body in [
        json!({}),
        json!({"type": ""}),
        json!({"type": "a\u{0}b"}),
        json!({"type": "a", "headers": {"th-schedule": "nightly"}}),
        json!({"type": "a", "priority": 99_999}),
        json!({"type": "a", "timeout_seconds": -1}),
        json!({"type": "a", "run_at": "soon"}),
        json!({"type": "a", "payload": 1, "payload_base64": "AA=="}),
        json!({"type": "a", "payload": "x".repeat(2 * 1024 * 1024)}),
    ] {
        let reply = rig.post("jobs", &body).await;
        assert_eq!(reply.status.as_u16(), 400, "{reply:?}");
        reply.problem();
    }
    let huge = json!({"type": "a", "payload": "x".repeat(5 * 1024 * 1024)});
    assert_eq!(rig.post("jobs", &huge).await.problem(), (413, "too_large".to_owned()));
    assert!(ids(&rig.get("jobs").await.ok()).is_empty());
}

#[tokio::test]
async fn hostile_text_is_answered_as_it_is() {
    let rig = Rig::new();
    let hostile = "<img src=x onerror=alert(1)>'\"; DROP TABLE th_job; -- \u{202e}\u{1f4a5}";
    let mut job = new_job(&rig, hostile, hostile, "{}").await;
    job.headers = Headers::new().with("note", hostile).unwrap();
    let id = store(&rig, job).await;
    fail_all(&rig, hostile, hostile).await;
    let record = rig.get(&format!("jobs/{id}")).await;
    assert_eq!(record.headers[header::CONTENT_TYPE], "application/json");
    let record = record.ok();
    for text in [
        &record["job"]["type"],
        &record["job"]["queue"],
        &record["job"]["headers"]["note"],
        &record["errors"][0]["error"],
        &record["reason"],
    ] {
        assert_eq!(text, hostile);
    }
    let listed = rig.get("jobs?state=dlq").await.ok()["items"][0].clone();
    assert_eq!((&listed["type"], &listed["last_error"]), (&json!(hostile), &json!(hostile)));
}
