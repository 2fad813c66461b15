//! The command on the store of a server: `--url http://…`.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::{
    scenario::{Answer, answer},
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
        let store = Store::new();
        let options = ["serve", "--bind", "127.0.0.1:0", "--payloads", "--json"];
        let mut command = store.command(&options);
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
