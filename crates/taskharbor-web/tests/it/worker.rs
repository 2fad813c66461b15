//! Workers: which have announced themselves, and evictions.

use std::time::Duration;

use serde_json::{Value, json};
use taskharbor::{Driver, Incarnation, JobId, JobType, QueueName};
use taskharbor_core::{NewJob, driver::Announce, name::Holder};
use taskharbor_web::{Access, Role};

use crate::rig::Rig;

const MINUTE: Duration = Duration::from_secs(60);

async fn announce(rig: &Rig, holder: &str, incarnation: u64, info: &[u8]) {
    let now = rig.driver.now().await.unwrap();
    let (holder, incarnation) = (Holder::new(holder).unwrap(), Incarnation::from_bits(incarnation));
    let announce = Announce::new(holder, incarnation, info.into(), MINUTE, now);
    rig.driver.announce(announce).await.unwrap();
}

#[tokio::test]
async fn workers_are_listed_with_what_they_said_and_whether_they_are_overdue() {
    let rig = Rig::new();
    let info = br#"{"version":"2.1","host":"web-3","pid":4711,"phase":"working","wake_ups":true,
        "library":"0.1.0","types":["email:send"],
        "queues":[{"name":"mail","slots":4,"busy":1,"started":8,"done":7}]}"#;
    announce(&rig, "old", 1, b"not JSON").await;
    rig.clock.advance(MINUTE * 2);
    announce(&rig, "worker/1", 7, info).await;
    let workers = rig.get("workers").await.ok();
    let [old, new] = workers["items"].as_array().unwrap().as_slice() else { panic!("{workers}") };
    assert_eq!((&old["holder"], &old["overdue"]), (&json!("old"), &json!(true)));
    assert_eq!(old["info"], Value::Null);
    assert_eq!((&new["holder"], &new["overdue"]), (&json!("worker/1"), &json!(false)));
    assert_eq!(new["incarnation"], "0000000000000007");
    assert_eq!((&new["info"]["pid"], &new["info"]["queues"][0]["done"]), (&json!(4711), &json!(7)));
    let first = rig.get("workers?limit=1").await.ok();
    let next = first["next"].as_str().unwrap();
    let second = rig.get(&format!("workers?limit=1&after={next}")).await.ok();
    assert_eq!(second["items"], json!([new]));
}

#[tokio::test]
async fn an_eviction_ends_the_leases_of_a_worker() {
    let rig = Rig::new();
    let now = rig.driver.now().await.unwrap();
    let queue = QueueName::new("mail").unwrap();
    for _ in 0..3 {
        let (id, job_type) = (JobId::generate(now).unwrap(), JobType::new("a").unwrap());
        let job = NewJob::new(id, queue.clone(), job_type, b"{}");
        rig.driver.enqueue_job(job, now).await.unwrap();
    }
    let reserve = |holder: &str| {
        let (driver, queue, holder) =
            (rig.driver.clone(), queue.clone(), Holder::new(holder).unwrap());
        async move { driver.reserve_job(queue, holder, now, MINUTE).await.unwrap() }
    };
    reserve("dead/1").await.unwrap();
    reserve("dead/1").await.unwrap();
    reserve("alive").await.unwrap();
    announce(&rig, "dead/1", 1, b"{}").await;
    assert!(reserve("alive").await.is_none());
    let done = rig.post("workers/dead%2F1/evict", &json!({})).await.ok();
    assert_eq!(done, json!({ "leases": 2 }));
    assert!(reserve("alive").await.is_some());
    assert_eq!(rig.get("workers").await.ok()["items"], json!([]));
    let log = rig.get("actions").await.ok();
    assert_eq!(log["items"][0]["target"]["holder"], "dead/1");
    assert_eq!(log["items"][0]["count"], 2);
    // Without leases there is nothing to end.
    let nothing = rig.post("workers/unknown/evict", &json!({})).await.ok();
    assert_eq!(nothing, json!({ "leases": 0 }));
}

#[tokio::test]
async fn bad_values_are_refused_and_only_an_admin_evicts() {
    let rig = Rig::new();
    for query in ["limit=0", "limit=1001", "limit=x", "after=lane-a", "overdue=1"] {
        assert_eq!(rig.get(&format!("workers?{query}")).await.problem().0, 400, "{query}");
    }
    assert_eq!(rig.post("workers/%00/evict", &json!({})).await.problem().0, 400);
    assert_eq!(rig.post("workers/a/evict", &json!({ "all": true })).await.problem().0, 400);
    for role in [Role::Viewer, Role::Operator] {
        let rig = Rig::with_access(Access::new("ada", role));
        assert!(rig.get("workers").await.status.is_success());
        let reply = rig.post("workers/a/evict", &json!({})).await;
        assert_eq!(reply.problem(), (403, "role_too_low".into()), "{role}");
    }
}
