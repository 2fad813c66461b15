//! `schedule`: recurring jobs from the command line.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use taskharbor::{Admin, Client, Driver, Schedule, Schedules};
use taskharbor_core::admin::{Change, Configure};

use super::{
    until,
    worker::{signal, started},
};
use crate::store::Store;

const GUIDE: &str = include_str!("../../../../docs/guides/command-line.md");

const NIGHTLY: [&str; 7] = [
    "schedule",
    "put",
    "invoices",
    "invoices:make",
    "{\"country\": \"de\"}",
    "--cron",
    "0 3 * * *",
];

/// A week, in which a daily schedule has seven slots.
const WEEK: [&str; 5] =
    ["invoices", "--from", "2026-11-01T00:00:00Z", "--to", "2026-11-08T00:00:00Z"];

fn nightly(args: &[&str]) -> Store {
    let store = Store::new();
    store.ok(&[&NIGHTLY, args].concat());
    store
}

fn texts(lines: &[Value], field: &str) -> Vec<String> {
    lines.iter().map(|line| line[field].as_str().unwrap().to_owned()).collect()
}

/// The fields that the guide names for this output, those of nested objects among them.
pub(crate) fn documented(output: &str) -> BTreeSet<String> {
    let row = GUIDE.lines().find(|line| line.starts_with(&format!("| `{output}`"))).unwrap();
    let fields = row.rsplit('|').nth(1).unwrap().split('`').nth(1).unwrap();
    let words = fields.split([' ', '[', ']', '{', '}']).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

pub(crate) fn keys(document: &Value) -> BTreeSet<String> {
    document.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn a_schedule_is_put_shown_and_replaced() {
    let store = Store::new();
    assert_eq!(store.run(&["schedule", "list"]).err, "no schedules\n");
    let options = [
        "--zone",
        "Europe/Berlin",
        "--queue",
        "billing",
        "--missed",
        "all:3",
        "--within",
        "6h",
        "--overlap",
        "queue",
        "--jitter",
        "5m",
        "--starts-at",
        "2999-01-01T00:00:00Z",
    ];
    let put = store.json(&[&NIGHTLY[..], &options].concat());
    for (field, value) in [
        ("name", json!("invoices")),
        ("owner", json!(null)),
        ("when", json!("0 3 * * *")),
        ("zone", json!("Europe/Berlin")),
        ("type", json!("invoices:make")),
        ("queue", json!("billing")),
        ("missed", json!("all:3")),
        ("within_seconds", json!(21_600.0)),
        ("overlap", json!("queue")),
        ("jitter_seconds", json!(300.0)),
        ("starts_at", json!("2999-01-01T00:00:00.000000Z")),
        ("next_slot", json!("2999-01-01T02:00:00.000000Z")),
        ("stored", json!(0)),
    ] {
        assert_eq!(put[field], value, "{field}");
    }
    assert_eq!(store.json(&["schedule", "show", "invoices"]), put);
    assert_eq!(store.lines(&["schedule", "list"]), [put]);
    let text = store.ok(&["schedule", "show", "invoices"]);
    for part in ["0 3 * * * Europe/Berlin", "invoices:make in queue billing", "all:3, within 6h"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let table = store.ok(&["schedule", "list"]);
    assert!(table.contains("NAME") && table.contains("0 3 * * * Europe/Berlin"), "{table}");

    let every = ["schedule", "put", "invoices", "feed:poll", "--every", "30s"];
    let replaced = store.json(&every);
    assert_eq!((&replaced["when"], &replaced["zone"]), (&json!("every 30s"), &json!(null)));
    assert_eq!((&replaced["overlap"], &replaced["missed"]), (&json!("skip"), &json!("latest")));
    assert_eq!(store.lines(&["schedule", "list"]).len(), 1);
}

#[test]
fn the_next_slots_are_shown() {
    let store = nightly(&[]);
    let next = texts(&store.lines(&["schedule", "next", "invoices", "-n", "3"]), "slot");
    assert_eq!(next.len(), 3);
    assert!(next.iter().all(|slot| slot.ends_with("T03:00:00.000000Z")), "{next:?}");
    assert!(next.is_sorted(), "{next:?}");
    let text = store.ok(&["schedule", "next", "invoices"]);
    assert_eq!(text.lines().count(), 5);
    assert!(text.starts_with(&format!("{}  in ", next[0])), "{text}");
}

#[test]
fn a_schedule_is_paused_and_resumed() {
    let store = nightly(&[]);
    let paused = store.json(&["schedule", "pause", "invoices"]);
    assert!(paused["paused_since"].is_string(), "{paused}");
    assert!(store.ok(&["schedule", "list"]).contains("paused"));
    let again = store.ok(&["schedule", "pause", "invoices"]);
    assert!(again.contains(paused["paused_since"].as_str().unwrap()), "{again}");
    let resumed = store.json(&["schedule", "resume", "invoices"]);
    assert!(resumed["paused_since"].is_null() && resumed["next_slot"].is_string(), "{resumed}");
}

#[test]
fn a_schedule_is_run_now_unless_its_overlap_forbids_it() {
    let store = nightly(&["--overlap", "skip"]);
    let first = store.json(&["schedule", "run-now", "invoices"]);
    let id = first["id"].as_str().unwrap();
    assert!(id.starts_with("invoices@now:"), "{first}");
    assert_eq!((keys(&first), &first["existed"]), (documented("schedule run-now"), &json!(false)));
    assert_eq!(store.inspect(id)["payload"], json!({"country": "de"}));
    let second = store.run(&["schedule", "run-now", "invoices"]);
    assert_eq!((second.code, second.out), (Some(0), format!("{id}\n")));
    assert!(second.err.contains("an earlier job of this schedule is not terminal"));
    assert_eq!(store.json(&["schedule", "run-now", "invoices"])["existed"], true);
    let why = store.ok(&["why", id]);
    assert!(why.contains("Schedule invoices made it for its slot at 2"), "{why}");
}

#[test]
fn past_slots_are_backfilled_after_a_preview() {
    let store = nightly(&[]);
    let backfill = [&["schedule", "backfill"][..], &WEEK].concat();
    let preview = [&backfill[..], &["--dry-run"]].concat();
    let slots = store.lines(&preview);
    assert_eq!(keys(&slots[0]), documented("schedule next"));
    let slots = texts(&slots, "slot");
    assert_eq!((slots.len(), &*slots[0]), (7, "2026-11-01T03:00:00.000000Z"));
    let told = store.run(&preview);
    assert_eq!((told.out.lines().count(), &*told.err), (7, "7 slots would be stored\n"));
    assert!(store.lines(&["list"]).is_empty(), "a preview stores nothing");

    assert_eq!(store.json(&backfill), json!({"stored": 7, "existing": 0}));
    assert_eq!(keys(&store.json(&backfill)), documented("schedule backfill"));
    assert_eq!(store.ok(&backfill), "0 slots stored, 7 stored before\n");
    let ids = texts(&store.lines(&["list"]), "id");
    assert_eq!((ids.len(), &*ids[0]), (7, "invoices@2026-11-01T03:00:00Z"));

    let ago = ["schedule", "backfill", "invoices", "--from", "10d", "--to", "3d", "--dry-run"];
    assert_eq!(store.lines(&ago).len(), 7);
    for (args, text) in [
        (&["--from", "3d", "--to", "10d"], "--to is before --from"),
        (&["--from", "1970-01-01T00:00:00Z", "--to", "1d"], "more than 10000 slots"),
    ] {
        let refused = store.run(&[&["schedule", "backfill", "invoices"][..], args].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(text), "{refused:?}");
    }
}

#[test]
fn a_schedule_is_removed_and_its_jobs_stay() {
    let store = nightly(&[]);
    store.ok(&["schedule", "run-now", "invoices"]);
    let removed = store.json(&["schedule", "remove", "invoices"]);
    assert_eq!(
        (&removed["removed"], keys(&removed)),
        (&json!("invoices"), documented("schedule remove"))
    );
    assert_eq!(store.lines(&["list"]).len(), 1);
    let backfill = [&["schedule", "backfill"][..], &WEEK].concat();
    for args in [
        &["schedule", "show", "invoices"][..],
        &["schedule", "next", "invoices"],
        &["schedule", "pause", "invoices"],
        &["schedule", "resume", "invoices"],
        &["schedule", "run-now", "invoices"],
        &["schedule", "remove", "invoices"],
        &backfill,
    ] {
        let unknown = store.run(args);
        assert_eq!((unknown.code, &*unknown.out), (Some(3), ""), "{args:?}: {unknown:?}");
        assert!(unknown.err.contains("no schedule invoices is stored"), "{args:?}: {unknown:?}");
    }
    store.ok(&NIGHTLY);
    assert_eq!(
        store.ok(&["schedule", "remove", "invoices"]),
        "invoices is removed; its jobs stay\n"
    );
}

#[test]
fn a_fired_slot_is_recorded_and_its_job_says_which_schedule_made_it() {
    let store = Store::new();
    store.ok(&["schedule", "put", "tick", "tell", "[1]", "--every", "1s"]);
    let told =
        "echo \"[$(cat), \\\"$TASKHARBOR_HEADER_TH_SCHEDULE $TASKHARBOR_HEADER_TH_SLOT\\\"]\"";
    let mut worker = started(&store, &["--shell", "--exec", &format!("tell={told}")]);
    let shown = || store.json(&["schedule", "show", "tick"]);
    until("a firing", || shown()["stored"] != 0);
    let shown = shown();
    let firing = &shown["firings"][0];
    let (job, slot) = (firing["job"].as_str().unwrap(), firing["slot"].as_str().unwrap());
    assert_eq!((job, &firing["is_new"]), (&*format!("tick@{}Z", &slot[..19]), &json!(true)));
    until("the end of the job", || store.state(job) == "done");
    signal(&worker, "-TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(store.inspect(job)["output"], json!([[1], format!("tick {}Z", &slot[..19])]));
    let why = store.json(&["why", job]);
    let text = why["text"].as_str().unwrap();
    assert!(text.ends_with(&format!("Schedule tick made it for its slot at {}Z.", &slot[..19])));
    let fields = keys(&shown).into_iter().chain(keys(firing)).collect::<BTreeSet<_>>();
    assert_eq!(fields, documented("schedule list"));
    let text = store.ok(&["schedule", "show", "tick"]);
    assert!(text.contains(&format!("{slot} as {job}")), "{text}");
}

#[tokio::test]
async fn a_worker_that_runs_until_idle_fires_what_is_due() {
    let store = Store::new();
    store.ok(&["schedule", "put", "tick", "echo", "[1]", "--cron", "* * * * *"]);
    store.ok(&["schedule", "pause", "tick"]);
    let driver = store.open().await;
    let info = Client::new(&driver).schedules().get("tick").await.unwrap().unwrap();
    let now = driver.now().await.unwrap();
    let next_slot = Some(now.saturating_sub(Duration::from_secs(60)));
    let (name, revision) = (info.record.name, info.record.revision);
    let resume = Change::ResumeSchedule { name, revision, next_slot };
    driver.configure(Configure::new(vec![resume], now)).await.unwrap();
    driver.close().await.unwrap();
    store.work(&["--builtin"]);
    let shown = store.json(&["schedule", "show", "tick"]);
    let job = shown["firings"][0]["job"].as_str().expect("a slot is fired");
    assert_eq!(store.state(job), "done");
}

#[tokio::test]
async fn a_schedule_of_a_service_is_not_replaced() {
    let store = Store::new();
    let driver = store.open().await;
    let invoices = Schedule::cron("invoices", "@daily").raw("invoices:make", b"{}");
    let declared = Schedules::owned_by("billing").add(invoices);
    Client::new(&driver).schedules().declare(declared).await.unwrap();
    let refused = store.run(&NIGHTLY);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("belongs to owner billing: choose another name"), "{refused:?}");
    assert_eq!(store.json(&["schedule", "show", "invoices"])["owner"], "billing");
    let text = store.ok(&["schedule", "show", "invoices"]);
    assert!(text.contains("owner     billing"), "{text}");
}

#[test]
fn every_expression_in_the_guide_is_valid() {
    let guide = include_str!("../../../../docs/guides/recurring.md");
    let (_, table) = guide.split_once("| expression | due |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let expressions =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let store = Store::new();
    let mut count = 0;
    for expression in expressions {
        store.ok(&["schedule", "put", "s", "t", "--cron", expression]);
        count += 1;
    }
    assert!(count > 5, "{count}");
}
