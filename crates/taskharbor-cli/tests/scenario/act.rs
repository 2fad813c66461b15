//! `cancel`, `requeue`, `run-now`, and queues.

use std::process::Stdio;

use super::{
    piped, until,
    worker::{signal, started},
};
use crate::store::Store;

#[test]
fn a_job_is_cancelled_and_lives_again() {
    let store = Store::new();
    let id = store.enqueue(&["t"]);
    assert_eq!(store.json(&["cancel", &id])["state"], "cancelled");
    let again = store.run(&["cancel", &id]);
    assert_eq!(again.code, Some(4));
    assert!(again.err.contains(&format!("cannot cancel job {id}: it is cancelled")), "{again:?}");
    let later = store.json(&["requeue", &id, "--at", "2999-01-01T00:00:00Z"]);
    assert_eq!((&later["id"], &later["state"]), (&id.as_str().into(), &"scheduled".into()));
    assert_eq!(store.ok(&["run-now", &id]), format!("{id} is ready\n"));
}

#[test]
fn of_several_jobs_each_is_answered() {
    let store = Store::new();
    let id = store.enqueue(&["t"]);
    let answer = store.run(&["cancel", "unknown", &id, &id, "--json"]);
    assert_eq!(answer.code, Some(3), "{answer:?}");
    let lines: Vec<serde_json::Value> =
        answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["error"], "not_found");
    assert_eq!(lines[1]["state"], "cancelled");
    let error: serde_json::Value = serde_json::from_str(answer.err.trim()).unwrap();
    assert_eq!(error["error"]["code"], "not_found");
}

#[test]
fn a_paused_queue_rests_until_it_is_resumed() {
    let store = Store::new();
    let id = store.enqueue(&["echo", "--queue", "mail"]);
    assert_eq!(store.ok(&["queue", "pause", "mail"]), "mail is paused\n");
    assert!(store.json(&["queue", "pause", "mail"])["paused_since"].is_string());
    assert!(store.ok(&["why", &id]).contains("queue mail has been paused since"), "why");
    let list = store.ok(&["queue", "list"]);
    assert!(list.contains("mail") && list.contains("paused"), "{list}");
    assert!(store.json(&["queue", "resume", "mail"])["paused_since"].is_null());
    store.work(&["--builtin", "--queue", "mail=2"]);
    assert_eq!(store.state(&id), "done");
}

#[test]
fn pausing_a_queue_without_jobs_asks_whether_the_name_is_right() {
    let store = Store::new();
    let paused = store.run(&["queue", "pause", "nosuch"]);
    assert_eq!((paused.code, &*paused.out), (Some(0), "nosuch is paused\n"), "{paused:?}");
    assert!(paused.err.contains("queue nosuch has no jobs"), "{paused:?}");
}

#[test]
fn a_requeue_is_refused_while_another_job_holds_the_key() {
    let store = Store::new();
    let key = ["t", "--key", "k", "--key-hold", "until-terminal"];
    let first = store.enqueue(&key);
    store.ok(&["cancel", &first]);
    let second = store.enqueue(&key);
    assert_ne!(first, second);
    let refused = store.run(&["requeue", &first, "--json"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let answer: serde_json::Value = serde_json::from_str(refused.out.trim()).unwrap();
    assert_eq!(answer["error"], "key_held");
    assert!(answer["message"].as_str().unwrap().contains(&second), "{answer}");
    store.ok(&["cancel", &second]);
    store.ok(&["requeue", &first]);
}

#[test]
fn a_failure_job_says_what_it_waits_for_and_that_it_was_not_needed() {
    let store = Store::new();
    let document =
        br#"{"flow": {"type": "say", "payload": 1, "on_failure_job": {"type": "undo"}}}"#;
    let started = piped(&mut store.command(&["flow", "start", "-"]), document);
    assert_eq!(started.code, Some(0), "{started:?}");
    let undo = store.lines(&["list", "--type", "undo"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(store.inspect(&undo)["condition"], "parents_failed");
    let why = store.json(&["why", &undo]);
    assert_eq!(why["code"], "waits_for_failure", "{why}");
    assert!(why["text"].as_str().unwrap().starts_with("It runs only if job "), "{why}");
    store.work(&["--exec", "say=cat", "--exec", "undo=cat"]);
    let why = store.json(&["why", &undo]);
    assert_eq!((&why["state"], &why["code"]), (&"cancelled".into(), &"not_needed".into()), "{why}");
    assert!(why["text"].as_str().unwrap().contains("as not needed: job "), "{why}");
}

#[test]
fn a_job_says_why_it_is_where_it_is() {
    let store = Store::new();
    let why = |id: &str| store.json(&["why", id])["code"].as_str().unwrap().to_owned();
    let ready = store.enqueue(&["fail", "--max-attempts", "1"]);
    assert_eq!(why(&ready), "no_worker");
    let scheduled = store.enqueue(&["t", "--delay", "1h", "--queue", "later"]);
    assert_eq!(why(&scheduled), "scheduled");
    store.work(&["--builtin"]);
    assert_eq!(why(&ready), "dlq");
    let text = store.ok(&["why", &ready]);
    assert!(text.contains("after 1 failed attempt of 1") && text.contains("requeue"), "{text}");
    assert_eq!(text.lines().count(), 1);
    store.ok(&["cancel", &scheduled]);
    assert_eq!(why(&scheduled), "cancelled");
    let gone = store.run(&["why", "unknown"]);
    assert_eq!(gone.code, Some(3));
    assert!(gone.err.contains("never enqueued here"), "{gone:?}");
}

#[test]
fn a_scheduled_job_says_what_keeps_it() {
    let store = Store::new();
    let why = |id: &str| store.ok(&["why", id]);
    let planned = store.enqueue(&["t", "--queue", "resting", "--delay", "1h"]);
    assert!(why(&planned).contains("It is scheduled for "), "{}", why(&planned));
    store.ok(&["queue", "pause", "resting"]);
    assert!(why(&planned).contains("Queue resting has been paused since"), "{}", why(&planned));

    let fails = store.enqueue(&["fails"]);
    let later = store.enqueue(&["later"]);
    let unknown = store.enqueue(&["unknown"]);
    let script = "fails=yes complaint | head -c 3000 >&2; exit 3";
    let mut worker = store.command(&[
        "worker",
        "--shell",
        "--name",
        "w1",
        "--exec",
        script,
        "--exec",
        "later=exit 75",
        "--retry-base",
        "1h",
    ]);
    let mut worker = worker.stderr(Stdio::null()).spawn().unwrap();
    until("the end of the attempt", || store.state(&fails) == "scheduled");
    // They are taken again every few seconds, so this is looked for while the worker lives.
    until("why it was snoozed", || why(&later).contains(": its handler snoozed it on worker w1 ("));
    until("why it was released", || {
        let text = why(&unknown);
        text.contains(": worker w1 has no handler for type unknown, and it is dead-lettered at ")
            && text.ends_with(" if no other worker can run it.\n")
    });
    let inspected = store.inspect(&unknown);
    assert_eq!(inspected["released"]["reason"], "no_handler", "{inspected}");
    assert!(inspected["released"]["unfit_since"].is_string(), "{inspected}");
    signal(&worker, "-TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    let text = why(&fails);
    assert!(text.starts_with("It failed 1 time and is tried again at "), "{text}");
    assert!(text.len() < 400 && text.lines().count() == 1, "{text}");
}

#[test]
fn a_job_that_a_shutdown_has_stopped_says_so() {
    let store = Store::new();
    let id = store.enqueue(&["hold"]);
    let args = ["--name", "w1", "--grace", "10ms", "--shell", "--exec", "hold=sleep 600"];
    let mut worker = started(&store, &args);
    until("the start", || store.state(&id) == "inflight");
    signal(&worker, "-TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    let why = store.json(&["why", &id]);
    assert_eq!((&why["state"], &why["code"]), (&"ready".into(), &"no_worker".into()), "{why}");
    let text = why["text"].as_str().unwrap();
    assert!(
        text.ends_with("It was released before: worker w1 shut down while it ran it."),
        "{why}"
    );
    assert!(store.ok(&["inspect", &id]).contains("worker w1 shut down while it ran it"));
}

#[test]
fn what_is_waited_for_is_counted_as_people_do() {
    let store = Store::new();
    let flow = "{\"flow\": {\"chain\": [{\"type\": \"a\"}, {\"type\": \"b\"}]}}";
    let flow = piped(&mut store.command(&["flow", "start", "-"]), flow.as_bytes());
    assert_eq!(flow.code, Some(0), "{flow:?}");
    let blocked = store.lines(&["list", "--state", "blocked"])[0]["id"].clone();
    let text = store.ok(&["why", blocked.as_str().unwrap()]);
    assert!(text.starts_with("It waits for job ") && text.contains("which is ready"), "{text}");
}

#[test]
fn jobs_are_cancelled_run_and_purged_by_filter() {
    let store = Store::new();
    let later = |queue: &str| store.enqueue(&["t", "--queue", queue, "--delay", "1h"]);
    let mails: Vec<_> = (0..12).map(|_| later("mail")).collect();
    let other = later("other");
    let preview = store.ok(&["cancel", "--all", "--queue", "mail", "--dry-run"]);
    assert!(preview.starts_with("would cancel 12 jobs that match, queue mail in "), "{preview}");
    assert!(preview.contains(&mails[0]) && preview.contains("… and 2 more"), "{preview}");
    let refused = store.run(&["cancel", "--all", "--queue", "mail"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let run = store.json(&["run-now", "--all", "--queue", "mail", "--rate", "1000/s", "--yes"]);
    assert_eq!((&run["matched"], &run["done"]), (&12.into(), &12.into()));
    assert_eq!(store.state(&mails[11]), "ready");
    let cancelled = store.json(&["cancel", "--all", "--type", "t", "--queue", "mail", "--yes"]);
    assert_eq!(cancelled["done"], 12);
    assert_eq!(store.state(&other), "scheduled");
    let none = store.json(&["requeue", "--all", "--yes"]);
    assert_eq!(none["matched"], 0, "a cancelled job is requeued only if that is asked for");
    let one = store.json(&["requeue", "--all", "--state", "cancelled", "--queue", "mail", "--yes"]);
    assert_eq!(one["done"], 12);
    store.json(&["cancel", "--all", "--state", "ready", "--yes"]);
    let purged = store.json(&["purge", "--all", "--yes"]);
    assert_eq!((&purged["matched"], &purged["done"]), (&12.into(), &12.into()));
    assert_eq!(store.run(&["inspect", &mails[0]]).code, Some(3));
    let by_id = store.run(&["purge", &other, "--yes"]);
    assert_eq!(by_id.code, Some(4), "{by_id:?}");
    let both = store.run(&["cancel", &other, "--state", "scheduled"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn a_job_for_a_queue_that_no_worker_serves_is_called_out() {
    let store = Store::new();
    let first = store.run(&["enqueue", "echo"]);
    assert!(!first.err.contains("no worker"), "{first:?}");
    store.work(&["--builtin"]);
    let served = store.run(&["enqueue", "echo"]);
    assert_eq!((served.code, &*served.err), (Some(0), ""), "{served:?}");
    let typo = store.run(&["enqueue", "echo", "--queue", "defualt"]);
    let expected = "no worker has taken a job from queue defualt yet";
    assert!(typo.code == Some(0) && typo.err.contains(expected), "{typo:?}");
    let why = store.ok(&["why", typo.out.trim()]);
    assert!(
        why.contains("no worker has taken one yet") && why.contains("--queue defualt"),
        "{why}"
    );
}

#[test]
fn a_table_of_jobs_says_how_often_each_was_taken() {
    let store = Store::new();
    store.enqueue(&["echo"]);
    store.work(&["--builtin"]);
    let list = store.ok(&["list"]);
    let row = list.lines().nth(1).unwrap();
    assert!(list.contains("TAKEN"), "{list}");
    assert_eq!(row.split_whitespace().nth(4), Some("1"), "{list}");
}
