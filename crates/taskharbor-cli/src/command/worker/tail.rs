//! The standard error of a program: passed on as it comes, with its end kept as the error.

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::stderr;

/// How much of standard error is kept as the error.
const TAIL: usize = 4 * 1024;
/// So much of a line is passed on in one piece.
const LINE: usize = 16 * 1024;

/// The end of standard error, all of which is passed on.
pub(super) struct Tail {
    job: String,
    kept: Vec<u8>,
    /// What has come of a line that is not whole yet. A job may have put the words into the program's
    /// mouth, so lines are made safe for a terminal, wherever they go.
    line: Vec<u8>,
}

#[derive(Serialize)]
struct Line<'a> {
    job: &'a str,
    stderr: &'a str,
}

impl Tail {
    /// That of a program which runs this job.
    pub(super) fn of(job: &str) -> Self {
        Self { job: job.to_owned(), kept: Vec::new(), line: Vec::new() }
    }

    pub(super) async fn pass_on(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut piece = [0; 4 * 1024];
        while let Ok(count @ 1..) = from.read(&mut piece).await {
            self.take(&piece[..count]);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        let surplus = self.kept.len().saturating_sub(TAIL);
        self.kept.drain(..surplus);
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
            }
            if byte == b'\n' || self.line.len() == LINE {
                self.speak_line();
            }
        }
    }

    fn speak_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let stderr = String::from_utf8_lossy(&line);
        stderr::note(&Line { job: &self.job, stderr: &stderr }, &stderr);
    }

    /// What is kept, when there is nothing more to come.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).trim().to_owned()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.speak_line();
        }
    }
}
