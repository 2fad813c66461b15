//! Standard error: notes beside the output, as text or as lines of JSON.
//!
//! A command writes there directly. A worker must not stand still when its standard error is a pipe
//! that is not read, so it passes everything to one thread. While the pipe is full, that thread
//! waits, and lines for which the buffer has no room are left out.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde::Serialize;

use crate::{clean, json};

/// The size of the buffer in bytes.
const BUFFER_BYTES: usize = 256 * 1024;
/// How long the end of the process waits for the buffer to be written.
const FINISH_WAIT: Duration = Duration::from_secs(1);

/// Whether notes are written as JSON.
static JSON: AtomicBool = AtomicBool::new(false);
static WRITER: Writer = Writer::new();

/// The buffer, and the thread that writes it.
struct Writer {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Bytes that were left out since the last notice about that.
    left_out: usize,
    /// Whether there is a thread that writes.
    is_served: bool,
    is_writing: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    message: &'a str,
}

#[derive(Serialize)]
struct LeftOut {
    left_out_bytes: usize,
}

/// From now on notes are written as JSON.
pub(crate) fn set_json() {
    JSON.store(true, Ordering::Relaxed);
}

fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Writes a message for people.
pub(crate) fn tell(text: &str) {
    note(&Message { message: text }, text);
}

/// Writes this value with `--json`, else this text.
pub(crate) fn note(value: &impl Serialize, text: &str) {
    let mut line = match json::text(value) {
        Ok(line) if is_json() => line,
        _ => clean::lines(text),
    };
    line.push('\n');
    write(line.as_bytes());
}

/// Writes bytes as they are, and ignores errors.
pub(crate) fn write(bytes: &[u8]) {
    WRITER.write(bytes);
}

/// From now on writing never waits for the reader.
pub(crate) fn detach() {
    let mut state = WRITER.lock();
    if !state.is_served {
        // Without a thread everything is written directly.
        let thread = thread::Builder::new().name("taskharbor-stderr".to_owned());
        state.is_served = thread.spawn(|| WRITER.serve()).is_ok();
    }
}

/// Waits a bounded time until everything is written.
pub(crate) fn finish() {
    let state = WRITER.lock();
    let is_busy = |state: &mut State| {
        state.is_served && (state.is_writing || state.left_out > 0 || !state.pieces.is_empty())
    };
    drop(WRITER.changed.wait_timeout_while(state, FINISH_WAIT, is_busy));
}

impl Writer {
    const fn new() -> Self {
        let state = State {
            pieces: VecDeque::new(),
            bytes: 0,
            left_out: 0,
            is_served: false,
            is_writing: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn write(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if !state.is_served {
            drop(state);
            let _ = io::stderr().write_all(bytes);
            return;
        }
        state.push(bytes);
        drop(state);
        self.changed.notify_all();
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            let Some(piece) = state.next() else {
                state.is_writing = false;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.is_writing = true;
            drop(state);
            let _ = io::stderr().write_all(&piece);
            state = self.lock();
        }
    }

    /// Every critical section leaves the data whole at every point.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, bytes: &[u8]) {
        if self.bytes + bytes.len() > BUFFER_BYTES {
            self.left_out += bytes.len();
            return;
        }
        if let Some(notice) = self.notice() {
            self.bytes += notice.len();
            self.pieces.push_back(notice);
        }
        self.bytes += bytes.len();
        self.pieces.push_back(bytes.to_vec());
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.pop_front();
        self.bytes -= piece.as_ref().map_or(0, Vec::len);
        piece.or_else(|| self.notice())
    }

    /// The line in the place of the bytes that were left out.
    fn notice(&mut self) -> Option<Vec<u8>> {
        let left_out_bytes = std::mem::take(&mut self.left_out);
        if left_out_bytes == 0 {
            return None;
        }
        let line = match json::text(&LeftOut { left_out_bytes }) {
            Ok(line) if is_json() => format!("{line}\n"),
            _ => format!(
                "\ntaskharbor: {left_out_bytes} bytes were left out because they were not read in time\n"
            ),
        };
        Some(line.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_fit_are_left_out_and_a_notice_says_so() {
        let mut state = Writer::new().state.into_inner().unwrap();
        state.push(&[b'a'; BUFFER_BYTES]);
        state.push(b"lost");
        state.push(b"too");
        assert_eq!(state.next().unwrap().len(), BUFFER_BYTES);
        state.push(b"heard");
        let notice = String::from_utf8(state.next().unwrap()).unwrap();
        assert!(notice.contains("7 bytes were left out"), "{notice}");
        assert_eq!(state.next().unwrap(), b"heard");
        assert_eq!((state.next(), state.bytes), (None, 0));
    }
}
