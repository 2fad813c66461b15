//! `worker`: how programs and all that they started end, and what is said of it.

use std::{
    fs,
    io::Read,
    process::{Child, Stdio},
};

use super::{
    until,
    worker::{heard, is_alive, signal, started},
};
use crate::store::Store;

/// A program that leaves a child behind which does not listen when it is asked to end.
struct Stubborn {
    store: Store,
    worker: Child,
    job: String,
    child: String,
}

impl Stubborn {
    /// The program ends with this code when it is asked to.
    fn start(code: u8, args: &[&str]) -> Self {
        let store = Store::new();
        let pid = store.dir().join("pid");
        let job = store.enqueue(&["stubborn"]);
        let child = format!("trap \"\" TERM; echo $$ > {}; exec sleep 1000", pid.display());
        let script = format!("stubborn=trap 'exit {code}' TERM; sh -c '{child}' & wait");
        let worker = started(&store, &[&["--shell", "--exec", &script], args].concat());
        let read = || fs::read_to_string(&pid).map(|it| it.trim().to_owned()).unwrap_or_default();
        until("the start of the child", || !read().is_empty());
        let child = read();
        Self { store, worker, job, child }
    }

    fn ends(mut self) -> Option<i32> {
        until("the end of the child", || !is_alive(&self.child));
        self.worker.wait().unwrap().code()
    }
}

#[test]
fn a_shutdown_ends_what_a_program_has_started_however_that_ends() {
    for (code, state) in [(0, "done"), (3, "ready")] {
        let stubborn = Stubborn::start(code, &["--grace", "10ms"]);
        signal(&stubborn.worker, "-TERM");
        until("the end of the job", || stubborn.store.state(&stubborn.job) == state);
        assert_eq!(stubborn.ends(), Some(0));
    }
}

#[test]
fn a_cancellation_ends_what_a_program_has_started() {
    let stubborn = Stubborn::start(0, &["--heartbeat", "100ms"]);
    stubborn.store.ok(&["cancel", &stubborn.job]);
    // It has done its work all the same.
    until("the end of the job", || stubborn.store.state(&stubborn.job) == "done");
    until("the end of the child", || !is_alive(&stubborn.child));
    signal(&stubborn.worker, "-TERM");
    assert_eq!(stubborn.ends(), Some(0));
}

#[test]
fn the_second_signal_kills_without_asking() {
    second_signal("-INT", 130);
}

#[test]
fn a_worker_that_is_terminated_twice_says_so() {
    second_signal("-TERM", 143);
}

fn second_signal(name: &str, code: i32) {
    let store = Store::new();
    let pid = store.dir().join("pid");
    let id = store.enqueue(&["deaf", "--max-attempts", "1"]);
    let asked = store.dir().join("asked");
    // A program has three seconds to end after it was told to stop.
    let script = format!(
        "deaf=trap 'echo > {}' TERM; echo $$ > {}; while :; do sleep 1; done",
        asked.display(),
        pid.display()
    );
    let (mut worker, mut said) = heard(&store, &["--shell", "--exec", &script]);
    until("the start", || fs::read_to_string(&pid).is_ok_and(|it| !it.trim().is_empty()));
    signal(&worker, name);
    said.until("finishing 1 running job");
    signal(&worker, name);
    assert_eq!(worker.wait().unwrap().code(), Some(code));
    assert!(!asked.exists(), "it was asked first");
    assert!(!is_alive(fs::read_to_string(&pid).unwrap().trim()));
    let job = store.inspect(&id);
    assert_eq!((&job["state"], &job["attempts"]), (&"ready".into(), &0.into()), "{job}");
}

#[test]
fn a_worker_whose_output_is_not_read_works_on_and_can_be_stopped() {
    let store = Store::new();
    let noisy = store.enqueue(&["noisy"]);
    let after = store.enqueue(&["quiet"]);
    let mut worker = store.command(&[
        "worker",
        "--shell",
        "--queue",
        "default=1",
        "--exec",
        "noisy=yes complaint | head -c 3000000 >&2",
        "--exec",
        "quiet=true",
    ]);
    let mut worker = worker.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    for id in [&noisy, &after] {
        until("the end of the job", || store.state(id) == "done");
    }
    signal(&worker, "-TERM");
    until("the end", || worker.try_wait().unwrap().is_some());
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    // A pipe holds some of it.
    let mut said = String::new();
    worker.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("complaint"), "{} bytes", said.len());
}

#[test]
fn headers_of_the_worker_itself_are_not_those_of_a_job() {
    let store = Store::new();
    let id = store.enqueue(&["env", "--header", "trace-id=t7"]);
    let show = "env=printf '\"%s %s\"' ${TASKHARBOR_HEADER_OTHER-none} $TASKHARBOR_HEADER_TRACE_ID";
    let mut worker = store.command(&["worker", "--until-idle", "--shell", "--exec", show]);
    worker.env("TASKHARBOR_HEADER_OTHER", "leaked").env("TASKHARBOR_HEADER_TRACE_ID", "wrong");
    assert!(worker.output().unwrap().status.success());
    assert_eq!(store.inspect(&id)["output"], "none t7");
}

#[test]
fn a_worker_speaks_json_if_that_was_asked_for() {
    let store = Store::new();
    let id = store.enqueue(&["talk", "--max-attempts", "1"]);
    let script = "talk=printf 'one\\ntwo \\033[31m' >&2; exit 3";
    let said = store.work(&["--json", "--shell", "--exec", script]).err;
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |event: &str| lines.iter().find(|it| it["event"] == event).unwrap();
    assert!(find("started")["message"].is_string());
    assert_eq!(
        (&find("dead_lettered")["job"], &find("ended")["dead_lettered"]),
        (&id.clone().into(), &1.into())
    );
    let words: Vec<_> =
        lines.iter().filter(|it| it["job"] == *id).map(|it| &it["stderr"]).collect();
    assert!(words.contains(&&"one".into()) && words.contains(&&"two \u{1b}[31m".into()), "{said}");
}

#[test]
fn a_type_without_a_handler_is_reported_once() {
    let store = Store::new();
    let ids = [store.enqueue(&["mystery"]), store.enqueue(&["mystery"])];
    let mut worker = store.command(&["worker", "--builtin"]);
    let mut worker = worker.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    for id in &ids {
        until("the release", || store.state(id) == "scheduled");
    }
    signal(&worker, "-TERM");
    let mut said = String::new();
    worker.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(said.matches("no handler for jobs of type mystery").count(), 1, "{said}");
    assert!(said.contains("--exec 'mystery=COMMAND'"), "{said}");
}

#[test]
fn a_program_that_writes_without_end_is_killed_at_the_limit() {
    let store = Store::new();
    let id = store.enqueue(&["endless"]);
    store.work(&["--exec", "endless=yes"]);
    let job = store.inspect(&id);
    assert_eq!((&job["state"], &job["attempts"]), (&"dlq".into(), &1.into()));
    assert!(job["reason"].as_str().unwrap().contains("bytes of output and was killed"), "{job}");
}

#[test]
fn what_a_program_says_is_escaped_wherever_it_goes() {
    let store = Store::new();
    store.enqueue(&["talk"]);
    let script = "talk=printf 'one\\ntwo \\033[31m\\342\\200\\213' >&2";
    let said = store.work(&["--shell", "--exec", script]).err;
    assert!(said.contains("one\ntwo \\u{1b}[31m\\u{200b}\n"), "{said:?}");
}

#[cfg(unix)]
#[test]
fn programs_end_with_a_worker_that_is_killed() {
    let store = Store::new();
    let id = store.enqueue(&["hold"]);
    let (leader, child) = (store.dir().join("leader"), store.dir().join("child"));
    let script = format!(
        "hold=sleep 600 & echo $! > {}; echo $$ > {}; wait",
        child.display(),
        leader.display()
    );
    let mut worker = started(&store, &["--shell", "--exec", &script]);
    let pid = |path| fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'));
    until("the start", || pid(&leader).is_some() && store.state(&id) == "inflight");
    worker.kill().unwrap();
    worker.wait().unwrap();
    for path in [&leader, &child] {
        let pid = pid(path).unwrap();
        until("the end of the program", || !is_alive(pid.trim()));
    }
}
