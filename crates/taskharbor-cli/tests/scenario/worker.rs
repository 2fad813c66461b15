//! `worker`: programs as handlers.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use taskharbor::{Driver, Incarnation};
use taskharbor_core::{Blob, driver::Announce, name::Holder};

use super::{answer, said::Said, until};
use crate::store::Store;

/// A worker that is known to listen for signals.
pub(crate) fn started(store: &Store, args: &[&str]) -> Child {
    heard(store, args).0
}

/// A worker that is known to listen for signals, and what it says from then on.
pub(crate) fn heard(store: &Store, args: &[&str]) -> (Child, Said) {
    let mut worker = store.command(&[&["worker"], args].concat());
    let mut worker = worker.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = Said::by(&mut worker);
    said.until("started");
    (worker, said)
}

pub(crate) fn signal(worker: &Child, signal: &str) {
    let kill = Command::new("kill").args([signal, &worker.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

#[test]
fn a_program_gets_the_job_and_its_output_is_kept() {
    let store = Store::new();
    let script = "cat; printf ' %s %s %s %s %s' $TASKHARBOR_JOB_ID $TASKHARBOR_JOB_TYPE $TASKHARBOR_QUEUE $TASKHARBOR_ATTEMPT $TASKHARBOR_HEADER_TRACE_ID";
    let id = store.enqueue(&["up:case", "\"hello\"", "--queue", "q", "--header", "trace-id=t7"]);
    store.work(&["--shell", "--exec", &format!("up:case={script}"), "--queue", "q"]);
    let job = store.inspect(&id);
    assert_eq!(job["state"], "done");
    let output = job["output_base64"].as_str().map(str::to_owned).unwrap_or_default();
    let output = String::from_utf8(decode(&output)).unwrap();
    assert_eq!(output, format!("\"hello\" {id} up:case q 1 t7"));
}

fn decode(text: &str) -> Vec<u8> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.decode(text).unwrap()
}

#[test]
fn a_worker_says_how_long_its_shutdown_takes() {
    let store = Store::new();
    let mut worker = store.command(&["worker", "--builtin", "--grace", "3s"]);
    let mut worker = worker.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = Said::by(&mut worker);
    said.until("its shutdown takes 13s at most");
    signal(&worker, "-TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
}

#[test]
fn a_quiet_worker_finishes_its_jobs_and_takes_no_more() {
    let store = Store::new();
    let running = store.enqueue(&["wait"]);
    let go = store.dir().join("go");
    let script = format!("wait=until [ -e {go} ]; do sleep 0.02; done", go = go.display());
    let (mut worker, mut said) = heard(&store, &["--shell", "--exec", &script]);
    until("the start", || store.state(&running) == "inflight");
    signal(&worker, "-USR1");
    said.until("taking no more jobs, and going on with 1 job");
    let late = store.enqueue(&["wait"]);
    fs::write(&go, "").unwrap();
    until("the end", || store.state(&running) == "done");
    assert_eq!(store.state(&late), "ready");
    signal(&worker, "-TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(store.inspect(&late)["deliveries"], 0);
}

#[test]
fn a_job_of_an_unknown_type_is_dead_lettered_when_its_time_has_ended() {
    let store = Store::new();
    let unknown = store.enqueue(&["unknown"]);
    store.work(&["--builtin", "--missing-handler-wait", "0s"]);
    let job = store.inspect(&unknown);
    assert_eq!((&job["state"], &job["deliveries"]), (&"dlq".into(), &1.into()), "{job}");
    assert_eq!(job["reason"], "no handler for job type \"unknown\" is registered");
}

#[test]
fn without_a_shell_nothing_is_expanded() {
    let store = Store::new();
    let id = store.enqueue(&["say"]);
    store.work(&["--exec", "say=printf %s '$HOME; rm'"]);
    let output = store.inspect(&id)["output_base64"].as_str().unwrap().to_owned();
    assert_eq!(decode(&output), b"$HOME; rm");
}

#[test]
fn exit_codes_say_what_becomes_of_the_job() {
    let store = Store::new();
    let of = |code: &str| store.enqueue(&["exit", code, "--max-attempts", "2"]);
    let (ok, bad, fails) = (of("0"), of("65"), of("3"));
    store.work(&[
        "--shell",
        "--exec",
        "exit=read code; echo \"about to end with $code\" >&2; exit $code",
    ]);
    let job = |id: &str| store.inspect(id);
    assert_eq!(job(&ok)["state"], "done");
    assert_eq!(job(&ok)["output"], serde_json::Value::Null);
    assert_eq!((&job(&bad)["state"], &job(&bad)["attempts"]), (&"dlq".into(), &1.into()));
    let failed = job(&fails);
    assert_eq!((&failed["state"], &failed["attempts"]), (&"dlq".into(), &2.into()));
    assert_eq!(failed["last_error"], "exit code 3: about to end with 3");
}

#[test]
fn later_and_the_operators_mistakes_cost_no_attempt() {
    let store = Store::new();
    let later = store.enqueue(&["later", "--max-attempts", "1"]);
    let missing = store.enqueue(&["missing", "--max-attempts", "1"]);
    let not_there = store.enqueue(&["shell-missing", "--max-attempts", "1"]);
    let unknown = store.enqueue(&["unknown", "--max-attempts", "1"]);
    let worker = started(
        &store,
        &[
            "--exec",
            "later=sh -c 'exit 75'",
            "--exec",
            "missing=/no/such/program",
            "--exec",
            "shell-missing=sh -c 'exit 127'",
        ],
    );
    for id in [&later, &missing, &not_there, &unknown] {
        until("the release", || store.state(id) == "scheduled");
        let job = store.inspect(id);
        assert_eq!(&job["attempts"], &0, "{job}");
        // A job of an unknown type comes back after a second.
        assert!(job["deliveries"] == 1 || *id == unknown, "{job}");
    }
    signal(&worker, "-TERM");
    assert_eq!(worker.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn only_the_end_of_a_long_complaint_is_kept() {
    let store = Store::new();
    let id = store.enqueue(&["noisy", "--max-attempts", "1"]);
    store.work(&[
        "--shell",
        "--exec",
        "noisy=yes complaint | head -c 100000 >&2; echo the end >&2; exit 1",
    ]);
    let error = store.inspect(&id)["last_error"].as_str().unwrap().to_owned();
    assert!(error.len() < 4_200 && error.ends_with("the end"), "{} bytes", error.len());
}

#[test]
fn a_program_that_does_not_read_its_input_is_fine() {
    let store = Store::new();
    fs::write(store.dir().join("large"), vec![b'x'; 500_000]).unwrap();
    let id = store.enqueue(&["deaf", "@large"]);
    store.work(&["--exec", "deaf=true"]);
    assert_eq!(store.state(&id), "done");
}

#[test]
fn a_program_gets_neither_the_url_of_the_store_nor_the_token_of_a_server() {
    let store = Store::new();
    let id = store.enqueue(&["env"]);
    let script = r#"env=printf '"%s %s"' "${TASKHARBOR_URL-none}" "${TASKHARBOR_TOKEN-none}""#;
    let mut worker = store.command(&["worker", "--until-idle", "--shell", "--exec", script]);
    let ended = answer(worker.env("TASKHARBOR_TOKEN", "canary"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(store.inspect(&id)["output"], "none none");
}

#[test]
fn a_timeout_ends_all_that_the_program_started() {
    let store = Store::new();
    let pid = store.dir().join("pid");
    let id = store.enqueue(&["slow", "--timeout", "300ms", "--max-attempts", "1"]);
    let script = format!("sleep 1000 & echo $! > {}; wait", pid.display());
    store.work(&["--shell", "--exec", &format!("slow={script}")]);
    let job = store.inspect(&id);
    assert_eq!(job["state"], "dlq");
    assert!(job["last_error"].as_str().unwrap().contains("timed out after 300ms"), "{job}");
    let pid = fs::read_to_string(pid).unwrap();
    until("the end of the child", || !is_alive(pid.trim()));
}

/// Whether a process runs; one that waits to be reaped does not.
pub(super) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

#[test]
fn the_first_signal_lets_jobs_finish_and_ends_with_0() {
    let store = Store::new();
    let go = store.dir().join("go");
    let id = store.enqueue(&["wait"]);
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done", go.display());
    let worker = started(&store, &["--shell", "--exec", &format!("wait={script}")]);
    until("the start", || store.state(&id) == "inflight");
    let waiting = store.enqueue(&["wait"]);
    until("the second start", || store.state(&waiting) == "inflight");
    signal(&worker, "-TERM");
    fs::write(&go, "").unwrap();
    assert_eq!(worker.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!((store.state(&id), store.state(&waiting)), ("done".into(), "done".into()));
}

#[test]
fn the_second_signal_gives_jobs_back_and_ends_with_130() {
    let store = Store::new();
    let pid = store.dir().join("pid");
    let id = store.enqueue(&["wait", "--max-attempts", "1"]);
    let script = format!("echo $$ > {}; sleep 1000", pid.display());
    let worker = started(&store, &["--shell", "--exec", &format!("wait={script}")]);
    until("the start", || fs::read_to_string(&pid).is_ok_and(|it| !it.trim().is_empty()));
    signal(&worker, "-INT");
    signal(&worker, "-INT");
    let mut worker = worker;
    until("the end", || {
        // Two signals in one moment may be one.
        let ended = worker.try_wait().unwrap().is_some();
        if !ended {
            signal(&worker, "-INT");
        }
        ended
    });
    assert_eq!(worker.wait().unwrap().code(), Some(130));
    until("the end of the program", || !is_alive(fs::read_to_string(&pid).unwrap().trim()));
    let job = store.inspect(&id);
    assert_eq!(job["attempts"], 0, "{job}");
}

#[test]
fn two_workers_share_a_store_and_no_job_runs_twice() {
    let store = Store::new();
    let log = store.dir().join("log");
    store.ok(&["enqueue", "note", "--count", "40"]);
    let script = format!("note=echo $TASKHARBOR_JOB_ID >> {}", log.display());
    let one = || {
        let args = ["worker", "--shell", "--exec", &script, "--until-idle"];
        store.command(&args).stderr(Stdio::null()).spawn().unwrap()
    };
    for mut worker in [one(), one()] {
        assert!(worker.wait().unwrap().success());
    }
    let log = fs::read_to_string(log).unwrap();
    let mut ids: Vec<_> = log.lines().collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), log.lines().count()), (40, 40));
}

/// A worker that says what happens as JSON.
fn heard_as_json(store: &Store, name: &str, args: &[&str]) -> (Child, Said) {
    let args = [&["worker", "--builtin", "--json", "--name", name], args].concat();
    let mut worker = store.command(&args);
    let mut worker = worker.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let said = Said::by(&mut worker);
    (worker, said)
}

#[tokio::test]
async fn a_shared_name_and_an_evicted_worker_are_reported() {
    let store = Store::new();
    let driver = store.open().await;
    let an_hour_ago = driver.now().await.unwrap().saturating_sub(Duration::from_secs(3_600));
    let (gone, incarnation) = (Holder::new("gone").unwrap(), Incarnation::from_bits(7));
    let info = Blob::from(b"{}");
    let announced = Announce::new(gone, incarnation, info, Duration::from_secs(30), an_hour_ago);
    driver.announce(announced).await.unwrap();
    let (first, _said) = heard(&store, &["--builtin", "--name", "twin"]);
    let (second, mut said) = heard_as_json(&store, "twin", &[]);
    said.until(r#"{"event":"name_shared","message":"another worker is called twin"#);
    let (third, mut said) = heard_as_json(&store, "third", &["--fast-recovery", "3s"]);
    said.until(r#"{"event":"worker_evicted","message":"worker gone did not announce itself"#);
    for mut worker in [first, second, third] {
        signal(&worker, "-TERM");
        assert!(worker.wait().unwrap().success());
    }
}
