//! Tests that apply to files only.

use std::fs;

use taskharbor::{Driver, JobId, QueueName};
use taskharbor_core::{JobType, NewJob, driver::Enqueue, job::JobSet};

use crate::{
    scenario::{
        answer, program, until,
        worker::{heard, signal},
    },
    store::Store,
};

#[test]
fn only_some_commands_make_a_file_and_they_say_so() {
    let store = Store::missing(1_000_000);
    for args in [
        vec!["list"],
        vec!["inspect", "x"],
        vec!["why", "x"],
        vec!["cancel", "x"],
        vec!["requeue", "x"],
        vec!["run-now", "x"],
        vec!["stats"],
        vec!["dlq", "list"],
        vec!["queue", "list"],
        vec!["queue", "limit", "q", "--inflight", "1"],
        vec!["queue", "lanes", "q"],
        vec!["queue", "hold", "q", "--for", "1s"],
        vec!["flow", "list"],
        vec!["schedule", "list"],
        vec!["schedule", "show", "x"],
        vec!["schedule", "pause", "x"],
        vec!["migrate", "status"],
        vec!["migrate", "up"],
        vec!["check"],
        vec!["prune"],
        vec!["backup", "copy.db"],
        vec!["conformance", "--only", "pause"],
    ] {
        let answer = store.run(&args);
        assert_eq!(answer.code, Some(5), "{args:?}: {answer:?}");
        assert!(answer.err.contains("there is no store at"), "{args:?}: {answer:?}");
        assert!(answer.err.contains("enqueue a job or start a worker"), "{args:?}: {answer:?}");
    }
    assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 0, "nothing was made");
    let enqueued = store.run(&["enqueue", "t"]);
    assert_eq!(enqueued.code, Some(0), "{enqueued:?}");
    assert!(enqueued.err.contains("created ") && enqueued.err.contains("jobs.db"), "{enqueued:?}");
    let again = store.run(&["enqueue", "t"]);
    assert_eq!((again.code, &*again.err), (Some(0), ""));
}

#[test]
fn the_default_is_a_file_in_the_current_directory() {
    let store = Store::missing(1_000_001);
    let run = |args: &[&str]| answer(program().args(args).current_dir(store.dir()));
    assert_eq!(run(&["enqueue", "t"]).code, Some(0));
    assert!(store.dir().join("taskharbor.db").exists());
    assert_eq!(run(&["list", "--json"]).out.lines().count(), 1);
    let elsewhere = Store::missing(1_000_002);
    let mut command = program();
    command.args(["list"]).current_dir(elsewhere.dir()).env("DATABASE_URL", "postgres://a:b@c/d");
    let hinted = answer(&mut command);
    assert_eq!(hinted.code, Some(5));
    assert!(hinted.err.contains("DATABASE_URL is set, but is never read"), "{hinted:?}");
}

#[test]
fn what_is_not_ours_is_refused_and_untouched() {
    let store = Store::missing(1_000_003);
    let path = store.dir().join("jobs.db");
    fs::write(&path, "my diary, not a database; keep it as it is, please").unwrap();
    for args in [vec!["list"], vec!["enqueue", "t"], vec!["worker", "--builtin"]] {
        let refused = store.run(&args);
        assert_eq!(refused.code, Some(5), "{args:?}: {refused:?}");
    }
    assert!(fs::read_to_string(&path).unwrap().starts_with("my diary"));
    fs::write(&path, "").unwrap();
    let empty = store.run(&["list"]);
    assert_eq!(empty.code, Some(5), "{empty:?}");
    assert!(empty.err.contains("enqueue a job or start a worker"), "{empty:?}");
    assert!(!empty.err.contains("Config::"), "{empty:?}");
}

#[test]
fn every_command_leaves_one_file_that_holds_everything() {
    let store = Store::missing(1_000_004);
    let files = || {
        let names = fs::read_dir(store.dir()).unwrap().map(|it| it.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    for (args, code) in [
        (vec!["enqueue", "echo"], 0),
        (vec!["enqueue", "echo", "--count", "50"], 0),
        (vec!["worker", "--builtin", "--until-idle"], 0),
        (vec!["stats", "--window", "0s"], 0),
        (vec!["list"], 0),
        (vec!["inspect", "unknown"], 3),
        (vec!["queue", "pause", "resting"], 0),
        (vec!["queue", "limit", "busy", "--inflight", "2"], 0),
        (vec!["queue", "hold", "busy", "--for", "1s"], 0),
        (vec!["queue", "lanes", "busy"], 0),
        (vec!["check"], 0),
        (vec!["dlq", "requeue", "--all", "--yes"], 0),
        (vec!["schedule", "put", "s", "t", "--cron", "@yearly"], 0),
        (vec!["schedule", "list"], 0),
        (vec!["migrate", "status"], 0),
        (vec!["migrate", "up"], 0),
    ] {
        let answer = store.run(&args);
        assert_eq!(answer.code, Some(code), "{args:?}: {answer:?}");
        assert_eq!(files(), ["jobs.db"], "{args:?}");
    }
    let elsewhere = Store::missing(1_000_005);
    fs::rename(store.dir().join("jobs.db"), elsewhere.dir().join("jobs.db")).unwrap();
    assert_eq!(elsewhere.lines(&["list", "--state", "done", "--limit", "100"]).len(), 51);
}

#[cfg(unix)]
#[test]
fn so_does_one_that_is_interrupted() {
    use std::{
        io::{BufRead, BufReader},
        process::Stdio,
    };
    for (with, code) in [("-INT", 130), ("-TERM", 143)] {
        let store = Store::new();
        store.enqueue(&["t"]);
        let mut watch = store.command(&["stats", "--watch", "--json", "--window", "100ms"]);
        let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(watch.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        signal(&watch, with);
        assert_eq!(watch.wait().unwrap().code(), Some(code));
        assert!(!store.dir().join("jobs.db-wal").exists());
    }
}

#[test]
fn what_is_wrong_makes_no_file() {
    let store = Store::missing(1_000_006);
    fs::write(store.dir().join("large"), vec![b'x'; 2 * 1024 * 1024]).unwrap();
    for args in [
        vec!["enqueue", "t", "--max-attempts", "0"],
        vec!["enqueue", "t", "--timeout", "0s"],
        vec!["enqueue", "t", "--timeout", "0s", "--lines"],
        vec!["enqueue", "t", "--timeout", "0s", "--count", "2"],
        vec!["enqueue", "t", "--queue", ""],
        vec!["enqueue", "t", "--lane", ""],
        vec!["enqueue", "t", "@large"],
        vec!["worker", "--builtin", "--queue", ""],
        vec!["worker", "--builtin", "--lease", "1ms"],
        vec!["worker", "--builtin", "--exec", "echo=cat"],
        vec!["schedule", "put", "s", "t"],
        vec!["schedule", "put", "s", "t", "--cron", "61 * * * *"],
        vec!["schedule", "put", "s", "t", "--cron", "@daily", "--zone", "Berlin"],
        vec!["schedule", "put", "s", "t", "--every", "1ms"],
        vec!["schedule", "put", "s", "t", "--every", "1h", "--timeout", "0s"],
        vec!["schedule", "put", "s", "t", "@large", "--every", "1h"],
        vec!["enqueue", "t", "--url", "sqlite:"],
        vec!["enqueue", "t", "--url", ""],
        vec!["list", "--url", ""],
    ] {
        let answer = store.run(&args);
        assert_eq!(answer.code, Some(2), "{args:?}: {answer:?}");
    }
    assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 1, "a file was made");
    let created = store.run(&["enqueue", "t", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&created.err).unwrap();
    assert!(told["created"].as_str().unwrap().ends_with("jobs.db"), "{created:?}");
}

#[test]
fn putting_a_schedule_makes_a_file() {
    let store = Store::missing(1_000_008);
    let put = store.run(&["schedule", "put", "s", "t", "--cron", "@daily"]);
    assert_eq!(put.code, Some(0), "{put:?}");
    assert!(put.err.contains("created ") && put.err.contains("jobs.db"), "{put:?}");
}

#[test]
fn a_schedule_that_cannot_be_read_is_set_aside_and_says_why() {
    let store = Store::new();
    store.ok(&["schedule", "put", "s", "echo", "--every", "1h"]);
    let conn = taskharbor_sqlite::rusqlite::Connection::open(store.dir().join("jobs.db")).unwrap();
    conn.execute("UPDATE th_schedule SET definition = X'00', next_slot = 0", []).unwrap();
    drop(conn);
    let (mut worker, mut said) = heard(&store, &["--builtin"]);
    said.until("schedule s was not fired: the definition cannot be read");
    signal(&worker, "-TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    let shown = store.json(&["schedule", "show", "s"]);
    assert!(shown["problem"].is_string() && shown["when"].is_null(), "{shown}");
    assert!(shown["error"].as_str().unwrap().contains("define the schedule again"), "{shown}");
    let list = store.ok(&["schedule", "list"]);
    assert!(list.contains("unreadable") && list.contains("set aside"), "{list}");
    store.ok(&["schedule", "put", "s", "echo", "--every", "1h"]);
    let again = store.json(&["schedule", "show", "s"]);
    assert!(again["error"].is_null() && again["next_slot"].is_string(), "{again}");
}

#[test]
fn the_schema_is_printed_and_makes_a_store() {
    let store = Store::missing(1_000_007);
    let sql = store.ok(&["migrate", "print"]);
    let conn = taskharbor_sqlite::rusqlite::Connection::open(store.dir().join("jobs.db")).unwrap();
    conn.execute_batch(&sql).unwrap();
    drop(conn);
    assert_eq!(store.json(&["migrate", "status"])["up_to_date"], true);
    store.enqueue(&["t"]);
    assert_eq!(store.ok(&["check"]), "consistent\n");
}

#[test]
fn a_worker_says_why_its_store_is_away_and_goes_on_when_it_is_back() {
    let store = Store::new();
    let (mut worker, mut said) = heard(&store, &["--builtin"]);
    let (path, elsewhere) = (store.dir().join("jobs.db"), store.dir().join("elsewhere.db"));
    fs::rename(&path, &elsewhere).unwrap();
    said.until("was moved or removed while in use: put it back");
    fs::rename(&elsewhere, &path).unwrap();
    said.until("the store is back");
    signal(&worker, "-TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
}

#[test]
fn an_older_store_says_its_version() {
    let store = Store::new();
    let conn = taskharbor_sqlite::rusqlite::Connection::open(store.dir().join("jobs.db")).unwrap();
    conn.execute("UPDATE th_meta SET version = 0", []).unwrap();
    drop(conn);
    let status = store.run(&["migrate", "status"]);
    assert_eq!(status.code, Some(4), "{status:?}");
    assert!(status.out.contains("version 0 is installed; the newest is 1"), "{status:?}");
}

#[cfg(unix)]
#[test]
fn other_users_cannot_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::new();
    let mode = fs::metadata(store.dir().join("jobs.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_file_is_backed_up_with_its_permissions() {
    let store = Store::new();
    let id = store.enqueue(&["echo", "[1]"]);
    let copy = store.dir().join("copy.db");
    let report = store.json(&["backup", copy.to_str().unwrap()]);
    assert_eq!(report["bytes"], fs::metadata(&copy).unwrap().len());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let url = format!("sqlite:{}", copy.display());
    assert!(store.ok(&["list", "--url", &url]).contains(&id));
    let again = store.run(&["backup", copy.to_str().unwrap()]);
    assert_eq!(again.code, Some(5), "{again:?}");
    let database = store.run(&["backup", "copy", "--url", "postgres://db/jobs"]);
    assert_eq!(database.code, Some(2), "{database:?}");
    assert!(database.err.contains("pg_dump"), "{database:?}");
}

#[test]
fn a_backup_while_another_process_commits_is_whole() {
    const JOBS: usize = 20_000;
    let store = Store::new();
    let job = |n: usize| {
        let id = JobId::new(format!("job-{n}")).unwrap();
        NewJob::new(id, QueueName::new("default").unwrap(), JobType::new("echo").unwrap(), b"[1]")
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let driver = store.open().await;
        let sets = (0..JOBS).map(|n| JobSet::from(job(n))).collect();
        driver.enqueue(Enqueue::new(sets, driver.now().await.unwrap())).await.unwrap();
        driver.close().await.unwrap();
    });
    let (mut worker, _said) = heard(&store, &["--builtin"]);
    let done = |url: &str| {
        let stats = store.lines(&["stats", "--window", "0s", "--url", url]);
        let count = |name: &str| stats[0][name].as_u64().unwrap();
        let all = ["ready", "inflight", "done"].map(count).iter().sum::<u64>();
        (count("done"), all)
    };
    until("the first commits", || done(store.url()).0 > 0);
    let copy = store.dir().join("copy.db");
    store.ok(&["backup", copy.to_str().unwrap()]);
    let url = format!("sqlite:{}", copy.display());
    let (copied, all) = done(&url);
    assert!((1..JOBS as u64).contains(&copied), "{copied} were done");
    assert_eq!(all, JOBS as u64);
    store.ok(&["check", "--url", &url]);
    signal(&worker, "-TERM");
    assert!(worker.wait().unwrap().success());
}

#[test]
fn a_file_of_a_newer_version_ends_the_start_of_a_worker_at_once() {
    let store = Store::new();
    let path = store.dir().join("jobs.db");
    let file = taskharbor_sqlite::rusqlite::Connection::open(&path).unwrap();
    file.execute("UPDATE th_meta SET version = 99", []).unwrap();
    drop(file);
    let ended = store.run(&["worker", "--builtin"]);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(ended.err.contains("use a newer version"), "{ended:?}");
}
