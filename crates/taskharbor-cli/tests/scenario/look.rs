//! `list`, `inspect` and `stats`.

use crate::store::Store;

#[test]
fn a_list_is_filtered_and_goes_on_where_it_ended() {
    let store = Store::new();
    let ids: Vec<_> = (0..5).map(|_| store.enqueue(&["a", "--queue", "q"])).collect();
    store.enqueue(&["b", "--queue", "q"]);
    store.enqueue(&["a", "--queue", "other", "--delay", "1h"]);
    let of = |args: &[&str]| -> Vec<String> {
        let lines = store.lines(&[&["list"], args].concat());
        lines.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of(&["--queue", "q", "--type", "a", "--state", "ready"]), ids);
    assert_eq!(of(&["--state", "scheduled"]).len(), 1);
    assert_eq!(of(&[]).len(), 7);
    let page = store.run(&["list", "--queue", "q", "--limit", "4", "--json"]);
    assert_eq!(page.out.lines().count(), 4);
    let told: serde_json::Value = serde_json::from_str(&page.err).unwrap();
    let cursor = told["next_cursor"].as_str().unwrap();
    let rest = of(&["--queue", "q", "--cursor", cursor]);
    let page = store.run(&["list", "--queue", "q", "--limit", "4"]);
    assert_eq!(page.err, format!("there is more: --cursor {cursor}\n"));
    assert_eq!((rest.len(), &rest[0]), (2, &ids[4]));
    let table = store.ok(&["list", "--type", "b"]);
    assert!(table.contains("ID") && table.contains("b     q"), "{table}");
    assert!(!table.contains('\x1b'), "no colours off a terminal");
}

#[test]
fn a_list_goes_either_way_and_is_filtered_by_key_header_and_time() {
    let store = Store::new();
    let first = store.enqueue(&["t", "--key", "k", "--header", "tenant=acme"]);
    let second = store.enqueue(&["t", "--header", "tenant=other"]);
    let of = |args: &[&str]| -> Vec<String> {
        let lines = store.lines(&[&["list"], args].concat());
        lines.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    let (first, second) = (first.as_str(), second.as_str());
    assert_eq!(of(&[]), [first, second]);
    assert_eq!(of(&["--newest"]), [second, first]);
    assert_eq!(of(&["--key", "k"]), [first]);
    assert_eq!(of(&["--header", "tenant=other"]), [second]);
    assert_eq!(of(&["--since", "1h"]).len(), 2);
    assert!(of(&["--until", "1h"]).is_empty());
    assert!(of(&["--finished-since", "1h"]).is_empty());
    assert_eq!(of(&["--until", "2999-01-01T00:00:00Z"]).len(), 2);
    let page = store.run(&["list", "--newest", "--limit", "1", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&page.err).unwrap();
    assert!(told["looked_at"].is_string(), "{told}");
    let cursor = told["next_cursor"].as_str().unwrap();
    assert_eq!(of(&["--newest", "--cursor", cursor]), [first]);
    let wrong = store.run(&["list", "--cursor", cursor]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("cursor"), "{wrong:?}");
    let empty = store.run(&["list", "--since", "1h", "--until", "2h"]);
    assert_eq!(empty.code, Some(2), "{empty:?}");
}

#[test]
fn a_list_that_stops_early_says_how_far_it_looked() {
    let store = Store::new();
    store.ok(&["enqueue", "t", "--count", "30"]);
    let short = store.run(&["list", "--newest", "--scan", "10", "--error", "x"]);
    assert_eq!((short.code, &*short.out), (Some(0), ""), "{short:?}");
    assert!(short.err.starts_with("no jobs so far\nlooked back to 2"), "{short:?}");
    assert!(short.err.contains("look further back with --cursor"), "{short:?}");
    let whole = store.run(&["list", "--newest", "--error", "x"]);
    assert_eq!((whole.code, &*whole.err), (Some(0), "no jobs\n"), "{whole:?}");
    let json = store.run(&["list", "--scan", "10", "--error", "x", "--json"]);
    let told: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert!(told["looked_at"].is_string() && told["next_cursor"].is_string(), "{told}");
}

#[test]
fn the_shape_of_a_line_is_the_documented_one() {
    let store = Store::new();
    store.enqueue(&["t"]);
    let line = &store.lines(&["list"])[0];
    let mut fields: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "attempts",
        "created_at",
        "deliveries",
        "due_at",
        "expirations",
        "finished_at",
        "flow",
        "holder",
        "id",
        "lane",
        "last_error",
        "lease_expires_at",
        "max_attempts",
        "payload_bytes",
        "priority",
        "queue",
        "reason",
        "run_at",
        "started_at",
        "state",
        "type",
    ];
    assert_eq!(fields, expected);
    let created = line["created_at"].as_str().unwrap();
    assert!(created.len() == 27 && created.ends_with('Z'), "{created}");
}

#[test]
fn a_job_is_shown_whole() {
    let store = Store::new();
    let id = store.enqueue(&["fail", "\"broken\"", "--max-attempts", "2", "--header", "trace=7"]);
    store.work(&["--builtin", "--name", "tester"]);
    let job = store.inspect(&id);
    assert_eq!((&job["state"], &job["attempts"]), (&"dlq".into(), &2.into()));
    assert_eq!(job["errors"].as_array().unwrap().len(), 2);
    assert_eq!(job["errors"][1]["error"], "broken");
    assert_eq!(job["payload"], "broken");
    let text = store.ok(&["inspect", &id]);
    for part in ["dlq", "2 of 2 failed", "\"broken\"", "trace = 7", "attempt 2", "enqueued"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let whole = store.run(&["inspect", "unknown", "--json"]);
    assert_eq!((whole.code, &*whole.out), (Some(3), ""));
}

#[test]
fn counts_tell_states_and_the_age_of_the_oldest() {
    let store = Store::new();
    store.enqueue(&["echo"]);
    store.enqueue(&["t", "--delay", "1h"]);
    let queue = &store.lines(&["stats", "--window", "0s"])[0];
    assert_eq!((&queue["ready"], &queue["scheduled"]), (&1.into(), &1.into()));
    assert!(queue["oldest_ready_seconds"].as_f64().unwrap() >= 0.0);
    assert!(queue.get("done_per_second").is_none());
    let with_rate = &store.lines(&["stats", "--window", "100ms"])[0];
    assert_eq!(with_rate["done_per_second"], 0.0);
    let text = store.ok(&["stats", "--window", "0s"]);
    assert!(text.contains("OLDEST") && text.contains("default"), "{text}");
    store.ok(&["enqueue", "echo", "--count", "5", "--queue", "full"]);
    let capped = store.ok(&["stats", "--at-most", "3", "--window", "0s"]);
    let full = capped.lines().find(|line| line.contains("full")).unwrap();
    assert!(full.contains('+'), "{capped}");
    let queues = store.lines(&["stats", "--at-most", "3", "--window", "0s"]);
    let full = queues.iter().find(|it| it["queue"] == "full").unwrap();
    assert_eq!(full["at_most"], 3);
    assert!(full["ready"].as_u64().unwrap() >= 3, "{full}");
}
