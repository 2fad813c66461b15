//! Storing jobs.

use serde_json::json;
use taskharbor::State;

use super::*;

#[tokio::test]
async fn a_job_is_stored_with_all_that_is_said_about_it() {
    let face = Face::new();
    let said = json!({
        "queue": "mail", "payload": {"to": "ada"}, "id": "mail-7", "idempotency_key": "k",
        "delay_seconds": 60, "priority": -3, "lane": "acme", "max_attempts": 4,
        "timeout_seconds": 1.5, "headers": {"trace": "abc"},
    });
    let stored = face.enqueue_all(json!([with(json!({"type": "send"}), said)])).await;
    assert_eq!(stored, [json!({"id": "mail-7", "existed": false})]);
    let record = face.record(&json!("mail-7")).await;
    let job = &record.job;
    assert_eq!((job.queue.as_str(), job.job_type.as_str()), ("mail", "send"));
    assert_eq!((&job.payload[..], job.priority), (&br#"{"to":"ada"}"#[..], -3));
    assert_eq!(job.lane.as_ref().unwrap().as_str(), "acme");
    assert_eq!((job.max_attempts, job.timeout), (Some(4), Some(SECOND * 3 / 2)));
    assert_eq!(job.headers.get("trace"), Some("abc"));
    assert_eq!(job.idempotency_key.as_ref().unwrap().as_str(), "k");
    assert_eq!(
        (record.state, job.run_at.unwrap()),
        (State::Scheduled, job.created_at.saturating_add(SECOND * 60))
    );
}

#[tokio::test]
async fn a_job_that_says_nothing_has_a_new_id_the_default_queue_and_null() {
    let face = Face::new();
    let stored = face.enqueue_all(json!([{"type": "a"}, {"type": "a"}])).await;
    assert_ne!(stored[0]["id"], stored[1]["id"]);
    let record = face.record(&stored[0]).await;
    assert_eq!((record.job.queue.as_str(), &record.job.payload[..]), ("default", &b"null"[..]));
    assert_eq!(record.state, State::Ready);
}

#[tokio::test]
async fn an_id_or_a_key_that_is_stored_names_the_job_that_has_it() {
    let face = Face::new();
    let job = json!({"type": "a", "id": "one", "idempotency_key": "k"});
    face.enqueue_all(json!([job])).await;
    let again =
        face.enqueue_all(json!([job, {"type": "b", "id": "two", "idempotency_key": "k"}])).await;
    assert_eq!(
        again,
        [json!({"id": "one", "existed": true}), json!({"id": "one", "existed": true})]
    );
}

#[tokio::test]
async fn a_payload_is_kept_byte_for_byte() {
    let face = Face::new();
    let exact = r#"{"b": 1.10,"a":12345678901234567890123456789012345678901,"b":2}"#;
    let body = format!(r#"{{"jobs":[{{"type":"send","payload":{exact}}}]}}"#);
    let request = crate::rig::request(axum::http::Method::POST, "work/enqueue", body.into());
    let stored = face.rig.send(request).await.ok();
    let record = face.record(&stored["jobs"][0]).await;
    assert_eq!(record.job.payload[..], *exact.as_bytes());
    let request = json!({"queues": {"default": 1}, "worker": "w"});
    let reserved = face.rig.post("work/reserve", &request).await;
    assert!(reserved.text.contains(&format!(r#""payload":{exact},"#)), "{}", reserved.text);
}

#[tokio::test]
async fn bytes_that_are_no_json_come_back_as_they_were() {
    let face = Face::new();
    for (base64, expected) in [
        ("/wD+", json!({"payload_base64": "/wD+"})),
        ("eyJhIjoxfQ==", json!({"payload": {"a": 1}})),
        ("", json!({"payload_base64": ""})),
    ] {
        let job = face.reserve_new(json!({"payload_base64": base64})).await;
        for name in ["payload", "payload_base64"] {
            assert_eq!(job.get(name), expected.get(name), "{job}");
        }
    }
}

#[tokio::test]
async fn each_job_is_stored_by_itself() {
    let face = Face::new();
    let stored = face
        .enqueue_all(json!([
            {"type": "a", "id": "good"},
            {"type": ""},
            {"type": "a", "queue": "no spaces\n"},
            {"type": "a", "id": ""},
            {"type": "a", "payload": 1, "payload_base64": "MQ=="},
            {"type": "a", "payload_base64": "%"},
            {"type": "a", "run_at": "soon"},
            {"type": "a", "run_at": "2030-01-01T00:00:00Z", "delay_seconds": 1},
            {"type": "a", "delay_seconds": -1},
            {"type": "a", "delay_seconds": 1e300},
            {"type": "a", "timeout_seconds": 0},
            {"type": "a", "max_attempts": 0},
            {"type": "a", "lane": ""},
            {"type": "a", "headers": {"": "x"}},
            {"type": "a", "idempotency_key": ""},
            {"type": "a", "id": "good too"},
        ]))
        .await;
    assert_eq!(stored[0], json!({"id": "good", "existed": false}));
    for answer in &stored[1..15] {
        assert!(matches!(refused(answer), "invalid_request" | "rejected"), "{answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|it| it.len() > 5), "{answer}");
    }
    assert_eq!(stored[15]["existed"], false);
    let mut jobs = face.reserve(json!({})).await;
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs.remove(0)["id"], "good");
}

#[tokio::test]
async fn a_time_to_run_at_is_taken_with_any_offset() {
    let face = Face::new();
    let id = face.enqueue(json!({"run_at": "2027-01-15T10:00:00+02:00"})).await;
    let run_at = face.record(&json!(id)).await.job.run_at.unwrap();
    assert_eq!(run_at.to_string(), "2027-01-15T08:00:00.000000Z");
}
