//! The permissions of each role, and the record of its actions.

use serde_json::{Value, json};
use taskharbor::JobId;
use taskharbor_web::{Access, Role};

use crate::rig::Rig;

/// What stands in a payload and nowhere else.
const CANARY: &str = "canary-4711";

/// Stores a job with the canary in its payload; its id.
async fn job(rig: &Rig) -> JobId {
    let payload =
        json!({"jobs": [{"queue": "mail", "type": "email:send", "payload": {"to": CANARY}}]});
    let stored = rig.post("work/enqueue", &payload).await.ok();
    stored["jobs"][0]["id"].as_str().unwrap().parse().unwrap()
}

async fn actions(rig: &Rig) -> Vec<Value> {
    rig.get("actions").await.ok()["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn every_change_by_a_person_is_recorded() {
    let description = Rig::new().description().await;
    let mut recorded = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let role = operation["x-access"]["role"].as_str();
            let needs_role = matches!(role, Some("operator" | "admin"));
            // These two only read, however much they may read.
            let only_reads = path.ends_with("/sweeps/preview") || path.ends_with("/admin/export");
            let is_action = operation["x-action"].is_string();
            if method == "get" || only_reads {
                assert!(!is_action, "{method} {path} changes nothing");
            } else {
                assert_eq!(is_action, needs_role, "{method} {path}: {operation}");
            }
            recorded += usize::from(is_action);
        }
    }
    assert!(recorded > 20, "{recorded} actions");
}

#[tokio::test]
async fn payloads_are_shown_only_with_the_permission_to_see_them() {
    let rig = Rig::new();
    let id = job(&rig).await;
    let blind = rig.served_to(Access::new("ada", Role::Admin));
    for path in [format!("jobs/{id}/payload"), format!("jobs/{id}/output")] {
        assert_eq!(blind.get(&path).await.problem(), (403, "needs_payloads".to_owned()), "{path}");
    }
    for path in
        ["jobs".to_owned(), format!("jobs/{id}"), "overview".to_owned(), "actions".to_owned()]
    {
        let reply = blind.get(&path).await;
        reply.ok();
        assert!(!reply.text.contains(CANARY), "{path}: {}", reply.text);
    }
    let seeing = rig.served_to(Access::new("vera", Role::Viewer).with_payloads());
    let payload = seeing.get(&format!("jobs/{id}/payload")).await;
    payload.ok();
    assert!(payload.text.contains(CANARY), "{payload:?}");
}

#[tokio::test]
async fn the_log_names_the_caller_the_target_and_the_result() {
    let rig = Rig::new();
    let id = job(&rig).await;
    let otto = rig.served_to(Access::new("otto", Role::Operator));
    otto.post("queues/mail/pause", &json!({})).await.ok();
    // The store refuses it, which is worth knowing, too.
    let wrong = otto.post(&format!("jobs/{id}/requeue"), &json!({})).await;
    assert_eq!(wrong.problem(), (409, "wrong_state".to_owned()));
    // The server refuses it before anything is done.
    let purge = otto.post(&format!("jobs/{id}/purge"), &json!({})).await;
    assert_eq!(purge.problem(), (403, "role_too_low".to_owned()));
    let log = actions(&otto).await;
    assert_eq!(log.len(), 2, "the newest first: {log:?}");
    assert_eq!(
        (&log[0]["action"], &log[0]["result"]),
        (&"job.requeue".into(), &"wrong_state".into())
    );
    assert_eq!(log[0]["target"]["id"], id.to_string());
    assert_eq!((&log[1]["action"], &log[1]["result"]), (&"queue.pause".into(), &"ok".into()));
    assert_eq!((&log[1]["who"], &log[1]["role"]), (&"otto".into(), &"operator".into()));
    assert_eq!(log[1]["target"], json!({"queue": "mail"}));
    assert!(log[1]["at"].is_string());
}
