//! Sweeps: previewed, confirmed, paced, stopped.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use taskharbor::{Admin, AnyDriver, Driver, DriverError, Filter, List, State};
use taskharbor_core::{driver::Enqueue, job::JobSet};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next, Op};
use taskharbor_web::{Access, ActionRecord, Role, StoreKind, Stores, Web, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::{Instant, sleep},
};

use crate::{
    rig::Rig,
    stock::{enqueue, fail_all, new_job, reserve},
};

async fn count(rig: &Rig, state: State) -> usize {
    let counts = rig.client.queues().await.unwrap();
    counts.iter().map(|queue| queue.states.get(state)).sum()
}

/// The request with the digest of its preview.
async fn confirmed(rig: &Rig, wanted: &Value) -> Value {
    let preview = rig.post("sweeps/preview", wanted).await.ok();
    let mut request = wanted.clone();
    request["digest"] = preview["digest"].clone();
    request
}

/// Starts the sweep after its preview.
async fn start(rig: &Rig, wanted: &Value) -> Value {
    rig.post("sweeps", &confirmed(rig, wanted).await).await.ok()
}

async fn get(rig: &Rig, sweep: &Value) -> Value {
    rig.get(&format!("sweeps/{}", sweep["id"].as_str().unwrap())).await.ok()
}

/// Lets time pass until the sweep has ended.
async fn ended(rig: &Rig, sweep: &Value) -> Value {
    loop {
        let sweep = get(rig, sweep).await;
        if !matches!(sweep["state"].as_str(), Some("running" | "stopping")) {
            return sweep;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_of_failures_is_requeued_and_others_are_left_alone() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 1_300).await;
    fail_all(&rig, "work", "timeout after {n} ms").await;
    enqueue(&rig, "work", "image:resize", 20).await;
    fail_all(&rig, "work", "no such file {n}").await;
    let groups = rig.get("dlq/groups").await.ok();
    let fingerprint = groups["groups"][0]["fingerprint"].clone();
    let wanted = json!({
        "action": "requeue", "filter": {"state": "dlq"}, "fingerprint": fingerprint,
    });
    let preview = rig.post("sweeps/preview", &wanted).await.ok();
    assert_eq!((&preview["count"], &preview["count_is_exact"]), (&json!(1_300), &json!(true)));
    assert_eq!(preview["samples"].as_array().unwrap().len(), 5);
    assert_eq!(count(&rig, State::Dlq).await, 1_320, "a preview changes nothing");
    let sweep = start(&rig, &wanted).await;
    assert_eq!(sweep["state"], "running");
    let sweep = ended(&rig, &sweep).await;
    assert_eq!((&sweep["state"], &sweep["done"]), (&json!("done"), &json!(1_300)));
    assert_eq!((&sweep["refused"], &sweep["count"]), (&json!(0), &json!(1_300)));
    assert_eq!(sweep["filter"], json!({"state": "dlq", "fingerprint": fingerprint}));
    assert_eq!((&sweep["who"], &sweep["error"]), (&json!("ada"), &Value::Null));
    assert!(sweep["finished_at"].is_string());
    assert_eq!((count(&rig, State::Ready).await, count(&rig, State::Dlq).await), (1_300, 20));
    assert_eq!(rig.get("sweeps").await.ok()["items"], json!([sweep]));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_is_in_the_action_log_with_its_filter_and_its_end() {
    let rig = Rig::new();
    let ids = enqueue(&rig, "work", "email:send", 120).await;
    let wanted = json!({"action": "cancel", "filter": {"queue": "work"}});
    let sweep = ended(&rig, &start(&rig, &wanted).await).await;
    let log = rig.get("actions").await.ok()["items"].clone();
    let [end, begin] = [&log[0], &log[1]];
    assert_eq!((&end["action"], &end["result"]), (&json!("sweep.end"), &json!("ok")));
    assert_eq!((&end["count"], &end["who"]), (&json!(120), &json!("ada")));
    assert_eq!(end["target"], json!({"id": sweep["id"]}));
    assert_eq!(end["details"]["filter"], json!({"queue": "work"}));
    assert_eq!(
        (&end["details"]["action"], &end["details"]["refused"]),
        (&json!("cancel"), &json!(0))
    );
    assert_eq!(end["ids"].as_array().unwrap().len(), 100);
    assert_eq!(end["ids"][0], ids[0].as_str());
    assert_eq!((&begin["action"], &begin["count"]), (&json!("sweep.start"), &json!(120)));
    assert_eq!(begin["ids"], json!([sweep["id"]]));
    assert_eq!(log.as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_came_after_the_preview_are_left_alone() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 3).await;
    fail_all(&rig, "work", "gone").await;
    enqueue(&rig, "work", "email:send", 2).await;
    let request = confirmed(&rig, &json!({"action": "purge", "filter": {"state": "dlq"}})).await;
    rig.clock.advance(Duration::from_secs(1));
    // Stored before the preview and dead-lettered after it, and stored after it.
    fail_all(&rig, "work", "gone").await;
    enqueue(&rig, "work", "email:send", 4).await;
    fail_all(&rig, "work", "gone").await;
    let sweep = rig.post("sweeps", &request).await.ok();
    assert_eq!(ended(&rig, &sweep).await["done"], 3);
    assert_eq!(count(&rig, State::Dlq).await, 6);
}

#[tokio::test(start_paused = true)]
async fn without_a_state_a_sweep_is_for_the_jobs_whose_state_allows_it() {
    let rig = Rig::new();
    enqueue(&rig, "dead", "a", 4).await;
    fail_all(&rig, "dead", "gone").await;
    enqueue(&rig, "work", "a", 3).await;
    reserve(&rig, "work").await.unwrap();
    for (action, expected) in [("requeue", 4), ("run_now", 0), ("cancel", 3), ("purge", 4)] {
        let preview = rig.post("sweeps/preview", &json!({"action": action})).await.ok();
        assert_eq!(preview["count"], expected, "{action}");
    }
    let wanted = json!({"action": "priority", "options": {"priority": 9}});
    let sweep = ended(&rig, &start(&rig, &wanted).await).await;
    assert_eq!((&sweep["done"], &sweep["refused"]), (&json!(3), &json!(0)));
    let list = List::new(Filter::all(), 10, rig.driver.now().await.unwrap());
    let jobs = rig.driver.list(list).await.unwrap().items;
    assert_eq!(jobs.iter().filter(|job| job.priority == 9).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_keeps_its_pace_and_its_cap() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 400).await;
    let mut request = confirmed(&rig, &json!({"action": "cancel"})).await;
    request["rate_per_s"] = json!(50);
    request["cap"] = json!(170);
    let begun = Instant::now();
    let sweep = rig.post("sweeps", &request).await.ok();
    assert_eq!(sweep["count"], 170);
    sleep(Duration::from_millis(1_050)).await;
    let done = get(&rig, &sweep).await["done"].as_u64().unwrap();
    assert!((50..=70).contains(&done), "{done} jobs in the first second");
    let sweep = ended(&rig, &sweep).await;
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!((&sweep["state"], &sweep["done"]), (&json!("done"), &json!(170)));
    assert_eq!(count(&rig, State::Cancelled).await, 170);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_is_stopped_and_says_how_far_it_came() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 400).await;
    let mut request = confirmed(&rig, &json!({"action": "cancel"})).await;
    request["rate_per_s"] = json!(4);
    let sweep = rig.post("sweeps", &request).await.ok();
    sleep(Duration::from_millis(600)).await;
    let path = format!("sweeps/{}", sweep["id"].as_str().unwrap());
    assert_eq!(rig.delete(&path).await.ok()["state"], "stopping");
    let sweep = ended(&rig, &sweep).await;
    assert_eq!((&sweep["state"], &sweep["done"]), (&json!("stopped"), &json!(3)));
    assert_eq!(count(&rig, State::Cancelled).await, 3);
    assert_eq!(rig.delete(&path).await.ok()["state"], "stopped", "again changes nothing");
    assert_eq!(rig.delete("sweeps/other").await.problem(), (404, "sweep_not_found".to_owned()));
    let log = rig.get("actions").await.ok()["items"].clone();
    let actions: Vec<_> = log.as_array().unwrap().iter().map(|it| it["action"].clone()).collect();
    assert_eq!(actions[2..], ["sweep.end", "sweep.stop", "sweep.start"]);
    assert_eq!(log[2]["result"], "stopped");
}

#[tokio::test(start_paused = true)]
async fn only_what_was_previewed_starts() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 5).await;
    let wanted = json!({"action": "cancel", "filter": {"queue": "work"}});
    let request = confirmed(&rig, &wanted).await;
    let with = |name: &str, value: Value| {
        let mut other = request.clone();
        other[name] = value;
        other
    };
    let tampered = request["digest"].as_str().unwrap().replace("-5-", "-4-");
    for other in [
        with("filter", json!({})),
        with("filter", json!({"queue": "work", "type": "email:send"})),
        with("fingerprint", json!("0123456789abcdef")),
        with("digest", json!(tampered)),
        with("digest", json!("")),
        with("digest", json!("--")),
    ] {
        let problem = rig.post("sweeps", &other).await.problem();
        assert_eq!(problem, (409, "digest_differs".to_owned()), "{other}");
    }
    assert_eq!(count(&rig, State::Ready).await, 5);
    let first = rig.post("sweeps", &request).await.ok();
    let again = rig.post("sweeps", &request).await.ok();
    assert_eq!(first["id"], again["id"], "a request that is repeated starts one sweep");
    ended(&rig, &first).await;
    rig.clock.advance(Duration::from_secs(1));
    let request = confirmed(&rig, &wanted).await;
    rig.clock.advance(Duration::from_secs(3_601));
    let problem = rig.post("sweeps", &request).await.problem();
    assert_eq!(problem, (409, "preview_outdated".to_owned()));
}

#[tokio::test]
async fn an_invalid_sweep_is_refused() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 1).await;
    for wanted in [
        json!({}),
        json!({"action": "explode"}),
        json!({"action": "cancel", "colour": "red"}),
        json!({"action": "cancel", "filter": {"colour": "red"}}),
        json!({"action": "cancel", "filter": {"state": "done"}}),
        json!({"action": "purge", "filter": {"state": "ready"}}),
        json!({"action": "priority"}),
        json!({"action": "priority", "options": {"priority": 40_000}}),
        json!({"action": "cancel", "options": {"priority": 4}}),
        json!({"action": "cancel", "options": {"reset_attempts": true}}),
        json!({"action": "requeue", "fingerprint": "x"}),
        json!({"action": "cancel", "filter": {"error": "a\u{0}"}}),
        json!({"action": "cancel", "filter": {"queue": ""}}),
    ] {
        assert_eq!(rig.post("sweeps/preview", &wanted).await.problem().0, 400, "{wanted}");
    }
    let request = confirmed(&rig, &json!({"action": "cancel"})).await;
    for (name, value) in [
        ("rate_per_s", json!(0)),
        ("rate_per_s", json!(10_001)),
        ("rate_per_s", json!(1.5)),
        ("cap", json!(0)),
        ("cap", json!(-1)),
        ("colour", json!("red")),
    ] {
        let mut other = request.clone();
        other[name] = value;
        assert_eq!(rig.post("sweeps", &other).await.problem().0, 400, "{other}");
    }
    assert_eq!(rig.get("sweeps?limit=101").await.problem().0, 400);
    assert_eq!(rig.get("sweeps").await.ok()["items"], json!([]));
    assert_eq!(count(&rig, State::Ready).await, 1);
}

#[tokio::test]
async fn a_sweep_takes_the_role_of_its_action() {
    let rig = Rig::new();
    let with = |role| Rig::of(rig.driver.clone(), Web::new().anonymous(Access::new("eve", role)));
    let (viewer, operator) = (with(Role::Viewer), with(Role::Operator));
    let too_low = (403, "role_too_low".to_owned());
    let cancel = json!({"action": "cancel"});
    assert_eq!(viewer.post("sweeps/preview", &cancel).await.problem(), too_low);
    assert_eq!(viewer.post("sweeps", &cancel).await.problem(), too_low);
    assert_eq!(viewer.delete("sweeps/a").await.problem(), too_low);
    viewer.get("sweeps").await.ok();
    operator.post("sweeps/preview", &cancel).await.ok();
    let purge = json!({"action": "purge"});
    assert_eq!(operator.post("sweeps/preview", &purge).await.problem(), too_low);
    let request = confirmed(&rig, &purge).await;
    assert_eq!(operator.post("sweeps", &request).await.problem(), too_low);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_four_sweeps_run_and_a_hundred_are_kept() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 100).await;
    let mut slow = Vec::new();
    for n in 0..5 {
        rig.clock.advance(Duration::from_millis(1));
        let wanted = json!({"action": "priority", "options": {"priority": n}});
        let mut request = confirmed(&rig, &wanted).await;
        request["rate_per_s"] = json!(1);
        slow.push(rig.post("sweeps", &request).await);
    }
    let refused = slow.pop().unwrap();
    assert_eq!(refused.problem(), (409, "too_many_sweeps".to_owned()));
    let slow: Vec<_> = slow.iter().map(crate::rig::Reply::ok).collect();
    rig.delete(&format!("sweeps/{}", slow[0]["id"].as_str().unwrap())).await.ok();
    ended(&rig, &slow[0]).await;
    for _ in 0..110 {
        rig.clock.advance(Duration::from_millis(1));
        let wanted = json!({"action": "cancel", "filter": {"queue": "other"}});
        ended(&rig, &start(&rig, &wanted).await).await;
    }
    let kept = rig.get("sweeps").await.ok()["items"].clone();
    let kept = kept.as_array().unwrap();
    assert_eq!(kept.len(), 100);
    let has = |sweep: &Value| kept.iter().any(|it| it["id"] == sweep["id"]);
    assert!(!has(&slow[0]) && slow[1..].iter().all(has), "those that run are kept");
}

/// Fails calls: all of them, or the answers of some.
#[derive(Clone, Default)]
struct Trouble {
    is_away: Arc<AtomicBool>,
    is_broken: Arc<AtomicBool>,
    /// This many answers of `manage` get lost.
    lost_answers: Arc<AtomicUsize>,
}

impl<D: Driver + Admin> Hook<D> for Trouble {
    async fn around(&self, call: Call, next: Next<'_, D>) -> Result<Answer, DriverError> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(DriverError::backend("the secret host db-7 is broken"));
        }
        if self.is_away.load(Ordering::Relaxed) {
            return Err(DriverError::unavailable("the secret host db-7 is away"));
        }
        let is_manage = call.op() == Op::Manage;
        let answer = next.make(call).await;
        let lost = |left: usize| left.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        if is_manage && self.lost_answers.fetch_update(relaxed, relaxed, lost).is_ok() {
            return Err(DriverError::unavailable("the answer got lost"));
        }
        answer
    }
}

fn troubled() -> (Rig, Trouble) {
    let trouble = Trouble::default();
    let driver = AnyDriver::new(Intercept::new(MemoryDriver::new(), trouble.clone()));
    let all = Access::new("ada", Role::Admin).with_payloads();
    (Rig::of(driver, Web::new().anonymous(all)), trouble)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_is_waited_for() {
    let (rig, trouble) = troubled();
    enqueue(&rig, "work", "email:send", 2_500).await;
    let request = confirmed(&rig, &json!({"action": "cancel"})).await;
    trouble.is_away.store(true, Ordering::Relaxed);
    let sweep = rig.post("sweeps", &request).await.ok();
    sleep(Duration::from_secs(120)).await;
    let waiting = get(&rig, &sweep).await;
    assert_eq!((&waiting["state"], &waiting["done"]), (&json!("running"), &json!(0)));
    assert!(waiting["error"].as_str().unwrap().contains("waits"));
    assert!(!waiting.to_string().contains("db-7"));
    trouble.is_away.store(false, Ordering::Relaxed);
    let sweep = ended(&rig, &sweep).await;
    assert_eq!((&sweep["state"], &sweep["done"]), (&json!("done"), &json!(2_500)));
    assert_eq!(sweep["error"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn jobs_whose_answer_got_lost_are_counted_as_done() {
    for (action, state) in [("purge", "dlq"), ("requeue", "dlq"), ("cancel", "ready")] {
        let (rig, trouble) = troubled();
        enqueue(&rig, "work", "email:send", 30).await;
        if state == "dlq" {
            fail_all(&rig, "work", "gone").await;
        }
        let wanted = json!({"action": action, "filter": {"state": state}});
        trouble.lost_answers.store(2, Ordering::Relaxed);
        let sweep = ended(&rig, &start(&rig, &wanted).await).await;
        assert_eq!((&sweep["done"], &sweep["refused"]), (&json!(30), &json!(0)), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_or_breaks_ends_the_sweep() {
    let (rig, trouble) = troubled();
    enqueue(&rig, "work", "email:send", 10).await;
    let request = confirmed(&rig, &json!({"action": "cancel"})).await;
    trouble.is_away.store(true, Ordering::Relaxed);
    let sweep = rig.post("sweeps", &request).await.ok();
    let begun = Instant::now();
    let sweep = ended(&rig, &sweep).await;
    assert_eq!(sweep["state"], "failed");
    assert!(begun.elapsed() >= Duration::from_secs(600));
    trouble.is_away.store(false, Ordering::Relaxed);
    rig.clock.advance(Duration::from_secs(1));
    let request = confirmed(&rig, &json!({"action": "cancel"})).await;
    trouble.is_broken.store(true, Ordering::Relaxed);
    let sweep = rig.post("sweeps", &request).await.ok();
    let sweep = ended(&rig, &sweep).await;
    assert_eq!((&sweep["state"], &sweep["done"]), (&json!("failed"), &json!(0)));
    assert!(sweep["error"].as_str().unwrap().contains("log"));
    assert!(!sweep.to_string().contains("db-7"));
    trouble.is_broken.store(false, Ordering::Relaxed);
    let log = rig.get("actions").await.ok();
    assert_eq!(log["items"][0]["result"], "store_failed");
}

#[tokio::test(start_paused = true)]
async fn jobs_that_the_store_refuses_are_counted_and_the_rest_is_done() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 10).await;
    fail_all(&rig, "work", "gone").await;
    for _ in 0..3 {
        let member = new_job(&rig, "work", "email:send", "{}").await;
        let now = rig.driver.now().await.unwrap();
        let flow = Enqueue::new(vec![JobSet::flow(vec![member])], now);
        rig.driver.enqueue(flow).await.unwrap().remove(0).unwrap();
    }
    fail_all(&rig, "work", "gone").await;
    let wanted = json!({"action": "purge", "filter": {"state": "dlq"}});
    let sweep = ended(&rig, &start(&rig, &wanted).await).await;
    assert_eq!((&sweep["done"], &sweep["refused"]), (&json!(10), &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_ends_when_the_application_drops_its_router() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 100).await;
    let mut request = confirmed(&rig, &json!({"action": "cancel"})).await;
    request["rate_per_s"] = json!(1);
    rig.post("sweeps", &request).await.ok();
    sleep(Duration::from_millis(1_500)).await;
    let driver = rig.driver.clone();
    drop(rig);
    sleep(Duration::from_secs(60)).await;
    let rig = Rig::of(driver, Web::new());
    assert_eq!(count(&rig, State::Cancelled).await, 2);
}

#[tokio::test]
async fn a_sweep_ends_with_the_server_and_its_end_is_recorded() {
    let rig = Rig::new();
    enqueue(&rig, "work", "email:send", 100).await;
    let mut request = confirmed(&rig, &json!({"action": "cancel"})).await;
    request["rate_per_s"] = json!(1);
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&records);
    let keep = move |record: &ActionRecord| kept.lock().unwrap().push(record.clone());
    let web = Web::new().anonymous(Access::new("ada", Role::Admin)).on_action(keep);
    let stores = Stores::new().add("main", StoreKind::Memory, &rig.driver).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, stores, web, async {
        stopped.await.unwrap();
    }));
    let body = request.to_string();
    let request = format!(
        "POST /v1/main/sweeps HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
    let records = records.lock().unwrap();
    let results: Vec<_> =
        records.iter().map(|it| (it.action.as_str(), it.result.as_str())).collect();
    assert_eq!(results, [("sweep.start", "ok"), ("sweep.end", "stopped")]);
    assert!(records[1].count < Some(10));
}
