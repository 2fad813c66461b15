//! Invalid calls, and callers without access.

use axum::{body::Body, http::Method};
use serde_json::json;
use taskharbor_web::{Access, Role};

use super::*;
use crate::rig::request;

const OPERATIONS: [&str; 6] = ["enqueue", "reserve", "inputs", "extend", "settle", "announce"];

#[tokio::test]
async fn what_is_no_call_is_refused_whole() {
    let face = Face::new();
    for operation in OPERATIONS {
        for body in [
            "",
            "{",
            "[]",
            "null",
            "1",
            "\"\"",
            "{\"unknown\":1}",
            "{\"jobs\":1}",
            "{\"jobs\":[[]]}",
            "\u{0}",
        ] {
            let sent = request(Method::POST, &format!("work/{operation}"), Body::from(body));
            let (status, code) = face.rig.send(sent).await.problem();
            assert_eq!((status, code.as_str()), (400, "invalid_request"), "{operation} {body}");
        }
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let sent = request(method, &format!("work/{operation}"), Body::empty());
            assert_eq!(face.rig.send(sent).await.problem().0, 405);
        }
    }
}

#[tokio::test]
async fn numbers_have_bounds() {
    let face = Face::new();
    let item = json!({"id": "a", "lease": "b"});
    let many: Vec<_> = (0..1_001).map(|_| item.clone()).collect();
    for operation in ["enqueue", "extend", "settle"] {
        let jobs: Vec<_> = (0..1_001).map(|_| json!({"type": "a"})).collect();
        let jobs = if operation == "enqueue" { json!(jobs) } else { json!(many) };
        for body in [json!({"jobs": []}), json!({"jobs": jobs})] {
            let problem = face.problem(operation, &body).await;
            assert_eq!(problem, (400, "out_of_range".into()), "{operation}");
        }
    }
    for (name, value) in [
        ("queues", json!({})),
        ("queues", json!({"default": 0})),
        ("queues", json!({"default": 1_001})),
        ("queues", json!({"a": 600, "b": 600})),
        ("queues", json!({"default": -1})),
        ("queues", json!({"default": 9_223_372_036_854_775_808_u64})),
        ("queues", json!({"": 1})),
        ("worker", json!("")),
        ("worker", json!("x".repeat(10_000))),
        ("lease_seconds", json!(0.5)),
        ("lease_seconds", json!(86_401)),
        ("lease_seconds", json!(1e300)),
        ("wait_seconds", json!(30.1)),
        ("wait_seconds", json!(-1)),
        ("timeout_seconds", json!(0)),
        ("max_attempts", json!(0)),
        ("max_attempts", json!(4_294_967_296_u64)),
        ("crash_limit", json!(0)),
        ("types", json!([""])),
        ("types", json!([{"type": "a", "max_attempts": 0}])),
        ("types", json!([{"type": "a", "timeout_seconds": -1}])),
        ("types", json!(vec!["a"; 1_001])),
        ("retry", json!({"base_seconds": -1})),
        ("retry", json!({"multiplier": 0.5})),
        ("retry", json!({"jitter": 2})),
    ] {
        let request = with(json!({"queues": {"default": 1}, "worker": "w"}), json!({name: value}));
        let status = face.rig.post("work/reserve", &request).await.status;
        assert_eq!(status, 400, "{name}: {request}");
    }
    let extend = json!({"jobs": [item], "lease_seconds": 0});
    assert_eq!(face.problem("extend", &extend).await, (400, "out_of_range".into()));
}

#[tokio::test]
async fn the_worker_face_takes_its_own_permission() {
    let rig = Rig::with_access(Access::new("eve", Role::Admin).with_payloads());
    for operation in OPERATIONS {
        let answer = rig.post(&format!("work/{operation}"), &json!({})).await;
        assert_eq!(answer.problem(), (403, "needs_workers".into()));
    }
    let rig = Rig::with_access(Access::new("worker", Role::Viewer).with_workers());
    let stored = rig.post("work/enqueue", &json!({"jobs": [{"type": "a"}]})).await;
    assert_eq!(stored.ok()["jobs"][0]["existed"], false);
}

#[tokio::test]
async fn texts_of_any_kind_come_back_as_they_were() {
    let face = Face::new();
    for hostile in
        ["<script>alert(1)</script>", "'; DROP TABLE job; --", "\u{202e}\u{0}\r\n", "💥\u{ffff}"]
    {
        let job = face.reserve_new(json!({"payload": hostile})).await;
        assert_eq!(job["payload"], hostile);
        let settled =
            face.settle(&job, json!({"error": {"message": hostile, "retryable": false}})).await;
        assert_eq!(settled["state"], "dlq");
        // Not every store keeps a zero byte in a text.
        let kept = hostile.replace('\0', "\u{fffd}");
        assert!(face.record(&job).await.errors[0].error.as_str().contains(&kept));
    }
}
