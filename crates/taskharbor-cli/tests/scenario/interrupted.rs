//! A `move` that is interrupted, and the state after it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Stdio},
    time::Duration,
};

use taskharbor::{Driver, JobId, QueueName};
use taskharbor_core::{JobType, NewJob, driver::Enqueue, job::JobSet};

use super::{
    until,
    worker::{signal, started},
};
use crate::store::Store;

/// A store in which a worker holds a job until it may go on, and a move that waits for that.
struct Waiting {
    from: Store,
    to: Store,
    worker: Child,
    moving: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Waiting {
    fn start() -> Self {
        let (from, to) = (Store::new(), Store::new());
        let id = from.enqueue(&["wait"]);
        let go = from.dir().join("go");
        let script = format!("wait=while [ ! -e {} ]; do sleep 0.02; done", go.display());
        let worker = started(&from, &["--shell", "--exec", &script]);
        until("the start", || from.state(&id) == "inflight");
        let mut moving =
            from.command(&["move", "--from", from.url(), "--to", to.url(), "--wait", "--yes"]);
        let mut moving = moving.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(moving.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "waiting for 1 job that workers hold\n");
        Self { from, to, worker, moving, said }
    }

    /// Lets the job finish, and the worker.
    fn finish(&mut self) {
        fs::write(self.from.dir().join("go"), "").unwrap();
        signal(&self.worker, "-TERM");
        assert_eq!(self.worker.wait().unwrap().code(), Some(0));
    }
}

fn paused(store: &Store) -> Vec<String> {
    let queues = store.lines(&["queue", "list"]).into_iter();
    let paused = queues.filter(|it| it["paused_since"].is_string());
    paused.map(|it| it["queue"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_move_that_is_interrupted_before_anything_was_moved_leaves_nothing_paused() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut waiting = Waiting::start();
        assert!(paused(&waiting.from).contains(&"default".to_owned()));
        signal(&waiting.moving, name);
        assert_eq!(waiting.moving.wait().unwrap().code(), Some(code));
        let mut said = String::new();
        waiting.said.read_to_string(&mut said).unwrap();
        assert!(said.contains("interrupted (nothing was moved"), "{said}");
        assert_eq!((paused(&waiting.from), paused(&waiting.to)), (vec![], vec![]));
        waiting.finish();
    }
}

#[test]
fn a_move_that_was_killed_amid_the_jobs_goes_on_where_it_stopped() {
    const JOBS: usize = 25_000;
    let (from, to) = (Store::new(), Store::new());
    let job = |n: usize| {
        let id = JobId::new(format!("job-{n}")).unwrap();
        NewJob::new(id, QueueName::new("default").unwrap(), JobType::new("t").unwrap(), b"{}")
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let source = from.open().await;
        let now = source.now().await.unwrap();
        let sets = (0..JOBS).map(|n| JobSet::from(job(n))).collect();
        source.enqueue(Enqueue::new(sets, now)).await.unwrap();
        source.close().await.unwrap();
    });
    let urls = ["move", "--from", from.url(), "--to", to.url(), "--yes"];
    let mut moving = from.command(&urls);
    let mut moving = moving.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(moving.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("1") && line.ends_with(" jobs\n"), "{line}");
    moving.kill().unwrap();
    assert_eq!(moving.wait().unwrap().code(), None, "it was not at its end");
    assert_eq!(paused(&to), ["default"]);
    // The jobs run in one store. A third one does not get them meanwhile.
    let other = Store::new();
    let elsewhere = from.run(&["move", "--from", from.url(), "--to", other.url(), "--yes"]);
    assert!(elsewhere.err.contains("were moved to another store"), "{elsewhere:?}");
    let report = from.json(&urls);
    let [moved, existed] = ["moved", "existed"].map(|name| report[name].as_u64().unwrap());
    assert!(existed >= 10_000 && moved > 0, "{report}");
    assert_eq!((moved + existed, &report["compared"]), (JOBS as u64, &JOBS.into()), "{report}");
    assert!(paused(&to).is_empty());
}

#[test]
fn a_move_that_was_killed_before_its_first_job_arrived_can_be_repeated() {
    let (from, to, other) = (Store::new(), Store::new(), Store::new());
    from.enqueue(&["t"]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let (source, destination) = (from.open().await, to.open().await);
        let since = source.now().await.unwrap().saturating_sub(Duration::from_secs(60));
        let queue = |name: &str| QueueName::new(name).unwrap();
        for name in ["taskharbor-move", "taskharbor-move.copied", "default"] {
            source.pause(queue(name), since).await.unwrap();
        }
        destination.pause(queue("default"), since).await.unwrap();
        source.close().await.unwrap();
        destination.close().await.unwrap();
    });
    let elsewhere = from.run(&["move", "--from", from.url(), "--to", other.url(), "--yes"]);
    assert!(elsewhere.err.contains("were moved to another store"), "{elsewhere:?}");
    let moved = from.run(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
    assert_eq!((moved.code, &*moved.err), (Some(0), ""), "{moved:?}");
    assert!(paused(&to).is_empty());
}

#[test]
fn a_move_that_was_killed_is_taken_up_again_and_lets_the_destination_go() {
    let mut waiting = Waiting::start();
    waiting.moving.kill().unwrap();
    waiting.moving.wait().unwrap();
    waiting.finish();
    let Waiting { from, to, .. } = waiting;
    assert_eq!(paused(&to), ["default"]);
    let again = from.run(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("looking whether it still runs"), "{again:?}");
    assert!(paused(&to).is_empty());
    assert!(paused(&from).contains(&"default".to_owned()));
    // More of the same, and all the way back.
    from.enqueue(&["t"]);
    let more = from.run(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
    assert_eq!((more.code, &*more.err), (Some(0), ""), "{more:?}");
    assert!(paused(&to).is_empty());
    let back = from.run(&["move", "--from", to.url(), "--to", from.url(), "--yes"]);
    assert_eq!((back.code, &*back.err), (Some(0), ""), "{back:?}");
    assert!(paused(&from).is_empty(), "{:?}", paused(&from));
}

#[test]
fn a_move_may_end_between_any_two_pauses() {
    for (in_source, in_destination) in [(true, false), (false, true)] {
        let (from, to) = (Store::new(), Store::new());
        from.enqueue(&["t"]);
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let (source, destination) = (from.open().await, to.open().await);
            let since = source.now().await.unwrap().saturating_sub(Duration::from_secs(60));
            let queue = |name: &str| QueueName::new(name).unwrap();
            source.pause(queue("taskharbor-move"), since).await.unwrap();
            if in_source {
                source.pause(queue("default"), since).await.unwrap();
            }
            if in_destination {
                destination.pause(queue("default"), since).await.unwrap();
            }
            source.close().await.unwrap();
            destination.close().await.unwrap();
        });
        let moved = from.run(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
        assert_eq!((moved.code, &*moved.err), (Some(0), ""), "{moved:?}");
        assert!(paused(&to).is_empty());
    }
}

#[test]
fn of_two_moves_of_one_store_one_is_refused_and_the_other_is_not_disturbed() {
    let mut waiting = Waiting::start();
    let (from, to, other) = (&waiting.from, &waiting.to, Store::new());
    for to in [to, &other] {
        let second = from.run(&["move", "--from", from.url(), "--to", to.url(), "--wait", "--yes"]);
        assert_eq!(second.code, Some(4), "{second:?}");
        assert!(second.err.contains("another move of this store is running"), "{second:?}");
    }
    assert!(paused(from).contains(&"default".to_owned()));
    waiting.finish();
    assert_eq!(waiting.moving.wait().unwrap().code(), Some(0));
    let left = paused(&waiting.from);
    assert!(
        left.iter().all(|name| !name.contains(".lock") && !name.contains(".alive")),
        "{left:?}"
    );
    assert!(paused(&waiting.to).is_empty());
}

#[test]
fn jobs_that_were_moved_are_not_moved_to_another_store() {
    let (from, to, other) = (Store::new(), Store::new(), Store::new());
    from.enqueue(&["t"]);
    from.ok(&["move", "--from", from.url(), "--to", to.url(), "--yes"]);
    let elsewhere = ["move", "--from", from.url(), "--to", other.url(), "--yes"];
    let refused = from.run(&elsewhere);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("were moved to another store"), "{refused:?}");
    assert!(paused(&other).is_empty());
    from.ok(&["queue", "resume", "taskharbor-move.copied"]);
    assert_eq!(from.run(&elsewhere).code, Some(0));
}

#[test]
fn an_error_of_a_move_says_which_store_it_is_about() {
    let (from, nowhere) = (Store::new(), "postgres://taskharbor@127.0.0.1:1/jobs");
    from.enqueue(&["t"]);
    let to = from.run(&["move", "--from", from.url(), "--to", nowhere, "--yes"]);
    assert_eq!(to.code, Some(5), "{to:?}");
    assert!(to.err.contains("the destination, postgres://127.0.0.1:1/jobs: "), "{to:?}");
    let back = from.run(&["move", "--from", nowhere, "--to", from.url(), "--yes"]);
    assert!(back.err.contains("the source, postgres://127.0.0.1:1/jobs: "), "{back:?}");
}
