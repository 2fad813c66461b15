//! Data that means harm.

use std::process::{Output, Stdio};

use crate::store::Store;

#[test]
fn nothing_that_a_terminal_acts_upon_is_ever_written() {
    let store = Store::new();
    let evil = "\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}evil";
    let payload = serde_json::to_string(evil).unwrap();
    let id = store.enqueue(&[
        "fail",
        &payload,
        "--max-attempts",
        "1",
        "--header",
        &format!("h={evil}"),
        "--key",
        "\u{202e}key",
    ]);
    let worked = store.work(&["--builtin"]);
    let is_harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!worked.err.contains(is_harmful), "{:?}", worked.err);
    for args in [
        vec!["list"],
        vec!["list", "--json"],
        vec!["inspect", &id],
        vec!["inspect", &id, "--json"],
        vec!["why", &id],
        vec!["why", &id, "--json"],
        vec!["dlq", "list"],
        vec!["stats", "--window", "0s"],
    ] {
        let out = store.ok(&args);
        assert!(!out.contains(is_harmful), "{args:?}: {out:?}");
    }
    let job = store.inspect(&id);
    assert_eq!((&job["payload"], &job["idempotency_key"]), (&evil.into(), &"\u{202e}key".into()));
    let bulk = ["dlq", "requeue", "--all", "--queue", "q\u{202e}", "--type", "t\u{202e}"];
    let dry = store.ok(&[&bulk[..], &["--dry-run"]].concat());
    assert!(!dry.contains(is_harmful), "{dry:?}");
    let unknown = store.run(&["inspect", "a\x1b[31mb"]);
    assert!(!unknown.err.contains(is_harmful), "{unknown:?}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let store = Store::new();
    store.ok(&["enqueue", "t", "--count", "3000"]);
    let mut list = store.command(&["list", "--limit", "3000", "--json"]);
    let mut list = list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(list.stdout.take());
    let Output { status, stderr, .. } = list.wait_with_output().unwrap();
    assert_eq!((status.code(), &*String::from_utf8(stderr).unwrap()), (Some(141), ""));
}
