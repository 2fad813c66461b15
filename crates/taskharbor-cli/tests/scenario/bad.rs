//! Errors are reported with advice and the right exit code.

use super::{answer, program};
use crate::store::Store;

#[test]
fn bad_values_are_usage_errors_that_name_the_right_form() {
    let store = Store::new();
    for (args, text) in [
        (vec!["enqueue", "t", "--delay", "5"], "write it as 250ms, 5s"),
        (vec!["enqueue", "t", "--at", "tomorrow"], "write it as 2026-11-15T10:44:34Z"),
        (
            vec!["enqueue", "t", "--delay", "1s", "--at", "2999-01-01T00:00:00Z"],
            "cannot be used with",
        ),
        (vec!["enqueue", ""], "type"),
        (vec!["enqueue", "t", "--queue", "a\u{1}b"], "queue"),
        (vec!["enqueue", "t", "--priority", "99999"], "99999"),
        (vec!["enqueue", "t", "--max-attempts", "0"], "max_attempts"),
        (vec!["enqueue", "t", "--timeout", "0s"], "timeout"),
        (vec!["enqueue", "t", "--header", "novalue"], "NAME=VALUE"),
        (vec!["enqueue", "t", "--header", "th-codec=x"], "th-"),
        (vec!["enqueue", "t", "--count", "0"], "0"),
        (vec!["enqueue", "t", "--count", "2", "--key", "k"], "cannot be used with"),
        (vec!["enqueue", "t", "@no-such-file"], "cannot be read"),
        (vec!["enqueue", "t", "text", "--lines"], "@FILE"),
        (vec!["enqueue", "t", "--key", "k", "--key-hold", "0s"], "held for no time"),
        (vec!["enqueue", "t", "--key", "k", "--key-hold", "-24h"], "a duration above zero"),
        (vec!["enqueue", "t", "--key", "k", "--key-hold", "ever"], "until-terminal"),
        (vec!["enqueue", "t", "--key-hold", "24h"], "--idempotency-key"),
        (vec!["list", "--state", "lost"], "choose ready, scheduled"),
        (vec!["list", "--since", "yesterday"], "2h for two hours ago"),
        (vec!["list", "--header", "tenant"], "NAME=VALUE"),
        (vec!["stats", "--at-most", "0"], "0"),
        (vec!["list", "--limit", "0"], "0"),
        (vec!["list", "--cursor", "nonsense"], "cursor"),
        (vec!["dlq", "requeue", "--all", "--rate", "0/s"], "rate of 0"),
        (vec!["dlq", "requeue"], "--all"),
        (vec!["worker"], "--exec TYPE=COMMAND"),
        (vec!["worker", "--exec", "novalue"], "NAME=VALUE"),
        (vec!["worker", "--exec", "t='open"], "quote is not closed"),
        (vec!["worker", "--builtin", "--queue", "a=many"], "QUEUE=4"),
        (vec!["worker", "--builtin", "--lease", "1ms"], "lease"),
        (vec!["worker", "--builtin", "--exec", "echo=cat"], "echo"),
        (vec!["schedule", "put", "s", "t"], "--cron"),
        (vec!["schedule", "put", "s", "t", "--cron", "61 * * * *"], "write five fields"),
        (vec!["schedule", "put", "s", "t", "--cron", "0 0 31 2 *"], "would never be due"),
        (vec!["schedule", "put", "s", "t", "--cron", "@daily", "--zone", "Berlin"], "an IANA name"),
        (vec!["schedule", "put", "s", "t", "--cron", "@daily", "--every", "1h"], "cannot be used"),
        (vec!["schedule", "put", "s", "t", "--every", "1h", "--zone", "UTC"], "cannot be used"),
        (vec!["schedule", "put", "s", "t", "--every", "500ms"], "1 second to 100 years"),
        (vec!["schedule", "put", "s", "t", "--every", "1h", "--missed", "some"], "skip or all:N"),
        (vec!["schedule", "put", "s", "t", "--every", "1h", "--missed", "all:0"], "1 to 1000"),
        (vec!["schedule", "put", "s", "t", "--every", "1h", "--overlap", "wait"], "allow, skip"),
        (vec!["schedule", "put", "s", "t", "--every", "1h", "--queue", ""], "queue"),
        (vec!["schedule", "put", "", "t", "--every", "1h"], "is empty: give it"),
        (vec!["schedule", "put", "s", "", "--every", "1h"], "type"),
        (vec!["schedule", "put", "s", "t", "@no-such-file", "--every", "1h"], "cannot be read"),
        (vec!["schedule", "next", "s", "-n", "0"], "0"),
        (vec!["schedule", "backfill", "s"], "--from"),
        (vec!["schedule", "show", ""], "is empty: give it"),
        (vec!["frobnicate"], "unrecognized subcommand"),
    ] {
        let answer = store.run(&args);
        assert_eq!(answer.code, Some(2), "{args:?}: {answer:?}");
        assert!(answer.err.contains(text), "{args:?}: {answer:?}");
        assert_eq!(answer.out, "", "{args:?}");
    }
    assert!(store.lines(&["list"]).is_empty(), "nothing was stored");
    assert!(store.lines(&["schedule", "list"]).is_empty(), "no schedule was stored");
}

#[test]
fn an_error_is_one_json_object_if_that_was_asked_for() {
    let store = Store::new();
    for (args, code, name) in [
        (vec!["inspect", "unknown", "--json"], 3, "not_found"),
        (vec!["enqueue", "t", "--delay", "5", "--json"], 2, "usage"),
        (vec!["dlq", "purge", "some", "--json"], 3, "not_found"),
        (vec!["schedule", "show", "nosuch", "--json"], 3, "not_found"),
        (vec!["schedule", "put", "s", "t", "--cron", "never", "--json"], 2, "invalid_schedule"),
    ] {
        let answer = store.run(&args);
        assert_eq!(answer.code, Some(code), "{answer:?}");
        let error: serde_json::Value = serde_json::from_str(answer.err.trim()).unwrap();
        assert_eq!(error["error"]["code"], name, "{answer:?}");
        assert!(error["error"]["message"].is_string());
    }
}

#[test]
fn a_store_that_cannot_be_reached_is_5_and_shows_no_password() {
    let store = Store::new();
    for (url, code) in [
        ("postgres://ada:hunter2@127.0.0.1:1/jobs?connect_timeout=1", 5),
        ("postgres://ada:hunter2@127.0.0.1/jobs?nonsense=hunter2", 2),
        ("mysql://ada:hunter2@127.0.0.1/jobs", 2),
        ("memory:", 2),
    ] {
        for args in [
            vec!["stats"],
            vec!["enqueue", "t"],
            vec!["worker", "--builtin", "--start-timeout", "0s"],
            vec!["check"],
        ] {
            let mut command = store.command(&args);
            let answer = answer(command.args(["--url", url]));
            assert_eq!(answer.code, Some(code), "{url} {args:?}: {answer:?}");
            assert!(!format!("{answer:?}").contains("hunter2"), "{answer:?}");
        }
    }
    let help =
        answer(program().arg("--help").env("TASKHARBOR_URL", "postgres://ada:hunter2@db/jobs"));
    assert!(!help.out.contains("hunter2"), "{help:?}");
}

#[cfg(unix)]
#[test]
fn arguments_that_are_no_text_are_usage_errors() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let store = Store::new();
    for json in [false, true] {
        let mut command = store.command(if json { &["--json"] } else { &[] });
        let answer = answer(command.arg("inspect").arg(OsStr::from_bytes(b"a\xffb")));
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert_eq!(answer.err.starts_with("{\"error\""), json, "{answer:?}");
    }
}

#[test]
fn a_url_in_the_wrong_place_shows_no_password_and_does_no_harm() {
    let store = Store::new();
    let url = "postgres://ada:hunter2@127.0.0.1/jobs\u{1b}[31m\u{202e}";
    let from = ["move", "--from", store.url(), url];
    for args in
        [&["list", url][..], &["inspect", url], &["--bad", url], &["list", "--state", url], &from]
    {
        for json in [&[][..], &["--json"]] {
            let answer = store.run(&[args, json].concat());
            assert!(answer.code.is_some_and(|code| code == 2 || code == 3), "{answer:?}");
            assert!(!answer.err.contains("hunter2"), "{answer:?}");
            assert!(!answer.err.contains(['\u{1b}', '\u{202e}']), "{answer:?}");
        }
    }
    let wrong = store.run(&["list", url]);
    assert!(wrong.err.contains("postgres://***@127.0.0.1/jobs"), "{wrong:?}");
    let short = store.run(&["list", "postgres://a@host/jobs"]);
    assert!(short.err.contains("unexpected argument 'postgres://***@host/jobs'"), "{short:?}");
}
