//! Workers in processes of their own that are killed again and again while a large chord runs.
//!
//! The store is given by its address, so that any that several processes can use may be put to the
//! test.

use std::{
    env,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, Client, Context, Exponential, Failure, Flow, FlowState, Handlers, Job, JobError,
    JobResult, Worker, connect,
};
use tokio::time::{Instant, sleep, timeout};

/// Says where the store is to a process that is a worker.
const STORE: &str = "TASKHARBOR_CRASH_STORE";
const MEMBERS: u32 = 1_000;
const WORKERS: usize = 3;

/// Produces twice its number; some fail at first, some permanently.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "crash:member", output = u32)]
struct Member {
    number: u32,
}

/// Takes the outcomes of the members. Its output is how many failed, and the mistakes in the others.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "crash:end", input = Vec<Result<u32, Failure>>, output = (usize, Vec<u32>))]
struct End;

fn fails(number: u32) -> bool {
    number % 100 == 7
}

async fn member(job: Member, cx: Context) -> JobResult<u32> {
    sleep(Duration::from_millis(40)).await;
    if fails(job.number) {
        return Err(JobError::unrecoverable("it always does"));
    }
    if cx.attempt() == 1 && job.number.is_multiple_of(9) {
        return Err(JobError::from("it does the first time"));
    }
    Ok(2 * job.number)
}

async fn end(job: End, cx: Context) -> JobResult<(usize, Vec<u32>)> {
    let outcomes = cx.input(&job)?;
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let wrong = (0..).zip(&outcomes).filter(|(n, outcome)| match outcome {
        Ok(value) => *value != 2 * n,
        Err(_) => !fails(*n),
    });
    Ok((failed, wrong.map(|(n, _)| n).collect()))
}

/// A worker until it is killed, in a process that was started for it; in any other there is nothing
/// to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_a_worker() {
    let Ok(url) = env::var(STORE) else { return };
    let driver = connect(&url).await.unwrap();
    let retry = Exponential::new().base(Duration::from_millis(20));
    let worker = Worker::builder(&driver)
        .handlers(Handlers::new().on(member).on(end))
        .queue("default", 8)
        .lease(Duration::from_secs(2))
        .heartbeat(Duration::from_millis(500))
        .poll(Duration::from_millis(200))
        .crash_limit(1_000)
        .retry(retry)
        .build()
        .unwrap();
    worker.run().await.unwrap();
}

fn worker(url: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "crash::a_process_that_is_a_worker", "--nocapture"]);
    command.env(STORE, url).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Runs the chord on the store at this address, whose workers live a second each.
pub(crate) async fn survives(url: &str) {
    let driver = connect(url).await.unwrap();
    driver.migrate().await.unwrap();
    let client = Client::new(&driver);
    let members = (0..MEMBERS).map(|number| Member { number });
    let handle = client.start(Flow::gather(members).then(End)).await.unwrap();
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| worker(url)).collect();
    let mut killed = 0;
    let began = Instant::now();
    while handle.status().await.unwrap().state == FlowState::Running {
        assert!(began.elapsed() < Duration::from_secs(45), "{}", handle.tree(100).await.unwrap());
        sleep(Duration::from_secs(1)).await;
        let oldest = killed % WORKERS;
        workers[oldest].kill().unwrap();
        workers[oldest].wait().unwrap();
        killed += 1;
        workers[oldest] = worker(url);
    }
    let outcome = timeout(Duration::from_secs(5), handle.wait()).await.unwrap().unwrap();
    for mut worker in workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let (failed, wrong) = outcome;
    assert_eq!((failed, wrong), (10, vec![]), "after {killed} workers were killed");
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FlowState::Done);
    // The members that were done, the join, the finalizer.
    assert_eq!((status.members.done, status.members.dlq), (992, 10));
    assert_eq!(status.members.total(), 1_002);
    assert!(killed >= 2, "the chord was done before two workers were killed");
    assert_eq!(driver.check().await.unwrap(), []);
}
