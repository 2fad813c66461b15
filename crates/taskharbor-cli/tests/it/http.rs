//! The command on the store of a server: `--url http://…`.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::{
    scenario::{Answer, answer, said::Said, worker::signal},
    store::Store,
};

/// A server of a store in a file, which ends with the test.
struct Server {
    process: Child,
    store: Store,
    url: String,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&["--payloads"])
    }

    fn start_with(options: &[&str]) -> Self {
        Self::of(Store::new(), options)
    }

    fn of(store: Store, options: &[&str]) -> Self {
        let always = ["serve", "--bind", "127.0.0.1:0", "--json"];
        let mut command = store.command(&[&always, options].concat());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let url = said["serving"].as_str().unwrap().to_owned();
        Self { process, store, url }
    }

    fn run(&self, args: &[&str]) -> Answer {
        answer(self.store.command(args).env("TASKHARBOR_URL", &self.url))
    }

    fn ok(&self, args: &[&str]) -> String {
        let Answer { code, out, err } = self.run(args);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        out
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn jobs_are_enqueued_run_and_looked_at_over_http() {
    let server = Server::start();
    let id = server.ok(&["enqueue", "echo", "{\"a\":1}"]);
    let id = id.trim();
    assert!(server.ok(&["list"]).contains(id));
    let worked = server.run(&["worker", "--builtin", "--until-idle"]);
    assert_eq!(worked.code, Some(0), "{worked:?}");
    let record: Value = serde_json::from_str(&server.ok(&["inspect", id, "--json"])).unwrap();
    assert_eq!(record["state"], "done");
    // The server has stored it where the command without HTTP finds it.
    assert_eq!(server.store.state(id), "done");
}

#[test]
fn every_command_that_looks_works_over_http() {
    let server = Server::start();
    let id = server.ok(&["enqueue", "echo", "1", "--lane", "ada"]);
    for args in [
        &["why", id.trim()][..],
        &["stats"],
        &["workers"],
        &["queue", "list"],
        &["queue", "lanes", "default"],
        &["flow", "list"],
        &["schedule", "list"],
        &["dlq", "list"],
        &["dlq", "groups"],
        &["metrics"],
        &["check"],
        &["migrate", "up"],
    ] {
        server.ok(args);
    }
    server.ok(&["queue", "pause", "default"]);
    assert!(server.ok(&["why", id.trim()]).contains("paused"));
    server.ok(&["cancel", id.trim()]);
    assert_eq!(server.store.state(id.trim()), "cancelled");
    server.ok(&["doctor"]);
}

#[test]
fn jobs_are_acted_on_over_http() {
    let server = Server::start();
    let enqueue = |args: &[&str]| {
        let all = [&["enqueue", "echo", "1"], args].concat();
        server.ok(&all).trim().to_owned()
    };
    let state = |id: &str| server.store.state(id);
    let later = enqueue(&["--delay", "1h"]);
    assert_eq!(state(&later), "scheduled");
    server.ok(&["run-now", &later]);
    assert_eq!(state(&later), "ready");
    server.ok(&["cancel", &later]);
    server.ok(&["requeue", &later]);
    assert_eq!(state(&later), "ready");
    server.ok(&["cancel", &later]);
    server.ok(&["purge", &later, "--yes"]);
    assert_eq!(server.run(&["inspect", &later]).code, Some(3));
    // Jobs that no handler can do.
    let dead: Vec<_> = (0..3).map(|_| enqueue(&["--max-attempts", "1"])).collect();
    let worked = server.run(&["worker", "--exec", "echo=false", "--until-idle"]);
    assert_eq!(dead.iter().map(|id| state(id)).collect::<Vec<_>>(), ["dlq"; 3], "{worked:?}");
    server.ok(&["dlq", "requeue", &dead[0], "--reset-attempts"]);
    assert_eq!(state(&dead[0]), "ready");
    server.ok(&["dlq", "purge", &dead[1], "--yes"]);
    assert_eq!(server.run(&["inspect", &dead[1]]).code, Some(3));
    server.ok(&["dlq", "purge", "--all", "--yes"]);
    assert_eq!(server.run(&["inspect", &dead[2]]).code, Some(3));
    server.ok(&["cancel", &dead[0]]);
    server.ok(&["prune", "--cancelled", "0s"]);
    assert_eq!(server.run(&["inspect", &dead[0]]).code, Some(3));
}

#[test]
fn queues_schedules_flows_and_workers_are_acted_on_over_http() {
    let server = Server::start();
    server.ok(&["queue", "limit", "mail", "--per-lane", "2"]);
    server.ok(&["queue", "hold", "mail", "--lane", "ada", "--for", "1h"]);
    assert!(server.store.ok(&["queue", "limit", "mail"]).contains('2'));
    server.ok(&["schedule", "put", "tick", "echo", "--every", "1h"]);
    server.ok(&["schedule", "pause", "tick"]);
    assert!(server.ok(&["schedule", "list"]).contains("paused"));
    server.ok(&["schedule", "run-now", "tick"]);
    assert_eq!(server.store.lines(&["list"]).len(), 1);
    server.ok(&["schedule", "remove", "tick"]);
    let flow = server.store.dir().join("flow.json");
    std::fs::write(&flow, r#"{"flow": {"chain": [{"type": "echo"}, {"type": "echo"}]}}"#).unwrap();
    let id = server.ok(&["flow", "start", flow.to_str().unwrap()]);
    server.ok(&["flow", "cancel", id.trim()]);
    let flow = server.store.json(&["flow", "inspect", id.trim()]);
    assert_eq!(flow["state"], "cancelled", "{flow}");
    server.ok(&["workers", "evict", "unknown"]);
    // The job of the schedule is ready, and nothing runs it.
    let doctor = server.run(&["doctor"]);
    assert_eq!(doctor.code, Some(4), "{doctor:?}");
    assert!(doctor.out.contains("none has announced itself"), "{doctor:?}");
}

#[test]
fn commands_that_need_the_store_itself_say_so() {
    let server = Server::start();
    for (args, text) in [
        (&["migrate", "status"][..], "the URL of the store itself"),
        (&["migrate", "print"], "the URL of the store itself"),
        (&["backup", "copy.db"], "the command that fits the store itself"),
        (&["conformance"], "name a store with --url"),
    ] {
        let Answer { code, out, err } = server.run(args);
        assert_eq!(code, Some(2), "{args:?}: {out}{err}");
        assert!(err.contains(text), "{args:?}: {err}");
    }
}

#[test]
fn a_server_without_the_store_and_one_that_is_away_are_told_apart() {
    let server = Server::start();
    let other = format!("{}?store=other&token=hunter2", server.url);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = format!("http://{free}/?token=hunter2");
    for (url, text) in [(other, "store=…"), (away, "connection refused")] {
        let Answer { code, out, err } =
            answer(server.store.command(&["list"]).env("TASKHARBOR_URL", url));
        assert_eq!(code, Some(5), "{out}{err}");
        assert!(err.contains(text) && !err.contains("hunter2"), "{err}");
    }
}

#[test]
fn the_doctor_says_what_a_viewer_may_not_look_at_and_looks_at_the_rest() {
    let server = Server::start_with(&["--role", "viewer"]);
    server.store.enqueue(&["echo", "1"]);
    let said = server.run(&["doctor", "--json"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let lines: Vec<Value> = said.out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let of = |what: &str| {
        lines.iter().find(|it| it["what"] == what).unwrap_or_else(|| panic!("{what}: {lines:#?}"))
    };
    for what in ["wake-ups", "schedules"] {
        let line = of(what);
        assert_eq!(line["level"], "warning", "{line}");
        assert!(line["found"].as_str().unwrap().starts_with("not looked at: "), "{line}");
    }
    for what in ["store", "durability", "limits", "crashes", "DLQ", "types", "leases"] {
        assert_eq!(of(what)["level"], "fine", "{lines:#?}");
    }
    // No worker has announced itself, and a job is ready.
    assert_eq!(of("workers")["level"], "problem");
}

#[cfg(unix)]
#[test]
fn a_killed_worker_that_may_not_be_evicted_is_reported() {
    let store = Store::new();
    let tokens = store.dir().join("tokens.json");
    let tokens = tokens.to_str().unwrap();
    let added = store.json(&["token", "add", "w", "--workers", "--payloads", "--tokens", tokens]);
    let server = Server::of(store, &["--tokens", tokens]);
    let mut worker = server.store.command(&["worker", "--builtin", "--name", "mortal"]);
    worker.env("TASKHARBOR_URL", &server.url);
    worker.env("TASKHARBOR_TOKEN", added["token"].as_str().unwrap());
    let mut worker = worker.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = Said::by(&mut worker);
    said.until("started");
    signal(&worker, "-KILL");
    worker.wait().unwrap();
    said.until("worker mortal was killed, and its jobs wait until their leases end");
}
