//! Queues: pauses, limits, lanes and holds.

use std::time::Duration;

use serde_json::{Value, json};
use taskharbor::{JobId, JobType, LaneName, QueueName};
use taskharbor_core::{NewJob, name::Holder};
use taskharbor_web::{Access, Role};

use crate::rig::Rig;

async fn enqueue(rig: &Rig, lane: Option<&str>) {
    let now = rig.driver.now().await.unwrap();
    let (queue, job_type) = (QueueName::new("mail").unwrap(), JobType::new("email:send").unwrap());
    let mut job = NewJob::new(JobId::generate(now).unwrap(), queue, job_type, b"{}");
    if let Some(lane) = lane {
        job = job.lane(LaneName::new(lane).unwrap());
    }
    rig.driver.enqueue_job(job, now).await.unwrap();
}

async fn reserve(rig: &Rig) -> bool {
    let now = rig.driver.now().await.unwrap();
    let (queue, holder) = (QueueName::new("mail").unwrap(), Holder::new("w").unwrap());
    let leased = rig.driver.reserve_job(queue, holder, now, Duration::from_secs(60)).await;
    leased.unwrap().is_some()
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed() {
    let rig = Rig::new();
    enqueue(&rig, None).await;
    rig.post("queues/mail/pause", &json!({})).await.ok();
    assert!(!reserve(&rig).await);
    rig.post("queues/mail/resume", &json!({})).await.ok();
    assert!(reserve(&rig).await);
    let log = rig.get("actions").await.ok();
    assert_eq!(log["items"][0]["action"], "queue.resume");
    assert_eq!(log["items"][1]["target"]["queue"], "mail");
}

#[tokio::test]
async fn limits_are_set_read_and_removed() {
    let rig = Rig::new();
    let none = json!({ "queue": "mail", "owner": null, "limits": null });
    assert_eq!(rig.get("queues/mail/limits").await.ok(), none);
    let limits = json!({
        "inflight": 5,
        "rate": { "jobs": 90, "per_nanos": 10_000_000_000_u64, "burst": 3 },
        "per_lane": 1,
        "lane_rate": null,
        "lanes": { "gold": { "inflight": 2, "rate": null, "weight": 3 } },
    });
    let set = rig.post("queues/mail/limits", &json!({ "limits": limits })).await.ok();
    assert_eq!(set["limits"], limits);
    assert_eq!(rig.get("queues/mail/limits").await.ok(), set);
    let stored = rig.client.queue("mail").limits().await.unwrap().unwrap();
    assert_eq!((stored.limits.inflight, stored.limits.per_lane), (Some(5), Some(1)));
    // The lanes are counted: there may be very many.
    let mut noted = limits.clone();
    noted["lanes"] = json!(1);
    assert_eq!(rig.get("actions").await.ok()["items"][0]["details"], noted);
    for nothing in [json!(null), json!({})] {
        rig.post("queues/mail/limits", &json!({ "limits": limits })).await.ok();
        let removed = rig.post("queues/mail/limits", &json!({ "limits": nothing })).await.ok();
        assert_eq!(removed, none);
    }
}

#[tokio::test]
async fn limits_that_cannot_be_are_refused_and_change_nothing() {
    let rig = Rig::new();
    rig.post("queues/mail/limits", &json!({ "limits": { "inflight": 5 } })).await.ok();
    let rate =
        |jobs: i64, per: i64| json!({ "limits": { "rate": { "jobs": jobs, "per_nanos": per } } });
    for body in [
        json!({}),
        json!({ "limits": { "inflight": 0 } }),
        json!({ "limits": { "inflight": -1 } }),
        json!({ "limits": { "inflight": 1_000_001 } }),
        json!({ "limits": { "inflight": 1.5 } }),
        json!({ "limits": { "inflight": "5" } }),
        json!({ "limits": { "lanes": { "": { "weight": 1 } } } }),
        json!({ "limits": { "lanes": { "a": {} } } }),
        json!({ "limits": { "lanes": { "a": { "weight": 1_001 } } } }),
        json!({ "limits": { "unknown": 1 } }),
        json!({ "limits": 5 }),
        rate(0, 1_000),
        rate(1, 0),
        rate(1, i64::MAX),
        json!([]),
    ] {
        let reply = rig.post("queues/mail/limits", &body).await;
        assert_eq!(reply.problem().0, 400, "{body}");
    }
    let stored = rig.get("queues/mail/limits").await.ok();
    assert_eq!(stored["limits"]["inflight"], 5);
}

#[tokio::test]
async fn lanes_are_listed_page_by_page_with_what_holds_them_back() {
    let rig = Rig::new();
    rig.client.queue("mail").limit(taskharbor::QueueLimits::new().per_lane(1)).await.unwrap();
    enqueue(&rig, None).await;
    for lane in ["a b", "c", "c", "d"] {
        enqueue(&rig, Some(lane)).await;
    }
    for _ in 0..4 {
        assert!(reserve(&rig).await);
    }
    let all = rig.get("queues/mail/lanes").await.ok();
    let names: Vec<_> = all["items"].as_array().unwrap().iter().map(|it| &it["lane"]).collect();
    assert_eq!(names, [&Value::Null, &json!("a b"), &json!("c"), &json!("d")]);
    let held = &all["items"][2];
    assert_eq!((&held["ready"], &held["inflight"]), (&json!(1), &json!(1)));
    let why = json!({ "by_lane": true, "why": { "full": { "inflight": 1, "limit": 1 } } });
    assert_eq!(held["held_back"], why);
    assert_eq!(all["next"], Value::Null);

    let first = rig.get("queues/mail/lanes?limit=2").await.ok();
    let next = first["next"].as_str().unwrap().replace(' ', "%20");
    let second = rig.get(&format!("queues/mail/lanes?limit=2&after={next}")).await.ok();
    assert_eq!(second["items"], json!([all["items"][2], all["items"][3]]));
    assert_eq!(rig.get("queues/other/lanes").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_queue_and_a_lane_are_held_until_an_instant() {
    let rig = Rig::new();
    enqueue(&rig, Some("acme")).await;
    enqueue(&rig, Some("globex")).await;
    let now = rig.driver.now().await.unwrap();
    let until = now.saturating_add(Duration::from_secs(60)).to_string();
    let hold = |body: Value| {
        let rig = &rig;
        async move { rig.post("queues/mail/hold", &body).await }
    };
    hold(json!({ "lane": "acme", "until": until })).await.ok();
    let lanes = rig.get("queues/mail/lanes").await.ok();
    let why = json!({ "by_lane": true, "why": { "on_hold": { "until": until } } });
    assert_eq!(lanes["items"][0]["held_back"], why);
    assert_eq!(lanes["items"][1]["held_back"], Value::Null);
    hold(json!({ "until": until })).await.ok();
    assert!(!reserve(&rig).await);
    hold(json!({ "until": null })).await.ok();
    assert!(reserve(&rig).await);
    assert!(!reserve(&rig).await, "the lane is still held");
    hold(json!({ "lane": "acme", "until": null })).await.ok();
    assert!(reserve(&rig).await);

    let ended = now.to_string();
    let far = now.saturating_add(Duration::from_secs(367 * 86_400)).to_string();
    for body in [
        json!({}),
        json!({ "until": ended }),
        json!({ "until": far }),
        json!({ "until": "tomorrow" }),
        json!({ "until": 1_000 }),
        json!({ "until": until, "lane": "" }),
        json!({ "until": until, "for": 1 }),
    ] {
        assert_eq!(hold(body.clone()).await.problem().0, 400, "{body}");
    }
}

#[tokio::test]
async fn bad_names_and_numbers_are_refused() {
    let rig = Rig::new();
    let long = "q".repeat(2_000);
    for name in ["%00", "%20", &long] {
        for part in ["limits", "lanes"] {
            let reply = rig.get(&format!("queues/{name}/{part}")).await;
            assert_eq!(reply.problem().0, 400, "{part} of {name}");
        }
        for action in ["pause", "resume"] {
            let reply = rig.post(&format!("queues/{name}/{action}"), &json!({})).await;
            assert_eq!(reply.problem().0, 400, "{action} of {name}");
        }
    }
    for query in ["limit=0", "limit=1001", "limit=1e3", "after=job-1", "other=1"] {
        let reply = rig.get(&format!("queues/mail/lanes?{query}")).await;
        assert_eq!(reply.problem().0, 400, "{query}");
    }
}

#[tokio::test]
async fn each_change_of_a_queue_takes_its_role() {
    let limits = json!({ "limits": null });
    let hold = json!({ "until": null });
    let nothing = json!({});
    let actions = [("pause", &nothing), ("resume", &nothing), ("hold", &hold), ("limits", &limits)];
    for (role, allowed) in [(Role::Viewer, 0), (Role::Operator, 3), (Role::Admin, 4)] {
        let rig = Rig::with_access(Access::new("ada", role));
        for (at, (action, body)) in actions.iter().enumerate() {
            let reply = rig.post(&format!("queues/mail/{action}"), body).await;
            if at < allowed {
                assert!(reply.status.is_success(), "{role}: {reply:?}");
            } else {
                assert_eq!(reply.problem(), (403, "role_too_low".into()), "{role}: {action}");
            }
        }
    }
}
