//! `serve` and `token`: the dashboard and the HTTP API, as a process of their own.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{Answer, answer, program, said::Said, until, worker::signal};
use crate::store::Store;

/// A server that is known to listen. It is killed if the test fails.
struct Server {
    process: Child,
    /// Host and port.
    address: String,
    /// The name under which it is asked, if not that.
    host: Option<String>,
    line: String,
    said: Said,
}

/// What a server answered.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Server {
    fn start(command: Command) -> Self {
        Self::start_at("127.0.0.1:0", command)
    }

    fn start_at(bind: &str, mut command: Command) -> Self {
        command.args(["--bind", bind]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Said::by(&mut process);
        let mut line = String::new();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("http://").unwrap_or_else(|| panic!("{line:?}"));
        let (address, _) = rest.split_once('/').unwrap();
        let address = address.to_owned();
        Self { process, address, host: None, line, said }
    }

    fn of(store: &Store, args: &[&str]) -> Self {
        Self::start(store.command(&[&["serve"], args].concat()))
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (host, length) = (self.host.as_ref().unwrap_or(&self.address), body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", "")
    }

    /// Asks with a token.
    fn get_as(&self, token: &str, path: &str) -> Reply {
        self.send("GET", path, &format!("authorization: Bearer {token}\r\n"), "")
    }

    fn post(&self, path: &str, body: &str) -> Reply {
        self.send("POST", path, "", body)
    }

    /// Ends it with a signal; the exit code.
    fn end(mut self, with: &str) -> Option<i32> {
        signal(&self.process, with);
        until("the end of the server", || self.process.try_wait().unwrap().is_some());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server that is told to end at once ends anyway.
fn refused(store: &Store, args: &[&str]) -> Answer {
    answer(&mut store.command(&[&["serve"], args].concat()))
}

#[test]
fn pages_and_api_are_served_for_the_store_of_the_other_commands() {
    let store = Store::new();
    let id = store.enqueue(&["email:send", "{\"to\": \"ada\"}", "--queue", "mail"]);
    let server = Server::of(&store, &[]);
    assert!(server.line.starts_with("serving ") && !server.line.contains("***"), "{}", server.line);
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<title>TaskHarbor</title>"), "{page:?}");
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{page:?}");
    assert_eq!(server.get("/app.js").status, 200);
    let session = server.get("/v1/session").json();
    assert_eq!((&session["role"], &session["payloads"]), (&"admin".into(), &false.into()));
    let overview = server.get("/v1/main/overview").json();
    let queue = &overview["queues"][0];
    assert_eq!((&queue["queue"], &queue["ready"]), (&"mail".into(), &1.into()), "{overview}");
    // A worker in any language takes the job and settles it.
    let reserve = r#"{"worker": "python-1", "queues": {"mail": 10}}"#;
    let reserved = server.post("/v1/main/work/reserve", reserve).json();
    let job = &reserved["jobs"][0];
    assert_eq!((&job["id"], &job["payload"]["to"]), (&id.as_str().into(), &"ada".into()));
    let outcome = serde_json::json!({"id": job["id"], "lease": job["lease"], "ok": {}});
    let settle = serde_json::json!({"jobs": [outcome]}).to_string();
    let settled = server.post("/v1/main/work/settle", &settle);
    assert_eq!(settled.status, 200, "{settled:?}");
    assert_eq!(store.state(&id), "done");
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn a_server_ends_with_its_streams_and_long_polls() {
    let store = Store::new();
    let server = Server::of(&store, &[]);
    let open = |method: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let (host, length) = (&server.address, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    };
    let reserve = r#"{"worker": "w", "queues": {"mail": 1}, "wait_seconds": 30}"#;
    let mut waiting = open("POST", "/v1/main/work/reserve", reserve);
    let mut events = open("GET", "/v1/main/events", "");
    let mut first = [0; 12];
    events.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.end("-INT"), Some(130));
    let mut answered = String::new();
    waiting.read_to_string(&mut answered).unwrap();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    assert!(answered.contains("\"jobs\":[]"), "{answered}");
    // The stream has ended as well.
    events.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_schedule_is_fired_by_the_server_alone() {
    let store = Store::new();
    // A schedule that another process stores later is seen at the next look, within half a minute.
    store.ok(&["schedule", "put", "tick", "echo", "--every", "1s"]);
    let server = Server::of(&store, &[]);
    until("the first slot", || !store.lines(&["list"]).is_empty());
    let job = store.lines(&["list"]).remove(0);
    assert!(job["id"].as_str().unwrap().starts_with("tick@"), "{job}");
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn old_jobs_are_removed_if_that_is_asked_for() {
    let store = Store::new();
    let id = store.enqueue(&["echo", "1"]);
    // The record outlives the lease under which the job ended.
    store.work(&["--builtin", "--lease", "1s"]);
    assert_eq!(store.state(&id), "done");
    let server = Server::of(&store, &["--keep", "0s"]);
    until("the end of the record", || store.run(&["inspect", &id]).code == Some(3));
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn several_stores_are_served_under_their_names() {
    let (one, other) = (Store::new(), Store::new());
    one.enqueue(&["t", "--queue", "first"]);
    other.enqueue(&["t", "--queue", "second"]);
    let (a, b) = (format!("eu={}", one.url()), format!("us={}", other.url()));
    let server = Server::of(&one, &["--url", &a, "--url", &b, "--json"]);
    let line: Value = serde_json::from_str(&server.line).unwrap();
    assert_eq!(line["serving"], format!("http://{}/", server.address));
    assert_eq!((&line["stores"][1]["name"], &line["access"]), (&"us".into(), &"anonymous".into()));
    let stores = server.get("/v1/stores").json();
    assert_eq!((&stores[0]["name"], &stores[1]["name"]), (&"eu".into(), &"us".into()));
    for (name, queue) in [("eu", "first"), ("us", "second"), ("default", "first")] {
        let overview = server.get(&format!("/v1/{name}/overview")).json();
        assert_eq!(overview["queues"][0]["queue"], queue, "{name}");
    }
    assert_eq!(server.get("/v1/asia/overview").status, 404);
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn a_store_that_is_away_at_the_start_keeps_no_other_out() {
    let (here, away) = (Store::new(), Store::new());
    here.enqueue(&["t", "--queue", "first"]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (eu, us) = (format!("eu=http://{free}/"), format!("us={}", here.url()));
    let mut server = Server::of(&here, &["--url", &eu, "--url", &us]);
    server.said.until("eu: waiting for the store");
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/v1/us/overview").json()["queues"][0]["queue"], "first");
    let overview = server.get("/v1/eu/overview").json();
    assert_eq!(overview["away"]["code"], "store_unavailable", "{overview}");
    let jobs = server.get("/v1/eu/jobs");
    assert_eq!((jobs.status, &jobs.json()["code"]), (503, &"store_unavailable".into()));
    let other = Server::start_at(&free, away.command(&["serve"]));
    server.said.until("eu: the store is back");
    until("the store to be served", || server.get("/v1/eu/jobs").status == 200);
    assert_eq!(server.end("-TERM"), Some(0));
    assert_eq!(other.end("-TERM"), Some(0));
}

#[test]
fn workers_on_other_machines_need_a_token_and_no_host_name() {
    let store = Store::new();
    let tokens = store.dir().join("tokens.json");
    let file = tokens.to_str().unwrap();
    let token = store.ok(&["token", "add", "py", "--workers", "--tokens", file]);
    let command = store.command(&["serve", "--tokens", file]);
    let mut server = Server::start_at("0.0.0.0:0", command);
    server.said.until("allow the name of this machine with --allow-host");
    // The address under which another machine knows this one.
    let (_, port) = server.address.split_once(':').unwrap();
    let (local, named) = (format!("127.0.0.1:{port}"), format!("jobs.internal:{port}"));
    (server.address, server.host) = (local, Some(named));
    let reserve = r#"{"worker": "w", "queues": {"mail": 1}}"#;
    let bearer = format!("authorization: Bearer {}\r\n", token.trim());
    let reserved = server.send("POST", "/v1/main/work/reserve", &bearer, reserve);
    assert_eq!(reserved.status, 200, "{reserved:?}");
    let browser = server.get("/");
    assert_eq!((browser.status, &browser.json()["code"]), (403, &"foreign_host".into()));
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn another_address_needs_tokens_and_a_port_that_is_free() {
    let store = Store::new();
    for bind in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7450"] {
        let open = refused(&store, &["--bind", bind]);
        assert_eq!(open.code, Some(2), "{open:?}");
        assert!(open.err.contains("without tokens") && open.err.contains("taskharbor token add"));
    }
    let server = Server::of(&store, &[]);
    let taken = refused(&store, &["--bind", &server.address, "--json"]);
    assert_eq!(taken.code, Some(2), "{taken:?}");
    let error: Value = serde_json::from_str(taken.err.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "address");
    assert!(error["error"]["message"].as_str().unwrap().contains("choose another port for --bind"));
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn wrong_options_are_named_and_nothing_is_served() {
    let store = Store::new();
    let missing = store.dir().join("missing").join("actions.jsonl");
    for (args, said) in [
        (&["--url", "a=sqlite:a.db", "--url", "a=sqlite:b.db"][..], "\"a\" is taken"),
        (&["--url", "sqlite:a.db", "--url", "b=sqlite:b.db"], "needs a name"),
        (&["--url", "a b=sqlite:a.db"], "invalid store name"),
        (&["--url", "main="], "the URL of the store is empty"),
        (&["--bind", "127.0.0.1:0", "--url", "memory:"], "would be gone with this command"),
        (&["--bind", "7450"], "invalid value"),
        (&["--role", "god"], "invalid value"),
        (&["--tokens", "t.json", "--role", "viewer"], "cannot be used with"),
        (&["--allow-host", "https://jobs.example.com"], "write a host as in jobs.example.com"),
        (&["--action-log", missing.to_str().unwrap()], "cannot write the action log"),
    ] {
        let wrong = refused(&store, args);
        assert_eq!(wrong.code, Some(2), "{args:?}: {wrong:?}");
        assert!(wrong.err.contains(said) && wrong.out.is_empty(), "{args:?}: {wrong:?}");
    }
    assert!(!store.dir().join("a.db").exists(), "no store was made");
}

#[test]
fn a_server_with_tokens_lets_their_owners_in() {
    let store = Store::new();
    let tokens = store.dir().join("tokens.json");
    let file = tokens.to_str().unwrap();
    let mut server = Server::of(&store, &["--tokens", file, "--allow-host", "jobs.example.com"]);
    server.said.until("has no tokens, so all requests are refused");
    assert_eq!(server.get("/v1/stores").status, 401);
    // A token works at once.
    let ada = store.ok(&["token", "add", "ada", "--role", "operator", "--tokens", file]);
    let ada = ada.trim();
    let session = server.get_as(ada, "/v1/session").json();
    assert_eq!((&session["name"], &session["role"]), (&"ada".into(), &"operator".into()));
    let reserve = r#"{"worker": "w", "queues": {"mail": 1}}"#;
    let bearer = format!("authorization: Bearer {ada}\r\n");
    let worker = server.send("POST", "/v1/main/work/reserve", &bearer, reserve);
    assert_eq!((worker.status, &worker.json()["code"]), (403, &"needs_workers".into()));
    let added = store.json(&["token", "add", "py", "--workers", "--tokens", file]);
    assert_eq!((&added["role"], &added["workers"]), (&"viewer".into(), &true.into()));
    let bearer = format!("authorization: Bearer {}\r\n", added["token"].as_str().unwrap());
    let worker = server.send("POST", "/v1/main/work/reserve", &bearer, reserve);
    assert_eq!(worker.status, 200, "{worker:?}");
    let names: Vec<_> = store.lines(&["token", "list", "--tokens", file]);
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"ada".into(), &"py".into()));
    assert!(!fs::read_to_string(&tokens).unwrap().contains(ada));
    store.ok(&["token", "remove", "ada", "--tokens", file]);
    assert_eq!(server.get_as(ada, "/v1/session").status, 401);
    let again = store.run(&["token", "remove", "ada", "--tokens", file]);
    assert_eq!(again.code, Some(3), "{again:?}");
    let twice = store.run(&["token", "add", "py", "--tokens", file]);
    assert_eq!(twice.code, Some(4), "{twice:?}");
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn without_tokens_the_role_is_that_of_the_option() {
    let store = Store::new();
    let server = Server::of(&store, &["--role", "viewer", "--payloads"]);
    let session = server.get("/v1/session").json();
    let has = (&session["role"], &session["payloads"], &session["workers"]);
    assert_eq!(has, (&"viewer".into(), &true.into(), &false.into()));
    let body = r#"{"jobs": [{"type": "t"}]}"#;
    assert_eq!(server.post("/v1/main/work/enqueue", body).status, 403);
    // A page that another site has sent to this address gets nothing.
    let mut rebound = TcpStream::connect(&server.address).unwrap();
    write!(rebound, "GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    rebound.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 403") && text.contains("foreign_host"), "{text}");
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn a_token_file_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::new();
    let tokens = store.dir().join("tokens.json");
    fs::write(&tokens, "{\"tokens\": []}").unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o666)).unwrap();
    let wrong = refused(&store, &["--tokens", tokens.to_str().unwrap()]);
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert!(wrong.err.contains("run chmod 600"), "{wrong:?}");
}

#[test]
fn the_first_run_makes_the_file_and_the_second_finds_it() {
    let store = Store::new();
    let dir = store.dir().join("empty");
    fs::create_dir(&dir).unwrap();
    for run in 1..=2 {
        let mut command = program();
        command.arg("serve").current_dir(&dir);
        let server = Server::start(command);
        assert!(server.line.starts_with("serving sqlite:taskharbor.db at "), "{}", server.line);
        assert_eq!(server.get("/").status, 200);
        let overview = server.get("/v1/main/overview").json();
        assert_eq!(overview["away"], Value::Null, "run {run}: {overview}");
        assert_eq!(overview["queues"].as_array().unwrap().len(), run - 1, "{overview}");
        let body = r#"{"jobs": [{"queue": "mail", "type": "email:send"}]}"#;
        assert_eq!(server.post("/v1/main/work/enqueue", body).status, 200);
        assert_eq!(server.end("-TERM"), Some(0));
        assert!(dir.join("taskharbor.db").exists() && !dir.join("taskharbor.db-wal").exists());
    }
}
