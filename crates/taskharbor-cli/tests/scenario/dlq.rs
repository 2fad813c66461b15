//! `dlq`.

use crate::store::Store;

fn dead(store: &Store, count: usize) -> Vec<String> {
    let one = |_| store.enqueue(&["fail", "--max-attempts", "1"]);
    let ids = (0..count).map(one).collect();
    store.work(&["--builtin"]);
    ids
}

#[test]
fn what_failed_is_listed_and_requeued_by_name() {
    let store = Store::new();
    let mut ids = dead(&store, 2);
    let listed = |args: &[&str]| -> Vec<String> {
        let lines = store.lines(&[&["dlq", "list"], args].concat());
        lines.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(&["--oldest"]), ids);
    ids.reverse();
    assert_eq!(listed(&[]), ids, "newest first");
    assert_eq!(listed(&["--error", "as it was asked to", "--finished-since", "1h"]), ids);
    assert!(listed(&["--finished-until", "1h"]).is_empty());
    let listed = store.lines(&["dlq", "list"]);
    assert_eq!(listed[0]["state"], "dlq");
    assert!(listed[0]["reason"].as_str().unwrap().contains("as it was asked to"), "{listed:?}");
    store.ok(&["dlq", "requeue", &ids[0], "--reset-attempts"]);
    let job = store.inspect(&ids[0]);
    assert_eq!(
        (&job["state"], &job["attempts"], &job["epoch"]),
        (&"ready".into(), &0.into(), &1.into())
    );
}

#[test]
fn many_are_requeued_or_removed_only_after_confirmation() {
    let store = Store::new();
    let ids = dead(&store, 3);
    let all = ["dlq", "requeue", "--all"];
    let refused = store.run(&all);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("requeue 3 jobs from the DLQ in "), "{refused:?}");
    assert!(refused.err.contains("--yes") && refused.err.contains("--dry-run"), "{refused:?}");
    let dry = store.json(&["dlq", "requeue", "--all", "--dry-run"]);
    assert_eq!(
        (&dry["matched"], &dry["done"], &dry["dry_run"]),
        (&3.into(), &0.into(), &true.into())
    );
    let none = store.json(&["dlq", "requeue", "--all", "--queue", "other", "--yes"]);
    assert_eq!(none["matched"], 0);
    let filtered = store.ok(&["dlq", "requeue", "--all", "--error", "asked", "--dry-run"]);
    assert!(filtered.contains("3 jobs from the DLQ, error containing"), "{filtered}");
    let none = store.json(&["dlq", "requeue", "--all", "--error", "other", "--dry-run"]);
    assert_eq!(none["matched"], 0);
    let both = store.run(&["dlq", "requeue", &ids[0], "--since", "1h"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    let done =
        store.json(&["dlq", "requeue", "--all", "--type", "fail", "--rate", "1000/s", "--yes"]);
    assert_eq!((&done["matched"], &done["done"]), (&3.into(), &3.into()));
    assert_eq!(store.state(&ids[2]), "ready");
    store.work(&["--builtin"]);
    let alive = store.enqueue(&["echo"]);
    let refused = store.run(&["dlq", "purge", &alive, "--yes"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("is ready, not in the DLQ"), "{refused:?}");
    let purged = store.json(&["dlq", "purge", "--all", "--yes"]);
    assert_eq!(purged["done"], 3);
    assert_eq!(store.run(&["inspect", &ids[0]]).code, Some(3));
}

#[test]
fn jobs_that_ended_long_ago_are_pruned() {
    let store = Store::new();
    store.enqueue(&["echo", "1"]);
    let dead = store.enqueue(&["fail", "--max-attempts", "1"]);
    store.work(&["--builtin", "--lease", "1s"]);
    assert_eq!(store.json(&["prune"])["pruned"], 0, "they ended just now");
    let mut pruned = 0;
    super::until("the end of the leases", || {
        pruned += store.json(&["prune", "--done", "0s"])["pruned"].as_u64().unwrap();
        pruned == 1
    });
    assert_eq!(store.state(&dead), "dlq");
    super::until("the end of the other lease", || {
        store.json(&["prune", "--dlq", "0s"])["pruned"] == 1
    });
    assert!(store.lines(&["list"]).is_empty());
}

#[test]
fn jobs_with_one_error_are_one_group() {
    let store = Store::new();
    let ids = dead(&store, 3);
    store.enqueue(&["no:such", "--max-attempts", "1"]);
    let groups = store.lines(&["dlq", "groups"]);
    assert_eq!(groups.len(), 1, "{groups:?}");
    let group = &groups[0];
    assert_eq!((&group["count"], &group["types"]), (&3.into(), &["fail"].as_slice().into()));
    assert_eq!(group["sample_ids"][0], ids[2].as_str(), "newest first");
    assert_eq!(group["fingerprint"].as_str().unwrap().len(), 16);
    assert!(group["pattern"].as_str().unwrap().contains("as it was asked to"), "{group}");
    let shown = store.ok(&["dlq", "groups", "--queue", "default"]);
    assert!(shown.contains("as it was asked to") && shown.contains("FINGERPRINT"), "{shown}");
    let part = store.run(&["dlq", "groups", "--look-at", "2"]);
    assert!(part.err.contains("the newest 2 jobs"), "{part:?}");
    assert!(store.lines(&["dlq", "groups", "--type", "other"]).is_empty());
}
