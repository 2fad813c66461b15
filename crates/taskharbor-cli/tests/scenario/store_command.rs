//! `migrate`, `check`, `conformance`, `completions`, `man`.

use std::fs;

use super::{answer, program};
use crate::store::Store;

#[test]
fn a_store_is_up_to_date_and_consistent() {
    let store = Store::new();
    store.enqueue(&["t"]);
    let status = store.json(&["migrate", "status"]);
    assert_eq!((&status["up_to_date"], &status["installed"]), (&true.into(), &status["newest"]));
    assert_eq!(store.ok(&["migrate", "up"]), "up to date\n");
    assert_eq!(store.ok(&["check"]), "consistent\n");
    let report = store.json(&["check"]);
    assert_eq!(
        (&report["consistent"], &report["problems"]),
        (&true.into(), &serde_json::json!([]))
    );
}

#[test]
fn the_suite_runs_beside_the_jobs_and_leaves_them_alone() {
    let store = Store::new();
    store.enqueue(&["t"]);
    let clauses = store.lines(&["conformance", "--only", "pause"]);
    assert!(clauses.len() > 3, "{clauses:?}");
    for clause in &clauses {
        assert!(clause["cases"].as_u64().unwrap() > 0, "{clause}");
        assert_eq!(clause["failed"], serde_json::json!([]), "{clause}");
    }
    assert_eq!(store.lines(&["list"]).len(), 1);
    let none = store.run(&["conformance", "--only", "policy_mix", "--level", "jobs"]);
    assert_eq!(none.code, Some(2), "policies belong to flows: {none:?}");
    let none = store.run(&["conformance", "--only", "no such case"]);
    assert_eq!(none.code, Some(2), "{none:?}");
}

#[test]
fn shells_complete() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = answer(program().args(["completions", shell]));
        assert_eq!(script.code, Some(0));
        assert!(script.out.contains("requeue"), "{shell}");
    }
}

#[test]
fn manual_pages_are_written_to_a_directory() {
    let store = Store::new();
    let dir = store.dir().join("share/man1");
    let path = dir.to_str().unwrap();
    let written = store.ok(&["man", path]);
    let pages = fs::read_dir(&dir).unwrap().count();
    assert_eq!(written, format!("{path} has {pages} manual pages\n"));
    let page = fs::read_to_string(dir.join("taskharbor-queue-limit.1")).unwrap();
    for text in [".SH NAME", ".SH SYNOPSIS", "per\\-lane", "Example"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // A second time, over the same pages.
    assert_eq!(store.json(&["man", path]), serde_json::json!({ "man": path, "pages": pages }));
    let file = dir.join("taskharbor.1");
    let refused = store.run(&["man", file.to_str().unwrap()]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("cannot write manual pages to"), "{refused:?}");
}
