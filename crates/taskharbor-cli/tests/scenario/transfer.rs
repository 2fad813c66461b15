//! `move`, and what it is made of: everything that is stored, taken over by another store.

use std::time::Duration;

use taskharbor::{Action, Admin, AnyDriver, Driver, JobId, Manage, QueueName, Requeue, Timestamp};
use taskharbor_core::{
    JobType, NewJob, Text,
    admin::Counts,
    driver::{Demand, Enqueue, Leased, Reserve, Settle, Settlement, Transition},
    export::{ExportUnit, ImportRefused, Imported},
    flow::Expansion,
    job::{FailedAttempt, FailurePolicy, Headers, JobSet, KeyHold},
    name::{Holder, IdempotencyKey},
};

use crate::store::Store;

const LEASE: Duration = Duration::from_secs(60);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000_000_000 + seconds * 1_000_000).unwrap()
}

fn id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

fn job(text: &str) -> NewJob {
    NewJob::new(id(text), QueueName::new("q").unwrap(), JobType::new("t").unwrap(), text.as_bytes())
}

async fn put(driver: &AnyDriver, sets: Vec<JobSet>, now: Timestamp) {
    for answer in driver.enqueue(Enqueue::new(sets, now)).await.unwrap() {
        answer.unwrap();
    }
}

async fn take(driver: &AnyDriver, count: usize, now: Timestamp) -> Vec<Leased> {
    let demands = vec![Demand::new(QueueName::new("q").unwrap(), count)];
    let reserve = Reserve::new(demands, Holder::new("worker").unwrap(), now, LEASE);
    driver.reserve(reserve).await.unwrap().jobs
}

async fn settle(driver: &AnyDriver, leased: &Leased, transition: Transition, now: Timestamp) {
    let item = Settlement::new(leased.job.id.clone(), leased.lease.token, transition);
    driver.settle(Settle::new(vec![item], now)).await.unwrap().remove(0).unwrap();
}

async fn manage(driver: &AnyDriver, job: &str, action: Action, now: Timestamp) {
    driver.manage(Manage::new(vec![id(job)], action, now)).await.unwrap().remove(0).unwrap();
}

fn failure(text: &str, attempts: u32, now: Timestamp) -> FailedAttempt {
    FailedAttempt::new(attempts, Text::new(text), now)
}

/// A store in which jobs are in every state, in and out of flows.
async fn filled() -> AnyDriver {
    let driver = taskharbor::connect("memory:").await.unwrap();
    let key = |text: &str| IdempotencyKey::new(text).unwrap();
    let rich = job("rich")
        .headers(Headers::new().with("trace", "é\"\\").unwrap())
        .idempotency_key(key("held"))
        .timeout(Duration::from_millis(1_500))
        .max_attempts(7)
        .priority(-3)
        .run_at(at(5_000));
    let spent =
        job("spent-key").idempotency_key(key("released")).key_hold(KeyHold::UntilDone).priority(9);
    let plain = ["done", "retried", "dead", "requeued", "cancelled", "inflight", "asked"];
    let plain = plain.into_iter().map(|name| JobSet::from(job(name).priority(5)));
    put(&driver, plain.chain([spent.into(), rich.into(), job("ready").into()]).collect(), at(0))
        .await;
    for leased in take(&driver, 8, at(1)).await {
        let failed = |text: &str| failure(text, 1, at(2));
        match leased.job.id.as_str() {
            "done" => {
                let transition = Transition::Ack { output: Some(b"\x00out".into()) };
                settle(&driver, &leased, transition, at(2)).await;
            }
            "spent-key" => settle(&driver, &leased, Transition::Ack { output: None }, at(2)).await,
            "retried" => {
                let transition =
                    Transition::Retry { failure: failed("once"), run_at: Some(at(9_000)) };
                settle(&driver, &leased, transition, at(2)).await;
            }
            "dead" | "requeued" => {
                let transition =
                    Transition::Fail { failure: failed("broken"), reason: Text::new("for good") };
                settle(&driver, &leased, transition, at(2)).await;
            }
            "cancelled" => {
                settle(
                    &driver,
                    &leased,
                    Transition::Release { run_at: Some(at(7_000)), started: false, note: None },
                    at(2),
                )
                .await;
                manage(&driver, "cancelled", Action::Cancel, at(3)).await;
            }
            "asked" => manage(&driver, "asked", Action::Cancel, at(3)).await,
            _ => {}
        }
    }
    manage(&driver, "requeued", Action::Requeue(Requeue::new()), at(4)).await;
    put(&driver, flows(), at(10)).await;
    for leased in take(&driver, 100, at(11)).await {
        let name = leased.job.id.to_string();
        match &*name {
            name if name.starts_with("ack") => {
                settle(
                    &driver,
                    &leased,
                    Transition::Ack { output: Some(name.as_bytes().into()) },
                    at(12),
                )
                .await;
            }
            name if name.starts_with("fail") => {
                let transition = Transition::Fail {
                    failure: failure("no", 1, at(12)),
                    reason: Text::new("no use"),
                };
                settle(&driver, &leased, transition, at(12)).await;
            }
            "grow" => {
                let grown = vec![job("grown-1"), job("grown-tail").after([id("grown-1")])];
                settle(&driver, &leased, Transition::Expand(Expansion::new(grown)), at(12)).await;
            }
            _ => {
                settle(
                    &driver,
                    &leased,
                    Transition::Release { run_at: None, started: false, note: None },
                    at(12),
                )
                .await;
            }
        }
    }
    driver
}

/// A flow that is done, a blocked one, one that continued after a failure, one with an expansion.
fn flows() -> Vec<JobSet> {
    let member = |name: &str, policy| job(name).on_failure(policy);
    let queue = QueueName::new("q").unwrap();
    vec![
        JobSet::flow(vec![job("ack-a"), NewJob::join(id("over"), queue.clone(), [id("ack-a")])]),
        JobSet::flow(vec![
            job("ack-b"),
            member("fail-b", FailurePolicy::Block),
            job("waits").after([id("ack-b"), id("fail-b")]),
        ]),
        JobSet::flow(vec![
            member("fail-c", FailurePolicy::Continue),
            job("ack-c"),
            NewJob::join(id("join-c"), queue, [id("fail-c"), id("ack-c")]),
            job("reads").after([id("join-c"), id("fail-c")]),
        ]),
        JobSet::flow(vec![job("grow"), job("after-expansion").after([id("grow")])]),
    ]
}

async fn all(driver: &AnyDriver, page: usize) -> Vec<ExportUnit> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let found = driver.export(cursor, page).await.unwrap();
        all.extend(found.items);
        match found.next {
            Some(next) => cursor = Some(next),
            None => return all,
        }
    }
}

#[tokio::test]
async fn what_is_stored_arrives_as_it_was_and_goes_on_as_it_would_have() {
    let store = Store::new();
    let there = store.open().await;
    let source = filled().await;
    let sent = all(&source, 3).await;
    assert!(sent.len() > 10 && sent.iter().filter(|it| it.flow.is_some()).count() == 4);
    let answers = there.import(sent.clone()).await.unwrap();
    assert_eq!(answers, vec![Ok(Imported::Stored); sent.len()]);
    assert_eq!(there.check().await.unwrap(), []);
    assert_eq!(all(&there, 4).await, sent);
    assert_eq!(there.import(sent.clone()).await.unwrap(), vec![Ok(Imported::Existing); sent.len()]);

    // And back, into a store that is then the same as the first.
    let back = taskharbor::connect("memory:").await.unwrap();
    back.import(all(&there, 1_000).await).await.unwrap();
    assert_eq!(back.check().await.unwrap(), []);
    assert_eq!(all(&back, 5).await, sent);

    // All three go on alike: the blocked flow continues, and everything that is left is run.
    let mut ends = Vec::new();
    for driver in [&source, &there, &back] {
        manage(driver, "fail-b", Action::Requeue(Requeue::new()), at(20_000)).await;
        for step in 0..20 {
            for leased in take(driver, 100, at(20_000 + step * 100)).await {
                let output = Some(leased.job.id.as_str().as_bytes().into());
                settle(driver, &leased, Transition::Ack { output }, at(20_001 + step * 100)).await;
            }
        }
        assert_eq!(driver.check().await.unwrap(), []);
        let counts = driver.counts(Counts::new(at(30_000))).await.unwrap();
        assert_eq!(
            counts[0].states.done + counts[0].states.dlq + counts[0].states.cancelled,
            counts[0].states.total(),
            "{counts:?}"
        );
        ends.push(counts);
    }
    assert_eq!(ends[0], ends[1]);
    assert_eq!(ends[0], ends[2]);
}

#[tokio::test]
async fn a_unit_that_does_not_fit_is_refused_whole() {
    let store = Store::new();
    let there = store.open().await;
    let source = filled().await;
    let sent = all(&source, 100).await;
    let taken = job("other").idempotency_key(IdempotencyKey::new("held").unwrap());
    put(&there, vec![taken.into(), job("ack-b").into()], at(0)).await;
    let answers = there.import(sent.clone()).await.unwrap();
    let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused, [ImportRefused::KeyHeld(id("rich")), ImportRefused::Overlap(id("ack-b"))]);
    assert_eq!(there.check().await.unwrap(), []);
    assert!(there.inspect(id("waits"), at(0)).await.unwrap().is_none());
}

#[test]
fn the_command_moves_everything_and_can_be_repeated() {
    let (from, to) = (Store::new(), Store::new());
    let done = from.enqueue(&["echo", "[1]"]);
    let dead = from.enqueue(&["fail", "--max-attempts", "1"]);
    from.work(&["--builtin"]);
    let waiting = from.enqueue(&["echo", "--key", "k", "--delay", "1h"]);
    let urls = ["move", "--from", from.url(), "--to", to.url()];
    let refused = from.run(&urls);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("move 3 jobs from "), "{refused:?}");
    let report = from.json(&[&urls[..], &["--yes"]].concat());
    assert_eq!((&report["moved"], &report["compared"]), (&3.into(), &3.into()), "{report}");
    for id in [&done, &dead, &waiting] {
        assert_eq!(to.inspect(id), from.inspect(id));
    }
    assert_eq!(to.json(&["enqueue", "echo", "--key", "k"])["existed"], true);
    assert!(from.lines(&["queue", "list"])[0]["paused_since"].is_string());
    assert!(to.lines(&["queue", "list"])[0]["paused_since"].is_null());
    let again = from.json(&[&urls[..], &["--yes"]].concat());
    assert_eq!((&again["moved"], &again["existed"]), (&0.into(), &3.into()), "{again}");
    let same = from.run(&["move", "--from", from.url(), "--to", from.url(), "--yes"]);
    assert_eq!(same.code, Some(2), "{same:?}");
}

#[test]
fn a_key_that_outlived_its_job_is_moved() {
    let (from, to) = (Store::new(), Store::new());
    let key = ["--key", "k", "--key-hold", "24h", "--max-attempts", "1"];
    let dead = from.enqueue(&[&["fail"], &key[..]].concat());
    from.work(&["--builtin"]);
    from.ok(&["dlq", "purge", &dead, "--yes"]);
    let report = from.json(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
    assert_eq!((&report["moved"], &report["keys"]), (&0.into(), &1.into()), "{report}");
    let again = to.json(&[&["enqueue", "fail"], &key[..]].concat());
    assert_eq!((&again["id"], &again["existed"]), (&dead.as_str().into(), &true.into()));
}

#[test]
fn queues_paused_by_an_operator_stay_paused_and_a_refused_move_changes_nothing() {
    let (from, to) = (Store::new(), Store::new());
    from.enqueue(&["echo", "--queue", "resting"]);
    from.ok(&["queue", "pause", "resting"]);
    from.enqueue(&["sleep", "\"60s\"", "--queue", "busy"]);
    let mut worker = from.command(&["worker", "--builtin", "--queue", "busy"]);
    let mut worker = worker.stderr(std::process::Stdio::null()).spawn().unwrap();
    super::until("the start", || {
        from.lines(&["stats", "--window", "0s"]).iter().any(|it| it["inflight"] == 1)
    });
    let urls = ["move", "--from", from.url(), "--to", to.url(), "--yes"];
    let held = from.run(&urls);
    assert_eq!(held.code, Some(4), "{held:?}");
    assert!(held.err.contains("workers hold 1 job:"), "{held:?}");
    assert!(to.lines(&["queue", "list"]).is_empty(), "nothing is left paused");
    let busy = |store: &Store| {
        let queues = store.lines(&["queue", "list"]);
        queues.into_iter().find(|it| it["queue"] == "busy").unwrap()["paused_since"].clone()
    };
    assert!(busy(&from).is_null());
    worker.kill().unwrap();
    worker.wait().unwrap();
    let id = from.lines(&["list", "--state", "inflight"])[0]["id"].as_str().unwrap().to_owned();
    from.ok(&["cancel", &id]);
    // Its lease has to run out first; a job without a valid lease moves at once.
    let report = from.json(&["move", "--from", from.url(), "--to", to.url(), "--dry-run"]);
    assert_eq!(report["moved"], 2);
}

#[test]
fn a_pause_is_carried_over_and_one_store_is_not_two() {
    let (from, to) = (Store::new(), Store::new());
    from.enqueue(&["echo", "--queue", "resting"]);
    from.enqueue(&["echo", "--queue", "working"]);
    from.ok(&["queue", "pause", "resting"]);
    from.json(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
    let queues = to.lines(&["queue", "list"]);
    assert_eq!(queues.len(), 2);
    assert!(
        queues[0]["paused_since"].is_string() && queues[1]["paused_since"].is_null(),
        "{queues:?}"
    );
    let other = from.url().replacen("://", "://taskharbor@", 1).replace("sqlite:/", "sqlite:/./");
    let other = if other.contains("@taskharbor@") {
        from.url().replacen("postgres:", "postgresql:", 1)
    } else {
        other
    };
    let same = from.run(&["move", "--from", from.url(), "--to", &other, "--yes"]);
    assert_eq!(same.code, Some(2), "{same:?}");
    assert!(same.err.contains("the same store"), "{same:?}");
}

#[test]
fn a_job_that_differs_in_content_alone_is_found() {
    let (from, to) = (Store::new(), Store::new());
    let id = from.enqueue(&["echo", "[1]"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (source, destination) = (from.open().await, to.open().await);
        let mut units = all(&source, 10).await;
        units[0].jobs[0].new.payload = b"[2]".into();
        destination.import(units).await.unwrap();
        for driver in [source, destination] {
            driver.close().await.unwrap();
        }
    });
    let moved = from.run(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
    assert_eq!(moved.code, Some(1), "{moved:?}");
    assert!(moved.err.contains(&id) && moved.err.contains("not the same"), "{moved:?}");
    assert!(moved.err.contains("stay paused"), "{moved:?}");
}

#[test]
fn schedules_are_moved_and_fire_in_one_store_alone() {
    let (from, to) = (Store::new(), Store::new());
    from.enqueue(&["echo", "[1]"]);
    for (name, every) in [("hourly", "1h"), ("paused", "2h")] {
        from.json(&["schedule", "put", name, "echo", "--every", every]);
    }
    let paused = from.json(&["schedule", "pause", "paused"]);
    let hourly = from.json(&["schedule", "show", "hourly"]);
    let urls = ["move", "--from", from.url(), "--to", to.url(), "--yes"];
    let report = from.json(&urls);
    assert_eq!(report["schedules"], 2, "{report}");
    assert_eq!(to.json(&["schedule", "show", "hourly"]), hourly);
    assert_eq!(to.json(&["schedule", "show", "paused"]), paused);
    assert!(from.lines(&["schedule", "list"]).is_empty());
    let again = from.json(&urls);
    assert_eq!(again["schedules"], 0, "{again}");
    // Another schedule of the same name is not overwritten, and the one of the source does not fire.
    from.json(&["schedule", "put", "hourly", "echo", "--every", "3h"]);
    let refused = from.run(&urls);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("cannot move schedule hourly"), "{refused:?}");
    assert_eq!(to.json(&["schedule", "show", "hourly"]), hourly);
    assert!(from.json(&["schedule", "show", "hourly"])["paused_since"].is_string());
}
