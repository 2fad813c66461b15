//! `queue limit`, `queue hold`, `queue lanes`, and limits in the output of other commands.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use taskharbor::{Admin, AnyDriver, Driver, QueueName};
use taskharbor_core::{
    admin::{Change, Configure, LimitsDeclaration, QueueLimits},
    driver::{Demand, Leased, Reserve},
    name::{Holder, OwnerName},
};

use super::schedule::{documented, keys};
use crate::store::Store;

/// Takes this many jobs of queue mail, as a worker does.
async fn take(driver: &AnyDriver, count: usize) -> Vec<Leased> {
    let demands = vec![Demand::new(QueueName::new("mail").unwrap(), count)];
    let (holder, now) = (Holder::new("w1").unwrap(), driver.now().await.unwrap());
    let reserve = Reserve::new(demands, holder, now, Duration::from_secs(600));
    driver.reserve(reserve).await.unwrap().jobs
}

/// Declares limits of queue mail as a service does.
async fn declare(store: &Store, limits: QueueLimits) {
    let driver = store.open().await;
    let limits = vec![(QueueName::new("mail").unwrap(), limits)];
    let owner = OwnerName::new("billing").unwrap();
    let change = Change::DeclareLimits(LimitsDeclaration::new(owner, Some(7), limits));
    let now = driver.now().await.unwrap();
    driver.configure(Configure::new(vec![change], now)).await.unwrap().remove(0).unwrap();
    driver.close().await.unwrap();
}

fn mail(store: &Store, args: &[&str]) -> String {
    store.enqueue(&[&["echo", "--queue", "mail"], args].concat())
}

fn limit(store: &Store, args: &[&str]) -> Value {
    store.json(&[&["queue", "limit", "mail"], args].concat())
}

#[test]
fn limits_are_set_in_part_shown_and_removed() {
    let store = Store::new();
    let none = limit(&store, &[]);
    assert_eq!(
        none,
        json!({
            "queue": "mail", "owner": null, "inflight": null, "rate": null, "per_lane": null,
            "lane_rate": null, "lanes": [],
        })
    );
    assert_eq!(store.ok(&["queue", "limit", "mail"]), "queue mail has no limits\n");
    let set = limit(
        &store,
        &["--inflight", "50", "--per-lane", "2", "--rate", "90/10s", "--burst", "10"],
    );
    assert_eq!((&set["inflight"], &set["per_lane"]), (&json!(50), &json!(2)));
    assert_eq!(set["rate"], json!({"jobs": 90, "per_seconds": 10.0, "burst": 10}));
    assert_eq!(limit(&store, &[]), set);
    // What is not given stays, and a new rate keeps its burst.
    let part = limit(&store, &["--inflight", "5", "--rate", "5/s", "--weight", "gold=3"]);
    assert_eq!((&part["inflight"], &part["per_lane"]), (&json!(5), &json!(2)));
    assert_eq!(part["rate"], json!({"jobs": 5, "per_seconds": 1.0, "burst": 10}));
    let gold = limit(&store, &["--lane", "gold", "--inflight", "10", "--rate", "1/m"]);
    assert_eq!(
        gold["lanes"],
        json!([{
            "lane": "gold", "inflight": 10, "rate": {"jobs": 1, "per_seconds": 60.0, "burst": 1},
            "weight": 3,
        }])
    );
    assert_eq!(gold["inflight"], 5);
    let rates = ["rate", "lane_rate", "lanes"].map(str::to_owned);
    let nested = keys(&gold["lanes"][0]).into_iter().chain(keys(&gold["rate"]));
    let fields: BTreeSet<_> = keys(&gold).into_iter().chain(nested).chain(rates).collect();
    assert_eq!(fields, documented("queue limit"));
    let text = store.ok(&["queue", "limit", "mail"]);
    for part in [
        "inflight   5\n",
        "rate       5/1s burst 10\n",
        "per lane   2\n",
        "lane       gold: inflight 10, rate 1/1m, weight 3\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let less = limit(&store, &["--rate", "none", "--lane-rate", "2/s", "--lane-burst", "4"]);
    assert_eq!((&less["rate"], &less["lane_rate"]["burst"]), (&json!(null), &json!(4)));
    assert_eq!(limit(&store, &["--lane", "gold", "--remove"])["lanes"], json!([]));
    assert_eq!(store.ok(&["queue", "limit", "mail", "--remove"]), "queue mail has no limits\n");
    assert_eq!(limit(&store, &[]), none);
    // The last limit that is removed leaves nothing behind.
    limit(&store, &["--inflight", "5"]);
    limit(&store, &["--inflight", "none"]);
    assert_eq!(store.run(&["queue", "limit", "mail", "--remove"]).code, Some(3));
}

#[test]
fn limits_that_cannot_be_are_refused_and_change_nothing() {
    let store = Store::new();
    let before = limit(&store, &["--inflight", "5", "--weight", "gold=3"]);
    let long = "x".repeat(256);
    for (args, code, text) in [
        (&["--inflight", "0"][..], 2, "no job would start: choose 1 to 1000000"),
        (&["--inflight", "1000001"], 2, "choose 1 to 1000000"),
        (&["--per-lane", "many"], 2, "is not a number of jobs"),
        (&["--rate", "fast"], 2, "is not a rate: write it as 90/10s"),
        (&["--rate", "5/0s"], 2, "no time to spread the jobs over"),
        (&["--rate", "0/s"], 2, "a rate of 0 would let no job start"),
        (&["--rate", "1/4000d"], 2, "cannot be counted"),
        (&["--rate", "1/3000d", "--burst", "100"], 2, "cannot be counted"),
        (&["--burst", "0", "--rate", "5/s"], 2, "0 is not in 1.."),
        (&["--burst", "5"], 2, "a burst is part of a rate: pass --rate with it"),
        (&["--lane-burst", "5"], 2, "pass --lane-rate with it"),
        (&["--weight", "gold=0"], 2, "is not a weight: choose 1 to 1000"),
        (&["--weight", "gold=1001"], 2, "choose 1 to 1000"),
        (&["--weight", "3"], 2, "has no lane: write --weight LANE=N"),
        (&["--weight", &format!("{long}=3")], 2, "lane name is 256 bytes long"),
        (&["--lane", "gold"], 2, "pass --inflight, --rate, --burst, --weight or --remove"),
        (&["--lane", "gold", "--weight", "gold=3"], 2, "write --weight 3 with --lane"),
        (&["--lane", "gold", "--per-lane", "3"], 2, "cannot be used with"),
        (&["--lane", "", "--inflight", "3"], 2, "lane name is empty"),
        (&["--lane", "a\tb", "--inflight", "3"], 2, "control character"),
        (&["--remove", "--inflight", "3"], 2, "cannot be used with"),
        (&["--lane", "silver", "--remove"], 3, "unknown lane silver"),
    ] {
        let refused = store.run(&[&["queue", "limit", "mail"], args].concat());
        assert_eq!(refused.code, Some(code), "{args:?}: {refused:?}");
        assert!(refused.err.contains(text), "{args:?}: {refused:?}");
        assert_eq!(limit(&store, &[]), before, "{args:?}");
    }
}

#[tokio::test]
async fn limits_of_a_service_are_shown_and_not_changed() {
    let store = Store::new();
    declare(&store, QueueLimits::new().inflight(50)).await;
    let shown = limit(&store, &[]);
    assert_eq!((&shown["owner"], &shown["inflight"]), (&json!("billing"), &json!(50)));
    for args in [&["--inflight", "5"][..], &["--remove"], &["--lane", "gold", "--inflight", "5"]] {
        let args = [&["queue", "limit", "mail", "--json"], args].concat();
        let refused = store.run(&args);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        let error: Value = serde_json::from_str(&refused.err).unwrap();
        assert_eq!(error["error"]["code"], "limits_owned", "{refused:?}");
        let words = "the limits of queue mail belong to owner billing: change them there";
        assert_eq!(error["error"]["message"], words, "{refused:?}");
        assert_eq!(limit(&store, &[]), shown);
    }
}

#[test]
fn jobs_are_enqueued_found_and_acted_upon_by_lane() {
    let store = Store::new();
    let acme = mail(&store, &["--lane", "acme"]);
    let bolt = mail(&store, &["--lane", "bolt", "--count", "1"]);
    let plain = mail(&store, &[]);
    let of = |args: &[&str]| -> Vec<String> {
        let lines = store.lines(&[&["list"], args].concat());
        lines.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of(&["--lane", "acme"]), [acme.as_str()]);
    assert_eq!(of(&["--queue", "other", "--lane", "acme"]), Vec::<String>::new());
    assert_eq!(store.inspect(&bolt)["lane"], "bolt");
    assert!(store.inspect(&plain)["lane"].is_null());
    assert!(store.ok(&["inspect", &acme]).contains("lane        acme"));
    let table = store.ok(&["list"]);
    assert!(table.contains("LANE") && table.contains("acme"), "{table}");
    store.enqueue(&["echo", "--queue", "other"]);
    assert!(!store.ok(&["list", "--queue", "other"]).contains("LANE"));
    let cancelled = store.ok(&["cancel", "--all", "--lane", "bolt", "--dry-run"]);
    assert!(cancelled.contains("cancel 1 job that match, lane bolt in"), "{cancelled}");
    assert_eq!(store.json(&["cancel", "--all", "--lane", "bolt", "--yes"])["done"], 1);
    assert_eq!((store.state(&acme), store.state(&bolt)), ("ready".into(), "cancelled".into()));
    for lane in ["", " ", &"x".repeat(256)] {
        for args in [&["enqueue", "t", "--lane", lane][..], &["list", "--lane", lane]] {
            let refused = store.run(args);
            assert_eq!(refused.code, Some(2), "{refused:?}");
            assert!(refused.err.contains("lane name is"), "{refused:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn programs_and_schedules_have_lanes() {
    let store = Store::new();
    store.ok(&["schedule", "put", "s", "tell", "--every", "1h", "--lane", "acme"]);
    let of_schedule = store.json(&["schedule", "run-now", "s"])["id"].as_str().unwrap().to_owned();
    let plain = store.enqueue(&["tell"]);
    store.work(&["--shell", "--exec", "tell=printf '\"%s\"' \"$TASKHARBOR_LANE\""]);
    let job = store.inspect(&of_schedule);
    assert_eq!((&job["lane"], &job["output"]), (&json!("acme"), &json!("acme")), "{job}");
    assert_eq!(store.inspect(&plain)["output"], "");
    let wrong = store.run(&["schedule", "put", "s", "tell", "--every", "1h", "--lane", ""]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[tokio::test]
async fn the_lanes_of_a_queue_are_shown_with_what_holds_them_back() {
    let store = Store::new();
    assert!(store.run(&["queue", "lanes", "mail"]).err.contains("no ready or inflight jobs"));
    for lane in ["acme", "acme", "bolt", "crow", "dune"] {
        mail(&store, &["--lane", lane]);
    }
    mail(&store, &[]);
    limit(&store, &["--per-lane", "1", "--weight", "bolt=3", "--lane-rate", "1000/s"]);
    limit(&store, &["--lane", "dune", "--rate", "1/h"]);
    store.ok(&["queue", "hold", "mail", "--lane", "crow", "--for", "1h"]);
    store.ok(&["queue", "hold", "mail", "--lane", "empty", "--for", "1h"]);
    let driver = store.open().await;
    assert_eq!(
        take(&driver, 10).await.len(),
        4,
        "two lanes, one with a rate, and the job without one"
    );
    let next = mail(&store, &["--lane", "dune"]);
    limit(&store, &["--lane", "dune", "--inflight", "5"]);
    let lanes = store.lines(&["queue", "lanes", "mail"]);
    let names: Vec<_> = lanes.iter().map(|it| it["lane"].as_str().unwrap_or("-")).collect();
    assert_eq!(names, ["-", "acme", "bolt", "crow", "dune", "empty"]);
    let at = |at: usize| {
        let held = &lanes[at]["held_back"];
        (&lanes[at]["ready"], &lanes[at]["inflight"], &lanes[at]["limit"], &held["reason"])
    };
    let (null, full) = (json!(null), json!("full"));
    assert_eq!(at(0), (&json!(0), &json!(1), &null, &null));
    assert_eq!(at(1), (&json!(1), &json!(1), &json!(1), &full));
    assert_eq!(at(3), (&json!(1), &json!(0), &json!(1), &json!("on_hold")));
    assert_eq!(at(4), (&json!(1), &json!(1), &json!(5), &json!("rate")));
    assert_eq!(at(5), (&json!(0), &json!(0), &json!(1), &json!("on_hold")));
    assert_eq!((&lanes[2]["weight"], &lanes[1]["weight"]), (&json!(3), &json!(1)));
    assert_eq!(
        (&lanes[1]["held_back"]["by"], &lanes[1]["held_back"]["limit"]),
        (&json!("lane"), &json!(1))
    );
    assert!(lanes[4]["held_back"]["until"].is_string());
    let nested = keys(&lanes[1]["held_back"]);
    let fields: BTreeSet<_> = keys(&lanes[1]).into_iter().chain(nested).collect();
    assert_eq!(fields, documented("queue lanes"));
    let text = store.ok(&["queue", "lanes", "mail"]);
    for part in ["(no lane)", "when a job ends", "on hold", "in 59m"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = store.run(&["queue", "lanes", "mail", "--limit", "4", "--json"]);
    let told: Value = serde_json::from_str(&page.err).unwrap();
    let cursor = told["next_cursor"].as_str().unwrap();
    let rest = store.lines(&["queue", "lanes", "mail", "--cursor", cursor]);
    assert_eq!((page.out.lines().count(), &rest[..]), (4, &lanes[4..]));
    assert_eq!(store.run(&["queue", "lanes", "mail", "--cursor", "x"]).code, Some(2));
    let held = &store.inspect(&next)["held_back"];
    assert_eq!((&held["by"], &held["reason"]), (&json!("lane"), &json!("rate")), "{held}");
    driver.close().await.unwrap();
}

#[tokio::test]
async fn why_names_the_limit_and_who_has_its_places() {
    let store = Store::new();
    let driver = store.open().await;
    let why = |id: &str| {
        let why = store.json(&["why", id]);
        (why["code"].as_str().unwrap().to_owned(), why["text"].as_str().unwrap().to_owned())
    };
    limit(&store, &["--per-lane", "2"]);
    let holders = [mail(&store, &["--lane", "acme"]), mail(&store, &["--lane", "acme"])];
    assert_eq!(take(&driver, 10).await.len(), 2);
    let waits = mail(&store, &["--lane", "acme"]);
    let (code, text) = why(&waits);
    assert_eq!(code, "limit_reached");
    assert!(text.contains("held back: lane acme has 2 of 2 jobs inflight, by jobs "), "{text}");
    for holder in &holders {
        assert!(text.contains(&format!("{holder} (worker w1)")), "{text}");
    }
    assert!(store.ok(&["inspect", &waits]).contains("lane acme has 2 of 2 jobs inflight"));
    limit(&store, &["--inflight", "1"]);
    let (code, text) = why(&waits);
    assert_eq!(code, "limit_reached");
    assert!(text.contains("held back: queue mail has 2 of 1 job inflight"), "{text}");
    limit(&store, &["--inflight", "none", "--per-lane", "none", "--lane-rate", "1/h"]);
    mail(&store, &["--lane", "bolt"]);
    let later = mail(&store, &["--lane", "bolt"]);
    take(&driver, 10).await;
    let (code, text) = why(&later);
    assert_eq!(code, "rate_limited");
    assert!(text.contains("rate: the next job of lane bolt may start at 2"), "{text}");
    assert!(text.contains("(in 59m") || text.contains("(in 1h"), "{text}");
    store.ok(&["queue", "hold", "mail", "--lane", "bolt", "--until", "2999-01-01T00:00:00Z"]);
    let (code, text) = why(&later);
    assert_eq!(code, "on_hold");
    assert!(text.contains("lane bolt is on hold until 2999-01-01T00:00:00.000000Z"), "{text}");
    assert!(text.contains("taskharbor queue hold mail --lane bolt --end"), "{text}");
    driver.close().await.unwrap();
}

#[tokio::test]
async fn a_hold_is_set_not_shortened_and_ended() {
    let store = Store::new();
    let driver = store.open().await;
    mail(&store, &[]);
    let hold = |args: &[&str]| store.run(&[&["queue", "hold", "mail"], args].concat());
    let set = store.json(&["queue", "hold", "mail", "--until", "2999-01-01T00:00:00Z"]);
    assert_eq!(
        (&set["lane"], &set["held_until"]),
        (&json!(null), &json!("2999-01-01T00:00:00.000000Z"))
    );
    assert_eq!(keys(&set), documented("queue hold"));
    let shorter = hold(&["--for", "30s"]);
    assert!(shorter.out.contains("queue mail is on hold until 2999-01-01"), "{shorter:?}");
    assert!(shorter.err.contains("an earlier hold lasts longer"), "{shorter:?}");
    assert_eq!(take(&driver, 1).await.len(), 0);
    assert_eq!(hold(&["--end"]).out, "queue mail is not on hold\n");
    assert_eq!(take(&driver, 1).await.len(), 1);
    driver.close().await.unwrap();
    let lane = hold(&["--lane", "acme", "--for", "1h"]);
    assert!(lane.out.starts_with("lane acme of queue mail is on hold until 2"), "{lane:?}");
    for (args, text) in [
        (&[][..], "required"),
        (&["--for", "30s", "--end"], "cannot be used with"),
        (&["--for", "0s"], "pass --end to end a hold"),
        (&["--until", "2020-01-01T00:00:00Z"], "which has passed"),
        (&["--for", "soon"], "is not a duration"),
        (&["--lane", "", "--for", "30s"], "lane name is empty"),
    ] {
        let refused = hold(args);
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
        assert!(refused.err.contains(text), "{args:?}: {refused:?}");
    }
}

#[tokio::test]
async fn counts_show_how_full_queues_and_lanes_are() {
    let store = Store::new();
    let stats = ["stats", "--window", "0s"];
    mail(&store, &["--lane", "acme"]);
    let idle = &store.lines(&stats)[0];
    assert_eq!((&idle["inflight_limit"], &idle["held_lanes"]), (&json!(null), &json!([])));
    limit(&store, &["--inflight", "5", "--per-lane", "1"]);
    let driver = store.open().await;
    assert_eq!(take(&driver, 5).await.len(), 1);
    for lane in ["acme", "acme", "bolt"] {
        mail(&store, &["--lane", lane]);
    }
    let queue = &store.lines(&stats)[0];
    assert_eq!((&queue["inflight_limit"], &queue["held_back"]), (&json!(5), &json!(null)));
    let held = &queue["held_lanes"];
    assert_eq!(held.as_array().unwrap().len(), 1, "{queue}");
    assert_eq!((&held[0]["lane"], &held[0]["ready"]), (&json!("acme"), &json!(2)));
    let text = store.ok(&stats);
    assert!(text.contains("  mail: 1 of 5 jobs inflight, 1 per lane\n"), "{text}");
    assert!(text.contains("    lane acme has 1 of 1 job inflight, 2 ready\n"), "{text}");
    store.ok(&["queue", "hold", "mail", "--for", "1h"]);
    let queue = &store.lines(&["queue", "list"])[0];
    assert_eq!(queue["held_back"]["reason"], "on_hold", "{queue}");
    assert!(store.ok(&stats).contains("1 per lane, on hold until "));
    driver.close().await.unwrap();
}

#[test]
fn workers_run_every_job_within_the_limits() {
    let store = Store::new();
    limit(
        &store,
        &["--inflight", "2", "--per-lane", "1", "--rate", "1000/s", "--weight", "acme=2"],
    );
    for lane in ["acme", "bolt", "crow"] {
        store.ok(&["enqueue", "echo", "--queue", "mail", "--lane", lane, "--count", "20"]);
    }
    store.work(&["--builtin", "--queue", "mail"]);
    assert_eq!(store.lines(&["stats", "--window", "0s"])[0]["done"], 60);
    assert_eq!(store.ok(&["check"]), "consistent\n");
}

#[tokio::test]
async fn limits_are_moved_once_and_others_are_not_overwritten() {
    let (from, to) = (Store::new(), Store::new());
    let id = mail(&from, &["--lane", "acme"]);
    declare(&from, QueueLimits::new().inflight(50)).await;
    let mail = limit(&from, &[]);
    let sms = from.json(&["queue", "limit", "sms", "--per-lane", "2", "--weight", "gold=3"]);
    let urls = ["move", "--from", from.url(), "--to", to.url(), "--yes"];
    to.ok(&["queue", "limit", "sms", "--per-lane", "9"]);
    let refused = from.run(&urls);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("cannot move the limits of queue sms"), "{refused:?}");
    assert!(refused.err.contains("nothing was moved"), "{refused:?}");
    to.ok(&["queue", "limit", "sms", "--remove"]);
    let report = from.json(&urls);
    assert_eq!((&report["moved"], &report["limits"]), (&json!(1), &json!(2)), "{report}");
    assert_eq!((limit(&to, &[]), to.json(&["queue", "limit", "sms"])), (mail, sms));
    assert_eq!(to.inspect(&id)["lane"], "acme");
    for queue in ["mail", "sms"] {
        assert_eq!(from.ok(&["queue", "limit", queue]), format!("queue {queue} has no limits\n"));
    }
    assert_eq!(from.json(&urls)["limits"], 0);
    // A move that ended before the source had lost its limits is repeated. The service has declared
    // others in the destination since.
    declare(&from, QueueLimits::new().inflight(50)).await;
    declare(&to, QueueLimits::new().inflight(60)).await;
    assert_eq!(from.json(&urls)["limits"], 1);
    assert_eq!(
        (&limit(&to, &[])["inflight"], &limit(&from, &[])["inflight"]),
        (&json!(60), &json!(null))
    );
}
