//! The end of a whole process, whose program is like that of the README.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};

use taskharbor::{AnyDriver, Client, Context, Handlers, JobResult, Worker, WorkerError};
use taskharbor_memory::MemoryDriver;

use crate::rig::{Work, work};

/// Says to the process of a test that it is the program.
const PROGRAM: &str = "TASKHARBOR_TEST_EXIT";
/// Long after this a process that is still there is taken for one that stays for ever.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

async fn blocks(_: Work, _: Context) -> JobResult<u64> {
    println!("blocked");
    loop {
        std::thread::park();
    }
}

async fn blocks_beside(_: Work, _: Context) -> JobResult<u64> {
    taskharbor::blocking(|| -> JobResult<u64> {
        println!("blocked");
        loop {
            std::thread::park();
        }
    })
    .await
}

#[taskharbor::main]
async fn program(handlers: Handlers) -> Result<(), WorkerError> {
    let driver = AnyDriver::new(MemoryDriver::new());
    Client::new(&driver).enqueue(work("a")).await.unwrap();
    let worker = Worker::builder(&driver).handlers(handlers).queue("default", 1);
    // So that the test does not wait for the defaults.
    let worker = worker.grace(Duration::ZERO).cancel_wait(Duration::from_millis(10));
    worker.build().unwrap().run().await
}

/// Not a test by itself: what the processes below run.
#[test]
fn a_process_that_is_the_program() {
    match env::var(PROGRAM).as_deref() {
        Ok("blocks") => program(Handlers::new().on(blocks)).unwrap(),
        Ok(_) => program(Handlers::new().on(blocks_beside)).unwrap(),
        Err(_) => {}
    }
}

/// Starts the program, and waits until its handler blocks a thread.
fn start(program: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "exit::a_process_that_is_the_program", "--nocapture"]);
    let mut child = command.env(PROGRAM, program).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("blocked")), "it ended before it began");
    // What it says from here on must find a reader.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// How the process ended; it is killed if it does not.
fn ended(mut child: Child) -> Option<ExitStatus> {
    let (pid, (told, end)) = (child.id().to_string(), mpsc::channel());
    std::thread::spawn(move || told.send(child.wait().unwrap()));
    let status = end.recv_timeout(WAIT_LIMIT).ok();
    if status.is_none() {
        Command::new("kill").args(["-KILL", &pid]).status().unwrap();
    }
    status
}

#[test]
fn a_process_ends_after_its_worker_although_a_handler_blocks_a_thread() {
    for program in ["blocks", "blocks beside"] {
        let child = start(program);
        let term = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(term.unwrap().success());
        let status = ended(child).expect("the process is still there");
        assert!(status.success(), "{program}: {status}");
    }
}
