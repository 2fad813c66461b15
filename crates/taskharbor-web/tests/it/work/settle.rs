//! Settling through the worker face.

use serde_json::json;
use taskharbor::State;

use super::*;

#[tokio::test]
async fn a_job_that_succeeds_is_done_with_its_output() {
    let face = Face::new();
    for (said, expected) in [
        (json!({}), None),
        (json!({"output": null}), Some(&b"null"[..])),
        (json!({"output": {"sent": 3}}), Some(&br#"{"sent":3}"#[..])),
        (json!({"output_base64": "/wA="}), Some(&b"\xff\0"[..])),
    ] {
        let job = face.reserve_new(json!({})).await;
        assert_eq!(face.settle(&job, json!({"ok": said})).await, json!({"state": "done"}));
        let record = face.record(&job).await;
        assert_eq!((record.state, record.output.as_deref()), (State::Done, expected));
    }
}

#[tokio::test]
async fn a_job_that_fails_is_tried_again_later_and_later() {
    let face = Face::new();
    let id = json!(face.enqueue(json!({})).await);
    let exact =
        json!({"retry": {"base_seconds": 3, "multiplier": 2, "cap_seconds": 10, "jitter": 0}});
    for (attempt, delay) in [(1, 3), (2, 6), (3, 10), (4, 10)] {
        let job = face.reserve_one(exact.clone()).await;
        assert_eq!((&job["id"], &job["attempt"]), (&id, &json!(attempt)));
        let settled = face.settle(&job, json!({"error": {"message": "boom"}})).await;
        assert_eq!(settled["state"], "scheduled");
        face.advance(delay - 1);
        assert!(face.reserve(exact.clone()).await.is_empty(), "attempt {attempt} was too early");
        face.advance(1);
    }
    let job = face.reserve_one(exact).await;
    assert_eq!((&job["last_error"], &job["attempt"]), (&json!("boom"), &json!(5)));
}

#[tokio::test]
async fn a_failure_may_say_when_to_try_again() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    let outcome = json!({"error": {"message": "busy", "retry_after_seconds": 90.5}});
    let settled = face.settle(&job, outcome).await;
    let record = face.record(&job).await;
    assert_eq!(settled["run_at"], record.due_at.unwrap().to_string());
    assert_eq!(record.due_at.unwrap().since(record.job.failed_at.unwrap()).as_millis(), 90_500);
}

#[tokio::test]
async fn a_failure_that_is_final_dead_letters_the_job_at_once() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    let outcome = json!({"error": {"message": "no such address", "retryable": false}});
    let settled = face.settle(&job, outcome).await;
    assert_eq!(settled["state"], "dlq");
    let record = face.record(&job).await;
    assert_eq!((record.state, record.errors.len()), (State::Dlq, 1));
    assert!(text(&settled["reason"]).contains("no such address"), "{settled}");
    assert_eq!(record.reason.unwrap().as_str(), text(&settled["reason"]));
}

#[tokio::test]
async fn a_job_that_has_failed_as_often_as_it_may_is_dead_lettered() {
    let face = Face::new();
    face.enqueue(json!({"max_attempts": 3})).await;
    for expected in ["scheduled", "scheduled", "dlq"] {
        let job = face.reserve_one(json!({})).await;
        let settled = face.settle(&job, json!({"error": {"message": "boom"}})).await;
        assert_eq!(settled["state"], expected);
        face.advance(3_600);
        if expected == "dlq" {
            assert!(text(&settled["reason"]).contains("boom"), "{settled}");
            assert_eq!(face.record(&job).await.errors.len(), 3);
        }
    }
}

#[tokio::test]
async fn a_job_that_snoozes_is_charged_nothing() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    assert_eq!(face.settle(&job, json!({"snooze": {"seconds": 40}})).await["state"], "scheduled");
    face.advance(40);
    let again = face.reserve_one(json!({})).await;
    assert_eq!((&again["attempt"], &again["deliveries"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn a_job_that_is_throttled_holds_its_lane_and_no_other() {
    let face = Face::new();
    for lane in ["acme", "acme", "other"] {
        face.enqueue(json!({"lane": lane, "payload": lane})).await;
    }
    let jobs = face.reserve(json!({"queues": {"default": 1}})).await;
    assert_eq!(jobs[0]["lane"], "acme");
    face.settle(&jobs[0], json!({"throttled": {"seconds": 30}})).await;
    let actions = face.rig.get("actions").await.ok()["items"].clone();
    let [hold] = &actions.as_array().unwrap()[..] else { panic!("{actions}") };
    assert_eq!((&hold["action"], &hold["count"]), (&json!("queue.hold"), &json!(1)));
    assert_eq!(hold["ids"], json!([jobs[0]["id"]]));
    let held = &hold["details"]["throttled"][0];
    assert_eq!((&held["queue"], &held["lane"]), (&json!("default"), &json!("acme")), "{hold}");
    let others = face.reserve(json!({})).await;
    assert_eq!((others.len(), &others[0]["lane"]), (1, &json!("other")));
    face.advance(30);
    assert_eq!(face.reserve(json!({"lease_seconds": 60})).await.len(), 3);
}

#[tokio::test]
async fn a_queue_is_on_hold_for_a_day_at_most() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    for seconds in [json!(86_400.5), json!(3e9)] {
        let answer = face.settle(&job, json!({"throttled": {"seconds": seconds}})).await;
        assert_eq!(refused(&answer), "invalid_request");
        assert!(text(&answer["error"]["message"]).contains("choose 0 to 86400"), "{answer}");
    }
    assert_eq!(face.state(&job).await, State::Inflight);
    face.enqueue(json!({"id": "next"})).await;
    assert_eq!(face.reserve_one(json!({})).await["id"], "next", "the queue is on hold");
    let settled = face.settle(&job, json!({"throttled": {"seconds": 86_400}})).await;
    assert_eq!(settled["state"], "scheduled");
}

#[tokio::test]
async fn a_worker_holds_no_lane_of_jobs_that_it_does_not_hold() {
    let face = Face::new();
    let stale = face.reserve_new(json!({"lane": "acme"})).await;
    face.advance(31);
    let mine = face.reserve_one(json!({"lease_seconds": 600})).await;
    let throttled = json!({"throttled": {"seconds": 600}});
    assert_eq!(refused(&face.settle(&stale, throttled.clone()).await), "lease_lost");
    // A lease that says something else about the job than the store.
    let forged = edited(&mine["lease"], |lease| lease["l"] = json!("other"));
    let forged = with(mine.clone(), json!({"lease": forged}));
    assert_eq!(face.settle(&forged, throttled).await["state"], "scheduled");
    for lane in ["acme", "other"] {
        face.enqueue(json!({"lane": lane})).await;
    }
    assert_eq!(face.reserve(json!({})).await.len(), 2, "a lane is on hold");
    assert_eq!(face.rig.get("actions").await.ok()["items"], json!([]), "nothing was held");
}

#[tokio::test]
async fn a_job_that_was_stopped_returns_to_its_position() {
    let face = Face::new();
    for id in ["first", "second"] {
        face.enqueue(json!({"id": id})).await;
    }
    for reason in [json!({}), json!({"reason": "shutdown"}), json!({"reason": "unstarted"})] {
        let job = face.reserve(json!({"queues": {"default": 1}})).await.remove(0);
        assert_eq!((&job["id"], &job["attempt"]), (&json!("first"), &json!(1)));
        assert_eq!(face.settle(&job, json!({"release": reason})).await["state"], "ready");
    }
    assert_eq!(face.record(&json!("first")).await.job.expirations, 0);
}

#[tokio::test]
async fn a_job_that_is_not_json_has_no_output_that_is() {
    let face = Face::new();
    face.rig.client.enqueue_raw("send", &b"1"[..]).codec("messagepack").await.unwrap();
    let job = face.reserve_one(json!({})).await;
    assert_eq!((&job["payload_base64"], job.get("payload")), (&json!("MQ=="), None));
    let settled = face.settle(&job, json!({"ok": {"output": 1}})).await;
    assert_eq!(settled["state"], "dlq", "{settled}");
    assert!(text(&settled["reason"]).contains("output_base64"));
}

#[tokio::test]
async fn an_outcome_that_was_recorded_may_be_sent_again() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    let outcome = json!({"ok": {"output": 1}});
    let first = face.settle(&job, outcome.clone()).await;
    assert_eq!(face.settle(&job, outcome).await, first);
    assert_eq!(
        refused(&face.settle(&job, json!({"error": {"message": "no"}})).await),
        "lease_lost"
    );
    assert_eq!(face.state(&job).await, State::Done);
}

#[tokio::test]
async fn a_worker_that_has_lost_its_lease_records_nothing() {
    let face = Face::new();
    let stale = face.reserve_new(json!({})).await;
    face.advance(30);
    let mine = face.reserve_one(json!({})).await;
    for outcome in [
        json!({"ok": {}}),
        json!({"error": {"message": "late"}}),
        json!({"error": {"message": "late", "retryable": false}}),
        json!({"timeout": {}}),
        json!({"snooze": {"seconds": 1}}),
        json!({"release": {}}),
    ] {
        assert_eq!(refused(&face.settle(&stale, outcome).await), "lease_lost");
    }
    assert_eq!(face.state(&mine).await, State::Inflight);
    assert_eq!(face.settle(&mine, json!({"ok": {}})).await["state"], "done");
}

#[tokio::test]
async fn a_forged_lease_is_refused() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    let forgeries = [
        edited(&job["lease"], |lease| lease["t"] = json!("0".repeat(32))),
        edited(&job["lease"], |lease| lease["t"] = json!("+".repeat(32))),
        edited(&job["lease"], |lease| lease["m"] = json!(0)),
        edited(&job["lease"], |lease| lease["v"] = json!(99)),
        edited(&job["lease"], |lease| lease["g"] = json!(i64::MAX)),
        edited(&job["lease"], |lease| lease["extra"] = json!(1)),
        json!("A".repeat(100_000)),
        json!(""),
    ];
    for (number, lease) in forgeries.into_iter().enumerate() {
        let forged = with(job.clone(), json!({"lease": lease}));
        let answer = face.settle(&forged, json!({"ok": {}})).await;
        let expected = if number == 0 { "lease_lost" } else { "invalid_lease" };
        assert_eq!(refused(&answer), expected, "forgery {number}");
    }
    assert_eq!(face.state(&job).await, State::Inflight);
}

#[tokio::test]
async fn each_outcome_is_recorded_by_itself() {
    let face = Face::new();
    let mut items = Vec::new();
    for outcome in [
        json!({"ok": {}}),
        json!({}),
        json!({"ok": {}, "error": {"message": "both"}}),
        json!({"ok": {"output": 1, "output_base64": "MQ=="}}),
        json!({"ok": {"output_base64": "%"}}),
        json!({"snooze": {"seconds": -1}}),
        json!({"throttled": {"seconds": 1e300}}),
        json!({"error": {"message": "x", "retry_after_seconds": -0.5}}),
        json!({"error": {"message": "x"}}),
    ] {
        let job = face.reserve_new(json!({})).await;
        items.push(with(json!({"id": job["id"], "lease": job["lease"]}), outcome));
    }
    let answers = jobs_of(&face.call("settle", &json!({"jobs": items})).await);
    assert_eq!((&answers[0]["state"], &answers[8]["state"]), (&json!("done"), &json!("scheduled")));
    for (answer, item) in answers[1..8].iter().zip(&items[1..8]) {
        assert_eq!(refused(answer), "invalid_request", "{item}");
        assert_eq!(face.state(item).await, State::Inflight);
    }
}

#[tokio::test]
async fn an_output_that_no_store_takes_is_a_failure() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    let large = "x".repeat(17 * 1024 * 1024);
    let settled = face.settle(&job, json!({"ok": {"output": large}})).await;
    assert_eq!(settled["state"], "dlq", "{settled}");
}

/// A lease of which something was changed.
fn edited(
    lease: &serde_json::Value,
    change: impl FnOnce(&mut serde_json::Value),
) -> serde_json::Value {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(lease.as_str().unwrap()).unwrap();
    let mut written = serde_json::from_slice(&bytes).unwrap();
    change(&mut written);
    json!(BASE64_URL_SAFE_NO_PAD.encode(written.to_string()))
}
