//! Steps of flows, and announcements.

use serde_json::json;
use taskharbor::{Driver, JobType, QueueName, State};
use taskharbor_core::{NewJob, driver::Enqueue, job::JobSet};

use super::*;

/// Stores two parents and a job that reads both; answers its id.
async fn store_join(face: &Face) -> String {
    let now = face.rig.driver.now().await.unwrap();
    let job = |id: &str| {
        let queue = QueueName::new("default").unwrap();
        NewJob::new(JobId::new(id).unwrap(), queue, JobType::new("send").unwrap(), b"1")
    };
    let (left, right) = (job("left"), job("right"));
    let last = job("last").after([left.id.clone(), right.id.clone()]);
    let set = JobSet::flow(vec![left, right, last]);
    face.rig.driver.enqueue(Enqueue::new(vec![set], now)).await.unwrap().remove(0).unwrap();
    "last".to_owned()
}

/// What asks for the inputs of a job that was reserved.
fn lease_of(job: &Value) -> Value {
    json!({"id": job["id"], "lease": job["lease"]})
}

#[tokio::test]
async fn a_step_reads_what_the_steps_before_it_have_produced() {
    let face = Face::new();
    let id = store_join(&face).await;
    for job in face.reserve(json!({})).await {
        assert_eq!(job["inputs"], false);
        let output = job["id"].clone();
        face.settle(&job, json!({"ok": {"output": output}})).await;
    }
    let last = face.reserve_one(json!({})).await;
    assert_eq!((&last["id"], &last["inputs"]), (&json!(id), &json!(true)));
    assert_eq!(face.call("inputs", &lease_of(&last)).await, json!({"input": ["left", "right"]}));
    let plain = face.reserve_new(json!({})).await;
    assert_eq!(face.call("inputs", &lease_of(&plain)).await, json!({}));
}

#[tokio::test]
async fn only_the_worker_that_holds_a_step_reads_its_input() {
    let face = Face::new();
    store_join(&face).await;
    let parents = face.reserve(json!({})).await;
    for job in &parents {
        face.settle(job, json!({"ok": {"output": "secret"}})).await;
    }
    let last = face.reserve_one(json!({})).await;
    let other = face.reserve_new(json!({})).await;
    let with_lease = |lease: &Value| json!({"id": "last", "lease": lease});
    for (body, expected) in [
        (json!({"id": "last"}), (400, "invalid_request")),
        (with_lease(&json!("")), (400, "invalid_lease")),
        (with_lease(&json!("A")), (400, "invalid_lease")),
        (with_lease(&other["lease"]), (409, "lease_lost")),
        (with_lease(&parents[0]["lease"]), (409, "lease_lost")),
        (json!({"id": "unknown", "lease": other["lease"]}), (409, "lease_lost")),
        (json!({"id": "", "lease": last["lease"]}), (400, "invalid_name")),
    ] {
        let (status, code) = face.problem("inputs", &body).await;
        assert_eq!((status, &*code), expected, "{body}");
    }
    face.call("inputs", &lease_of(&last)).await;
    face.advance(31);
    let lost = (409, "lease_lost".to_owned());
    assert_eq!(face.problem("inputs", &lease_of(&last)).await, lost);
    let again = face.reserve(json!({})).await;
    let again = again.iter().find(|job| job["id"] == "last").unwrap();
    assert_eq!(face.problem("inputs", &lease_of(&last)).await, lost);
    let read = face.call("inputs", &lease_of(again)).await;
    assert_eq!(read, json!({"input": ["secret", "secret"]}));
    face.settle(again, json!({"ok": {}})).await;
    assert_eq!(face.problem("inputs", &lease_of(again)).await, lost);
}

#[tokio::test]
async fn a_parent_that_fails_blocks_the_steps_after_it() {
    let face = Face::new();
    let id = json!(store_join(&face).await);
    for job in face.reserve(json!({})).await {
        face.settle(&job, json!({"error": {"message": "no", "retryable": false}})).await;
    }
    assert!(face.reserve(json!({})).await.is_empty());
    assert_eq!(face.state(&id).await, State::Blocked);
}

#[tokio::test]
async fn a_worker_is_listed_until_it_withdraws() {
    let face = Face::new();
    let announce = |seconds: u64| {
        json!({
            "worker": "python-1", "incarnation": "0123456789abcdef", "valid_seconds": seconds,
            "info": {"library": "python 0.1.0", "phase": "working", "types": ["send"]},
        })
    };
    assert_eq!(face.call("announce", &announce(30)).await, json!({}));
    let listed = face.rig.client.workers().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name.as_str(), "python-1");
    face.call("announce", &announce(0)).await;
    assert!(face.rig.client.workers().await.unwrap().is_empty());
    for body in [
        with(announce(30), json!({"incarnation": "xyz"})),
        with(announce(30), json!({"valid_seconds": 86_401})),
        with(announce(30), json!({"valid_seconds": -1})),
        with(announce(30), json!({"worker": ""})),
    ] {
        assert_eq!(face.problem("announce", &body).await.0, 400, "{body}");
    }
}
