//! Handing out jobs, and waiting for some.

use serde_json::json;
use taskharbor::State;
use tokio::time::Instant;

use super::*;

#[tokio::test]
async fn a_job_comes_with_what_its_handler_needs() {
    let face = Face::new();
    let id = face
        .enqueue(json!({"payload": [1], "headers": {"a": "b"}, "lane": "acme", "priority": 2}))
        .await;
    face.advance(3);
    let job = face.reserve_one(json!({"lease_seconds": 20})).await;
    for (name, expected) in [
        ("id", json!(id)),
        ("type", json!("send")),
        ("queue", json!("default")),
        ("payload", json!([1])),
        ("headers", json!({"a": "b"})),
        ("lane", json!("acme")),
        ("priority", json!(2)),
        ("attempt", json!(1)),
        ("max_attempts", json!(20)),
        ("deliveries", json!(1)),
        ("waited_ms", json!(3_000)),
        ("inputs", json!(false)),
    ] {
        assert_eq!(job[name], expected, "{name}");
    }
    let held = face.record(&job).await.held.unwrap();
    assert_eq!(held.holder.as_str(), "python-1");
    assert_eq!(held.expires_at, face.rig.driver.now().await.unwrap().saturating_add(SECOND * 20));
    assert_eq!(job["lease_expires_at"], held.expires_at.to_string());
}

#[tokio::test]
async fn no_queue_gives_more_than_asked_and_no_job_goes_twice() {
    let face = Face::new();
    for number in 0..5 {
        face.enqueue(json!({"queue": "a", "payload": number})).await;
        face.enqueue(json!({"queue": "b"})).await;
    }
    let first = face.reserve(json!({"queues": {"a": 2, "b": 1}})).await;
    let of = |queue: &str| first.iter().filter(|job| job["queue"] == queue).count();
    assert_eq!((of("a"), of("b")), (2, 1));
    let rest = face.reserve(json!({"queues": {"a": 10, "b": 10}})).await;
    assert_eq!(rest.len(), 7);
    assert!(face.reserve(json!({"queues": {"a": 10, "b": 10}})).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_a_job_comes() {
    let face = Face::new();
    let begin = Instant::now();
    let (jobs, id) = tokio::join!(face.reserve(json!({"wait_seconds": 30})), async {
        tokio::time::sleep(SECOND * 7).await;
        face.enqueue(json!({})).await
    });
    assert_eq!(jobs[0]["id"], id);
    assert_eq!(begin.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_empty_when_its_time_has_ended() {
    let face = Face::new();
    let begin = Instant::now();
    assert!(face.reserve(json!({"wait_seconds": 12})).await.is_empty());
    assert_eq!(begin.elapsed().as_secs(), 12);
    assert!(face.reserve(json!({})).await.is_empty());
    assert_eq!(begin.elapsed().as_secs(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_reserves_nothing() {
    let face = Face::new();
    let waiting = face.reserve(json!({"wait_seconds": 30}));
    let dropped = tokio::time::timeout(SECOND, waiting).await;
    assert!(dropped.is_err());
    let id = json!(face.enqueue(json!({})).await);
    tokio::time::sleep(SECOND).await;
    let record = face.record(&id).await;
    assert_eq!((record.state, record.job.deliveries), (State::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn jobs_that_were_reserved_for_a_request_that_is_gone_are_released() {
    let face = Face::new();
    let id = json!(face.enqueue(json!({})).await);
    tokio::select! {
        biased;
        jobs = face.reserve(json!({})) => panic!("it did not wait for the store: {jobs:?}"),
        () = std::future::ready(()) => {}
    }
    // The store is asked after the request is gone.
    let job = face.reserve_one(json!({"wait_seconds": 5})).await;
    assert_eq!((&job["id"], &job["attempt"]), (&id, &json!(1)));
    assert_eq!(job["deliveries"], 2, "it was not reserved for the first request");
}

#[tokio::test]
async fn a_job_of_a_type_that_the_worker_does_not_take_waits_for_another_one() {
    let face = Face::new();
    let id = json!(face.enqueue(json!({"type": "other"})).await);
    face.enqueue(json!({})).await;
    let only = json!({"types": ["send"]});
    // The first answer may be empty, since the other job was in front.
    let jobs = face.reserve(only.clone()).await;
    assert_eq!((jobs.len(), &jobs[0]["type"]), (1, &json!("send")));
    let record = face.record(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Scheduled, 0));
    face.advance(60);
    let other = face.reserve_one(json!({"types": [{"type": "other", "max_attempts": 3}]})).await;
    assert_eq!((&other["id"], &other["max_attempts"]), (&id, &json!(3)));
    face.settle(&other, json!({"release": {"reason": "unstarted"}})).await;
}

#[tokio::test]
async fn a_job_whose_type_no_worker_takes_is_dead_lettered_in_the_end() {
    let face = Face::new();
    let id = json!(face.enqueue(json!({"type": "other"})).await);
    for _ in 0..70 {
        assert!(face.reserve(json!({"types": ["send"]})).await.is_empty());
        face.advance(10);
    }
    let record = face.record(&id).await;
    assert_eq!(record.state, State::Dlq);
    assert!(record.reason.unwrap().as_str().contains("no handler for job type"));
}

#[tokio::test(start_paused = true)]
async fn behind_jobs_that_the_worker_does_not_take_it_finds_those_that_it_takes() {
    let face = Face::new();
    for _ in 0..25 {
        face.enqueue(json!({"type": "other"})).await;
    }
    let id = face.enqueue(json!({})).await;
    let job = face.reserve_one(json!({"types": ["send"], "wait_seconds": 1})).await;
    assert_eq!(job["id"], id);
}

#[tokio::test]
async fn the_limits_of_a_job_are_its_own_else_those_of_its_type_else_those_of_the_worker() {
    let face = Face::new();
    let worker = json!({
        "types": ["a", {"type": "b", "max_attempts": 5, "timeout_seconds": 2.5}],
        "max_attempts": 9, "timeout_seconds": 60,
    });
    let mut limits = Vec::new();
    for job in [
        json!({"type": "a"}),
        json!({"type": "b"}),
        json!({"type": "b", "max_attempts": 2, "timeout_seconds": 1}),
    ] {
        face.enqueue(job).await;
        let job = face.reserve_one(worker.clone()).await;
        limits.push((job["max_attempts"].clone(), job["timeout_seconds"].clone()));
    }
    let expected =
        [(9, 60.0), (5, 2.5), (2, 1.0)].map(|(attempts, time)| (json!(attempts), json!(time)));
    assert_eq!(limits, expected);
}

#[tokio::test]
async fn a_job_that_may_kill_its_worker_runs_alone_and_is_dead_lettered_in_the_end() {
    let face = Face::new();
    for id in ["one", "two"] {
        face.enqueue(json!({"id": id})).await;
    }
    let worker = json!({"crash_limit": 3, "lease_seconds": 10});
    for crash in 0..2 {
        let jobs = face.reserve(worker.clone()).await;
        assert_eq!(jobs.len(), 2, "after {crash} crashes: {jobs:?}");
        assert!(jobs.iter().all(|job| job.get("alone_seconds").is_none()));
        face.advance(10);
    }
    let jobs = face.reserve(worker.clone()).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(jobs[0]["alone_seconds"], 10);
    assert_eq!(jobs[0]["attempt"], 1);
    face.advance(10);
    let second = face.reserve(worker.clone()).await;
    assert_eq!(second.len(), 1);
    assert_ne!(second[0]["id"], jobs[0]["id"]);
    let record = face.record(&jobs[0]).await;
    assert_eq!(record.state, State::Dlq);
    let reason = record.reason.unwrap();
    assert!(reason.as_str().contains("3 times in a row"), "{reason}");
}
