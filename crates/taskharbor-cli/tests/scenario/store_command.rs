//! `migrate`, `check`, `conformance`, `completions`.

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
