//! Child processes that execute a line of input and answer with a line: `ok <figure>…` or `error <reason>`.

use std::{ffi::OsStr, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{self, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::Outcome;

/// No command takes longer, unless it hangs.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// A process that is killed when it is dropped.
pub(crate) struct Child {
    process: process::Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(program: &OsStr, arguments: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process =
            command.spawn().map_err(|error| format!("cannot start {program:?}: {error}"))?;
        let input = process.stdin.take().ok_or("no standard input")?;
        let output = process.stdout.take().ok_or("no standard output")?;
        Ok(Self { process, input, answers: BufReader::new(output).lines() })
    }

    pub(crate) fn pid(&self) -> Outcome<u32> {
        self.process.id().ok_or_else(|| "the process has ended".into())
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn ask(&mut self, line: &str) -> Outcome<f64> {
        self.send(line).await?;
        self.answer().await
    }

    pub(crate) async fn send(&mut self, line: &str) -> Outcome {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    pub(crate) async fn answer(&mut self) -> Outcome<f64> {
        let figures = self.figures(COMMAND_TIMEOUT).await?;
        figures.first().copied().ok_or_else(|| "no figure".into())
    }

    /// All figures of an answer that comes in time.
    pub(crate) async fn figures(&mut self, limit: Duration) -> Outcome<Vec<f64>> {
        let line = timeout(limit, self.answers.next_line()).await;
        let line = line.map_err(|_| format!("no answer within {limit:?}"))??;
        let line = line.ok_or("the process has ended")?;
        match line.split_once(' ') {
            Some(("ok", figures)) => {
                Ok(figures.split(' ').map(str::parse).collect::<Result<_, _>>()?)
            }
            Some(("error", reason)) => Err(reason.into()),
            _ => Err(line.into()),
        }
    }
}

/// Lets all of them do the same at the same time; answers the sum of their figures.
pub(crate) async fn ask_all(children: &mut [Child], line: &str) -> Outcome<f64> {
    for child in children.iter_mut() {
        child.send(line).await?;
    }
    let mut sum = 0.0;
    for child in children {
        sum += child.answer().await?;
    }
    Ok(sum)
}
