//! Schedules: slots, pauses, firing by hand, backfills.

use std::time::Duration;

use serde_json::{Value, json};
use taskharbor::{Admin, QueueName, Schedule};
use taskharbor_core::{
    admin::{Change, Configure, NewSchedule},
    name::{Holder, ScheduleName},
};
use taskharbor_web::{Access, Role};

use crate::rig::Rig;

/// The time of the rig is 2027-01-15T08:00:00Z.
const HOURLY: &str = "0 * * * *";

async fn put(rig: &Rig, name: &str) {
    let schedule = Schedule::cron(name, HOURLY)
        .zone("Europe/Berlin")
        .raw("report:build", br#"{"secret":130775545883395173}"#);
    rig.client.schedules().put(schedule).await.unwrap();
}

async fn put_unreadable(rig: &Rig, name: &str) {
    let now = rig.driver.now().await.unwrap();
    let definition = br#"{"v":99,"jobs":[{"payload":"secret"}]}"#;
    let name = ScheduleName::new(name).unwrap();
    let change = Change::PutSchedule(NewSchedule::new(name, definition, Some(now)));
    let answers = rig.driver.configure(Configure::new(vec![change], now)).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
}

async fn reserved(rig: &Rig, queue: &str) -> usize {
    let now = rig.driver.now().await.unwrap();
    let (queue, holder) = (QueueName::new(queue).unwrap(), Holder::new("w").unwrap());
    let mut count = 0;
    let lease = Duration::from_secs(60);
    while let Some(_job) =
        rig.driver.reserve_job(queue.clone(), holder.clone(), now, lease).await.unwrap()
    {
        count += 1;
    }
    count
}

#[tokio::test]
async fn schedules_are_listed_and_one_is_shown_with_its_coming_slots() {
    let rig = Rig::new();
    put(&rig, "nightly").await;
    put(&rig, "weekly").await;
    let all = rig.get("schedules").await.ok();
    let first = &all["items"][0];
    assert_eq!((&first["name"], &first["when"]), (&json!("nightly"), &json!(HOURLY)));
    assert_eq!(first["zone"], "Europe/Berlin");
    assert_eq!(first["next_slot"], "2027-01-15T09:00:00.000000Z");
    assert_eq!(first["totals"], json!({ "stored": 0, "skipped": 0, "missed": 0 }));
    assert_eq!((&first["definition"], &first["error"]), (&Value::Null, &Value::Null));
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    let page = rig.get("schedules?limit=1").await.ok();
    let next = page["next"].as_str().unwrap();
    let second = rig.get(&format!("schedules?limit=1&after={next}")).await.ok();
    assert_eq!(second["items"][0]["name"], "weekly");

    let one = rig.get("schedules/nightly?next=3").await.ok();
    let slots = [
        "2027-01-15T09:00:00.000000Z",
        "2027-01-15T10:00:00.000000Z",
        "2027-01-15T11:00:00.000000Z",
    ];
    assert_eq!(one["next"], json!(slots));
    assert_eq!(one["definition"]["jobs"][0]["type"], "report:build");
    assert_eq!(rig.get("schedules/nightly").await.ok()["next"], json!([]));
}

#[tokio::test]
async fn payloads_of_a_definition_are_shown_as_they_are_or_not_at_all() {
    let rig = Rig::new();
    put(&rig, "nightly").await;
    put_unreadable(&rig, "newer").await;
    let shown = rig.get("schedules/nightly").await.text;
    assert!(shown.contains(r#""payload":{"secret":130775545883395173}"#), "{shown}");
    assert!(rig.get("schedules/newer").await.text.contains("secret"));

    let rig = Rig::with_access(Access::new("eve", Role::Admin));
    put(&rig, "nightly").await;
    put_unreadable(&rig, "newer").await;
    for path in ["schedules", "schedules/nightly", "schedules/newer"] {
        let reply = rig.get(path).await;
        assert!(reply.status.is_success() && !reply.text.contains("secret"), "{reply:?}");
    }
    let hidden = rig.get("schedules/nightly").await.ok();
    assert_eq!(hidden["definition"]["jobs"][0]["type"], "report:build");
}

#[tokio::test]
async fn a_definition_that_cannot_be_read_is_shown_with_an_error() {
    let rig = Rig::new();
    put_unreadable(&rig, "newer").await;
    for shown in [
        rig.get("schedules").await.ok()["items"][0].clone(),
        rig.get("schedules/newer?next=5").await.ok(),
    ] {
        assert_eq!((&shown["when"], &shown["zone"]), (&Value::Null, &Value::Null));
        assert!(shown["error"].as_str().unwrap().contains("version 99"), "{shown}");
    }
    // It can be paused and removed, and what takes its definition is refused.
    rig.post("schedules/newer/pause", &json!({})).await.ok();
    let range = json!({ "from": "2027-01-01T00:00:00Z", "before": "2027-01-02T00:00:00Z" });
    for (action, body) in [("resume", &json!({})), ("run_now", &json!({})), ("backfill", &range)] {
        let reply = rig.post(&format!("schedules/newer/{action}"), body).await;
        assert_eq!(reply.problem(), (409, "schedule_unusable".into()), "{action}");
    }
    rig.post("schedules/newer/remove", &json!({})).await.ok();
    assert_eq!(rig.get("schedules/newer").await.problem(), (404, "schedule_not_found".into()));
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_run_now_and_removed() {
    let rig = Rig::new();
    put(&rig, "nightly").await;
    rig.post("schedules/nightly/pause", &json!({})).await.ok();
    let paused = rig.get("schedules/nightly").await.ok();
    assert_eq!(paused["paused_since"], "2027-01-15T08:00:00.000000Z");
    rig.clock.advance(Duration::from_secs(3 * 3_600));
    rig.post("schedules/nightly/resume", &json!({})).await.ok();
    let resumed = rig.get("schedules/nightly").await.ok();
    assert_eq!(resumed["paused_since"], Value::Null);
    assert_eq!(resumed["next_slot"], "2027-01-15T12:00:00.000000Z");
    let run = rig.post("schedules/nightly/run_now", &json!({})).await.ok();
    assert_eq!(run["is_new"], true);
    assert_eq!(rig.get("actions").await.ok()["items"][0]["ids"], json!([run["job"]]));
    assert_eq!(reserved(&rig, "default").await, 1);
    rig.post("schedules/nightly/remove", &json!({})).await.ok();
    assert_eq!(rig.get("schedules").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_backfill_is_previewed_and_done_once() {
    let rig = Rig::new();
    put(&rig, "hourly").await;
    let ask = |dry_run: bool| json!({ "from": "2027-01-14T00:00:00Z", "before": "2027-01-14T05:00:00Z", "dry_run": dry_run });
    let preview = rig.post("schedules/hourly/backfill", &ask(true)).await.ok();
    assert_eq!(
        (&preview["count"], &preview["slots"][4]),
        (&json!(5), &json!("2027-01-14T04:00:00.000000Z"))
    );
    assert_eq!(preview.get("stored"), None);
    assert_eq!(reserved(&rig, "default").await, 0);
    assert_eq!(rig.post("schedules/hourly/backfill", &ask(false)).await.ok()["stored"], 5);
    assert_eq!(rig.post("schedules/hourly/backfill", &ask(false)).await.ok()["stored"], 0);
    assert_eq!(reserved(&rig, "default").await, 5);
    for (from, before) in [
        ("2027-01-14T05:00:00Z", "2027-01-14T05:00:00Z"),
        ("2027-01-15T00:00:00Z", "2027-01-14T05:00:00Z"),
        ("1970-01-01T00:00:00Z", "9999-01-01T00:00:00Z"),
        ("yesterday", "2027-01-14T05:00:00Z"),
        ("2027-01-14T05:00:00Z", ""),
    ] {
        let body = json!({ "from": from, "before": before });
        let reply = rig.post("schedules/hourly/backfill", &body).await;
        assert_eq!(reply.problem().0, 400, "{from} to {before}");
    }
}

#[tokio::test]
async fn a_schedule_is_put_as_json() {
    let rig = Rig::new();
    let body = json!({
        "name": "poll", "every_seconds": 30, "type": "feed:poll", "queue": "feeds",
        "payload": { "n": 1 }, "headers": { "a": "b" }, "lane": "l", "priority": 2,
        "max_attempts": 3, "timeout_seconds": 1.5, "missed": "all", "at_most": 5,
        "within_seconds": 60, "overlap": "queue", "jitter_seconds": 0.5,
        "starts_at": "2027-01-15T00:00:00Z", "ends_at": "2028-01-15T00:00:00Z",
    });
    let stored = rig.post("schedules", &body).await.ok();
    assert_eq!((&stored["name"], &stored["when"]), (&json!("poll"), &json!("every 30s")));
    let shown = rig.get("schedules/poll").await.ok();
    let job = &shown["definition"]["jobs"][0];
    assert_eq!(
        (&job["queue"], &job["payload"], &job["lane"]),
        (&json!("feeds"), &json!({ "n": 1 }), &json!("l"))
    );
    assert_eq!((&job["headers"]["a"], &job["timeout"]), (&json!("b"), &json!("1.5s")));
    assert_eq!(
        (&shown["definition"]["overlap"], &shown["definition"]["at_most"]),
        (&json!("queue"), &json!(5))
    );

    let good = json!({ "name": "a", "cron": HOURLY, "type": "t" });
    rig.post("schedules", &good).await.ok();
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    for body in [
        json!({ "name": "b", "type": "t" }),
        json!({ "name": "b", "cron": HOURLY }),
        with("every_seconds", json!(5)),
        with("cron", json!("31 of February")),
        with("cron", json!("0 0 31 2 *")),
        with("zone", json!("Europe/Atlantis")),
        with("name", json!("")),
        with("type", json!("\u{0}")),
        with("at_most", json!(3)),
        with("missed", json!("some")),
        with("within_seconds", json!(-1)),
        with("within_seconds", json!(1e300)),
        with("jitter_seconds", json!(1e12)),
        with("payload_base64", json!("*")),
        with("priority", json!(100_000)),
        with("headers", json!({ "th-codec": "x" })),
        with("unknown", json!(1)),
    ] {
        assert_eq!(rig.post("schedules", &body).await.problem().0, 400, "{body}");
    }
    assert_eq!(rig.get("schedules").await.ok()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn schedules_that_are_not_stored_and_bad_values_are_refused() {
    let rig = Rig::new();
    let missing = (404, "schedule_not_found".to_owned());
    assert_eq!(rig.get("schedules/none").await.problem(), missing);
    let range = json!({ "from": "2027-01-01T00:00:00Z", "before": "2027-01-02T00:00:00Z" });
    let nothing = json!({});
    for action in ["pause", "resume", "run_now", "remove", "backfill"] {
        let body = if action == "backfill" { &range } else { &nothing };
        let reply = rig.post(&format!("schedules/none/{action}"), body).await;
        assert_eq!(reply.problem(), missing, "{action}");
        let reply = rig.post(&format!("schedules/%00/{action}"), body).await;
        assert_eq!(reply.problem().0, 400, "{action}");
    }
    put(&rig, "nightly").await;
    for path in
        ["?limit=0", "?limit=1001", "?after=lane-a", "/nightly?next=101", "/nightly?next=-1"]
    {
        assert_eq!(rig.get(&format!("schedules{path}")).await.problem().0, 400, "{path}");
    }
}

#[tokio::test]
async fn each_action_on_a_schedule_takes_its_role() {
    let range = json!({ "from": "2027-01-01T00:00:00Z", "before": "2027-01-02T00:00:00Z", "dry_run": true });
    let put_again = json!({ "name": "a", "cron": HOURLY, "type": "t" });
    let nothing = json!({});
    let actions = [
        ("/nightly/pause", &nothing),
        ("/nightly/resume", &nothing),
        ("/nightly/run_now", &nothing),
        ("/nightly/backfill", &range),
        ("/nightly/remove", &nothing),
        ("", &put_again),
    ];
    for (role, allowed) in [(Role::Viewer, 0), (Role::Operator, 3), (Role::Admin, 6)] {
        let rig = Rig::with_access(Access::new("ada", role));
        put(&rig, "nightly").await;
        for (at, (path, body)) in actions.iter().enumerate() {
            let reply = rig.post(&format!("schedules{path}"), body).await;
            if at < allowed {
                assert!(reply.status.is_success(), "{role}: {reply:?}");
            } else {
                assert_eq!(reply.problem(), (403, "role_too_low".into()), "{role}: {path}");
            }
        }
    }
}
