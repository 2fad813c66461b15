//! `workers` and `worker --health`: who is working.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Stdio},
};

use serde_json::Value;

use super::{
    said::Said,
    until,
    worker::{heard, signal, started},
};
use crate::store::Store;

pub(crate) fn workers(store: &Store) -> Vec<Value> {
    let lines = store.ok(&["workers", "--json"]);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A worker whose jobs run until a file is there.
fn waiting(store: &Store, args: &[&str]) -> (Child, Said) {
    let go = store.dir().join("go");
    let script = format!("wait=until [ -e {go} ]; do sleep 0.02; done", go = go.display());
    heard(store, &[&["--shell", "--exec", &script], args].concat())
}

fn end(mut worker: Child) {
    signal(&worker, "-TERM");
    assert!(worker.wait().unwrap().success());
}

/// The status and the body of an answer.
fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_worker_is_listed_with_what_it_serves_until_it_ends() {
    let store = Store::new();
    assert_eq!(store.run(&["workers"]).err, "no worker has announced itself\n");
    let args = ["--builtin", "--queue", "mail=3", "--name", "w-1", "--service-version", "1.4"];
    let worker = started(&store, &args);
    until("the announcement", || !workers(&store).is_empty());
    let listed = workers(&store).remove(0);
    assert_eq!((&listed["name"], &listed["overdue"]), (&"w-1".into(), &false.into()), "{listed}");
    let info = &listed["info"];
    assert_eq!((&info["version"], &info["phase"]), (&"1.4".into(), &"working".into()), "{info}");
    assert_eq!(info["queues"][0]["name"], "mail");
    assert_eq!((&info["queues"][0]["slots"], &info["types"][0]), (&3.into(), &"echo".into()));
    let shown = store.ok(&["workers"]);
    assert!(shown.contains("w-1") && shown.contains("working") && shown.contains("0/3"), "{shown}");
    end(worker);
    assert_eq!(workers(&store), Vec::<Value>::new());
}

#[test]
fn jobs_of_a_worker_that_is_killed_start_elsewhere_at_once() {
    let store = Store::new();
    let id = store.enqueue(&["wait"]);
    let (mut killed, _said) = waiting(&store, &["--lease", "1h", "--name", "killed"]);
    until("the start", || store.state(&id) == "inflight");
    let (other, _said) = waiting(&store, &["--lease", "1h", "--name", "other"]);
    signal(&killed, "-KILL");
    killed.wait().unwrap();
    // Its lease would have lasted for an hour.
    until("the second run", || store.inspect(&id)["deliveries"] == 2);
    fs::write(store.dir().join("go"), "").unwrap();
    until("the end", || store.state(&id) == "done");
    assert_eq!(store.inspect(&id)["holder"], Value::Null);
    end(other);
}

#[test]
fn a_worker_is_evicted_by_its_name() {
    let store = Store::new();
    let id = store.enqueue(&["wait"]);
    let (worker, mut said) = waiting(&store, &["--lease", "10s", "--name", "slow"]);
    until("the start", || store.state(&id) == "inflight");
    let answer = store.ok(&["workers", "evict", "slow"]);
    assert!(
        answer.contains("1 lease of worker slow ended: its jobs can start elsewhere"),
        "{answer}"
    );
    assert!(
        answer.contains("if it is alive, the store refuses what it records of these jobs"),
        "{answer}"
    );
    // Its next heartbeat is refused.
    said.until(&format!("the lease of job {id} (wait) was lost, and its result is not recorded"));
    fs::write(store.dir().join("go"), "").unwrap();
    until("the end", || store.state(&id) == "done");
    assert_eq!(store.inspect(&id)["deliveries"], 2);
    let unknown = store.ok(&["workers", "evict", "unknown", "--json"]);
    let unknown: Value = serde_json::from_str(&unknown).unwrap();
    assert_eq!((&unknown["leases"], &unknown["was_alive"]), (&0.into(), &false.into()));
    let invalid = store.run(&["workers", "evict", ""]);
    assert_eq!(invalid.code, Some(2), "{invalid:?}");
    assert!(invalid.err.contains("holder is empty"), "{invalid:?}");
    end(worker);
}

#[test]
fn a_lost_lease_is_told_to_programs() {
    let store = Store::new();
    let id = store.enqueue(&["wait"]);
    let args = ["--lease", "1h", "--heartbeat", "100ms", "--name", "told", "--json"];
    let (worker, mut said) = waiting(&store, &args);
    until("the start", || store.state(&id) == "inflight");
    store.ok(&["workers", "evict", "told"]);
    let line: Value = serde_json::from_str(&said.until(r#""event":"lease_lost""#)).unwrap();
    assert_eq!((&line["job"], &line["type"]), (&id.into(), &"wait".into()), "{line}");
    assert!(line["message"].as_str().unwrap().contains("was lost"), "{line}");
    fs::write(store.dir().join("go"), "").unwrap();
    end(worker);
}

#[test]
fn a_worker_that_was_suspended_and_evicted_records_nothing() {
    let store = Store::new();
    let id = store.enqueue(&["wait"]);
    let (suspended, mut said) = waiting(&store, &["--lease", "10s", "--name", "suspended"]);
    until("the start", || store.state(&id) == "inflight");
    signal(&suspended, "-STOP");
    store.ok(&["workers", "evict", "suspended"]);
    let (other, _said) = waiting(&store, &["--lease", "1h", "--name", "other"]);
    until("the second run", || store.inspect(&id)["deliveries"] == 2);
    // Both programs end now, and the suspended worker learns of its own.
    fs::write(store.dir().join("go"), "").unwrap();
    until("the end", || store.state(&id) == "done");
    let finished_at = store.inspect(&id)["finished_at"].clone();
    signal(&suspended, "-CONT");
    said.until("lease");
    let job = store.inspect(&id);
    assert_eq!((&job["state"], &job["deliveries"]), (&"done".into(), &2.into()), "{job}");
    assert_eq!(job["finished_at"], finished_at);
    assert!(store.run(&["check"]).code == Some(0));
    end(suspended);
    end(other);
}

#[test]
fn probes_are_answered() {
    let store = Store::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let worker = started(&store, &["--builtin", "--health", &address]);
    assert_eq!(get(port, "/livez"), (200, "working: 0 of 8 slots taken\n".to_owned()));
    assert_eq!(get(port, "/readyz"), (200, "working: 0 of 8 slots taken\n".to_owned()));
    assert_eq!(get(port, "/nothing").0, 404);
    let id = store.enqueue(&["echo", "1"]);
    until("the end", || store.state(&id) == "done");
    let count = r#"taskharbor_jobs_finished_total{queue="default",type="echo",outcome="done"} 1"#;
    until("the count", || get(port, "/metrics").1.contains(count));
    signal(&worker, "-USR1");
    until("the quiet", || get(port, "/readyz").0 == 503);
    assert_eq!(get(port, "/livez").0, 200);
    end(worker);
}

#[test]
fn a_taken_port_is_an_error_and_no_worker_starts() {
    let store = Store::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let answer = store.run(&["worker", "--builtin", "--health", &address]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.err.contains(&format!("cannot listen on {address}")), "{answer:?}");
    assert!(answer.err.contains("choose another port for --health"), "{answer:?}");
    let answer = store.run(&["metrics", "--bind", &address]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    let wrong = store.run(&["worker", "--builtin", "--health", "9464"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[test]
fn the_queues_of_a_store_are_exported_for_prometheus() {
    let store = Store::new();
    store.enqueue(&["a", "--queue", "mail"]);
    store.enqueue(&["a", "--queue", "mail", "--delay", "1h"]);
    store.ok(&["queue", "pause", "mail"]);
    let text = store.ok(&["metrics"]);
    for line in [
        r#"taskharbor_queue_jobs{queue="mail",state="ready"} 1"#,
        r#"taskharbor_queue_jobs{queue="mail",state="scheduled"} 1"#,
        r#"taskharbor_queue_paused{queue="mail"} 1"#,
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let port = free_port();
    let mut server = store.command(&["metrics", "--bind", &format!("127.0.0.1:{port}")]);
    let mut server = server.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    Said::by(&mut server).until("serving");
    let (status, served) = get(port, "/metrics");
    let is_served = served.contains(r#"queue="mail",state="ready"} 1"#);
    assert_eq!((status, is_served), (200, true), "{served}");
    signal(&server, "-INT");
    assert_eq!(server.wait().unwrap().code(), Some(130));
}

#[test]
fn a_worker_that_waits_for_its_store_lives_and_is_not_ready() {
    let store = Store::new();
    let port = free_port();
    let closed = free_port();
    let mut worker =
        store.command(&["worker", "--builtin", "--health", &format!("127.0.0.1:{port}")]);
    worker.args(["--url", &format!("postgres://127.0.0.1:{closed}/none")]);
    let mut worker = worker.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    Said::by(&mut worker).until("waiting for the store");
    assert_eq!(get(port, "/livez").0, 200);
    assert_eq!(get(port, "/readyz"), (503, "waiting for the store\n".to_owned()));
    end(worker);
}
