//! The contract of a driver over HTTP: calls, failures, clocks and permissions.

mod wake;

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    http::{Method, header},
};
use hyper::body::Frame;
use serde_json::{Value, json};
use taskharbor::Timestamp;
use taskharbor_core::{
    Driver, JobId, JobType, NewJob, QueueName, State,
    admin::{
        Action, Change, Configure, Counts, Filter, List, ListSettings, Manage, NewSchedule,
        SettingKind,
    },
    driver::{Demand, Enqueue, Limits, LockWait, Reserve, Settle, Settled, Settlement, Transition},
    error::{InvalidRequest, Refusal},
    job::JobSet,
    name::{Holder, ScheduleName},
    wire::{Bounds, CallFailure, Operation, Visitor, operation as of},
};
use taskharbor_web::{Access, Role, Web};
use tokio::time::Instant;

use crate::rig::{Reply, Rig, request};

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

fn one_job(name: &str, now: Timestamp) -> Enqueue {
    let job_type = JobType::new("mail:send").unwrap();
    let job = NewJob::new(id(name), queue("mail"), job_type, b"{\"to\":\"ada\"}".to_vec());
    Enqueue::new(vec![JobSet::plain(vec![job])], now)
}

async fn send<O: Operation>(rig: &Rig, request: &O::Request) -> Reply {
    let path = format!("{}/{}", O::FACE, O::NAME);
    rig.post(&path, &serde_json::to_value(request).unwrap()).await
}

async fn call<O: Operation>(rig: &Rig, request: &O::Request) -> O::Answer {
    serde_json::from_value(send::<O>(rig, request).await.ok()).unwrap()
}

#[tokio::test]
async fn a_job_goes_through_its_life_over_http() {
    let rig = Rig::new();
    let now = rig.now();
    let stored: Vec<_> = call::<of::EnqueueJobs>(&rig, &one_job("a", now)).await.into();
    assert!(stored[0].as_ref().unwrap()[0].is_new());

    let (demands, holder) = (vec![Demand::new(queue("mail"), 10)], Holder::new("h").unwrap());
    let asked = Reserve::new(demands, holder, now, Duration::from_secs(30));
    let reserved = call::<of::ReserveJobs>(&rig, &asked).await;
    let leased = &reserved.jobs[0];
    assert_eq!(&leased.job.payload[..], b"{\"to\":\"ada\"}");

    let token = leased.lease.token;
    let ack = |name: &str| Settlement::new(id(name), token, Transition::Ack { output: None });
    let asked = Settle::new(vec![ack("a"), ack("b")], now).lock_wait(LockWait::Short);
    let settled: Vec<_> = call::<of::SettleJobs>(&rig, &asked).await.into();
    assert_eq!(settled, [Ok(Settled::Applied), Err(Refusal::JobNotFound)]);

    let asked = List::new(Filter::default(), 10, now);
    let listed = call::<of::ListJobs>(&rig, &asked).await;
    assert_eq!(listed.items[0].state, State::Done);
    let before = rig.driver.store_time().await.unwrap();
    let told = call::<of::TellTime>(&rig, &Default::default()).await;
    assert!(before <= told && told <= rig.driver.store_time().await.unwrap());
}

#[tokio::test]
async fn the_bounds_are_told_and_hold() {
    let rig = Rig::new();
    let bounds: Bounds = serde_json::from_value(rig.get("driver/limits").await.ok()).unwrap();
    assert_eq!(bounds.limits, Limits::default());
    // The payloads of the largest call that is legal, as Base64.
    assert!(bounds.request_bytes > Limits::MAX_CALL_BYTES / 3 * 4);
    let too_large = bounds.request_bytes + 1;
    let mut asked = request(Method::POST, "driver/enqueue", Body::empty());
    asked.headers_mut().insert(header::CONTENT_LENGTH, too_large.into());
    let reply = rig.send(asked).await;
    assert_eq!(reply.problem(), (413, "too_large".into()));
    assert!(reply.text.contains(&bounds.request_bytes.to_string()), "{}", reply.text);
}

#[tokio::test(start_paused = true)]
async fn a_size_that_is_only_announced_takes_nothing_from_others() {
    let rig = Rig::new();
    let claim = |body| {
        let mut asked = request(Method::POST, "driver/enqueue", body);
        asked.headers_mut().insert(header::CONTENT_LENGTH, (500 << 20).into());
        asked
    };
    // Bodies that never come.
    let idle = || async { rig.send(claim(Body::new(Never))).await.problem() };
    let begun = Instant::now();
    let other = async {
        let reply = rig.send(claim(Body::empty())).await;
        assert_eq!(reply.problem().0, 400, "it is answered although others claim all room");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    };
    let (first, second, third, ()) = tokio::join!(biased; idle(), idle(), idle(), other);
    for refused in [first, second, third] {
        assert_eq!(refused, (408, "body_too_slow".into()));
    }
    assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_call_takes_no_larger_body_than_it_needs() {
    let rig = Rig::new();
    for (path, mib) in [
        ("driver/store_time", 1),
        ("driver/announce", 1),
        ("admin/counts", 1),
        ("admin/list", 1),
        ("driver/extend_leases", 16),
        ("admin/manage", 16),
        ("driver/settle", 512),
        ("admin/import", 512),
    ] {
        let limit: usize = mib << 20;
        for (bytes, status) in [(limit, 400), (limit + 1, 413)] {
            let mut asked = request(Method::POST, path, Body::from("x"));
            asked.headers_mut().insert(header::CONTENT_LENGTH, bytes.into());
            assert_eq!(rig.send(asked).await.problem().0, status, "{path} {bytes}");
        }
    }
}

/// A body of which nothing arrives.
struct Never;

impl HttpBody for Never {
    type Data = axum::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn a_call_that_fails_as_a_whole_says_why() {
    let rig = Rig::new();
    let failure = |reply: &Reply| -> Option<CallFailure> {
        serde_json::from_value(reply.json()["failure"].clone()).ok()
    };
    let reply = send::<of::ListJobs>(&rig, &List::new(Filter::default(), 0, rig.now())).await;
    assert_eq!(reply.problem(), (400, "out_of_range".into()));
    let Some(CallFailure::Invalid(InvalidRequest::OutOfRange { value, max, .. })) = failure(&reply)
    else {
        panic!("{reply:?}");
    };
    assert_eq!((value, max), (0, Limits::MAX_PAGE));

    let holder = Holder::new("h").unwrap();
    let asked = Reserve::new(Vec::new(), holder, rig.now(), Duration::ZERO);
    let reply = send::<of::ReserveJobs>(&rig, &asked).await;
    assert_eq!(reply.problem().0, 400);
    assert_eq!(failure(&reply), Some(CallFailure::InvalidLeaseDuration));

    rig.driver.close().await.unwrap();
    let reply = send::<of::CountJobs>(&rig, &Counts::new(rig.now())).await;
    assert_eq!(reply.problem(), (503, "store_unavailable".into()));
    assert_eq!((failure(&reply), reply.json().get("failure")), (None, None));
}

#[tokio::test]
async fn the_schedules_of_any_instant_may_be_asked_for() {
    let rig = Rig::new();
    let an_hour_ago = rig.now().saturating_sub(Duration::from_secs(3_600));
    let request = taskharbor_core::driver::DueSchedules::new(10, an_hour_ago);
    assert_eq!(send::<of::FindDueSchedules>(&rig, &request).await.status, 200);
}

#[tokio::test]
async fn a_clock_that_is_off_is_refused_with_both_times() {
    let rig = Rig::new();
    let own = rig.now();
    let seconds = Duration::from_secs;
    for (off, status) in [
        (own.saturating_add(seconds(5)), 200),
        (own.saturating_sub(seconds(5)), 200),
        (own.saturating_add(Duration::from_micros(5_000_001)), 409),
        (own.saturating_sub(seconds(6)), 409),
        (Timestamp::MAX, 409),
        (Timestamp::EPOCH, 409),
    ] {
        let reply = send::<of::EnqueueJobs>(&rig, &one_job("a", off)).await;
        assert_eq!(reply.status, status, "{reply:?}");
        if status == 409 {
            assert_eq!(reply.problem().1, "clock_skew");
            let detail = reply.json()["detail"].as_str().unwrap().to_owned();
            assert!(
                detail.contains(&own.to_string()) && detail.contains(&off.to_string()),
                "{detail}"
            );
        }
    }
    let access = Access::new("ada", Role::Admin).with_workers();
    let any = rig.served(Web::new().anonymous(access).any_clock());
    let stored: Vec<_> =
        call::<of::EnqueueJobs>(&any, &one_job("b", Timestamp::EPOCH)).await.into();
    assert!(stored[0].is_ok());
}

/// The least access for each operation: the role, payloads, workers.
const LEAST: &[(&str, (Role, bool, bool))] = &[
    ("driver/enqueue", (Role::Viewer, false, true)),
    ("driver/reserve", (Role::Viewer, false, true)),
    ("driver/extend_leases", (Role::Viewer, false, true)),
    ("driver/settle", (Role::Viewer, false, true)),
    ("driver/outputs", (Role::Viewer, true, true)),
    ("driver/due_schedules", (Role::Viewer, false, true)),
    ("driver/fire", (Role::Viewer, false, true)),
    ("driver/announce", (Role::Viewer, false, true)),
    ("driver/store_time", (Role::Viewer, false, false)),
    ("admin/migrate", (Role::Admin, false, false)),
    ("admin/inspect", (Role::Viewer, true, false)),
    ("admin/list", (Role::Viewer, false, false)),
    ("admin/counts", (Role::Viewer, false, false)),
    ("admin/manage", (Role::Operator, false, false)),
    ("admin/configure", (Role::Operator, false, false)),
    ("admin/settings", (Role::Viewer, false, false)),
    ("admin/lanes", (Role::Viewer, false, false)),
    ("admin/workers", (Role::Viewer, false, false)),
    ("admin/evict", (Role::Admin, false, false)),
    ("admin/prune", (Role::Admin, false, false)),
    ("admin/flow", (Role::Viewer, false, false)),
    ("admin/list_flows", (Role::Viewer, false, false)),
    ("admin/export", (Role::Admin, true, false)),
    ("admin/import", (Role::Admin, false, false)),
    ("admin/diagnose", (Role::Viewer, false, false)),
    ("admin/check", (Role::Viewer, false, false)),
];

#[derive(Default)]
struct Paths(Vec<String>);

impl Visitor for Paths {
    fn visit<O: Operation>(&mut self) {
        self.0.push(format!("{}/{}", O::FACE, O::NAME));
    }
}

fn access((role, payloads, workers): (Role, bool, bool)) -> Access {
    let access = Access::new("ada", role);
    let access = if payloads { access.with_payloads() } else { access };
    if workers { access.with_workers() } else { access }
}

#[tokio::test]
async fn every_operation_takes_its_own_permissions_and_no_more() {
    let mut paths = Paths::default();
    of::visit(&mut paths);
    let listed: Vec<&str> = LEAST.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths.0, listed, "each operation is listed with what it takes");
    let rig = Rig::new();
    for (path, least) in LEAST {
        let reply = rig.served_to(access(*least)).post(path, &json!({})).await;
        assert_ne!(reply.status, 403, "{path}: {reply:?}");
        let (role, payloads, workers) = *least;
        let lower = match role {
            Role::Admin => Some(Role::Operator),
            Role::Operator => Some(Role::Viewer),
            _ => None,
        };
        let lower = lower.map(|it| ((it, true, true), "role_too_low"));
        let mut lacking: Vec<_> = lower.into_iter().collect();
        lacking.extend(payloads.then_some(((Role::Admin, false, true), "needs_payloads")));
        lacking.extend(workers.then_some(((Role::Admin, true, false), "needs_workers")));
        for (less, code) in lacking {
            let reply = rig.served_to(access(less)).post(path, &json!({})).await;
            assert_eq!(reply.problem(), (403, code.into()), "{path}");
        }
    }
}

#[tokio::test]
async fn what_a_call_asks_for_decides_who_may_make_it() {
    let rig = Rig::new();
    let now = rig.now();
    let stored: Vec<_> = call::<of::EnqueueJobs>(&rig, &one_job("a", now)).await.into();
    assert!(stored[0].is_ok());
    let operator = rig.served_to(access((Role::Operator, true, true)));
    let manage = |action| Manage::new(vec![id("a")], action, now);
    let cancelled: Vec<_> = call::<of::ManageJobs>(&operator, &manage(Action::Cancel)).await.into();
    assert_eq!(cancelled, [Ok(State::Cancelled)]);
    for action in [Action::Purge, Action::PurgeFlow] {
        let reply = send::<of::ManageJobs>(&operator, &manage(action)).await;
        assert_eq!(reply.problem(), (403, "role_too_low".into()));
    }
    let purged: Vec<_> = call::<of::ManageJobs>(&rig, &manage(Action::Purge)).await.into();
    assert_eq!(purged, [Ok(State::Cancelled)]);

    let pause = Change::PauseQueue(queue("mail"));
    let limit = Change::SetLimits { queue: queue("mail"), limits: None };
    let paused: Vec<_> =
        call::<of::ConfigureStore>(&operator, &Configure::new(vec![pause.clone()], now))
            .await
            .into();
    assert_eq!(paused, [Ok(())]);
    let both = Configure::new(vec![pause, limit], now);
    let reply = send::<of::ConfigureStore>(&operator, &both).await;
    assert_eq!(reply.problem(), (403, "role_too_low".into()));

    let viewer = rig.served_to(access((Role::Viewer, false, false)));
    let settings = ListSettings::new(10);
    let reply = send::<of::ReadSettings>(&viewer, &settings).await;
    assert_eq!(reply.problem(), (403, "needs_payloads".into()));
    let paused = call::<of::ReadSettings>(&viewer, &settings.kind(SettingKind::PausedQueue)).await;
    assert_eq!(paused.items.len(), 1);
}

#[tokio::test]
async fn changes_are_in_the_action_log_without_payloads() {
    let rig = Rig::new();
    let now = rig.now();
    let asked = Manage::new(vec![id("a"), id("b")], Action::Cancel, now);
    send::<of::ManageJobs>(&rig, &asked).await.ok();
    let schedule =
        NewSchedule::new(ScheduleName::new("nightly").unwrap(), b"a secret".to_vec(), None);
    let asked = Configure::new(vec![Change::PutSchedule(schedule)], now);
    send::<of::ConfigureStore>(&rig, &asked).await.ok();
    send::<of::ReadSettings>(&rig, &ListSettings::new(10)).await.ok();
    let log = rig.get("actions").await.ok();
    let actions: Vec<&Value> = log["items"].as_array().unwrap().iter().collect();
    assert_eq!(actions.len(), 2, "{log}");
    assert_eq!(actions[0]["action"], "admin.configure");
    assert_eq!(actions[0]["details"], json!({ "changes": [{ "put_schedule": "nightly" }] }));
    assert_eq!(actions[1]["action"], "admin.manage");
    assert_eq!((&actions[1]["ids"], &actions[1]["count"]), (&json!(["a", "b"]), &json!(2)));
    assert_eq!(actions[1]["details"], json!({ "action": "cancel" }));
    assert!(!log.to_string().contains("secret"));
}

#[tokio::test]
async fn a_call_that_is_refused_leaves_little_in_the_action_log() {
    let rig = Rig::with_access(Access::new("ada", Role::Operator));
    let lane = |at| (format!("lane-{at}"), json!({ "inflight": 1 }));
    let lanes: serde_json::Map<_, _> = (0..50_000).map(lane).collect();
    let many = json!({ "set_limits": { "queue": "mail", "limits": { "lanes": lanes } } });
    let long = json!({ "hold": { "queue": "q".repeat(255), "lane": null, "until": null } });
    let mut changes = vec![many.clone()];
    let refused =
        rig.post("admin/configure", &json!({ "changes": [many], "now": rig.now() })).await;
    assert_eq!(refused.problem(), (403, "role_too_low".into()));
    changes.extend(vec![long; 100]);
    let refused =
        rig.post("admin/configure", &json!({ "changes": changes, "now": rig.now() })).await;
    assert_eq!(refused.problem(), (403, "role_too_low".into()));
    let log = rig.get("actions").await.ok();
    let (second, first) = (&log["items"][0], &log["items"][1]);
    let noted = &first["details"]["changes"][0]["set_limits"];
    assert_eq!((&noted["queue"], &noted["limits"]["lanes"]), (&json!("mail"), &json!(50_000)));
    assert_eq!((&first["result"], &second["count"]), (&json!("role_too_low"), &json!(101)));
    assert!(second["details"]["bytes"].as_u64().unwrap() > 10_000, "{second}");
    assert!(second["details"].to_string().len() < 4_096, "{second}");
}
