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
    assert_eq!(face.call("inputs", &json!({"id": id})).await, json!({"input": ["left", "right"]}));
    assert_eq!(face.call("inputs", &json!({"id": "left"})).await, json!({}));
}

#[tokio::test]
async fn inputs_that_are_not_there_are_a_problem() {
    let face = Face::new();
    let id = store_join(&face).await;
    assert_eq!(
        face.problem("inputs", &json!({"id": "unknown"})).await,
        (404, "job_not_found".into())
    );
    let (status, _) = face.problem("inputs", &json!({"id": id})).await;
    assert_eq!(status, 409);
    assert_eq!(face.problem("inputs", &json!({"id": ""})).await.0, 400);
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
