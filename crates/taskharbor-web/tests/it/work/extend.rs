//! Extending leases.

use serde_json::json;
use taskharbor::State;

use super::*;

#[tokio::test]
async fn a_lease_that_is_extended_outlives_its_first_end() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    for _ in 0..3 {
        face.advance(25);
        let kept = face.extend(&job, json!({"lease_seconds": 30})).await;
        let held = face.record(&job).await.held.unwrap();
        assert_eq!(kept["lease_expires_at"], held.expires_at.to_string());
        assert!(face.reserve(json!({})).await.is_empty());
    }
    face.advance(30);
    assert_eq!(refused(&face.extend(&job, json!({})).await), "lease_lost");
    assert_eq!(face.reserve_one(json!({})).await["deliveries"], 2);
}

#[tokio::test]
async fn progress_goes_along_and_stays_until_the_next_report() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    for (said, expected) in
        [(json!("3 of 7"), "3 of 7"), (json!(null), "3 of 7"), (json!("é\u{0}"), "é\u{fffd}")]
    {
        let item = json!({"id": job["id"], "lease": job["lease"], "progress": said});
        face.call("extend", &json!({"jobs": [item]})).await;
        assert_eq!(face.record(&job).await.progress.unwrap().as_str(), expected);
    }
}

#[tokio::test]
async fn a_job_whose_cancellation_was_requested_is_told_to_stop() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    assert_eq!(face.extend(&job, json!({})).await.get("cancel"), None);
    let id = taskharbor::JobId::new(text(&job["id"])).unwrap();
    face.rig.client.job(&id).cancel().await.unwrap();
    assert_eq!(face.extend(&job, json!({})).await["cancel"], "requested");
    let settled = face.settle(&job, json!({"release": {"reason": "requested"}})).await;
    assert_eq!(settled["state"], "cancelled");
    assert_eq!(face.state(&job).await, State::Cancelled);
}

#[tokio::test]
async fn a_job_that_takes_too_long_learns_it_and_loses_its_lease() {
    let face = Face::new();
    let job = face.reserve_new(json!({"timeout_seconds": 4})).await;
    face.advance(3);
    assert_eq!(face.extend(&job, json!({})).await.get("cancel"), None);
    face.advance(1);
    assert_eq!(face.extend(&job, json!({})).await["cancel"], "timeout");
    face.advance(5);
    assert_eq!(refused(&face.extend(&job, json!({})).await), "lease_lost");
    let settled = face.settle(&job, json!({"timeout": {}})).await;
    assert_eq!(settled["state"], "scheduled");
    assert_eq!(face.record(&job).await.job.last_error.unwrap().as_str(), "timed out after 4s");
}

#[tokio::test]
async fn a_worker_that_leaves_has_not_crashed() {
    let face = Face::new();
    for leaving in [true, false] {
        let job = face.reserve_new(json!({})).await;
        face.extend(&job, json!({"leaving": leaving})).await;
        face.advance(31);
        let again = face.reserve_one(json!({})).await;
        assert_eq!(face.record(&again).await.job.expirations, u32::from(!leaving));
        face.settle(&again, json!({"ok": {}})).await;
    }
}

#[tokio::test]
async fn each_lease_is_extended_by_itself() {
    let face = Face::new();
    let good = face.reserve_new(json!({})).await;
    let (other, third) = (face.reserve_new(json!({})).await, face.reserve_new(json!({})).await);
    let items = json!([
        {"id": "", "lease": good["lease"]},
        {"id": good["id"], "lease": "forged"},
        {"id": third["id"], "lease": other["lease"]},
        {"id": "unknown", "lease": good["lease"]},
        {"id": good["id"], "lease": good["lease"]},
    ]);
    let answers = jobs_of(&face.call("extend", &json!({"jobs": items})).await);
    let codes: Vec<_> = answers[..4].iter().map(refused).collect();
    assert_eq!(codes, ["invalid_request", "invalid_lease", "lease_lost", "lease_lost"]);
    assert!(answers[4].get("lease_expires_at").is_some());
}

#[tokio::test]
async fn a_job_that_is_named_twice_in_a_call_is_a_problem() {
    let face = Face::new();
    let job = face.reserve_new(json!({})).await;
    let item = json!({"id": job["id"], "lease": job["lease"]});
    let problem = face.problem("extend", &json!({"jobs": [item, item]})).await;
    assert_eq!(problem, (400, "invalid_request".into()));
    let item = with(item, json!({"ok": {}}));
    let problem = face.problem("settle", &json!({"jobs": [item, item]})).await;
    assert_eq!(problem, (400, "invalid_request".into()));
    assert_eq!(face.state(&job).await, State::Inflight);
}
