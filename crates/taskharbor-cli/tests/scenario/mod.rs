//! The command as its users run it, on the kind of store that the test program has chosen.

mod act;
mod bad;
mod dlq;
mod doctor;
mod enqueue;
mod flow;
mod guide;
mod handler;
mod hostile;
mod interrupted;
mod limit;
mod look;
pub(crate) mod said;
mod schedule;
mod serve;
mod store_command;
mod transfer;
pub(crate) mod worker;
mod workers;

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::store::Store;

/// What the command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program, with nothing in its environment that changes what it does.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskharbor"));
    let variables = ["NO_COLOR", "RUST_BACKTRACE", "TASKHARBOR_URL", "DATABASE_URL", "PGPASSWORD"];
    for variable in variables {
        command.env_remove(variable);
    }
    command
}

impl Store {
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.env("TASKHARBOR_URL", self.url()).args(args).current_dir(self.dir());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Answer {
        answer(&mut self.command(args))
    }

    /// What a command that succeeds has written.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let Answer { code, out, err } = self.run(args);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        out
    }

    /// The document that a command has written.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--json"]].concat());
        assert_eq!(out.lines().count(), 1, "one document: {out}");
        serde_json::from_str(&out).unwrap()
    }

    /// The list that a command has written.
    pub(crate) fn lines(&self, args: &[&str]) -> Vec<Value> {
        let out = self.ok(&[args, &["--json"]].concat());
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Stores a job; its id.
    pub(crate) fn enqueue(&self, args: &[&str]) -> String {
        let id = self.ok(&[&["enqueue"], args].concat()).trim().to_owned();
        assert!(!id.is_empty() && !id.contains(char::is_whitespace), "{id:?}");
        id
    }

    /// Runs all that is to be run.
    pub(crate) fn work(&self, args: &[&str]) -> Answer {
        let fast = ["worker", "--until-idle", "--retry-base", "1ms", "--retry-max", "1ms"];
        let answer = self.run(&[&fast, args].concat());
        assert_eq!(answer.code, Some(0), "{answer:?}");
        answer
    }

    pub(crate) fn inspect(&self, id: &str) -> Value {
        self.json(&["inspect", id])
    }

    pub(crate) fn state(&self, id: &str) -> String {
        self.inspect(id)["state"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn answer(command: &mut Command) -> Answer {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    Answer { code: status.code(), out, err }
}

/// Runs a command with this as its standard input.
pub(crate) fn piped(command: &mut Command, input: &[u8]) -> Answer {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    Answer { code: status.code(), out, err }
}

/// Waits for something that another process will do.
#[expect(clippy::disallowed_methods, reason = "other processes are looked at now and then")]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} never happened");
}
