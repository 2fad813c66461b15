//! `flow`, and programs as its steps.

use std::fs;

use super::piped;
use crate::store::Store;

const SUM: &str = r#"{
  "name": "sum", "key": "only-once",
  "flow": { "chord": [
    { "type": "say", "payload": 1, "label": "first" },
    { "type": "say", "payload": 2 },
    { "type": "say", "payload": 3 }
  ], "then": { "type": "sum" } }
}"#;

/// Programs in a shell: one says its payload, one adds up what it is given.
const HANDLERS: [&str; 5] = [
    "--shell",
    "--exec",
    "say=cat",
    "--exec",
    "sum=tr -d '[]' < $TASKHARBOR_INPUT_FILE | tr ',' '\\n' | awk '{s += $1} END {printf s}'",
];

#[test]
fn a_document_is_started_run_by_programs_and_shown() {
    let store = Store::new();
    fs::write(store.dir().join("sum.json"), SUM).unwrap();
    let id = store.ok(&["flow", "start", "sum.json"]).trim().to_owned();
    let flow = store.json(&["flow", "inspect", &id]);
    assert_eq!((&flow["state"], &flow["name"]), (&"running".into(), &"sum".into()));
    assert_eq!((&flow["members"]["ready"], &flow["complete"]), (&3.into(), &true.into()), "{flow}");
    assert_eq!(flow["jobs"][0]["label"], "first");
    let again = store.json(&["flow", "start", "sum.json"]);
    assert_eq!((&again["id"], &again["existed"]), (&id.as_str().into(), &true.into()));
    assert_eq!(store.lines(&["flow", "list", "--state", "running", "--name", "sum"]).len(), 1);

    store.work(&HANDLERS);
    let flow = store.json(&["flow", "inspect", &id]);
    assert_eq!(flow["state"], "done", "{flow}");
    assert_eq!(store.inspect(&id)["output"], 6);
    let text = store.ok(&["flow", "inspect", &id]);
    assert!(text.contains("say [first]") && text.contains("sum"), "{text}");
    let picture = store.ok(&["flow", "graph", &id]);
    assert!(picture.starts_with("flowchart LR") && picture.contains("-->"), "{picture}");
    let picture = store.ok(&["flow", "graph", &id, "--format", "dot"]);
    assert!(picture.starts_with("digraph flow {") && picture.contains("->"), "{picture}");
    assert!(store.lines(&["flow", "list", "--state", "blocked"]).is_empty());
}

#[test]
fn a_blocked_flow_goes_on_when_what_failed_is_requeued() {
    let store = Store::new();
    let document = br#"{"flow": {"chain": [
        {"type": "fails", "max_attempts": 1}, {"type": "say", "payload": "end"}]}}"#;
    let mut start = store.command(&["flow", "start", "-"]);
    let id = piped(&mut start, document).out.trim().to_owned();
    store.work(&["--shell", "--exec", "fails=exit 1", "--exec", "say=cat"]);
    assert_eq!(store.json(&["flow", "inspect", &id])["state"], "blocked");
    let why = store.json(&["why", &id]);
    assert_eq!(why["code"], "blocked_by_failed", "{why}");
    let dry = store.json(&["flow", "requeue", &id, "--dry-run"]);
    assert_eq!((&dry["matched"], &dry["done"]), (&1.into(), &0.into()));
    assert_eq!(store.run(&["flow", "requeue", &id]).code, Some(4));
    assert_eq!(store.json(&["flow", "requeue", &id, "--yes"])["done"], 1);
    store.work(&["--shell", "--exec", "fails=true", "--exec", "say=cat"]);
    assert_eq!(store.json(&["flow", "inspect", &id])["state"], "done");
}

#[test]
fn a_flow_is_cancelled_whole() {
    let store = Store::new();
    fs::write(store.dir().join("sum.json"), SUM).unwrap();
    let id = store.ok(&["flow", "start", "sum.json"]).trim().to_owned();
    store.ok(&["flow", "cancel", &id]);
    let flow = store.json(&["flow", "inspect", &id]);
    // Three members, the join behind them, and what takes their outputs.
    assert_eq!((&flow["state"], &flow["members"]["cancelled"]), (&"cancelled".into(), &5.into()));
    for args in [
        ["flow", "inspect", "unknown"],
        ["flow", "cancel", "unknown"],
        ["flow", "graph", "unknown"],
    ] {
        assert_eq!(store.run(&args).code, Some(3), "{args:?}");
    }
}

#[test]
fn a_document_that_is_no_flow_is_refused_with_the_place() {
    let store = Store::new();
    for (document, place) in [
        ("not json", "$"),
        ("{}", "$"),
        (r#"{"nodes": [{"id": "a", "type": "t", "after": ["b"]}]}"#, "$.nodes[0].after[0]"),
        (r#"{"nodes": [{"id": "a", "type": "t", "after": ["a"]}]}"#, "$.nodes"),
        (r#"{"flow": {"chain": [{"type": "t", "quue": "q"}]}}"#, "quue"),
        (r#"{"flow": {"chain": [{"type": ""}]}}"#, "type"),
    ] {
        let mut start = store.command(&["flow", "start", "-", "--json"]);
        let refused = piped(&mut start, document.as_bytes());
        assert_eq!(refused.code, Some(2), "{document}: {refused:?}");
        assert!(refused.err.contains(place), "{document}: {refused:?}");
    }
    assert_eq!(store.run(&["flow", "start", "no-such-file"]).code, Some(2));
    assert!(store.lines(&["flow", "list"]).is_empty());
}

#[test]
fn a_flow_with_more_jobs_than_are_shown_stands_and_says_what_is_left_out() {
    let store = Store::new();
    let members = vec![r#"{"type": "say"}"#; 30].join(",");
    let document = format!(r#"{{"flow": {{"chord": [{members}], "then": {{"type": "sum"}}}}}}"#);
    let mut start = store.command(&["flow", "start", "-"]);
    let id = piped(&mut start, document.as_bytes()).out.trim().to_owned();
    let shown = store.run(&["flow", "inspect", &id, "--limit", "5"]);
    assert!(shown.out.contains("└─ … and 27 more\nsum"), "{}", shown.out);
    assert!(shown.err.contains("27 of 32 jobs are left out"), "{}", shown.err);
    let picture = store.run(&["flow", "graph", &id, "--limit", "5"]);
    assert_eq!(picture.out.matches("-->").count(), 5, "{}", picture.out);
    assert!(picture.err.contains("27 of 32 jobs are left out"), "{}", picture.err);
}

#[test]
fn a_program_runs_behind_a_step_that_failed_under_continue() {
    let store = Store::new();
    let document = br#"{"flow": {"chain": [
        {"type": "fails", "on_failure": "continue"}, {"type": "look"}]}}"#;
    let mut start = store.command(&["flow", "start", "-"]);
    let id = piped(&mut start, document).out.trim().to_owned();
    let look = r#"look=printf '"%s %s"' "$(cat $TASKHARBOR_INPUT_FILE)" "$TASKHARBOR_FAILURE""#;
    store.work(&["--shell", "--exec", "fails=exit 65", "--exec", look]);
    assert_eq!(store.inspect(&id)["output"], "null dead-lettered: exit code 65");
}
