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
    let whole = store.run(&["inspect", "nobody", "--json"]);
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
}
